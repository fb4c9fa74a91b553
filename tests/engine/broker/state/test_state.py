"""The states a broker goes through, and when enough brokers are there."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker.state import machine

EVENTS = st.sampled_from(sorted({event for _state, event in machine._NEXT}))


def walk(*events: str, begin: str = "load-builtins") -> str:
    return reduce(machine.step, events, begin)


def test_a_life_without_trouble_passes_every_state() -> None:
    events = (
        "builtins-success parent-ready sync-success rc1-success quorum-full rc2-success cleanup-success "
        "children-complete rc3-success goodbye builtins-done"
    )
    seen = ["load-builtins"]
    for event in events.split():
        seen.append(machine.step(seen[-1], event))
    assert tuple(seen) == machine.STATES


@pytest.mark.parametrize(
    "events",
    [
        "builtins-success parent-fail",
        "builtins-success parent-ready sync-success rc1-fail",
        "builtins-success parent-ready sync-success rc1-success quorum-fail",
        "builtins-success parent-ready sync-success rc1-success shutdown",
    ],
)
def test_what_fails_before_it_runs_has_nothing_to_clean_up(events: str) -> None:
    assert walk(*events.split()) == "shutdown"


@given(st.lists(EVENTS, max_size=30))
def test_no_event_leads_back(events: list[str]) -> None:
    here = "load-builtins"
    for event in events:
        new = machine.step(here, event)
        assert new == here or machine.before(here, new)
        here = new


@given(st.sampled_from(machine.STATES[:-1]))
def test_from_everywhere_there_is_a_way_to_the_end(begin: str) -> None:
    here, steps = begin, 0
    while here != "exit":
        here = next(new for (old, _event), new in machine._NEXT.items() if old == here)
        steps += 1
        assert steps < 20


@pytest.mark.parametrize(("text", "brokers"), [("3", 3), ("8", 8), ("", 8), ("0", 1), ("0-7", 8)])
def test_a_quorum_is_a_count_of_brokers(text: str, brokers: int) -> None:
    assert machine.quorum_size(text, 8) == brokers


@pytest.mark.parametrize("text", ["9", "99", "-1", "1,7", "0-3", "9-10", "all", "1.5", "\u0663"])
def test_a_quorum_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Error parsing broker\.quorum"):
        machine.quorum_size(text, 8)
