"""PMI-2 as Slurm serves it: two clients and the stand-in of the system tests."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from launchers import serve

from headrace.engine.broker.boot.pmi_clients import Pmi2Client, PmiError, offers_pmi2


def test_values_with_every_sign_cross_a_fence() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    threading.Thread(target=serve, args=([its for _ours, its in pairs],), daemon=True).start()
    values = ["höst,key,tcp://1.2.3.4:5,日本", "a;b;;c=d; e"]

    def client(rank: int) -> tuple[int, str, str, str]:
        env = {"PMI_FD": str(pairs[rank][0].detach()), "PMI_RANK": str(rank), "PMI_JOBID": "7.0"}
        pmi = Pmi2Client(env)
        pmi.put(f"k{rank}", values[rank])
        pmi.barrier()
        got = pmi.size, pmi.get(f"k{1 - rank}"), pmi.lookup("PMI_process_mapping"), pmi.lookup("nosuch")
        with pytest.raises(PmiError, match="nosuch was not put"):
            pmi.get("nosuch")
        pmi.finalize()
        return got

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(client, range(2))) == [(2, values[1 - rank], "(vector,(0,1,2))", "") for rank in range(2)]


def answering(body: str, head: str | None = None) -> dict[str, str]:
    """Variables that lead to a server with one answer, which then goes away."""
    ours, its = socket.socketpair()

    def serve_once() -> None:
        with its:
            its.recv(4096)
            its.sendall(((f"{len(body):6d}" if head is None else head) + body).encode())

    threading.Thread(target=serve_once, daemon=True).start()
    return {"PMI_FD": str(ours.detach()), "PMI_RANK": "0"}


@pytest.mark.parametrize(
    ("env", "text"),
    [
        (answering("cmd=fullinit-response;rc=14;errmsg=no such job;"), "no such job"),
        (answering("cmd=fullinit-response;rc=0;"), "no size"),
        (answering("cmd=other-response;rc=0;size=3;"), "fullinit: "),
        (answering("", "  what"), "fullinit: "),
        (answering("cmd", "   100"), "closed the connection"),
        ({"PMI_FD": "x", "PMI_RANK": "0"}, "must be set together"),
        ({"PMI_RANK": "0"}, "must be set together"),
    ],
)
def test_a_server_that_does_not_play_along_is_an_error(env: dict[str, str], text: str) -> None:
    with pytest.raises(PmiError, match=text):
        Pmi2Client(env)


def test_only_slurms_launcher_is_taken_for_one() -> None:
    env = {"SLURM_STEP_ID": "0", "PMI_FD": "3", "PMI_RANK": "0"}
    assert offers_pmi2(env)
    assert not any(offers_pmi2({key: value for key, value in env.items() if key != gone}) for gone in env)
