"""Records in the tables: each once, whichever come again, late or not at all."""

from __future__ import annotations

import json
import random

import pytest
from stored import T, contents, events, facts, life, opened, usage

from headrace.cluster_queue.cycle.chronicle import Record
from headrace.cluster_queue.model.entry import State
from headrace.cluster_queue.store.database import Address, BadValue
from headrace.cluster_queue.store.writing import write, write_all


def test_a_job_from_its_queue_to_its_end(address: Address) -> None:
    with opened(address) as database:
        write(database, life())
        (row,) = database.rows("SELECT state, queued_at, started_at, ended_at, nodes, width FROM jobs")
        assert list(row) == ["Finished", T, T + 10, T + 70, "n[0-1]", 2]
        assert events(database) == ["submit", "alloc", "start", "finish"]
        assert usage(database) == [(10, 70, 2)]
        (context,) = database.rows("SELECT context FROM events WHERE name = 'alloc'")
        assert json.loads(context[0]) == {"nodes": "n[0-1]"}


@pytest.mark.parametrize("seed", range(6))
def test_records_that_come_again_or_late_change_nothing(address: Address, seed: int) -> None:
    """A writer whose commit was not answered, a second one that still has old records, a process that begins anew."""
    rng = random.Random(seed)
    records = [record for index in range(5) for record in life(f"u{index}", T + 10 * index + 1, T + 100)]
    with opened(address) as database:
        write(database, records)
        expected = contents(database)
        for _ in range(4):
            write(database, rng.choices(records, k=10))
        latest = [record for record in records if record.facts.state.is_over]
        write_all(database, latest, T + 500)
        assert contents(database) == expected


def test_of_a_job_whose_first_records_were_lost_the_last_tells_what_it_can(address: Address) -> None:
    with opened(address) as database:
        write(database, life()[-1:])
        assert events(database) == ["submit", "alloc", "finish"]
        assert usage(database) == [(10, 70, 2)]


def test_places_that_a_job_gives_back_are_used_no_more(address: Address) -> None:
    _, released, running, over = life()
    fewer = facts("u1", 4, State.RUNNING, held=1, nodes="n[0-1]", started_at=T + 10)
    more = facts("u1", 5, State.RUNNING, held=3, width=4, nodes="n[0-3]", started_at=T + 10)
    with opened(address) as database:
        write(database, [released, running, Record(fewer, T + 20), Record(more, T + 30)])
        assert usage(database) == [(10, 20, 2), (20, 30, 1), (30, None, 3)]
        write(database, [Record(facts("u1", 6, over.facts.state, started_at=T + 10, ended_at=T + 70), T + 71)])
        assert usage(database) == [(10, 20, 2), (20, 30, 1), (30, 70, 3)]


def test_a_job_that_waits_anew_is_one_job_with_two_starts(address: Address) -> None:
    waits = Record(facts("u1", 4, requeued_at=T + 40), T + 41)
    has = {"nodes": "n5", "width": 1, "started_at": T + 90}
    again = Record(facts("u1", 5, State.RELEASED, held=1, **has), T + 90)
    over = Record(facts("u1", 6, State.FAILED, ended_at=T + 100, **has), T + 100)
    with opened(address) as database:
        write(database, [*life()[:3], waits, again, over])
        assert events(database) == ["submit", "alloc", "start", "requeue", "alloc", "finish"]
        assert usage(database) == [(10, 40, 2), (90, 100, 1)]
        (row,) = database.rows("SELECT state, started_at, nodes FROM jobs")
        assert list(row) == ["Failed", T + 10, "n5"]


def test_objects_that_are_deleted_before_their_end(address: Address) -> None:
    with opened(address) as database:
        write(database, [life("held")[0], Record(life("held")[0].facts, T + 5, is_gone=True)])
        write(database, [*life("runs")[:3], Record(life("runs")[2].facts, T + 30, is_gone=True)])
        rows = database.rows("SELECT uid, state, ended_at FROM jobs ORDER BY uid")
        assert [tuple(row) for row in rows] == [("held", "Withdrawn", T + 5), ("runs", "Withdrawn", T + 30)]
        assert usage(database, "runs") == [(10, 30, 2)]
        expected = contents(database)
        # The FluxJob goes a moment after the object.
        write_all(database, [life("held")[0]], T + 50)
        assert contents(database) == expected


def test_a_refused_job_may_be_corrected(address: Address) -> None:
    refused = [Record(facts("u1", n, State.REFUSED, note=f"field {n}"), T + n) for n in (2, 3)]
    with opened(address) as database:
        write(database, [*refused, Record(facts("u1", 4), T + 4)])
        assert events(database) == ["submit", "exception", "exception"]
        assert database.rows("SELECT state FROM jobs")[0][0] == "Held"


def test_what_went_while_no_queue_ran_is_withdrawn(address: Address) -> None:
    with opened(address) as database:
        for uid in ("goes", "stays", "over"):
            write(database, life(uid)[: 4 if uid == "over" else 3])
        write_all(database, [life("stays")[2]], T + 50)
        rows = database.rows("SELECT uid, state FROM jobs ORDER BY uid")
        assert [tuple(row) for row in rows] == [("goes", "Withdrawn"), ("over", "Finished"), ("stays", "Running")]
        assert usage(database, "goes") == [(10, 50, 2)]
        assert usage(database, "stays") == [(10, None, 2)]


def test_a_batch_with_a_wrong_record_is_not_taken_in_part(address: Address) -> None:
    with opened(address) as database:
        with pytest.raises(BadValue):
            write(database, [life("good")[0], Record(facts("bad", jobid=2**70), T)])
        assert contents(database)["jobs"] == []
