"""Who is which task, collected by the lead shell from all shells of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.engine.shell.service import ProcTable


class Process(NamedTuple):
    rank: int
    pid: int


def test_the_lead_answers_when_every_shell_has_told_it_each_request_for_itself() -> None:
    tasks: list[Any] = [[Process(0, 100), Process(1, -101)], [Process(2, 200)], [Process(3, 300)]]
    answers: dict[int, Any] = {}
    wires: list[tuple[int, int, dict[str, Any]]] = []
    shells = [ProcTable(f"n{i}", [1, 2], _wire(wires, i), answers.__setitem__) for i in range(3)]
    shells[0].ask(7, tasks[0])
    shells[0].ask(8, tasks[0])
    everything = [[0, "n0", 100], [1, "n0", 101], [2, "n1", 200], [3, "n2", 300]]
    while wires:
        assert len(answers) < 2
        source, to, msg = wires.pop()
        shells[to].from_peer(source, msg, tasks[to])
    assert answers == {7: {"tasks": everything}, 8: {"tasks": everything}}


def test_a_job_of_one_node_answers_at_once() -> None:
    answers: dict[int, Any] = {}
    tasks: Any = [Process(0, 5)]
    ProcTable("n", [], _nobody, answers.__setitem__).ask(1, tasks)
    assert answers == {1: {"tasks": [[0, "n", 5]]}}


def test_nodes_that_are_done_are_not_waited_for() -> None:
    answers: dict[int, Any] = {}
    sent: list[int] = []
    table = ProcTable("n", [1, 3], lambda to, _msg: sent.append(to), answers.__setitem__)
    lead: Any = [Process(0, 5)]
    table.ask(1, lead)
    table.done(3)
    assert (sent, answers) == ([1, 3], {})
    table.done(1)
    table.from_peer(1, {"token": 1, "entries": [[1, "m", 6]]}, lead)
    assert answers == {1: {"tasks": [[0, "n", 5]]}}


def _wire(wires: list[tuple[int, int, dict[str, Any]]], source: int) -> Callable[[int, dict[str, Any]], None]:
    return lambda to, msg: wires.append((source, to, msg))


def _nobody(_to: int, _msg: dict[str, Any]) -> None:
    raise AssertionError("there is no other node")
