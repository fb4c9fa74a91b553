"""Data of jobs that were committed to the KVS: what lookups and watchers of the job-info service get then (RFC 41)."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

from jobs_world import World
from kvs_world import commit, look, put, unlink, val

from headrace.engine.modules.content import service as content
from headrace.engine.modules.job_manager.info import Overlays
from headrace.engine.modules.kvs import service as kvs
from headrace.formats.spec import jobid
from headrace.formats.spec.kvs_flags import APPEND, TREEOBJ
from headrace.formats.spec.treeobj import decode_val

Run = Callable[..., None]
EVENTS = '{"timestamp":1.0,"name":"submit"}\n{"timestamp":2.0,"name":"clean"}\n'


async def begun(broker: Any) -> tuple[World, int, str]:
    """A world with a KVS, and a job in it with the key of its eventlog."""
    broker.load(content)
    broker.load(kvs)
    world = World(broker)
    await world.begin()
    id = await world.job()
    return world, id, f"{jobid.encode(id, 'kvs')}.eventlog"


def body(id: int, key: str = "eventlog", flags: int = 0) -> dict[str, Any]:
    return {"id": id, "keys": [key], "flags": flags}


def test_a_watch_of_an_eventlog_ends_with_an_error_when_it_is_overwritten(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world, id, key = await begun(broker)
        watch = world.watch(id)
        assert json.loads((await world.client.next(watch)).obj["event"])["name"] == "submit"
        await world.client.rpc("kvs.commit", commit(put(key, b"damaged")))
        while not (reply := await world.client.next(watch)).errnum:
            pass
        assert (reply.errnum, reply.text) == (errno.EINVAL, "the eventlog was overwritten in the KVS")
        for reply in (
            await world.client.next(world.watch(id)),
            await world.client.call("job-info.lookup", body(id)),
        ):
            assert (reply.errnum, reply.text) == (errno.EINVAL, "error parsing eventlog")
        await world.cancel(id)

    in_broker(scenario)


def test_an_eventlog_of_the_kvs_is_shown_and_watched_to_its_end_until_it_is_unlinked(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world, id, key = await begun(broker)
        own = (await world.client.rpc("job-info.lookup", body(id)))["eventlog"]
        await world.client.rpc("kvs.commit", commit(put(key, EVENTS.encode())))
        assert (await world.client.rpc("job-info.lookup", body(id)))["eventlog"] == EVENTS
        watch = world.watch(id)
        events = [(await world.client.next(watch)).obj["event"] for _ in range(2)]
        assert ("".join(events), (await world.client.next(watch)).errnum) == (EVENTS, errno.ENODATA)
        await world.client.rpc("kvs.commit", commit(unlink(key)))
        assert (await world.client.rpc("job-info.lookup", body(id)))["eventlog"].startswith(own)
        await world.cancel(id)

    in_broker(scenario)


def test_a_jobspec_of_the_kvs_is_decoded_or_refused(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world, id, key = await begun(broker)
        key = key.replace("eventlog", "jobspec")
        await world.client.rpc("kvs.commit", commit(put(key, b'{"version":1}')))
        assert (await world.client.rpc("job-info.lookup", body(id, "jobspec", 1)))["jobspec"] == {"version": 1}
        await world.client.rpc("kvs.commit", commit(put(key, b"{")))
        assert (await world.client.call("job-info.lookup", body(id, "jobspec", 1))).errnum == errno.EINVAL
        await world.cancel(id)

    in_broker(scenario)


def test_keys_that_were_committed_before_are_known_whichever_module_comes_first(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        found: list[tuple[int, str]] = []
        broker.load(content)
        first = broker.load(kvs)
        client = broker.client()
        await client.rpc("kvs.commit", commit(put(f"{jobid.encode(5, 'kvs')}.eventlog", b"x")))
        overlays = Overlays(broker.context("after"), lambda id, key: found.append((id, key)))
        await client.rpc("kvs.job-data")
        assert (found, overlays.of(5), overlays.of(6)) == ([(5, "eventlog")], {"eventlog"}, frozenset())
        await first.unload()
        broker.load(kvs)
        await client.rpc("kvs.job-data")
        assert found == [(5, "eventlog")] * 2

    in_broker(scenario)


def test_an_append_to_a_log_of_an_ended_job_is_in_the_reference_of_its_directory_unless_a_value_stands_over_it(
    in_broker: Run,
) -> None:
    async def scenario(broker: Any) -> None:
        world, id, key = await begun(broker)
        await world.run(id)
        folder = key.rpartition(".")[0]

        async def append(line: str) -> None:
            op = {"key": "exec.eventlog", "flags": APPEND, "dirent": val(line.encode())}
            await world.client.rpc("kvs.commit", commit(op, namespace=f"job-{id}"))

        async def reference() -> Any:
            return await world.client.rpc("kvs.lookup", look(folder, TREEOBJ))

        async def log() -> str:
            return str(
                (await world.client.rpc("job-info.lookup", body(id, "guest.exec.eventlog")))["guest.exec.eventlog"]
            )

        before = await reference()
        await append('{"timestamp":1.0,"name":"a"}\n')
        assert await reference() != before
        assert await log() == '{"timestamp":1.0,"name":"a"}\n'
        await world.client.rpc("kvs.commit", commit(put(f"{folder}.guest.exec.eventlog", EVENTS.encode())))
        await append('{"timestamp":3.0,"name":"b"}\n')
        shown = await world.client.rpc("kvs.lookup", look(f"{folder}.guest.exec.eventlog"))
        assert decode_val(shown["val"]).decode() == EVENTS + '{"timestamp":3.0,"name":"b"}\n'
        assert await log() == '{"timestamp":1.0,"name":"a"}\n'

    in_broker(scenario)
