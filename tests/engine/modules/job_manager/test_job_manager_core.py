"""The job manager's state machine, step by step: the events a job gets, and what is asked of scheduler and exec."""

from __future__ import annotations

import pytest
from core_world import World, jobspec

from headrace.engine.modules.job_manager import core as jobs_core
from headrace.engine.modules.job_manager.effects import Alloc, Cancel, Expiration, Free, Prioritize, Raised, Start
from headrace.formats.spec.job_state import CANCELED, COMPLETED, FAILED, RUN, SCHED, TIMEOUT
from headrace.formats.spec.requests.sched import AllocResponse


def test_a_job_that_runs_has_the_events_of_the_recordings() -> None:
    world = World()
    assert world.submit(1) == ""
    world.run(1, 768)
    assert [(name, context) for _, name, context in world.gone[1].events] == [
        ("submit", {"userid": 0, "urgency": 16, "flags": 0, "version": 1}),
        ("validate", None),
        ("depend", None),
        ("priority", {"priority": 16}),
        ("alloc", {"annotations": {"sched": {"resource_summary": "rank0/core0"}}}),
        ("start", None),
        ("finish", {"status": 768}),
        ("release", {"ranks": "all", "final": True}),
        ("free", None),
        ("clean", None),
    ]
    assert world.result(1) == FAILED
    assert [request.job.id for request in world.asked(Free)] == [1]


def test_a_denied_job_ends_with_an_alloc_exception() -> None:
    world = World()
    world.submit(1)
    world.alloc(1, AllocResponse.DENY, "unsatisfiable request: too big")
    assert world.events(1)[4:] == ["exception", "clean"]
    assert world.context(1, "exception") == {
        "type": "alloc",
        "severity": 0,
        "note": "unsatisfiable request: too big",
        "userid": 0,
    }


def test_a_held_job_is_asked_for_when_it_is_let_go() -> None:
    world = World()
    world.submit(1, urgency=0)
    assert world.asked(Alloc) == []
    assert world.core.set_urgency(world.core.active[1], 31, 7) == 0
    world.flush()
    assert world.events(1)[3:] == ["priority", "urgency", "priority"]
    assert world.context(1, "urgency") == {"userid": 7, "urgency": 31}
    assert world.core.active[1].priority == 4294967295
    assert [request.job.id for request in world.asked(Alloc)] == [1]


def test_holding_a_job_takes_its_request_back() -> None:
    world = World()
    world.submit(1)
    world.core.set_urgency(world.core.active[1], 0, 0)
    world.flush()
    assert world.asked(Cancel) == [Cancel(1)]
    world.alloc(1, AllocResponse.CANCEL)
    assert (world.core.allocations.pending, world.core.active[1].state) == (0, SCHED)


def test_a_new_urgency_reorders_the_request() -> None:
    world = World()
    world.submit(1)
    world.core.set_urgency(world.core.active[1], 20, 0)
    world.flush()
    assert world.asked(Prioritize) == [Prioritize({1: 20})]


def test_equal_memos_of_different_types_stay_as_they_are() -> None:
    world = World()
    for id, value in ((1, 1), (2, True)):
        world.submit(id)
        world.core.post(world.core.active[id], "memo", {"note": value})
    assert [repr(world.context(id, "memo")) for id in (1, 2)] == ["{'note': 1}", "{'note': True}"]


def test_resources_that_cross_a_cancellation_are_given_back() -> None:
    world = World()
    world.submit(1)
    world.cancel(1)
    assert "clean" not in world.events(1)
    world.alloc(1, AllocResponse.SUCCESS)
    assert [request.job.id for request in world.asked(Free)] == [1]
    assert world.events(1)[-2:] == ["exception", "clean"]
    assert world.result(1) == CANCELED


def test_a_canceled_pending_job_is_clean_once_the_scheduler_has_dropped_it() -> None:
    world = World()
    world.submit(1)
    world.cancel(1)
    world.alloc(1, AllocResponse.CANCEL)
    assert world.events(1)[-2:] == ["exception", "clean"]
    assert world.asked(Free) == []


def test_a_canceled_running_job_waits_for_its_shells() -> None:
    world = World()
    world.submit(1)
    world.alloc(1)
    world.exec(1, "start")
    world.cancel(1)
    assert world.events(1)[-1] == "exception"
    world.exec(1, "finish", status=15)
    world.exec(1, "release", ranks="all", final=True)
    assert world.events(1)[-5:] == ["exception", "finish", "release", "free", "clean"]
    assert Raised(1, "cancel", 0) in world.effects


