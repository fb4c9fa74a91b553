"""The numbers of the history, against what they are by definition."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import tempfile
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from stored import T, facts, life, opened

from headrace.cluster_queue.cycle.chronicle import Record
from headrace.cluster_queue.model.entry import State
from headrace.cluster_queue.store.database import Address, Database
from headrace.cluster_queue.store.history import ALL, BY, Waits, band_of, history, jobs_by_namespace, waits_of
from headrace.cluster_queue.store.writing import write

TIMES = st.integers(0, 1000)


@contextlib.contextmanager
def empty() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder, opened(Address(f"sqlite:{os.path.join(folder, 's')}")) as database:
        yield database


@st.composite
def lives(draw: st.DrawFn) -> list[Record]:
    """The last record of each of some jobs."""
    found = []
    for index in range(draw(st.integers(0, 8))):
        queued, waited, ran = draw(TIMES), draw(TIMES), draw(TIMES)
        width = draw(st.integers(1, 40))
        state = draw(st.sampled_from((State.HELD, State.RUNNING, State.FINISHED, State.FAILED)))
        has = {} if state is State.HELD else {"started_at": T + queued + waited, "nodes": "n"}
        if state is State.RUNNING:
            has["held"] = width
        if state.is_over:
            has["ended_at"] = T + queued + waited + ran
        more = {"namespace": draw(st.sampled_from("ab")), "queue": draw(st.sampled_from("xy")), "width": width}
        found.append(Record(facts(f"u{index}", 1, state, queued_at=T + queued, **more, **has), T))
    return found


@given(lives(), TIMES, TIMES, st.sampled_from(("", *BY)))
def test_numbers_are_what_they_say(records: list[Record], start: int, length: int, by: str) -> None:
    since, now = T + start, T + start + length
    with empty() as database:
        write(database, records)
        lines = {line.name: line for line in history(database, since, now, by)}
    jobs = [one.facts for one in records]
    there = [one for one in jobs if one.queued_at <= now and (not one.ended_at or one.ended_at >= since)]
    names = {one.uid: {"": ALL, "width": band_of(one.width)}.get(by) or getattr(one, by) for one in jobs}
    assert set(lines) == ({names[one.uid] for one in there} | (set() if by else {ALL}))
    for name, line in lines.items():
        mine = [one for one in there if names[one.uid] == name]
        assert line.jobs == len(mine) == sum(line.states.values())
        started = [one for one in mine if since <= one.started_at <= now]
        assert line.started == len(started)
        assert line.waits == waits_of([one.started_at - one.queued_at for one in started])
        seconds = [
            one.width * max(min(one.ended_at or now, now) - max(one.started_at, since), 0)
            for one in mine
            if one.started_at
        ]
        assert math.isclose(line.pod_hours * 3600, sum(seconds), abs_tol=1e-6)


@given(lives(), TIMES, TIMES, st.sampled_from(("", *BY)), st.sets(st.sampled_from("ab")))
def test_the_history_of_some_namespaces_is_that_of_a_store_without_the_others(
    records: list[Record], start: int, length: int, by: str, namespaces: set[str]
) -> None:
    since, now = T + start, T + start + length
    mine = [one for one in records if one.facts.namespace in namespaces]
    with empty() as all_there, empty() as mine_there:
        write(all_there, records)
        write(mine_there, mine)
        assert history(all_there, since, now, by, namespaces) == history(mine_there, since, now, by)
        counted, lines = jobs_by_namespace(all_there, since, now), history(all_there, since, now, "namespace")
        assert counted == {line.name: line.jobs for line in lines if line.jobs}


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_waits_are_mean_nearest_ranks_and_maximum(values: list[float]) -> None:
    waits = waits_of(values)
    assert math.isclose(waits.mean, statistics.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
    assert waits.max == max(values)
    for percent, value in ((50, waits.p50), (95, waits.p95)):
        assert value in values
        # So many did not wait longer; fewer did not wait as long.
        assert sum(1 for one in values if one <= value) * 100 >= percent * len(values)
        assert sum(1 for one in values if one < value) * 100 < percent * len(values)
    assert min(values) <= waits.p50 <= waits.p95 <= waits.max
    assert min(values) <= waits.mean <= waits.max


@given(lives(), st.integers(1, 999))
def test_pod_hours_of_two_spans_add_up(records: list[Record], cut: int) -> None:
    with empty() as database:
        write(database, records)
        (whole,) = history(database, T, T + 1000)
        (first,), (second,) = history(database, T, T + cut), history(database, T + cut, T + 1000)
    assert math.isclose(first.pod_hours + second.pod_hours, whole.pod_hours, abs_tol=1e-9)


def test_without_jobs_there_is_a_line_of_all_alone() -> None:
    with empty() as database:
        (line,) = history(database, T, T + 1)
        assert (line.jobs, line.started, line.waits, line.pod_hours) == (0, 0, Waits(), 0)
        assert history(database, T, T + 1, "queue") == []


def test_bands_are_in_the_order_of_their_width(address: Address) -> None:
    with opened(address) as database:
        for width in (17, 1, 16, 2, 4, 5, 3000):
            write(database, life(f"u{width}", width=width)[:1])
        lines = history(database, T, T + 1, "width")
        assert [(line.name, line.jobs) for line in lines] == [("1", 1), ("2-4", 2), ("5-16", 2), ("17+", 2)]
