"""What leader and followers do with each signal."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker import signal_actions


def leader(state: str = "run", told: bool = False, program: Any = None) -> tuple[Any, list[str]]:
    did: list[str] = []
    order = ("run", "cleanup", "shutdown")
    broker = SimpleNamespace(
        attrs={},
        rank=0,
        state=state,
        ended_by=0,
        shutdown_requested=told,
        exit_code=0,
        program=program,
        log=lambda *_: None,
        past=lambda other: order.index(state) > order.index(other),
        begin_shutdown=lambda: did.append("shutdown"),
        advance=did.append,
    )
    return broker, did


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGALRM])
def test_the_leader_ends_with_the_signals_status(number: int) -> None:
    broker, did = leader()
    signal_actions.received(broker, number)
    assert (did, broker.exit_code, broker.ended_by) == (["shutdown"], 128 + number, number)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_warning_is_for_the_jobs_and_one_broker_passes_it_on(number: int, rank: int) -> None:
    broker, did = leader()
    broker.rank = rank
    broker.signal_jobs = did.append
    signal_actions.received(broker, number)
    assert (did, broker.exit_code) == ([] if rank else [number], 0)


@pytest.mark.parametrize(
    ("state", "told", "wanted"),
    [
        ("cleanup", False, []),
        ("cleanup", True, ["cleanup-fail"]),
        ("shutdown", True, ["shutdown-timeout"]),
    ],
)
def test_who_is_told_twice_waits_no_longer(state: str, told: bool, wanted: list[str]) -> None:
    broker, did = leader(state, told)
    signal_actions.received(broker, signal.SIGTERM)
    assert did == wanted


def test_a_signal_after_the_program_has_ended_leaves_its_status() -> None:
    broker, _ = leader("cleanup")
    signal_actions.received(broker, signal.SIGTERM)
    assert (broker.exit_code, broker.ended_by) == (0, 0)


def test_an_interrupt_is_the_programs() -> None:
    said: list[str] = []
    broker, did = leader(program=SimpleNamespace(running=True, interrupt=lambda: said.append("interrupt")))
    signal_actions.received(broker, signal.SIGINT)
    assert (said, did, broker.exit_code) == (["interrupt"], [], 0)


@pytest.mark.parametrize(
    ("number", "state", "method", "stopping", "leaves"),
    [
        (signal.SIGTERM, "run", "config", False, 1),
        (signal.SIGTERM, "shutdown", "config", True, 0),
        (signal.SIGINT, "run", "config", False, 0),
        (signal.SIGINT, "join", "config", False, 1),
        (signal.SIGINT, "join", "test", False, 0),
    ],
)
def test_a_follower_that_is_told_alone_leaves_alone(
    number: int, state: str, method: str, stopping: bool, leaves: int
) -> None:
    left: list[int] = []
    broker: Any = SimpleNamespace(
        rank=3,
        state=state,
        boot=SimpleNamespace(method=method),
        stopping=stopping,
        log=lambda *_: None,
        leave=lambda: left.append(number),
    )
    signal_actions.received(broker, number)
    assert len(left) == leaves
