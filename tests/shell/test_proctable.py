"""Who is which task, collected by the lead shell from all shells of a job."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.shell.proctable import ProcTable


class Process(NamedTuple):
    rank: int
    pid: int


def test_the_lead_answers_when_every_shell_has_told_it_each_request_for_itself() -> None:
    tasks: list[Any] = [[Process(0, 100), Process(1, -101)], [Process(2, 200)], [Process(3, 300)]]
    answers: dict[int, Any] = {}
    wires: list[tuple[int, dict[str, Any]]] = []
    shells = [ProcTable(f"n{i}", 3, lambda to, msg: wires.append((to, msg)), answers.__setitem__) for i in range(3)]
    shells[0].ask(7, tasks[0])
    shells[0].ask(8, tasks[0])
    everything = [[0, "n0", 100], [1, "n0", 101], [2, "n1", 200], [3, "n2", 300]]
    while wires:
        assert len(answers) < 2
        to, msg = wires.pop()
        shells[to].from_peer(msg, tasks[to])
    assert answers == {7: {"tasks": everything}, 8: {"tasks": everything}}


def test_a_job_of_one_node_answers_at_once() -> None:
    answers: dict[int, Any] = {}
    tasks: Any = [Process(0, 5)]
    ProcTable("n", 1, lambda _to, _msg: None, answers.__setitem__).ask(1, tasks)
    assert answers == {1: {"tasks": [[0, "n", 5]]}}