def test_an_exception_of_lesser_severity_changes_nothing() -> None:
    world = World()
    world.submit(1)
    world.core.raise_exception(world.core.active[1], "test", 3, "hi", 0)
    world.flush()
    assert world.core.active[1].state == SCHED
    world.run(1)
    assert world.result(1) == COMPLETED


def test_a_job_over_its_time_gets_a_timeout() -> None:
    world = World()
    world.submit(1)
    world.alloc(1, expiration=100.0)
    world.exec(1, "start")
    assert world.core.next_deadline() == 100.0
    world.core.now = 100.0
    world.core.expire()
    world.flush()
    assert world.context(1, "exception")["note"] == "resource allocation expired"
    world.exec(1, "finish", status=14)
    world.exec(1, "release", ranks="all", final=True)
    assert world.result(1) == TIMEOUT


def test_a_running_job_gets_more_time() -> None:
    world = World()
    world.submit(1)
    world.alloc(1, starttime=50.0, expiration=100.0)
    world.core.now = 50.0
    world.exec(1, "start")
    world.core.update(world.core.active[1], {"attributes.system.duration": 200.0})
    world.flush()
    assert world.events(1)[-2:] == ["jobspec-update", "resource-update"]
    assert world.context(1, "resource-update") == {"expiration": 250.0}
    assert Expiration(1, 250.0) in world.effects
    world.core.now = 101.0
    world.core.expire()
    world.flush()
    assert "exception" not in world.events(1)


def test_a_pending_job_goes_to_the_scheduler_with_its_new_jobspec() -> None:
    world = World()
    world.submit(1)
    world.core.update(world.core.active[1], {"attributes.system.duration": 60.0})
    world.flush()
    assert world.events(1)[-2:] == ["jobspec-update", "priority"]
    assert world.asked(Cancel) == [Cancel(1)]
    world.alloc(1, AllocResponse.CANCEL)
    assert len(world.asked(Alloc)) == 2
    assert world.core.active[1].jobspec["attributes"]["system"]["duration"] == 60.0


def test_resources_for_an_old_jobspec_are_given_back() -> None:
    world = World()
    world.submit(1)
    world.core.update(world.core.active[1], {"attributes.system.duration": 60.0})
    world.alloc(1, AllocResponse.SUCCESS)
    assert "alloc" not in world.events(1)
    assert [request.job.id for request in world.asked(Free)] == [1]
    assert len(world.asked(Alloc)) == 2


def test_annotations_are_merged_and_null_removes() -> None:
    world = World()
    world.submit(1)
    notes = {"sched": {"reason_pending": "busy", "t_estimate": 5.0}}
    world.core.allocations.reply(1, AllocResponse.ANNOTATE, None, notes, "")
    world.core.allocations.reply(1, AllocResponse.ANNOTATE, None, {"sched": {"t_estimate": None}}, "")
    assert world.core.active[1].annotations == {"sched": {"reason_pending": "busy"}}


def test_a_start_that_nobody_heard_waits_for_the_next_exec_service() -> None:
    world = World()
    world.submit(1)
    world.alloc(1)
    world.core.exec_failed(1, "")
    world.submit(2)
    world.alloc(2)
    assert [world.events(id)[-1] for id in (1, 2)] == ["alloc", "alloc"]
    world.effects.clear()
    world.core.exec_is_ready()
    world.flush()
    assert [effect.job.id for effect in world.effects if isinstance(effect, Start)] == [1, 2]
    # The next one was there before the word came that nobody had been.
    world.effects.clear()
    world.core.exec_failed(2, "", service_gone=False)
    world.flush()
    assert [effect.job.id for effect in world.effects if isinstance(effect, Start)] == [2]


def test_a_job_with_the_debug_flag_tells_what_is_asked_for_it() -> None:
    world = World()
    world.submit(1, flags=2)
    world.run(1, 0)
    assert [name for name in world.events(1) if name.startswith("debug.")] == [
        "debug.alloc-request",
        "debug.start-request",
        "debug.free-request",
    ]


def test_no_two_events_of_a_job_have_one_time() -> None:
    world = World()
    world.core.now = 1.8e9
    world.submit(1)
    world.run(1, 0)
    times = [f"{time:.6f}" for time, _, _ in world.gone[1].events]
    assert times == sorted(set(times))


