"""Requests about jobs, by their messages: raise, kill, urgency, memo, update, wait."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs_world import QUEUES, World, jobspec, pipeline_of

from headrace.engine.jobs.storable import MOST_LEVELS
from headrace.formats.spec.message import FLAG_PRIVATE, FLAG_STREAMING

Run = Callable[..., None]


async def fails(world: World, topic: str, body: Any, errnum: int, text: str, client: Any = None) -> None:
    reply = await (client or world.client).call(topic, body)
    assert (reply.errnum, reply.text) == (errnum, text)


def test_requests_about_jobs_that_are_not_there(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await world.run(id)
        for topic, body in (
            ("raise", {"type": "cancel", "severity": 0}),
            ("kill", {"signum": 15}),
            ("urgency", {"urgency": 3}),
            ("memo", {"volatile": False, "memo": {"foo": "bar"}}),
            ("update", {"updates": {"attributes.system.duration": 1.0}}),
        ):
            await fails(world, f"job-manager.{topic}", {"id": id, **body}, errno.ENOENT, "job is inactive")
            await fails(world, f"job-manager.{topic}", {"id": 1, **body}, errno.ENOENT, "unknown job id")

    in_broker(scenario)


def test_raise_posts_the_exception_and_publishes_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        seen: list[Any] = []
        private: list[int] = []
        world.ctx.subscribe("job-exception", lambda msg: seen.append(msg.obj))
        world.ctx.subscribe("job-exception", lambda msg: private.append(msg.flags & FLAG_PRIVATE))
        id = await world.job()
        await world.alloc(id)
        await world.client.rpc("job-manager.raise", {"id": id, "type": "test", "severity": 1, "note": "why"})
        userid = world.client.userid
        assert (await world.events(id))[-1] == (
            "exception",
            {"type": "test", "severity": 1, "note": "why", "userid": userid},
        )
        assert seen == [{"id": id, "type": "test", "severity": 1}]
        assert private == [FLAG_PRIVATE]
        world.end(id)

    in_broker(scenario)


def test_guests_reach_their_own_jobs_only(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        guest = broker.client(guest=True)
        reply = await guest.call("job-manager.raise", {"id": id, "type": "cancel", "severity": 0})
        assert (reply.errnum, reply.text) == (errno.EPERM, "guests can only raise exceptions on their own jobs")
        everyone = {"userid": -1, "dry_run": True}
        for topic, body, deed in (
            ("raiseall", {"states": 14, "severity": 0, "type": "cancel"}, "raise exceptions on"),
            ("killall", {"signum": 15}, "send signals to"),
        ):
            reply = await guest.call(f"job-manager.{topic}", {**everyone, **body})
            assert (reply.errnum, reply.text) == (errno.EPERM, f"guests can only {deed} their own jobs")
        reply = await guest.call("job-manager.wait", {"id": -1})
        assert reply.errnum == errno.EPERM
        reply = await guest.call("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": 0})
        assert reply.errnum == errno.EPERM
        reply = await guest.call("job-manager.submit", {"jobs": []})
        assert reply.errnum == errno.EPERM

    in_broker(scenario)


def test_in_private_mode_another_users_job_is_one_that_never_was(in_broker: Run) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("job-manager.raise", {"type": "cancel", "severity": 0}),
        ("job-manager.kill", {"signum": 15}),
        ("job-manager.urgency", {"urgency": 3}),
        ("job-manager.memo", {"volatile": False, "memo": {"foo": "bar"}}),
        ("job-manager.update", {"updates": {"attributes.system.duration": 1.0}}),
        ("job-manager.getattr", {"attrs": ["jobspec"]}),
        ("job-info.lookup", {"keys": ["jobspec"], "flags": 0}),
        ("job-info.eventlog-watch", {"path": "eventlog", "flags": 0}),
        ("job-info.update-lookup", {"key": "jobspec", "flags": 0}),
        ("job-info.update-watch", {"key": "jobspec", "flags": 0}),
    ]

    async def scenario(broker: Any) -> None:
        broker.config = {"access": {"private-mode": True}}
        world = World(broker)
        await world.begin()
        over = await world.job()
        await world.run(over)
        active = await world.job()
        guest = broker.client(guest=True)
        for topic, body in requests:
            answers = [await guest.call(topic, {"id": id, **body}) for id in (active, over, 1)]
            assert len({(answer.errnum, answer.text) for answer in answers}) == 1, topic
            assert answers[0].errnum, topic

    in_broker(scenario)


SUBMITTED = {"id": 1, "userid": 0, "urgency": 16, "flags": 0, "jobspec": {}, "submission": ["", "{}", "", None]}


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([5], "jobs[0]: expected object, got int"),
        ([{**SUBMITTED, "urgency": "x"}], "jobs[0].urgency: expected int, got str"),
        ([{**SUBMITTED, "submission": 5}], "jobs[0].submission: expected array, got int"),
        *(
            (
                [{**SUBMITTED, "submission": wrong}],
                "jobs: each submission must be [header, payload, signature, updates], the first three as bytes",
            )
            for wrong in ([], [1, 2, 3, None], [[], [], [], None], ["", "{}", "", None])
        ),
    ],
)
def test_a_batch_of_jobs_of_another_form_is_refused_with_the_field(in_broker: Run, jobs: Any, told: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await fails(world, "job-manager.submit", {"jobs": jobs}, errno.EPROTO, f"job-manager.submit: {told}")

    in_broker(scenario)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


CONSTRAINTS = "attributes.system.constraints"


def test_what_the_journal_could_not_give_back_is_not_stored(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        for value, why in (
            (nested(MOST_LEVELS + 1), f"is nested deeper than {MOST_LEVELS} levels"),
            ({"a": 10**30}, "has a whole number of more than 64 bits"),
        ):
            await fails(world, "job-manager.memo", {"id": id, "memo": value}, errno.EINVAL, f"memo: {why}")
            update = {"id": id, "updates": {CONSTRAINTS: value}}
            await fails(world, "job-manager.update", update, errno.EINVAL, f"{CONSTRAINTS}: {why}")
        await world.client.rpc("job-manager.memo", {"id": id, "memo": nested(MOST_LEVELS)})
        await world.client.rpc("job-manager.update", {"id": id, "updates": {CONSTRAINTS: nested(MOST_LEVELS)}})

    async def after(broker: Any) -> None:
        names = {name for _, names in await World(broker).all_events() for name in names}
        assert {"memo", "jobspec-update"} <= names

    in_broker(scenario, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (60, None),
        (10**30, None),
        (10**400, "a whole number of more than 64 bits"),
        (float("inf"), "inf"),
        (True, "True"),
        ("1m", "'1m'"),
    ],
)
def test_a_duration_is_stored_as_seconds(in_broker: Run, tmp_path: Path, asked: Any, told: str | None) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        body = {"id": id, "updates": {"attributes.system.duration": asked}}
        if told is not None:
            text = f"duration must be a number of seconds, not {told}"
            await fails(world, "job-manager.update", body, errno.EPROTO, text)
            return
        await world.client.rpc("job-manager.update", body)
        updated = dict(await world.events(id))["jobspec-update"]
        assert repr(updated) == repr({"attributes.system.duration": float(asked)})
        await world.cancel(id)
        await world.client.rpc("job-manager.drain")

    in_broker(scenario, statedir=str(tmp_path))


def test_urgency_answers_the_old_one_and_checks_the_new(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        assert await world.client.rpc("job-manager.urgency", {"id": id, "urgency": 20}) == {"old_urgency": 0}
        text = "urgency value is out of range"
        await fails(world, "job-manager.urgency", {"id": id, "urgency": 32}, errno.EINVAL, text)
        await world.alloc(id)
        text = "urgency cannot be changed once resources are allocated"
        await fails(world, "job-manager.urgency", {"id": id, "urgency": 3}, errno.EINVAL, text)
        world.end(id)

    in_broker(scenario)


def test_signals_go_to_the_exec_service(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        await fails(world, "job-manager.kill", {"id": id, "signum": 15}, errno.EINVAL, "job is not running")
        await world.alloc(id)
        await world.client.rpc("job-manager.kill", {"id": id, "signum": 15})
        body = {"dry_run": False, "userid": -1, "signum": 10}
        assert await world.client.rpc("job-manager.killall", body) == {"count": 1, "errors": 0}
        await world.until(lambda: world.kills == [(id, 15), (id, 10)])
        world.end(id)

    in_broker(scenario)


def test_raiseall_counts_and_spares_on_a_dry_run(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job() for _ in range(3)]
        await world.alloc(ids[0])
        body = {"dry_run": True, "userid": -1, "states": 8, "type": "cancel", "severity": 0}
        assert await world.client.rpc("job-manager.raiseall", body) == {"count": 2, "errors": 0}
        assert len((await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]) == 3
        await world.client.rpc("job-manager.raiseall", {**body, "dry_run": False})
        await world.until(lambda: not world.allocs)
        world.end(ids[0])
        await world.client.rpc("job-manager.drain")

    in_broker(scenario)


def test_raiseall_ends_jobs_whose_end_ends_others(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(urgency=0)]
        for _ in range(2):
            needed = [{"scheme": "afterok", "value": str(ids[-1])}]
            ids.append(await world.job(jobspec(dependencies=needed)))
        ids.append(await world.job(urgency=0))
        body = {"dry_run": False, "userid": -1, "states": 127, "type": "cancel", "severity": 0}
        assert await world.client.rpc("job-manager.raiseall", body) == {"count": 4, "errors": 0}
        await world.client.rpc("job-manager.drain")
        for id in ids:
            names = [name for name, _ in await world.events(id)]
            assert (names.count("exception"), names.count("clean"), names[-1]) == (1, 1, "clean")

    in_broker(scenario)


def test_memo_is_an_event_unless_it_is_volatile(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        tag = world.client.start("job-manager.events-journal", {"full": False}, None, FLAG_STREAMING)
        while (await world.client.next(tag)).obj["events"]:
            pass
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": False, "memo": {"uri": "x"}})
        (event,) = (await world.client.next(tag)).obj["events"]
        assert (event["name"], event["context"]) == ("memo", {"uri": "x"})
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": True, "memo": {"p": 1}})
        (event,) = (await world.client.next(tag)).obj["events"]
        assert event["context"] == {"annotations": {"user": {"uri": "x", "p": 1}}}
        assert [name for name, _ in await world.events(id)][-1] == "memo"

    in_broker(scenario)


def test_a_new_listener_hears_what_the_scheduler_says_of_waiting_jobs(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        await world.client.rpc("job-manager.memo", {"id": id, "volatile": True, "memo": {"p": 1}})
        tag = world.client.start("job-manager.events-journal", {"full": True}, None, FLAG_STREAMING)
        heard = [(await world.client.next(tag)).obj["events"][-1] for _ in range(2)]
        assert heard[1]["context"] == {"annotations": {"user": {"p": 1}}}

    in_broker(scenario)


def test_update_of_a_pending_and_of_a_running_job(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(urgency=0)
        await world.client.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 1200.0}})
        assert (await world.events(id))[-2:] == [
            ("jobspec-update", {"attributes.system.duration": 1200.0}),
            ("priority", {"priority": 0}),
        ]
        for flags, duration in ((0, 0), (2, 1200.0)):
            body = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": flags})
            assert json.loads(body["jobspec"])["attributes"]["system"]["duration"] == duration
        await fails(
            world,
            "job-manager.update",
            {"id": id, "updates": {"attributes.system.job.name": "x"}},
            errno.EINVAL,
            "update of attributes.system.job.name not supported",
        )
        await world.client.rpc("job-manager.urgency", {"id": id, "urgency": 16})
        started = broker.contexts["job-manager"].now()
        await world.alloc(id, starttime=started, expiration=started + 1200)
        world.say(id, "start")
        tag = world.client.start("job-info.update-watch", {"id": id, "key": "R", "flags": 0}, None, FLAG_STREAMING)
        first = (await world.client.next(tag)).obj["R"]["execution"]["expiration"]
        await world.client.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 60.0}})
        second = (await world.client.next(tag)).obj["R"]["execution"]["expiration"]
        assert (first, second) == (started + 1200, started + 60)
        await world.until(lambda: world.expirations == [(id, second)] * 2)
        world.refusal = "not now"
        longer = {"id": id, "updates": {"attributes.system.duration": 90.0}}
        await fails(world, "job-manager.update", longer, errno.EINVAL, "scheduler refused expiration update: not now")
        world.end(id)
        await world.client.rpc("job-manager.drain")
        assert (await world.client.next(tag)).errnum == errno.ENODATA

    in_broker(scenario)


def test_a_job_moves_to_another_queue_if_it_fits_there(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        world.infeasible = "unsatisfiable request: need 2 exclusive node(s), only 1 eligible"
        body = {"id": id, "updates": {"attributes.system.queue": "debug"}}
        await fails(world, "job-manager.update", body, errno.EINVAL, world.infeasible)
        world.infeasible = ""
        await world.client.rpc("job-manager.update", body)
        found = await world.client.rpc("job-info.lookup", {"id": id, "keys": ["jobspec"], "flags": 3})
        system = found["jobspec"]["attributes"]["system"]
        assert (system["queue"], system["constraints"]) == ("debug", {"properties": ["debug"]})

    in_broker(scenario, QUEUES)


def test_another_queue_and_a_running_job_keep_their_limits(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        updates = {"attributes.system.queue": "short", "attributes.system.duration": 120.0}
        text = "requested duration (2m) exceeds policy limit of 1m for queue short"
        await fails(world, "job-manager.update", {"id": id, "updates": updates}, errno.EINVAL, text)
        updates["attributes.system.duration"] = 60.0
        await world.client.rpc("job-manager.queue-start", {"all": True, "start": True, "nocheckpoint": True})
        await world.client.rpc("job-manager.update", {"id": id, "updates": updates})
        await world.alloc(id)
        text = "update of queue for running job not supported"
        await fails(world, "job-manager.update", {"id": id, "updates": updates}, errno.EINVAL, text)
        world.end(id)

    short = {"policy": {"limits": {"duration": "1m"}}}
    in_broker(scenario, {**QUEUES, "queues": {**QUEUES["queues"], "short": short}})


def test_waitable_jobs_are_waited_for_once(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        await fails(world, "job-manager.wait", {"id": -1}, errno.ECHILD, "there are no more waitable jobs")
        ids = [await world.job(flags=4) for _ in range(2)]
        first, other = (
            world.client.start("job-manager.wait", {"id": ids[0]}),
            world.client.start("job-manager.wait", {"id": -1}),
        )
        for id, status in zip(ids, (256, 0)):
            await world.alloc(id)
            world.end(id, status)
        text = "task(s) exited with exit code 1"
        assert (await world.client.next(first)).obj == {"id": ids[0], "success": False, "errstr": text}
        assert (await world.client.next(other)).obj == {"id": ids[1], "success": True, "errstr": ""}
        text = "invalid job id, or job may be inactive and not waitable"
        await fails(world, "job-manager.wait", {"id": ids[0]}, errno.ECHILD, text)

    in_broker(scenario)


@pytest.mark.parametrize("over", [False, True])
def test_who_waits_for_any_job_hears_that_others_wait_for_all(
    over: bool, in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        ids = [await world.job(flags=4) for _ in range(2)]
        for id in ids:
            await world.alloc(id)
        first, second = (world.client.start("job-manager.wait", {"id": -1}) for _ in range(2))
        pipeline = pipeline_of(world)
        with monkeypatch.context() as patch:
            if over:
                # Its end is not on the disk yet, so that nobody was told of it.
                patch.setattr(pipeline, "_sync", lambda: None)
                world.end(ids[0])
                await world.until(lambda: ids[0] in pipeline.core.zombies)
            one = world.client.start("job-manager.wait", {"id": ids[0]})
            reply = await world.client.next(second)
            assert (reply.errnum, reply.text) == (errno.ECHILD, "there are no more waitable jobs")
        pipeline._sync()
        for id in ids[over:]:
            world.end(id)
        assert (await world.client.next(one)).obj["id"] == ids[0]
        assert (await world.client.next(first)).obj["id"] == ids[1]

    in_broker(scenario, statedir=str(tmp_path))


def test_a_waitable_job_that_is_over_is_listed_until_it_was_waited_for(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        held, id = await world.job(urgency=0), await world.job(flags=4)
        await world.alloc(id)
        world.end(id)
        listed: list[Any] = []
        while len(listed) != 2 or listed[1]["state"] != 64:
            listed = (await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]
        assert [job["id"] for job in listed] == [held, id]
        assert (await world.client.rpc("job-manager.wait", {"id": id}))["success"]
        assert [job["id"] for job in (await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]] == [held]

    in_broker(scenario)


@pytest.mark.parametrize("purged", [False, True])
def test_a_job_that_somebody_waits_for_is_not_given_to_another_before_that_one_hears_of_its_end(
    purged: bool, in_broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_waitable = "invalid job id, or job may be inactive and not waitable"

    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job(flags=4)
        await world.alloc(id)
        waiting = world.client.start("job-manager.wait", {"id": id})
        pipeline = pipeline_of(world)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_sync", lambda: None)
            world.end(id)
            await world.until(lambda: id in pipeline.core.zombies)
            await fails(world, "job-manager.wait", {"id": -1}, errno.ECHILD, "there are no more waitable jobs")
            await fails(world, "job-manager.wait", {"id": id}, errno.ECHILD, not_waitable)
            if purged:
                world.client.start("job-manager.purge-id", {"jobs": [id], "force": True})
                await world.until(lambda: id not in pipeline.core.zombies)
        pipeline._sync()
        reply = await world.client.next(waiting)
        assert reply.errnum == (errno.ECHILD if purged else 0)

    in_broker(scenario, statedir=str(tmp_path))
