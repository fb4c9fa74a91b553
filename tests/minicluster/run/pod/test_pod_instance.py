"""What a lead tells of its instance, put together from what the broker says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.formats.spec.hostlist import count_hosts
from headrace.minicluster.api.channel_messages import MOST_NAMED, parse_state
from headrace.minicluster.run.pod.instance import Instance, demand


@pytest.mark.parametrize(
    ("pending", "busy", "cores", "nodes"),
    [
        ([], 0, 4, 0),
        ([], 3, 4, 3),
        ([{"nnodes": 2, "ncores": 8}], 1, 4, 3),
        ([{"ncores": 5}], 0, 4, 2),
        ([{"ntasks": 3}, {"ncores": 1}], 0, 1, 4),
        ([{}], 0, 0, 1),
    ],
)
def test_demand_is_what_is_in_use_and_what_waiting_jobs_ask_for(
    pending: list[dict[str, Any]], busy: int, cores: int, nodes: int
) -> None:
    assert demand(pending, busy, cores) == nodes


def test_an_instance_is_idle_since_its_last_job_ended() -> None:
    times = iter([10.0, 20.0])
    changes: list[None] = []
    instance = Instance("local:///nowhere", lambda: changes.append(None), lambda: next(times))
    assert instance.snapshot.idle_since == 10.0
    instance._take_stats({"job_states": {"run": 1, "inactive": 4}})
    assert (instance.snapshot.idle_since, instance.snapshot.jobs["inactive"]) == (None, 4)
    instance._take_stats({"job_states": {"run": 0, "inactive": 5}})
    assert instance.snapshot.idle_since == 20.0
    instance.set_state("finished")
    instance.set_state("finished")
    assert (instance.snapshot.state, instance.snapshot.brokers_up, len(changes)) == ("finished", 0, 1)


class Answers:
    """A broker's connection that keeps what is to be done with its answers."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []

    def rpc(self, topic: str, body: dict[str, Any]) -> Answers:
        return self

    def then(self, take: Callable[[Any], None]) -> None:
        self.waiting.append(take)

    def get(self) -> dict[str, Any]:
        return {"value": "hello-[0-3]"}


def test_a_broker_that_does_not_answer_is_silent_until_it_does() -> None:
    changes: list[None] = []
    instance = Instance("local:///nowhere", lambda: changes.append(None))
    answers = Answers()
    instance.handle = answers  # type: ignore[assignment]
    instance._take_online({"members": "0-3"})
    for _ in range(9):
        instance.check()
        answers.waiting.pop()(answers)
    instance._take_torpid({"members": "2"})
    assert instance.snapshot[:4] == ("starting", 3, 1, "hello-2")
    assert instance.answers and not changes
    for _ in range(5):
        instance.check()
    assert len(answers.waiting) == len(changes) == 1
    assert (instance.snapshot.silent, instance.snapshot.brokers_up, instance.answers) == ("hello-[0,2]", 2, False)
    answers.waiting.pop()(answers)
    instance._take_torpid({"members": ""})
    assert (instance.snapshot.silent, instance.snapshot.brokers_up, len(changes)) == ("", 4, 2)


def test_the_next_broker_is_not_silent_as_the_last_one_was() -> None:
    instance = Instance("local:///nowhere", lambda: None)
    instance.handle = answers = Answers()  # type: ignore[assignment]
    answers.close = lambda: None  # type: ignore[attr-defined]
    instance.check()
    answers.waiting.pop()(answers)
    instance._take_torpid({"members": "1"})
    for _ in range(5):
        instance.check()
    assert not instance.answers
    assert instance.snapshot.silent == "hello-[0-1]"
    instance.close()
    assert instance.answers
    assert instance.snapshot.silent == ""


def test_a_check_of_a_connection_that_is_lost_counts_as_one_without_an_answer() -> None:
    class Lost(Answers):
        def rpc(self, topic: str, body: dict[str, Any]) -> Answers:
            raise BrokenPipeError

    instance = Instance("local:///nowhere", lambda: None)
    instance.handle = Lost()  # type: ignore[assignment]
    for _ in range(4):
        instance.check()
    assert not instance.answers


def test_of_many_silent_brokers_the_first_are_named() -> None:
    instance = Instance("local:///nowhere", lambda: None)
    instance._hosts = [f"{'odd' if rank % 2 else 'even'}-{rank}" for rank in range(10_000)]
    instance._take_torpid({"members": "0-9999"})
    assert instance.snapshot.brokers_silent == 10_000
    assert count_hosts(instance.snapshot.silent) == MOST_NAMED
    assert parse_state(instance.snapshot.as_object()).silent == instance.snapshot.silent