def test_a_stopped_queue_takes_its_requests_back_and_gives_them_again() -> None:
    world = World()
    world.submit(1)
    world.core.set_queues_started([""], False, "later", True)
    world.flush()
    assert world.asked(Cancel) == [Cancel(1)]
    world.alloc(1, AllocResponse.CANCEL)
    world.core.set_queues_started([""], True, None, True)
    world.flush()
    assert [request.job.id for request in world.asked(Alloc)] == [1, 1]


def test_jobs_of_a_stopped_queue_say_so_until_it_is_started_or_they_end() -> None:
    world = World(["batch"])
    world.submit(1, queue="batch")
    world.submit(2, queue="batch", urgency=0)
    first, held = world.core.active[1], world.core.active[2]
    assert first.annotations == {"sched": {"reason_pending": "queue stopped"}}
    assert not held.annotations
    world.core.set_queues_started(["batch"], False, "maintenance", True)
    assert first.annotations == {"sched": {"reason_pending": "queue stopped: maintenance"}}
    world.core.set_queues_started(["batch"], True, None, True)
    assert not first.annotations
    world.core.allocations.reply(1, AllocResponse.ANNOTATE, None, {"sched": {"reason_pending": "no core"}}, "")
    world.core.set_queues_started(["batch"], False, None, True)
    world.alloc(1, AllocResponse.CANCEL)
    assert first.annotations == {"sched": {"reason_pending": "queue stopped"}}
    world.core.raise_exception(first, "cancel", 0, "", 0)
    assert not first.annotations


def test_named_queues_start_stopped_and_are_switched_one_by_one() -> None:
    world = World(["batch", "debug"])
    assert world.submit(1, queue="batch") == ""
    assert world.submit(2, queue="debug") == ""
    world.core.set_queues_started(["debug"], True, None, True)
    world.core.set_queues_enabled(["batch"], False, "full", True)
    world.flush()
    assert [request.job.id for request in world.asked(Alloc)] == [2]
    assert world.submit(3, queue="batch") == "job submission to batch is disabled: full"
    assert world.submit(4, queue="nosuch") == "Invalid queue 'nosuch' specified"


def test_jobs_wait_for_a_scheduler_that_went_away() -> None:
    world = World()
    world.submit(1)
    world.core.allocations.scheduler_is_gone()
    world.submit(2)
    assert world.core.allocations.scheduler_is_ready(0) == 2
    world.flush()
    assert [request.job.id for request in world.asked(Alloc)] == [1, 1, 2]


def test_jobs_of_an_exec_service_that_went_away_fail() -> None:
    world = World()
    world.submit(1)
    world.alloc(1)
    world.exec(1, "start")
    world.core.exec_gone("gone")
    world.flush()
    assert world.events(1)[-3:] == ["exception", "free", "clean"]


def test_a_job_that_is_run_again_gives_all_back_and_waits_anew() -> None:
    world = World()
    world.submit(1, requeue=True)
    world.alloc(1)
    world.exec(1, "start")
    world.exec(1, "exception", severity=1, type="node-failure", note="lost: queued again")
    world.exec(1, "finish", status=9, requeue=True)
    assert world.core.active[1].state == RUN
    world.exec(1, "release", ranks="all", final=True, requeue=True)
    assert world.events(1)[4:] == ["alloc", "start", "exception", "free", "requeue", "priority"]
    assert world.core.active[1].state == SCHED
    assert [request.job.id for request in world.asked(Free)] == [1]
    assert [request.job.id for request in world.asked(Alloc)] == [1, 1]
    world.run(1)
    assert world.result(1) == COMPLETED
    assert [effect.job.id for effect in world.effects if isinstance(effect, Start)] == [1, 1]


def test_how_often_a_job_is_run_again_has_a_bound() -> None:
    world = World()
    world.core.most_requeues = 2
    world.submit(1, requeue=True)
    world.submit(2)
    left = []
    for _ in range(2):
        world.alloc(1)
        left.append(world.core.requeues_left(world.core.active[1]))
        world.exec(1, "finish", status=9, requeue=True)
        world.exec(1, "release", ranks="all", final=True, requeue=True)
    left.append(world.core.requeues_left(world.core.active[1]))
    assert (left, world.core.requeues_left(world.core.active[2])) == ([2, 1, 0], None)


