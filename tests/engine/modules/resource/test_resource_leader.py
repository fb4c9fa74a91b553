"""The resource service of rank 0, with groups, KVS and scheduler played by the test."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from resource_world import CONFIG, World, with_world

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.resource import counted, leader, log
from headrace.engine.modules.resource import service as resource
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset

Run = Callable[..., None]


def test_status_reads_as_recorded(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        await world.client.rpc("resource.drain", {"targets": "1", "reason": "testing"})
        status = await world.broker.client(guest=True).rpc("resource.status")
        (drained,) = status.pop("drain").items()
        assert (drained[0], drained[1]["reason"]) == ("1", "testing")
        assert status == {
            "R": {
                "version": 1,
                "execution": {
                    "R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}],
                    "starttime": 0.0,
                    "expiration": 0.0,
                    "nodelist": ["node[0-3]"],
                },
            },
            "online": "0-3",
            "offline": "",
            "exclude": "",
            "torpid": "",
        }

    with_world(in_broker, scenario)


def test_sched_status_puts_drained_and_offline_ranks_down(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-2")
        await world.client.rpc("resource.drain", {"targets": "1", "reason": "testing"})
        status = await world.client.rpc("resource.sched-status")
        assert list(status) == ["all", "down", "allocated"]
        assert status["down"]["execution"]["R_lite"] == [{"rank": "1,3", "children": {"core": "0-1"}}]
        assert status["down"]["execution"]["nodelist"] == ["node[1,3]"]
        assert status["allocated"] == {"version": 1}

    with_world(in_broker, scenario)


def test_without_a_scheduler_nothing_is_allocated(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.ctx.unservice("sched")
        allocated = (await world.client.rpc("resource.sched-status"))["allocated"]["execution"]
        assert (allocated["R_lite"], allocated["nodelist"]) == ([], [""])

    with_world(in_broker, scenario)


def test_a_scheduler_gets_everything_and_then_each_change(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.acquire()
        first = await world.take(tag)
        assert first["resources"]["execution"]["R_lite"] == [{"rank": "0-3", "children": {"core": "0-1"}}]
        assert first["up"] == "0"
        world.online("0-3")
        assert await world.take(tag) == {"up": "1-3"}
        await world.client.rpc("resource.drain", {"targets": "node[2-3]", "reason": "x"})
        assert await world.take(tag) == {"down": "2-3"}
        world.online("0-1,3")
        await world.client.rpc("resource.undrain", {"targets": "2-3"})
        assert await world.take(tag) == {"up": "3"}
        await world.client.rpc("resource.acquire-mute")
        world.online("0")
        await world.settle()
        assert world.client.queues[tag].empty()

    with_world(in_broker, scenario)


def test_resources_have_one_owner_until_it_disconnects(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        await world.take(world.acquire())
        refused = await world.client.next(world.acquire())
        assert refused.errnum == errno.EBUSY
        world.client.disconnect("resource")
        assert "resources" in await world.take(world.acquire())

    with_world(in_broker, scenario)


@pytest.mark.parametrize(
    ("method", "body", "text"),
    [
        ("drain", {"targets": "nosuchhost"}, "invalid targets: invalid hosts: nosuchhost"),
        ("drain", {"targets": "0,9"}, "invalid targets: idset is out of range: highest rank is 3"),
        ("undrain", {"targets": "2"}, "rank 2 not drained"),
        ("undrain", {"targets": "node[2-3]"}, "ranks 2-3 (node[2-3]) not drained"),
    ],
)
def test_wrong_targets_are_refused_as_recorded(in_broker: Run, method: str, body: Any, text: str) -> None:
    async def scenario(world: World) -> None:
        reply = await world.client.call(f"resource.{method}", body)
        assert (reply.errnum, reply.text) == (errno.EINVAL, text)
        guest = await world.broker.client(guest=True).call(f"resource.{method}", {"targets": "0"})
        assert guest.errnum == errno.EPERM

    with_world(in_broker, scenario)


def test_the_journal_gives_the_past_a_sentinel_and_then_what_happens(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.client.start("resource.journal", flags=m.FLAG_STREAMING)
        past = await world.take(tag)
        assert [event["name"] for event in past["events"]] == ["restart", "resource-define", "online"]
        assert past["events"][1]["context"] == {"method": "configuration"}
        assert past["R"]["version"] == 1
        assert await world.take(tag) == {"events": []}
        await world.client.rpc("resource.drain", {"targets": "3", "reason": None})
        (event,) = (await world.take(tag))["events"]
        assert event["name"] == "drain" and "reason" not in event["context"]

    with_world(in_broker, scenario)


def test_a_drain_that_cannot_be_kept_is_refused_and_not_made(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        await world.client.rpc("resource.drain", {"targets": "1", "reason": "kept"})
        world.full = True
        asked = [("drain", {"targets": "2", "reason": "x"}), ("undrain", {"targets": "1"})]
        tags = [world.client.start(f"resource.{method}", body) for method, body in asked]
        for tag in tags:
            told = await world.client.next(tag)
            assert (told.errnum, told.text) == (errno.ENOSPC, "the disk is full")
        assert list((await world.client.rpc("resource.status"))["drain"]) == ["1"]
        world.full = False
        await world.client.rpc("resource.undrain", {"targets": "1"})
        assert (await world.client.rpc("resource.status"))["drain"] == {}
        names = [json.loads(line)["name"] for line in world.kvs["resource.eventlog"].splitlines()]
        assert [name for name in names if "drain" in name] == ["drain", "undrain"]

    with_world(in_broker, scenario)


def test_of_two_drains_at_once_the_second_is_told(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tags = [world.client.start("resource.drain", {"targets": "1", "reason": reason}) for reason in "ab"]
        assert [(await world.client.next(tag)).errnum for tag in tags] == [0, errno.EEXIST]

    with_world(in_broker, scenario)


def test_a_drain_nobody_waits_for_is_made_at_once_and_kept_when_there_is_room(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_RETRY_DISK", 0.01)

    async def scenario(world: World) -> None:
        world.full = True
        world.ctx.call("resource.drain", {"targets": "2", "reason": "epilog failed", "mode": "update"})
        await world.settle()
        assert list((await world.client.rpc("resource.status"))["drain"]) == ["2"]
        world.full = False
        while "epilog failed" not in world.kvs["resource.eventlog"]:
            await asyncio.sleep(0.01)

    with_world(in_broker, scenario)


def test_drains_are_kept_in_the_kvs_over_a_restart(in_broker: Run) -> None:
    kvs: dict[str, str] = {}

    async def first(world: World) -> None:
        await world.client.rpc("resource.drain", {"targets": "2", "reason": "disk"})
        await world.settle()

    async def second(world: World) -> None:
        await world.settle()
        assert (await world.client.rpc("resource.status"))["drain"]["2"]["reason"] == "disk"

    with_world(in_broker, first, kvs=kvs)
    lines = [json.loads(line) for line in kvs["resource.eventlog"].splitlines()]
    assert [line["name"] for line in lines] == ["restart", "resource-define", "online", "drain"]
    assert json.loads(kvs["resource.R"])["execution"]["nodelist"] == ["node[0-3]"]
    with_world(in_broker, second, kvs=kvs)


def test_a_module_that_is_loaded_again_takes_over_what_the_nodes_counted(in_broker: Run) -> None:
    kvs: dict[str, str] = {}

    async def first(broker: Any) -> None:
        world = World(broker, kvs=kvs)
        await world.settle()
        nodes = [[rank, f"n{rank}", "0-3", ""] for rank in (1, 2, 3)]
        await world.client.rpc("resource.gather", {"nodes": nodes})
        await world.settle()

    async def second(broker: Any) -> None:
        world = World(broker, kvs=kvs)
        await world.settle()
        first = await world.take(world.acquire())
        assert first["resources"]["execution"]["nodelist"] == ["n[0-3]"]
        assert json.loads(kvs["resource.eventlog"].splitlines()[-2])["context"] == {"method": "kvs"}

    async def restarted(broker: Any) -> None:
        world = World(broker, kvs=kvs)
        await world.settle()
        assert (await world.client.call("resource.get")).errnum == errno.EAGAIN

    in_broker(first, hostlist="n[0-3]")
    in_broker(second, hostlist="n[0-3]", hostname="n0", **{"broker.starttime": "1.00"})
    in_broker(restarted, hostlist="n[0-3]", **{"broker.starttime": "9999999999.00"})


def test_what_is_excluded_is_drained_no_more(in_broker: Run) -> None:
    kvs: dict[str, str] = {}

    async def drains(world: World) -> None:
        await world.client.rpc("resource.drain", {"targets": "1", "reason": "x"})
        await world.settle()

    async def looks(world: World) -> None:
        assert (await world.client.rpc("resource.status"))["drain"] == {}
        await world.settle()

    with_world(in_broker, drains, kvs=kvs)
    with_world(in_broker, looks, {**CONFIG, "exclude": "1"}, kvs=kvs)
    with_world(in_broker, looks, kvs=kvs)


def test_a_configuration_undrains_what_it_excludes_when_all_have_taken_it(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        await world.client.rpc("resource.drain", {"targets": "1", "reason": "broken"})
        (drained,) = (await world.client.rpc("resource.status"))["drain"].items()
        for table in ({**CONFIG, "exclude": "1"}, CONFIG):
            # The second is the former one, applied because another module has refused the first.
            await world.module.reconfigure({"resource": table})
            assert list((await world.client.rpc("resource.status"))["drain"].items()) == [drained]
        config = {"resource": {**CONFIG, "exclude": "1"}}
        await world.module.reconfigure(config)
        world.ctx.publish("config.update", config)
        await world.settle()
        status = await world.client.rpc("resource.status")
        assert (status["drain"], status["exclude"]) == ({}, "1")

    with_world(in_broker, scenario)


def test_arguments_and_ranks_that_are_forced(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        with pytest.raises(RpcError, match="unknown argument 'badoption'"):
            broker.load(resource, "badoption")

    async def forced(world: World) -> None:
        world.online("0-3")
        await world.settle()
        assert (await world.client.call("resource.monitor-force-down", {"ranks": "foo"})).errnum == errno.EPROTO
        await world.client.rpc("resource.monitor-force-down", {"ranks": "3"})
        world.online("0-3")
        await world.settle()
        assert (await world.client.rpc("resource.status"))["online"] == "0-2"

    in_broker(scenario)
    with_world(in_broker, forced)


def test_excluded_hosts_are_left_to_themselves(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        first = await world.take(world.acquire())
        assert first["resources"]["execution"]["R_lite"][0]["rank"] == "1-3"
        assert first["resources"]["execution"]["nodelist"] == ["node[1-3]"]
        assert (await world.client.rpc("resource.status"))["exclude"] == "0"
        world.online("0-3")
        await world.settle()
        listed = await world.client.rpc("resource.sched-status")
        assert [listed[key]["execution"]["nodelist"] for key in ("all", "down")] == [["node[1-3]"], [""]]

    with_world(in_broker, scenario, {**CONFIG, "exclude": "node0"})


def test_without_configuration_every_broker_counts_its_node(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.acquire()
        await world.settle()
        assert world.client.queues[tag].empty()
        nodes = [[1, "b", "0-3", ""], [3, "d", "0-3", "0"]]
        await world.client.rpc("resource.gather", {"nodes": nodes})
        await world.client.rpc("resource.gather", {"nodes": [[2, "c", "0-3", ""]]})
        execution = (await world.take(tag))["resources"]["execution"]
        # Nodes have the names of the host list, whatever names their brokers know them by.
        assert execution["nodelist"] == ["node[0-3]"]
        by_rank = {group["rank"]: group["children"] for group in execution["R_lite"]}
        assert by_rank["3"] == {"core": "0-3", "gpu": "0"}
        status = await world.client.rpc("resource.status")
        assert status["R"]["execution"]["R_lite"] == execution["R_lite"]

    with_world(in_broker, scenario, None)


def test_a_question_waits_for_counts_that_are_under_way(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        first = world.client.start("resource.sched-status")
        await world.settle()
        # Rank 0 alone is online: the others may never come.
        assert (await world.client.rpc("resource.status"))["R"]["execution"]["R_lite"] == []
        assert (await world.take(first))["all"]["execution"]["R_lite"] == []
        world.online("0-3")
        tags = [world.client.start(f"resource.{name}") for name in ("sched-status", "status", "get")]
        await world.settle()
        assert all(world.client.queues[tag].empty() for tag in tags)
        await world.client.rpc("resource.gather", {"nodes": [[rank, "b", "0-3", ""] for rank in (1, 2, 3)]})
        answers = [await world.take(tag) for tag in tags]
        found = [answer.get("all") or answer["R"] for answer in answers]
        assert all([group["rank"] for group in r["execution"]["R_lite"]][-1][-1] == "3" for r in found), found

    with_world(in_broker, scenario, None)


def test_a_question_does_not_wait_long_for_counts_that_do_not_come(in_broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(leader, "_SOON", 0.01)

    async def scenario(world: World) -> None:
        world.online("0-3")
        await world.settle()
        assert (await world.client.call("resource.get")).errnum == errno.EAGAIN

    with_world(in_broker, scenario, None)


def test_a_node_that_has_less_than_configured_is_drained(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        nodes = [[1, "node1", "0", ""], [2, "node2", "0-7", ""], [3, "node3", "0-1", ""]]
        await world.client.rpc("resource.gather", {"nodes": nodes})
        drain = (await world.client.rpc("resource.status"))["drain"]
        assert drain["1"]["reason"] == "missing resources: core[1]"
        assert "2" not in drain
        # A GPU that nobody sees may be there all the same.
        assert "3" not in drain

    with_world(in_broker, scenario, {"config": [{"hosts": "node[0-3]", "cores": "0-1", "gpus": "0"}]})


@pytest.mark.parametrize(
    ("verify", "drained"),
    [
        ({}, {"1": "got hostname 'other', expected 'node1'"}),
        ({"verify": False}, {}),
        ({"verify": {"hostname": "ignore"}}, {"2": "has extra resources: core[2-7]"}),
        ({"verify": True, "noverify": True}, {}),
    ],
)
def test_a_configuration_says_what_is_verified(in_broker: Run, verify: Any, drained: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        await world.client.rpc("resource.gather", {"nodes": [[1, "other", "0-1", ""], [2, "node2", "0-7", ""]]})
        found = (await world.client.rpc("resource.status"))["drain"]
        assert {ranks: drain["reason"] for ranks, drain in found.items() if ranks != "0"} == drained

    with_world(in_broker, scenario, {"config": [{"hosts": "node[0-3]", "cores": "0-1"}], **verify})


def test_nodes_that_report_before_the_eventlog_is_read_are_verified(in_broker: Run) -> None:
    async def run(broker: Any) -> None:
        world = World(broker)
        await world.client.rpc("resource.gather", {"nodes": [[1, "other", "0-1", ""]]})
        await world.settle()
        assert (await world.client.rpc("resource.status"))["drain"]["1"]["reason"] == (
            "got hostname 'other', expected 'node1'"
        )

    table = {"config": [{"hosts": "node[0-3]", "cores": "0-1"}]}
    in_broker(run, config={"resource": table}, hostlist="node[0-3]", hostname="node0")


@pytest.mark.parametrize("method", ["config", "test"])
def test_configured_hosts_are_at_the_ranks_of_their_brokers(in_broker: Run, method: str) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        tag = world.acquire()
        await world.take(tag)
        await world.client.rpc("resource.drain", {"targets": "node3"})
        assert await world.take(tag) == {"down": "3"}
        status = await world.client.rpc("resource.status")
        assert (status["exclude"], list(status["drain"])) == ("1", ["3"])
        assert status["R"]["execution"]["R_lite"] == [{"rank": "1-3", "children": {"core": "0"}}]

    table = {"config": [{"hosts": "node3,node1,node2", "cores": "0"}], "noverify": True, "exclude": "node1"}
    with_world(in_broker, scenario, table, **{"broker.boot-method": method})


def test_a_configured_host_without_a_broker_is_an_error_of_a_bootstrap_table_alone(in_broker: Run) -> None:
    table = {"config": [{"hosts": "node[2-5]", "cores": "0"}], "noverify": True}

    async def refused(broker: Any) -> None:
        text = r"resource\.config: hosts node\[4-5\] not found in node\[0-3\] \(bootstrap\.hosts\)"
        with pytest.raises(RpcError, match=text):
            World(broker)

    options = {"config": {"resource": table}, "hostlist": "node[0-3]"}
    in_broker(refused, **options, **{"broker.boot-method": "config"})

    async def scenario(world: World) -> None:
        status = await world.client.rpc("resource.status")
        assert status["R"]["execution"]["nodelist"] == ["node[2-5]"]
        assert status["R"]["execution"]["R_lite"] == [{"rank": "0-3", "children": {"core": "0"}}]

    with_world(in_broker, scenario, table)
    # A recovered system has all hosts in its configuration, and one broker.
    with_world(in_broker, scenario, table, **{"broker.boot-method": "config", "broker.recovery-mode": "1"})


def test_another_r_can_be_loaded_while_no_scheduler_holds_it(in_broker: Run, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        execution = {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["big"]}
        path = tmp_path / "R"
        path.write_text(json.dumps({"version": 1, "execution": execution}))
        await world.client.rpc("resource.reload", {"path": str(path)})
        assert (await world.client.rpc("resource.get"))["R"]["execution"]["nodelist"] == ["big"]
        missing = await world.client.call("resource.reload", {"path": "/home/user/nosuchfile"})
        assert (missing.errnum, missing.text) == (
            errno.ENOENT,
            "/home/user/nosuchfile:-1 unable to open /home/user/nosuchfile: No such file or directory",
        )
        path.write_text('{"version": 1,\n "execution": }')
        broken = await world.client.call("resource.reload", {"path": str(path)})
        assert broken.errnum == errno.EINVAL and f"{path}:2 " in broken.text
        await world.take(world.acquire())
        path.write_text(json.dumps({"version": 1, "execution": execution}))
        assert (await world.client.call("resource.reload", {"path": str(path)})).errnum == errno.EBUSY

    with_world(in_broker, scenario)


def test_waiting_for_brokers_ends_when_enough_are_up(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.client.start("resource.monitor-waitup", {"up": 3})
        await world.settle()
        assert world.client.queues[tag].empty()
        world.online("0-2")
        assert (await world.client.next(tag)).errnum == 0
        assert (await world.client.call("resource.monitor-waitup", {"up": 9})).errnum == errno.EINVAL

    with_world(in_broker, scenario)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ([], "resource: must be a table"),
        ({"exclude": 3}, "resource.exclude"),
        ({"exclude": "4"}, "resource.exclude: idset is out of range"),
        ({"exclude": "node9"}, "resource.exclude: invalid hosts: node9"),
        ({"exclude": "x", "config": [{"hosts": "a", "cores": "0"}]}, "resource.exclude: invalid hosts: x"),
        ({"noverify": "yes"}, "resource.noverify"),
        ({"verify": {"core": "loose"}}, "resource.verify.core: must be one of strict, allow-extra"),
        ({"config": []}, "no hosts configured"),
        ({"path": "/nosuch"}, "unable to open /nosuch"),
    ],
)
def test_a_bad_resource_table_names_what_is_wrong(in_broker: Run, table: Any, text: str) -> None:
    async def scenario(broker: Any) -> None:
        with pytest.raises(RpcError, match=text):
            World(broker)

    in_broker(scenario, config={"resource": table}, hostlist="node[0-3]")


def test_a_sub_instance_takes_the_r_of_its_job_and_follows_it(in_broker: Run, tmp_path: Path) -> None:
    execution = {
        "R_lite": [{"rank": "2-3", "children": {"core": "1"}}],
        "nodelist": ["node[2-3]"],
        "starttime": 1.0,
        "expiration": 99.0,
    }
    asked: list[Any] = []
    later = asyncio.Event()

    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0")
        deframer = m.Deframer()
        deframer.feed(await reader.read(65536))
        for msg in deframer:
            asked.append((msg.topic, msg.obj))
            for expiration in (99.0, 199.0):
                r = {"version": 1, "execution": {**execution, "expiration": expiration}, "scheduling": {"graph": {}}}
                writer.write(m.frame(m.response(msg, {"id": msg.obj["id"], "R": r})))
                await later.wait()
            writer.write(m.frame(m.error_response(msg, errno.ENODATA)))
        await writer.drain()
        writer.close()

    async def scenario(broker: Any) -> None:
        path = str(tmp_path / "local")
        server = await asyncio.start_unix_server(parent, path)
        broker.attrs.set("parent-uri", f"local://{path}")
        broker.attrs.set("jobid", "ƒ2AniAMV")
        world = World(broker, size=2)
        acquirer = world.acquire()
        first = await world.take(acquirer)
        assert first["resources"]["execution"] == {
            "R_lite": [{"rank": "0-1", "children": {"core": "1"}}],
            "starttime": 1.0,
            "expiration": 99.0,
            "nodelist": ["node[2-3]"],
        }
        assert first["resources"]["scheduling"] == {"graph": {}}
        assert asked == [("job-info.update-watch", {"id": 44493176832, "key": "R", "flags": 0})]
        later.set()
        told = [await world.take(acquirer)]
        while "expiration" not in told[-1]:
            told.append(await world.take(acquirer))
        assert told[-1] == {"expiration": 199.0}
        assert (await world.client.rpc("resource.get"))["R"]["execution"]["expiration"] == 199.0
        server.close()

    in_broker(scenario, hostlist="node[2-3]", hostname="node2")


def test_norestrict_counts_cpus_that_the_broker_is_not_bound_to(in_broker: Run) -> None:
    before = os.sched_getaffinity(0)
    threads = {}

    async def scenario(broker: Any) -> None:
        world = World(broker, size=1)
        await world.settle()
        threads[len(threads)] = (await world.client.call("resource.topo-get")).text.count('type="PU"')

    try:
        os.sched_setaffinity(0, {min(before)})
        in_broker(scenario)
        in_broker(scenario, config={"resource": {"norestrict": True}})
    finally:
        os.sched_setaffinity(0, before)
    assert threads[0] == 1 and threads[1] >= len(before)


@pytest.mark.parametrize("known", [True, False])
def test_r_of_a_job_is_looked_up_once_where_it_cannot_be_followed(in_broker: Run, tmp_path: Path, known: bool) -> None:
    """By `resource.no-update-watch`, and where the enclosing instance knows no `job-info.update-watch`."""
    asked: list[str] = []
    r = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "5", "children": {"core": "3"}}],
            "nodelist": ["node5"],
            "starttime": 1.0,
            "expiration": 99.0,
        },
    }

    async def parent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0")
        deframer = m.Deframer()
        while data := await reader.read(65536):
            deframer.feed(data)
            for msg in deframer:
                asked.append(msg.topic)
                if msg.topic == "job-info.lookup":
                    assert msg.obj["keys"] == ["R"]
                    writer.write(m.frame(m.response(msg, {"id": msg.obj["id"], "R": json.dumps(r)})))
                else:
                    writer.write(m.frame(m.error_response(msg, errno.ENOSYS)))
        writer.close()

    async def scenario(broker: Any) -> None:
        path = str(tmp_path / "local")
        server = await asyncio.start_unix_server(parent, path)
        broker.attrs.set("parent-uri", f"local://{path}")
        broker.attrs.set("jobid", "ƒ2AniAMV")
        if known:
            broker.config["resource"] = {"no-update-watch": True}
        world = World(broker, size=1)
        first = await world.take(world.acquire())
        assert first["resources"]["execution"]["R_lite"] == [{"rank": "0", "children": {"core": "3"}}]
        assert asked == ["job-info.update-watch", "job-info.lookup"][known:]
        assert any("falling back to job-info.lookup" in str(line) for line in broker.logged)
        server.close()

    in_broker(scenario, hostlist="node5", hostname="node5")


def test_each_broker_tells_its_node_s_topology(in_broker: Run, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "node.xml"
    file.write_text("<topology><object type='Machine'/></topology>")

    async def scenario(broker: Any) -> None:
        broker.config["resource"] = CONFIG
        world = World(broker)
        # The module has looked at this node when it gives its resources out: only then the file may change that.
        await world.take(world.acquire())
        made = (await world.client.call("resource.topo-get")).text
        assert made.startswith("<?xml") and made.count('type="PU"') >= 1
        monkeypatch.setenv("FLUX_HWLOC_XMLFILE", str(file))
        assert (await world.client.call("resource.topo-get")).text == file.read_text()

    in_broker(scenario)


def nodes_without_config(in_broker: Run, scenario: Callable[[World], Any], quorum: str) -> None:
    async def run(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        await scenario(world)

    booted = {"broker.boot-method": "config", "broker.quorum": quorum}
    in_broker(run, hostlist="node[0-3]", hostname="node0", **booted)


def test_nodes_that_are_not_there_at_quorum_are_taken_to_be_like_most(in_broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(counted, "_LATE", 0.0)

    async def scenario(world: World) -> None:
        offer = world.acquire()
        await world.client.rpc("resource.gather", {"nodes": [[1, "node1", "0-7", "0"], [2, "node2", "0-7", "0"]]})
        world.online("0-2")
        first = await world.take(offer)
        r_lite = {entry["rank"]: entry["children"] for entry in first["resources"]["execution"]["R_lite"]}
        assert r_lite["1-3"] == {"core": "0-7", "gpu": "0"}
        assert first["resources"]["execution"]["nodelist"] == ["node[0-3]"]
        assert first["up"] == "0-2"
        # It is here, and not used before it is known what it has, which is more than it was taken for.
        world.online("0-3")
        await world.settle()
        assert (await world.client.rpc("resource.status"))["online"] == "0-3"
        await world.client.rpc("resource.gather", {"nodes": [[3, "node3", "0-15", "0-3"]]})
        told = await world.take(offer)
        assert told["shrink"] == "3"
        assert told["grow"]["execution"]["R_lite"] == [{"rank": "3", "children": {"core": "0-15", "gpu": "0-3"}}]
        assert told["grow"]["execution"]["nodelist"] == ["node3"]
        assert (await world.take(offer)) == {"up": "3"}
        whole = (await world.client.rpc("resource.get"))["R"]["execution"]
        assert {entry["rank"]: entry["children"].get("core") for entry in whole["R_lite"]}["3"] == "0-15"
        # One that comes again with less is taken as it is then.
        world.online("0-2")
        assert (await world.take(offer)) == {"down": "3"}
        await world.client.rpc("resource.gather", {"nodes": [[3, "node3", "0-3", "0"]]})
        assert (await world.take(offer))["grow"]["execution"]["R_lite"][0]["children"] == {"core": "0-3", "gpu": "0"}
        world.online("0-3")
        assert (await world.take(offer)) == {"up": "3"}
        assert (await world.client.rpc("resource.status"))["drain"] == {}

    nodes_without_config(in_broker, scenario, "3")


def test_with_a_quorum_of_all_nothing_is_assumed(in_broker: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(counted, "_LATE", 0.0)
    monkeypatch.setattr(leader, "_SOON", 0.0)

    async def scenario(world: World) -> None:
        await world.client.rpc("resource.gather", {"nodes": [[1, "node1", "0-7", ""], [2, "node2", "0-7", ""]]})
        world.online("0-3")
        await world.settle()
        assert (await world.client.call("resource.get")).errnum == errno.EAGAIN

    nodes_without_config(in_broker, scenario, "4")


def test_ranks_whose_broker_is_lost_are_drained_until_it_is_back_where_that_is_asked_for(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.online("0-3")
        await world.settle()
        await world.client.rpc("resource.drain", {"targets": "3"})
        # Rank 1 left in order.
        world.broker.lost = Idset.parse("2-3")
        world.online("0")
        await world.settle()
        drained = (await world.client.rpc("resource.status"))["drain"]
        assert {ranks: entry["reason"] for ranks, entry in drained.items()} == {"2": "broker was lost", "3": ""}
        world.online("0-3")
        await world.settle()
        assert list((await world.client.rpc("resource.status"))["drain"]) == ["3"]

    async def unasked(world: World) -> None:
        world.online("0-3")
        await world.settle()
        world.broker.lost = Idset.parse("2-3")
        world.online("0-1")
        await world.settle()
        assert (await world.client.rpc("resource.status"))["drain"] == {}

    def run(what: Any, table: dict[str, Any]) -> None:
        async def main(broker: Any) -> None:
            world = World(broker)
            await world.settle()
            await what(world)

        in_broker(main, config={"resource": CONFIG, **table}, hostlist="node[0-3]", hostname="node0")

    run(scenario, {"headrace": {"drain-lost": True}})
    run(unasked, {})
