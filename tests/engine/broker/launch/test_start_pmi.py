"""The PMI exchange of brokers that `flux start` runs as programs: real clients, threads in the brokers' stead."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

import pytest

from headrace.engine.broker.boot.pmi_clients import Pmi1Client, PmiError
from headrace.engine.broker.launch.start_pmi import StartPmi


class Loop:
    """Runs readers until none is left."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, readable: Callable[[], None] | None) -> None:
        if readable is None:
            del self.readers[fd]
        else:
            self.readers[fd] = readable

    def run(self) -> None:
        while self.readers:
            for fd in select.select(list(self.readers), [], [], 10)[0]:
                if fd in self.readers:
                    self.readers[fd]()


def exchange(loop: Loop, size: int, trace: bool = False) -> tuple[StartPmi, list[dict[str, str]]]:
    pmi = StartPmi(size, f"[[0,1,{size},1]]", loop.watch, lambda *_args: None, trace)
    return pmi, [pmi.begin(rank)[1] for rank in range(size)]


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_what_one_broker_puts_another_gets_after_the_barrier(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    _, variables = exchange(loop, 2, trace=True)
    got: dict[int, str] = {}

    def broker(env: dict[str, str]) -> None:
        client = Pmi1Client(env)
        client.put(f"card.{client.rank}", f"of rank {client.rank}")
        client.barrier()
        got[client.rank] = client.get(f"card.{1 - client.rank}")
        assert client.get("PMI_process_mapping") == "(vector,(0,1,2))"
        client.finalize()

    threads = [in_thread(lambda env=env: broker(env)) for env in variables]  # type: ignore[misc]
    loop.run()
    for thread in threads:
        thread.join()
    assert got == {0: "of rank 1", 1: "of rank 0"}
    shown = capsys.readouterr().err.splitlines()
    assert "1: C: cmd=init pmi_version=1 pmi_subversion=1" in shown
    assert "0: S: cmd=finalize_ack rc=0" in shown


def test_who_waits_for_a_broker_that_has_ended_is_told() -> None:
    loop = Loop()
    pmi, variables = exchange(loop, 2)
    failures: list[str] = []

    def waiting() -> None:
        client = Pmi1Client(variables[0])
        os.close(int(variables[1]["PMI_FD"]))
        try:
            client.barrier()
        except PmiError as exc:
            failures.append(str(exc))

    thread = in_thread(waiting)
    while len(loop.readers) > 1:
        # Until the second broker's end of its socket is seen to be closed.
        for fd in select.select(list(loop.readers), [], [], 10)[0]:
            loop.readers[fd]()
    pmi.ended(1)
    thread.join()
    # Which of them it is depends on whether the request was sent, and read, by then.
    assert failures[0] in (
        "the process manager closed the connection",
        "the process manager does not answer: Broken pipe",
        "the process manager does not answer: Connection reset by peer",
    )
    assert not loop.readers


def test_a_rank_is_given_one_session() -> None:
    loop = Loop()
    pmi, variables = exchange(loop, 1)
    with pytest.raises(OSError, match="table"):
        pmi.begin(0)
    pmi.leave()
    os.close(int(variables[0]["PMI_FD"]))
