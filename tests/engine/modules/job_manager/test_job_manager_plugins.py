"""`job-manager.jobtap` and the services of the policy mf_priority, in a minimal broker."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from accounts_world import association, queue
from jobs_world import QUEUES, World, jobspec, signed

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec.job_state import PRIORITY, SCHED
from headrace.formats.spec.message import FLAG_STREAMING

Run = Callable[..., None]

PATH = "/nowhere/mf_priority.so"


async def plugins(world: World) -> list[str]:
    body = await world.client.rpc("job-manager.jobtap", {"query_only": True})
    return list(body["plugins"])


async def states(world: World) -> list[int]:
    return [job["state"] for job in (await world.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]]


def own_rows(**changes: Any) -> list[dict[str, Any]]:
    """Rows of the user of the tests' client."""
    return [association(os.getuid(), **{"bank": "A", **changes})]


def test_plugins_are_loaded_listed_queried_and_removed(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        rpc = world.client.rpc
        assert await plugins(world) == [".priority-default"]
        await rpc("job-manager.jobtap", {"load": PATH, "remove": ".priority-default"})
        assert await plugins(world) == ["mf_priority.so"]
        found = await rpc("job-manager.jobtap-query", {"name": "mf_priority.so"})
        assert (found["name"], found["path"], found["mf_priority_map"]) == ("mf_priority.so", PATH, [])
        await rpc("job-manager.jobtap", {"load": ".priority-default"})
        assert await plugins(world) == ["mf_priority.so", ".priority-default"]
        assert await rpc("job-manager.jobtap-query", {"name": ".priority-default"}) == {
            "name": ".priority-default",
            "path": "builtin",
        }
        # A glob selects a built-in plugin only by its dot, `all` never does.
        for pattern, left in (("mf*", 1), ("all", 1), (".*", 0)):
            await rpc("job-manager.jobtap", {"remove": pattern})
            assert len(await plugins(world)) == left

    in_broker(scenario)


@pytest.mark.parametrize(
    ("topic", "body", "errnum", "text"),
    [
        ("jobtap", {"load": "/x/other.so"}, errno.EINVAL, "/x/other.so: only built-in plugins can be loaded"),
        ("jobtap", {"load": "/x/.priority-default"}, errno.EEXIST, ".priority-default already loaded"),
        ("jobtap", {"remove": "mf_priority.so"}, errno.ENOENT, "Failed to find plugin to remove"),
        ("jobtap", {"remove": "*"}, errno.ENOENT, "Failed to find plugin to remove"),
        ("jobtap", {"load": PATH, "conf": 1}, errno.EINVAL, "mf_priority.so: the configuration"),
        ("jobtap", {"load": PATH, "conf": {"config": []}}, errno.EINVAL, "mf_priority.so: config: not an object"),
        (
            "jobtap",
            {"load": PATH, "conf": {"config": {"associations": [{"userid": "x"}]}}},
            errno.EINVAL,
            "mf_priority.so: associations[0].userid: ",
        ),
        ("jobtap-query", {"name": "mf_priority.so"}, errno.EINVAL, "mf_priority.so: plugin not found"),
        ("mf_priority.rec_update", {"data": []}, errno.ENOSYS, "Unknown service method 'rec_update'"),
        ("mf_priority.reprioritize", None, errno.ENOSYS, "Unknown service method 'reprioritize'"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    in_broker: Run, topic: str, body: Any, errnum: int, text: str
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        reply = await world.client.call(f"job-manager.{topic}", body)
        assert (reply.errnum, reply.text[: len(text)]) == (errnum, text)
        assert await plugins(world) == [".priority-default"]
        for guest in ("jobtap", "jobtap-query", "mf_priority.rec_update"):
            reply = await broker.client(guest=True).call(f"job-manager.{guest}", body)
            assert (reply.errnum, reply.text) == (errno.EPERM, "Request requires owner credentials")

    in_broker(scenario)


def test_waiting_jobs_get_their_priorities_from_the_services(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        rpc = world.client.rpc
        await rpc("job-manager.jobtap", {"load": PATH})
        id = await world.job()
        assert await states(world) == [PRIORITY]
        for body, errnum, text, logged in (
            (
                {"data": [{"userid": 1}]},
                errno.EINVAL,
                "associations[0].bank: missing",
                "mf_priority unpack: associations",
            ),
            ({}, errno.EPROTO, "job-manager.mf_priority.rec_update: data: missing", "failed to unpack custom_priority"),
            (
                None,
                errno.EPROTO,
                "job-manager.mf_priority.rec_update: data: missing",
                "failed to unpack custom_priority",
            ),
        ):
            reply = await world.client.call("job-manager.mf_priority.rec_update", body)
            assert (reply.errnum, reply.text) == (errnum, text)
            assert logged in broker.logged[-1]
        await rpc("job-manager.mf_priority.rec_update", {"data": own_rows(fairshare=0.25)})
        await rpc("job-manager.mf_priority.rec_fac_update", {"data": [{"factor": "fairshare", "weight": 1000}]})
        await rpc("job-manager.mf_priority.rec_bank_update", {"data": [{"bank": "A", "priority": 5.0}]})
        await rpc("job-manager.mf_priority.rec_proj_update", {"data": [{"project": "p"}]})
        await rpc("job-manager.mf_priority.rec_config_update", {"data": {"deny_unknown_queues": False}})
        assert await states(world) == [PRIORITY]
        await rpc("job-manager.mf_priority.reprioritize")
        assert (await world.events(id))[3:] == [
            ("jobspec-update", {"attributes.system.bank": "A", "attributes.system.project": "*"}),
            ("memo", {"fairshare": 0.25}),
            ("priority", {"priority": 250}),
        ]
        # Nothing has changed, so nothing is posted.
        await rpc("job-manager.mf_priority.reprioritize")
        assert len(await world.events(id)) == 6
        # Without the policy its jobs go on, and the next ones have the priorities of their urgencies.
        await rpc("job-manager.jobtap", {"remove": "all"})
        other = await world.job(urgency=20)
        assert (await world.events(other))[-1] == ("priority", {"priority": 20})

    in_broker(scenario)


def test_the_events_of_equal_jobs_are_one_message_to_those_who_ask_for_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        rows = [*own_rows(def_bank="A"), *own_rows(bank="B", def_bank="A", fairshare=0.25)]
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": {"config": {"associations": rows}}})
        ids = {bank: [await world.job(jobspec(bank=bank)) for _ in range(3)] for bank in ("A", "B")}
        tags = {}
        for grouped in (True, False):
            body = {"full": False, "grouped": grouped}
            tags[grouped] = world.client.start("job-manager.events-journal", body, None, FLAG_STREAMING)
            while (await world.client.next(tags[grouped])).obj["events"]:
                pass
        await world.client.rpc("job-manager.mf_priority.rec_update", {"data": own_rows(fairshare=0.75, def_bank="A")})
        await world.client.rpc("job-manager.mf_priority.reprioritize")
        body = (await world.client.next(tags[True])).obj
        assert body["ids"] == ids["A"]
        assert [(event["name"], event["context"]) for event in body["events"]] == [
            ("memo", {"fairshare": 0.75}),
            ("priority", {"priority": 75000}),
        ]
        for id in ids["A"]:
            assert (await world.client.next(tags[False])).obj == {"id": id, "events": body["events"]}
        await world.cancel(ids["B"][0])
        for tag in tags.values():
            assert (await world.client.next(tag)).obj["id"] == ids["B"][0]

    in_broker(scenario)


def test_a_strict_queue_refuses_a_longer_duration_to_users_and_not_to_the_owner(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        guest = broker.client(guest=True)
        rows = [association(userid, "A", queues="batch") for userid in (os.getuid(), guest.userid)]
        conf = {"config": {"associations": rows, "queues": [queue("batch", max_time_per_job=1)]}}
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": conf})
        spec = jobspec(queue="batch", duration=60)
        body = {"J": signed(spec, guest.userid), "urgency": 16, "flags": 0}
        mine, own = (await guest.rpc("job-ingest.submit", body))["id"], await world.job(spec)
        updates = {"attributes.system.duration": 120}
        reply = await guest.call("job-manager.update", {"id": mine, "updates": updates})
        assert (reply.errnum, "asks for 2 minutes" in reply.text) == (errno.EINVAL, True), reply.text
        for id in (mine, own):
            await world.client.rpc("job-manager.update", {"id": id, "updates": updates})
            assert ("jobspec-update", updates) in await world.events(id)

    in_broker(
        scenario, config={**QUEUES, "headrace": {"guests": {"submit": "as-owner"}}, "accounting": {"strict": True}}
    )


def test_changed_priorities_reach_the_scheduler_together(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        sent: list[list[list[int]]] = []
        world.ctx.service("sched", {"prioritize": lambda msg: sent.append(msg.obj["jobs"])})
        conf = {"config": {"associations": own_rows(max_active_jobs=1000)}}
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": conf})
        ids = [await world.job() for _ in range(70)]
        rows = own_rows(max_active_jobs=1000, fairshare=0.75)
        await world.client.rpc("job-manager.mf_priority.rec_update", {"data": rows})
        await world.client.rpc("job-manager.mf_priority.reprioritize")
        assert sorted(pair for jobs in sent for pair in jobs) == [(id, 75000) for id in ids]
        assert len(sent) < 10

    in_broker(scenario)


def test_plugins_of_the_configuration_are_loaded_at_the_start(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        config = {"job-manager": {"plugins": [{"load": PATH, "conf": {"config": {"associations": own_rows()}}}]}}
        broker.config.update(config)
        world = World(broker)
        assert await plugins(world) == [".priority-default", "mf_priority.so"]
        await world.begin()
        id = await world.job()
        assert (await world.events(id))[-1] == ("priority", {"priority": 50000})
        assert await states(world) == [SCHED]

    in_broker(scenario)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (1, "job-manager.plugins: must be an array of tables"),
        ([1], "job-manager.plugins: must be an array of tables"),
        ([{"load": 1}], "job-manager.plugins[0].load: must be a string, not 1"),
        ([{"lod": "mf_priority.so"}], "job-manager.plugins[0]: must have the key load or remove"),
        (
            [{"remove": "all"}, {"load": "x.so"}],
            "job-manager.plugins[1].load: x.so: only built-in plugins can be loaded",
        ),
        ([{"remove": "x.so"}], "job-manager.plugins[0].remove: Failed to find plugin to remove"),
    ],
)
def test_a_wrong_entry_of_the_configuration_fails_the_start(in_broker: Run, entries: Any, text: str) -> None:
    async def scenario(broker: Any) -> None:
        broker.config["job-manager"] = {"plugins": entries}
        with pytest.raises(RpcError) as caught:
            World(broker)
        assert (caught.value.errnum, caught.value.text) == (errno.EINVAL, text)

    in_broker(scenario)


def test_when_limits_are_checked_is_configured(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        broker.config["accounting"] = {"limits": "at-submit"}
        world = World(broker)
        await world.begin()
        conf = {"config": {"associations": own_rows(max_running_jobs=1)}}
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": conf})
        # Both were submitted before one of them ran, so both run.
        for id in [await world.job() for _ in range(2)]:
            await world.alloc(id)
        broker.config["accounting"] = {"limits": "sometimes"}
        reply = await world.client.call("job-manager.jobtap", {"remove": "all", "load": PATH})
        assert reply.text == "accounting.limits: must be always or at-submit, not 'sometimes'"

    in_broker(scenario)


def test_a_job_changes_its_bank_where_the_policy_lets_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        id = await world.job()
        update = {"id": id, "updates": {"attributes.system.bank": "B"}}
        reply = await world.client.call("job-manager.update", update)
        assert reply.text == "update of attributes.system.bank not supported"
        rows = own_rows() + own_rows(bank="B", max_running_jobs=1)
        conf = {"config": {"associations": rows, "projects": [{"project": "*"}]}}
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": conf})
        for value, why in ((1, "bank must be a name, not 1"), ("C", "update_bank: cannot find flux-accounting entry")):
            reply = await world.client.call(
                "job-manager.update", {"id": id, "updates": {"attributes.system.bank": value}}
            )
            assert reply.text.startswith(why)
        await world.client.rpc("job-manager.update", update)
        found = await world.client.rpc("job-manager.jobtap-query", {"name": "mf_priority.so"})
        active = {bank["bank_name"]: bank["cur_active_jobs"] for bank in found["mf_priority_map"][0]["banks"]}
        assert active == {"A": 0, "B": 1}

    in_broker(scenario)


def test_a_withheld_job_names_its_limit_in_listings(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.begin()
        conf = {"config": {"associations": own_rows(max_nodes=1)}}
        await world.client.rpc("job-manager.jobtap", {"load": PATH, "conf": conf})
        ids = [await world.job(jobspec()) for _ in range(3)]
        await world.alloc(ids[0])
        await world.until(lambda: ids[1] in world.allocs)
        world.ctx.respond(world.allocs.pop(ids[1]), {"id": ids[1], "type": 0, "R": {"execution": {}}})
        await world.until(lambda: ids[1] in world.freed and ids[2] not in world.allocs)
        found = await world.client.rpc("job-manager.reasons", {"ids": ids[1:]})
        limit = {"reason_pending": "limit: max-resources-user-limit"}
        assert found["reasons"] == [[ids[1], limit], [ids[2], limit]]
        world.say(ids[0], "start")
        world.end(ids[0])
        await world.until(lambda: ids[1] in world.allocs)
        assert world.asked == [*ids, ids[1]]

    in_broker(scenario)
