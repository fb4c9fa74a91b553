"""The listing service on a journal that the test writes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.modules.job_list import service as job_list
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

Run = Callable[..., None]


def spec(name: str, queue: str | None = None) -> dict[str, Any]:
    system: dict[str, Any] = {"duration": 0, "job": {"name": name}}
    if queue is not None:
        system["queue"] = queue
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


R = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["n0"], "expiration": 0.0},
}


class World:
    """Plays `job-manager` with its journal, and `job-info`."""

    def __init__(self, broker: Any, has_past: bool = False) -> None:
        self.broker = broker
        self.has_past = has_past
        self.ctx = broker.context("world")
        self.journal: Message | None = None
        self.known: set[int] = set()
        self.time = 1000.0
        self.ctx.service("job-manager", {"events-journal": self._journal})
        self.ctx.service("job-info", {"lookup": self._lookup})
        broker.load(job_list)
        self.client = broker.client()

    def _journal(self, msg: Message) -> None:
        assert msg.obj == {"full": True, "grouped": True}
        self.journal = msg
        if not self.has_past:
            self.past_ends()

    def past_ends(self) -> None:
        assert self.journal is not None
        self.ctx.respond(self.journal, {"id": -1, "events": []})

    def _lookup(self, msg: Message) -> Any:
        if msg.obj["id"] in self.known:
            return {"id": msg.obj["id"], "eventlog": ""}
        self.ctx.respond_error(msg, errno.ENOENT)
        return None

    def tell(self, id: int, *events: str, **more: Any) -> None:
        """Journal events such as `priority:5`, `finish:0`, `exception:cancel`."""
        batch = []
        for event in events:
            name, _, value = event.partition(":")
            self.time += 1
            context: dict[str, Any] = {}
            if name == "submit":
                context = {"userid": 0, "urgency": 16, "flags": 0, "version": 1}
            elif name == "priority":
                context = {"priority": int(value)}
            elif name == "finish":
                context = {"status": int(value)}
            elif name == "exception":
                context = {"type": value, "severity": 0, "note": ""}
            elif name == "memo":
                context = {"uri": value}
            batch.append({"timestamp": self.time, "name": name, "context": context})
        assert self.journal is not None
        self.ctx.respond(self.journal, {"id": id, "events": batch, **more})

    def pending(self, id: int, priority: int = 16, queue: str | None = None) -> None:
        jobspec = spec(f"job{id}", queue)
        self.tell(id, "submit", "validate", "depend", f"priority:{priority}", jobspec=jobspec)

    def running(self, id: int, **more: Any) -> None:
        self.pending(id, **more)
        self.tell(id, "alloc", R=R)

    def done(self, id: int, status: int = 0, **more: Any) -> None:
        self.running(id, **more)
        self.tell(id, f"finish:{status}", "clean")

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def until_inactive(self, count: int) -> None:
        while (await self.client.rpc("job-list.job-stats"))["job_states"]["inactive"] < count:
            await self.settle()

    async def listing(self, **body: Any) -> list[dict[str, Any]]:
        request = {"max_entries": 0, "attrs": ["all"], **body}
        tag = self.client.start("job-list.list", request, flags=m.FLAG_STREAMING)
        jobs: list[dict[str, Any]] = []
        self.messages = 0
        while True:
            reply = await self.client.next(tag)
            if reply.errnum:
                assert reply.errnum == errno.ENODATA, reply.text
                return jobs
            assert ("version" in reply.obj) is (not jobs)
            jobs += reply.obj["jobs"]
            self.messages += 1

    async def ids(self, **body: Any) -> list[int]:
        return [job["id"] for job in await self.listing(attrs=[], **body)]


def with_world(in_broker: Run, scenario: Callable[[World], Any], config: dict[str, Any] | None = None) -> None:
    async def run(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        await scenario(world)

    in_broker(run, config=config)


def test_pending_come_by_priority_then_running_then_finished_newest_first(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for id in (1, 2):
            world.done(id)
        for id in (3, 4):
            world.running(id)
        world.pending(5, 16)
        world.pending(6, 20)
        world.pending(7, 16)
        world.pending(8, 0)
        world.tell(9, "submit", "validate", jobspec=spec("dep"))
        await world.settle()
        assert await world.ids() == [6, 5, 7, 8, 9, 4, 3, 2, 1]
        assert await world.ids(max_entries=3) == [6, 5, 7]
        assert await world.ids(max_entries=6) == [6, 5, 7, 8, 9, 4]

    with_world(in_broker, scenario)


def test_events_of_several_jobs_in_one_message_change_each_of_them(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for id in (1, 2, 3):
            world.pending(id)
        world.done(4)
        world.tell(0, "memo:x", "priority:20", ids=[2, 3, 4])
        await world.settle()
        attrs = ["priority", "annotations"]
        found = {job.pop("id"): job for job in await world.listing(attrs=attrs)}
        changed = {"priority": 20, "annotations": {"user": {"uri": "x"}}}
        assert found == {1: {"priority": 16}, 2: changed, 3: changed, 4: {**changed, "priority": 16}}

    with_world(in_broker, scenario)


def test_a_listing_carries_the_asked_attributes_one_job_a_message(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1)
        world.running(2)
        await world.settle()
        jobs = await world.listing(attrs=["state", "result", "nodelist", "name"])
        assert jobs == [
            {"id": 2, "state": 16, "nodelist": "n0", "name": "job2"},
            {"id": 1, "state": 64, "result": 1, "nodelist": "n0", "name": "job1"},
        ]
        assert world.messages == 2

    with_world(in_broker, scenario)


def test_a_long_listing_comes_in_few_messages_and_in_slices(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for id in range(2000):
            world.done(id)
        await world.until_inactive(2000)
        turns = 0

        async def clock() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(clock())
        assert await world.ids() == list(range(1999, -1, -1))
        ticking.cancel()
        assert turns >= 8
        assert world.messages < 100
        assert len(world.broker.contexts["job-list"].streams("list")) == 0

    with_world(in_broker, scenario)


def test_a_client_that_leaves_ends_its_listing(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for id in range(1000):
            world.done(id)
        await world.until_inactive(1000)
        world.client.start("job-list.list", {"max_entries": 0, "attrs": []}, flags=m.FLAG_STREAMING)
        await asyncio.sleep(0)
        world.client.disconnect("job-list")
        await world.settle()
        assert len(world.broker.contexts["job-list"].streams("list")) == 0

    with_world(in_broker, scenario)


def test_constraints_and_since_limit_the_listing(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1, status=256)
        world.done(2)
        mark = world.time
        world.done(3)
        world.running(4)
        await world.settle()
        assert await world.ids(constraint={"and": [{"userid": [0]}, {"results": ["completed"]}]}) == [3, 2]
        assert await world.ids(since=mark) == [4, 3]
        assert await world.ids(constraint={"states": ["running"]}, since=mark) == [4]
        assert await world.ids(constraint={"name": ["job2"]}) == [2]
        reply = await world.client.call("job-list.list", {"max_entries": 1, "attrs": [], "constraint": {"x": []}})
        assert (reply.errnum, reply.text) == (
            errno.EPROTO,
            "invalid payload: invalid constraint: unknown constraint operator: x",
        )

    with_world(in_broker, scenario)


def test_wrong_requests_name_the_field(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for body, word in (
            ({"max_entries": -1, "attrs": []}, "max_entries"),
            ({"max_entries": 10**20, "attrs": []}, "max_entries must be at most"),
            ({"max_entries": 1, "attrs": ["nosuch"]}, "nosuch"),
            ({"max_entries": 1, "attrs": "all"}, "attrs"),
            ({"max_entries": 1, "attrs": [], "since": "x"}, "since"),
            ({"attrs": []}, "max_entries"),
        ):
            reply = await world.client.call("job-list.list", body)
            assert reply.errnum in (errno.EPROTO, errno.EINVAL)
            assert word in reply.text

    with_world(in_broker, scenario)


def test_without_streaming_all_jobs_come_in_one_answer(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1)
        world.running(2)
        await world.settle()
        body = {"max_entries": 5, "attrs": ["state"]}
        assert await world.client.rpc("job-list.list", body) == {
            "jobs": [{"id": 2, "state": 16}, {"id": 1, "state": 64}]
        }

    with_world(in_broker, scenario)


@pytest.mark.parametrize("limit", [0, 3])
def test_a_listing_takes_as_many_slices_as_its_tests_take_long(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(job_list, "_SLICE_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        for id in range(1, 6):
            world.pending(id)
        await world.settle()
        body = {"max_entries": limit, "attrs": ["state", "state"]}
        listed = [job["id"] for job in await world.listing(max_entries=limit)]
        assert listed == [1, 2, 3, 4, 5][: limit or None]
        assert [job["id"] for job in (await world.client.rpc("job-list.list", body))["jobs"]] == listed

    with_world(in_broker, scenario)


def test_listings_of_a_guest_are_few_and_small(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "MOST_FOR_GUEST", 3)
    monkeypatch.setattr(job_list, "GUEST_LISTINGS", 2)
    # Each job is a slice.
    monkeypatch.setattr(job_list, "_SLICE_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        for id in range(1, 6):
            world.pending(id)
        await world.settle()
        guest, owner = world.broker.client(guest=True), world.client
        codes = []
        for most in (3, 4, 0):
            codes.append((await guest.call("job-list.list", {"max_entries": most, "attrs": []})).errnum)
            assert (await owner.call("job-list.list", {"max_entries": most, "attrs": []})).errnum == 0
        assert codes == [0, errno.E2BIG, errno.E2BIG]
        body = {"max_entries": 0, "attrs": []}
        tags = [guest.start("job-list.list", body, flags=m.FLAG_STREAMING) for _ in range(3)]
        reply = await guest.next(tags[2])
        assert (reply.errnum, reply.text) == (errno.EAGAIN, "user 4242 has 2 listings that are not at their end")
        while (await guest.next(tags[0])).errnum == 0:
            pass
        assert (await guest.next(guest.start("job-list.list", body, flags=m.FLAG_STREAMING))).errnum == 0

    with_world(in_broker, scenario)


def test_a_constraint_that_names_too_much_is_refused(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        constraint = {"or": [{"name": ["x"]}] * 50_000}
        guest = world.broker.client(guest=True)
        body = {"max_entries": 0, "attrs": [], "constraint": constraint}
        reply = await guest.call("job-list.list", body)
        text = "invalid payload: invalid constraint: too many operators and values specified: at most 1000"
        assert (reply.errnum, reply.text) == (errno.EPROTO, text)

    with_world(in_broker, scenario)


def test_a_job_that_ends_during_a_listing_is_listed_once(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each job is a slice.
    monkeypatch.setattr(job_list, "_SLICE_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        number = 100
        for id in range(1, number + 1):
            world.running(id)
        await world.settle()
        request = {"max_entries": 0, "attrs": ["state"]}
        tag = world.client.start("job-list.list", request, flags=m.FLAG_STREAMING)
        found = [job["id"] for job in (await world.client.next(tag)).obj["jobs"]]
        # The newest come first: the oldest is in the last slice, and some others have been listed already.
        world.tell(1, "finish:0", "clean")
        for id in found:
            world.tell(id, "finish:0", "clean")
        while not (reply := await world.client.next(tag)).errnum:
            found += [job["id"] for job in reply.obj["jobs"]]
        assert sorted(found) == list(range(1, number + 1))
        assert found[-1] == 1, "as an inactive job"

    with_world(in_broker, scenario)


def test_one_job_by_its_id(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1)
        world.pending(2)
        await world.settle()
        guest = world.broker.client(guest=True)
        assert await guest.rpc("job-list.list-id", {"id": 1, "attrs": ["queue", "result"]}) == {
            "job": {"id": 1, "result": 1}
        }
        assert await guest.rpc("job-list.list-id", {"id": 2, "attrs": ["queue"]}) == {"job": {"id": 2}}
        reply = await guest.call("job-list.list-id", {"id": 99, "attrs": []})
        assert reply.errnum == errno.ENOENT
        stats = await world.client.rpc("job-list.stats-get")
        assert stats["idsync"] == {"lookups": 0, "waits": 0}

    with_world(in_broker, scenario)


def test_in_private_mode_the_state_of_another_users_job_is_not_waited_for(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.pending(2)
        await world.settle()
        world.broker.config = {"access": {"private-mode": True}}
        guest = world.broker.client(guest=True)
        for id in (2, 99):
            reply = await guest.call("job-list.list-id", {"id": id, "attrs": [], "state": 64})
            assert (reply.errnum, reply.text) == (errno.ENOENT, "")

    with_world(in_broker, scenario)


def test_an_id_can_be_waited_for_and_its_state_too(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.known.add(5)
        early = world.client.start("job-list.list-id", {"id": 5, "attrs": ["state"]})
        late = world.client.start("job-list.list-id", {"id": 5, "attrs": ["state"], "state": 64})
        await world.settle()
        assert (await world.client.rpc("job-list.stats-get"))["idsync"]["waits"] == 1
        world.pending(5)
        assert (await world.client.next(early)).obj == {"job": {"id": 5, "state": 8}}
        world.tell(5, "alloc", "finish:0")
        world.tell(5, "clean")
        assert (await world.client.next(late)).obj == {"job": {"id": 5, "state": 64}}

    with_world(in_broker, scenario)


def test_nobody_waits_for_a_job_that_was_purged_nor_for_a_state_that_is_none(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.known.add(5)
        asked = world.client.start("job-list.list-id", {"id": 5, "attrs": ["state"]})
        await world.settle()
        world.ctx.publish("job-purge-inactive", {"jobs": [5, 6]})
        assert (await world.client.next(asked)).errnum == errno.ENOENT
        assert (await world.client.rpc("job-list.stats-get"))["idsync"]["waits"] == 0
        for state in (65, 128, -1):
            reply = await world.client.call("job-list.list-id", {"id": 5, "attrs": [], "state": state})
            assert (reply.errnum, str(state) in reply.text) == (errno.EPROTO, True)

    with_world(in_broker, scenario)


def test_what_happens_during_a_pause_is_known_when_it_ends(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.known.update((5, 6))
        assert await world.client.rpc("job-list.job-state-pause") is None
        world.done(5)
        world.pending(6)
        asked = [world.client.start("job-list.list-id", {"id": id, "attrs": ["state"]}) for id in (5, 6)]
        await world.settle()
        assert await world.listing() == []
        assert (await world.client.rpc("job-list.stats-get"))["idsync"] == {"lookups": 0, "waits": 2}
        assert await world.client.rpc("job-list.job-state-unpause") is None
        assert [(await world.client.next(tag)).obj["job"]["state"] for tag in asked] == [8, 8]
        world.tell(6, "alloc", R=R)
        assert [job["state"] for job in await world.listing()] == [16, 64]

    with_world(in_broker, scenario)


def test_statistics_count_states_results_and_queues(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1, queue="batch")
        world.done(2, status=256, queue="debug")
        world.running(3, queue="batch")
        world.pending(4, queue="batch")
        world.pending(5)
        world.tell(5, "exception:cancel", "clean")
        world.broker.events.publish(m.event("job-purge-inactive", {"jobs": [2]}))
        await world.settle()
        stats = await world.client.rpc("job-list.job-stats")
        queues = {queue.pop("name"): queue for queue in stats.pop("queues")}
        states = {"depend": 0, "priority": 0, "sched": 1, "run": 1, "cleanup": 0, "inactive": 2, "total": 4}
        assert stats == {
            "job_states": states,
            "successful": 1,
            "failed": 0,
            "canceled": 1,
            "timeout": 0,
            "inactive_purged": 1,
        }
        assert queues["batch"]["job_states"]["total"] == 3
        assert queues["debug"]["inactive_purged"] == 1
        assert (await world.client.rpc("job-list.stats-get")) == {
            "jobs": {"pending": 1, "running": 1, "inactive": 2},
            "idsync": {"lookups": 0, "waits": 0},
            "stats_watchers": 0,
        }
        assert await world.ids() == [4, 3, 5, 1]

    with_world(in_broker, scenario)


def test_statistics_name_a_configured_queue_that_never_had_a_job(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.done(1, queue="gone")
        await world.settle()
        queues = (await world.client.rpc("job-list.job-stats"))["queues"]
        assert [(queue["name"], queue["job_states"]["total"]) for queue in queues] == [("batch", 0), ("gone", 1)]

    with_world(in_broker, scenario, {"queues": {"batch": {}}})


def test_streamed_statistics_follow_changes(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.client.start("job-list.job-stats", flags=m.FLAG_STREAMING)
        assert (await world.client.next(tag)).obj["job_states"]["total"] == 0
        world.pending(1)
        world.pending(2)
        assert (await world.client.next(tag)).obj["job_states"]["total"] == 2

    with_world(in_broker, scenario)


def test_a_job_that_moves_to_another_queue_is_counted_there(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.pending(1, queue="batch")
        assert world.journal is not None
        event = {"timestamp": 2e3, "name": "jobspec-update", "context": {"attributes.system.queue": "debug"}}
        world.ctx.respond(world.journal, {"id": 1, "events": [event]})
        await world.settle()
        queues = (await world.client.rpc("job-list.job-stats"))["queues"]
        assert [(queue["name"], queue["job_states"]["total"]) for queue in queues] == [("batch", 0), ("debug", 1)]
        assert queues[1]["job_states"]["priority"] == 1

    with_world(in_broker, scenario)


def test_refused_jobs_are_never_listed_and_late_memos_still_arrive(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.tell(1, "submit", "invalidate", jobspec=spec("bad"))
        world.done(2)
        world.tell(2, "memo:ssh://x")
        await world.settle()
        (job,) = await world.listing()
        assert (job["id"], job["annotations"]) == (2, {"user": {"uri": "ssh://x"}})

    with_world(in_broker, scenario)


def test_all_attributes_are_named(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        attrs = (await world.client.rpc("job-list.list-attrs"))["attrs"]
        assert {"t_submit", "exception_note", "annotations", "all"} <= set(attrs)
        for wrong, text in (("foo", "foo is not a valid attribute"), (5, "attr has no string value")):
            reply = await world.client.call("job-list.list", {"max_entries": 1, "attrs": [wrong]})
            assert (reply.errnum, reply.text) == (errno.EINVAL, text)

    with_world(in_broker, scenario)


def test_who_asks_for_annotations_by_name_gets_why_pending_jobs_wait(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        asked: list[list[int]] = []

        def reasons(msg: Message) -> dict[str, Any]:
            asked.append(msg.obj["ids"])
            # Job 2 has been started meanwhile.
            return {
                "reasons": [[id, {"reason_pending": f"r{id}", "jobs_ahead": 1}] for id in msg.obj["ids"] if id != 2],
                "own": [],
            }

        world.ctx.service("job-manager", {"reasons": reasons})
        world.running(1)
        for id in (2, 3, 4):
            world.pending(id)
        own = {"user": {"a": 1}, "sched": {"reason_pending": "own"}}
        world.ctx.respond(
            world.journal,
            {"id": 4, "events": [{"timestamp": 1.0, "name": "annotations", "context": {"annotations": own}}]},
        )
        await world.settle()
        assert [job.get("annotations") for job in await world.listing(attrs=["annotations"])] == [
            None,
            {"sched": {"reason_pending": "r3", "jobs_ahead": 1}},
            {"user": {"a": 1}, "sched": {"reason_pending": "own", "jobs_ahead": 1}},
            None,
        ]
        assert asked == [[2, 3, 4]]
        # The job's own annotations are not touched, and others do not ask.
        assert [job.get("annotations") for job in await world.listing(attrs=["all"])] == [None, None, own, None]
        assert len(asked) == 1
        answer = await world.client.rpc("job-list.list-id", {"id": 3, "attrs": ["state", "annotations"]})
        assert answer["job"]["annotations"] == {"sched": {"reason_pending": "r3", "jobs_ahead": 1}}
        assert "annotations" not in (await world.client.rpc("job-list.list-id", {"id": 3, "attrs": ["all"]}))["job"]
        # One that runs is not asked about.
        await world.client.rpc("job-list.list-id", {"id": 1, "attrs": ["annotations"]})
        assert asked == [[2, 3, 4], [3]]

    with_world(in_broker, scenario)


def test_a_reason_of_the_job_manager_replaces_what_a_scheduler_said_before(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        gone = "no scheduler is loaded"
        world.ctx.service(
            "job-manager", {"reasons": lambda msg: {"reasons": [[1, {"reason_pending": gone}]], "own": [1]}}
        )
        world.pending(1)
        stale = {"reason_pending": "short", "jobs_ahead": 2, "t_estimate": 5.0, "other": "kept"}
        world.ctx.respond(
            world.journal,
            {
                "id": 1,
                "events": [
                    {"timestamp": 1.0, "name": "annotations", "context": {"annotations": {"sched": stale, "user": 1}}}
                ],
            },
        )
        await world.settle()
        assert [job["annotations"] for job in await world.listing(attrs=["annotations"])] == [
            {"sched": {"reason_pending": gone, "other": "kept"}, "user": 1}
        ]

    with_world(in_broker, scenario)


def test_a_listing_goes_on_without_reasons_when_there_are_none_to_be_had(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        for id in range(1, 700):
            world.pending(id)
        await world.settle()
        jobs = await world.listing(attrs=["annotations", "state"])
        assert [job["id"] for job in jobs] == list(range(1, 700))

    with_world(in_broker, scenario)


class OldWorld(World):
    """Has had a job before the module began."""

    def _journal(self, msg: Message) -> None:
        self.journal = msg
        self.done(9)
        super()._journal(msg)


def test_metrics_are_for_the_owner_and_do_not_count_the_past(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = OldWorld(broker)
        await world.until_inactive(1)
        found = await world.client.rpc("job-list.metrics")
        assert found["idle_since"] == world.time and sum(found["results"].values()) == sum(found["run"]["counts"]) == 0
        world.done(1)
        world.pending(2)
        await world.until_inactive(2)
        found = await world.client.rpc("job-list.metrics")
        assert found["idle_since"] is None and found["results"]["completed"] == 1
        assert sum(found["wait"]["counts"]) == sum(found["run"]["counts"]) == 1
        reply = await world.broker.client(guest=True).call("job-list.metrics")
        assert reply.errnum == errno.EPERM

    in_broker(scenario)


def test_who_asks_before_the_past_is_read_is_answered_with_all_of_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, has_past=True)
        await world.settle()
        world.done(1)
        listing = asyncio.ensure_future(world.listing())
        stats = asyncio.ensure_future(world.client.rpc("job-list.job-stats"))
        wrong = world.client.start("job-list.list", {"max_entries": -1, "attrs": []})
        await world.settle()
        world.pending(2)
        await world.settle()
        assert not listing.done()
        assert not stats.done()
        world.past_ends()
        assert [job["id"] for job in await listing] == [2, 1]
        assert (await stats)["job_states"]["inactive"] == 1
        assert (await world.client.next(wrong)).errnum == errno.EPROTO

    in_broker(scenario)