def test_a_job_that_was_canceled_meanwhile_is_not_run_again() -> None:
    world = World()
    world.submit(1, requeue=True)
    world.alloc(1)
    world.exec(1, "start")
    world.cancel(1)
    world.exec(1, "finish", status=9, requeue=True)
    world.exec(1, "release", ranks="all", final=True, requeue=True)
    assert world.events(1)[-4:] == ["finish", "release", "free", "clean"]
    assert world.result(1) == CANCELED


@pytest.mark.parametrize("severity", [0, 3])
def test_a_job_that_is_over_has_no_more_exceptions(severity: int) -> None:
    world = World()
    world.submit(1, urgency=0)
    job = world.core.active[1]
    world.cancel(1)
    events = world.events(1)
    world.core.raise_exception(job, "cancel", severity, "", 0)
    world.flush()
    assert (world.events(1), events[-1]) == (events, "clean")
    assert not world.core.dirty


def test_purging_takes_the_oldest_first() -> None:
    world = World()
    for id in (1, 2, 3):
        world.submit(id)
        world.run(id)
    assert world.core.purgeable(-1.0, 1) == [1, 2]
    assert world.core.purgeable(0.5, -1) == [1, 2]
    assert world.core.purge([1, 2, 99]) == [1, 2]
    assert list(world.core.inactive) == [3]


def test_a_waitable_job_is_waited_for_once() -> None:
    world = World()
    world.submit(1, flags=4)
    world.run(1, 256)
    assert world.core.zombies == {1: "task(s) exited with exit code 1"}
    assert world.core.reap(1) == "task(s) exited with exit code 1"
    world.flush()
    assert world.replayed().zombies == {}


def test_limits_of_ended_jobs_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_core, "_SPARE_LIMITS", 10)
    world = World()
    for id in (1, 2):
        world.submit(id)
        world.alloc(id, expiration=1000.0 + id)
        world.exec(id, "start")
    world.core.update(world.core.active[2], {"attributes.system.duration": 500.0})
    for id in range(3, 100):
        world.submit(id)
        world.alloc(id, expiration=5000.0)
        world.exec(id, "start")
        world.exec(id, "finish", status=0)
        world.exec(id, "release", ranks="all", final=True)
        assert world.core.deadlines.limits <= 2 * 3 + 10
    ends = {id: world.core.active[id].expiration for id in (1, 2)}
    assert ends[1] == 1001.0 > ends[2]
    for id in (2, 1):
        world.core.now = ends[id] - 1.0
        world.core.expire()
        assert world.core.active[id].state == RUN
        world.core.now = ends[id]
        world.core.expire()
        assert world.core.active[id].fatal == ("timeout", "resource allocation expired")


def test_running_jobs_without_a_duration_end_with_their_instance() -> None:
    world = World()
    for id, duration, expiration in ((1, 0, 100.0), (2, 50, 90.0), (3, 0, 0.0)):
        world.submit(id, duration=duration)
        world.alloc(id, expiration=expiration)
        world.exec(id, "start")
    world.submit(4)
    world.core.instance_expires(300.0)
    world.flush()
    assert [job.expiration for job in world.core.active.values()] == [300.0, 90.0, 300.0, 0.0]
    assert world.context(1, "resource-update") == {"expiration": 300.0}
    assert [effect for effect in world.effects if isinstance(effect, Expiration)] == [
        Expiration(1, 300.0),
        Expiration(3, 300.0),
    ]
    world.core.now = 200.0
    world.core.expire()
    assert world.core.active[1].state == RUN
    world.core.now = 300.0
    world.core.expire()
    assert world.core.active[1].fatal == ("timeout", "resource allocation expired")


def test_waiting_jobs_share_what_their_events_have_in_common() -> None:
    world = World()
    for id in (1, 2):
        world.submit(id)
    world.submit(3, urgency=20)
    first, second, third = (
        dict((name, context) for _, name, context in world.core.active[id].events) for id in (1, 2, 3)
    )
    for name in ("submit", "priority"):
        assert first[name] is second[name]
    assert (third["submit"]["urgency"], third["priority"]) == (20, {"priority": 20})
    assert first["priority"] == {"priority": 16}


def test_jobs_that_are_submitted_together_share_the_events_before_they_wait() -> None:
    world = World()
    for id in (1, 2):
        world.core.submit(id, 0, 16, 0, jobspec())
    world.submit(3)
    first, second, third = (world.core.active[id].events for id in (1, 2, 3))
    assert [name for _, name, _ in first] == ["submit", "validate", "depend", "priority"]
    assert all(one is other for one, other in zip(first, second))
    assert [one[0] < other[0] for one, other in zip(second, third)] == [True] * 4
