"""PMI-1 (RFC 13) as a broker speaks it, with a server that answers what the test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from headrace.engine.broker.boot.pmi_clients import Pmi1Client, PmiError, offers_pmi1

GREETING = {"init": "cmd=response_to_init rc=0 pmi_version=1", "get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=kvs_7"}


def connected(answers: dict[str, str]) -> tuple[Callable[[], Pmi1Client], list[str]]:
    """How to connect to a server with these answers (by command), and what it was asked."""
    ours, its = socket.socketpair()
    asked: list[str] = []

    def serve() -> None:
        with its, its.makefile("rw") as stream:
            for line in stream:
                asked.append(line.rstrip("\n"))
                command = line.split()[0][len("cmd=") :]
                answer = {**GREETING, **answers}.get(command)
                if answer is None:
                    return
                for piece in (answer[:5], answer[5:] + "\n"):
                    stream.write(piece)
                    stream.flush()

    threading.Thread(target=serve, daemon=True).start()
    env = {"PMI_FD": str(ours.detach()), "PMI_RANK": "3", "PMI_SIZE": "8"}
    return lambda: Pmi1Client(env), asked


def test_a_client_says_what_the_standard_wants() -> None:
    answers = {
        "put": "cmd=put_result rc=0",
        "barrier_in": "cmd=barrier_out rc=0",
        "get": "cmd=get_result rc=0 value=a value with = in it",
        "finalize": "cmd=finalize_ack rc=0",
    }
    connect, asked = connected(answers)
    pmi = connect()
    assert (pmi.rank, pmi.size, pmi.kvsname) == (3, 8, "kvs_7")
    pmi.put("headrace.3", "host,key")
    pmi.barrier()
    assert pmi.get("headrace.0") == "a value with = in it"
    pmi.finalize()
    assert asked == [
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=get_my_kvsname",
        "cmd=put kvsname=kvs_7 key=headrace.3 value=host,key",
        "cmd=barrier_in",
        "cmd=get kvsname=kvs_7 key=headrace.0",
        "cmd=finalize",
    ]


def test_a_refusal_is_an_error_and_for_a_lookup_an_empty_answer() -> None:
    pmi = connected({"get": "cmd=get_result rc=-1 msg=key_not_found"})[0]()
    with pytest.raises(PmiError, match="key_not_found"):
        pmi.get("x")
    assert pmi.lookup("x") == ""


def test_a_server_that_goes_away_is_told_of() -> None:
    pmi = connected({})[0]()
    with pytest.raises(PmiError, match="closed the connection"):
        pmi.barrier()


@pytest.mark.parametrize("change", [{"PMI_FD": "x"}, {"PMI_FD": "999999"}, {"PMI_RANK": ""}, {"PMI_SIZE": "none"}])
def test_variables_that_make_no_sense_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(PmiError, match="must be set together"):
        Pmi1Client({"PMI_FD": "999999", "PMI_RANK": "0", "PMI_SIZE": "1", **change})


def test_a_launcher_offers_all_three_variables() -> None:
    env = {"PMI_FD": "3", "PMI_RANK": "0", "PMI_SIZE": "1"}
    assert offers_pmi1(env)
    assert not any(offers_pmi1({key: value for key, value in env.items() if key != gone}) for gone in env)
