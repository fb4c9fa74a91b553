from __future__ import annotations

import base64
import errno

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content import service as content
from headrace.engine.modules.kvs import service as kvs
from headrace.engine.modules.kvs import watch as kvs_watch
from headrace.formats.spec.kvs_flags import (
    APPEND,
    READDIR,
    STREAM,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_INITIAL_SENTINEL,
    WATCH_UNIQ,
)
from headrace.formats.spec.message import FLAG_STREAMING


def store(broker):
    for module in (content, kvs, kvs_watch):
        broker.load(module)
    return broker.client()


async def put(client, key: str, data: bytes, flags: int = 0, namespace: str = "primary") -> None:
    dirent = {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}
    op = {"key": key, "flags": flags, "dirent": dirent}
    await client.rpc("kvs.commit", {"namespace": namespace, "flags": 0, "ops": [op]})


async def unlink(client, key: str) -> None:
    op = {"key": key, "flags": 0, "dirent": None}
    await client.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]})


def watch(client, key: str, flags: int, namespace: str = "primary", streaming: bool = True) -> int:
    body = {"namespace": namespace, "key": key, "flags": flags}
    return client.start("kvs-watch.lookup", body, flags=FLAG_STREAMING if streaming else 0)


async def get(client, tag: int) -> bytes | int:
    reply = await client.next(tag)
    return reply.errnum or base64.b64decode(reply.obj["val"]["data"])


def test_every_version_of_the_key_is_sent_in_order(in_broker):
    async def scenario(broker):
        client = store(broker)
        await put(client, "a", b"0")
        tag = watch(client, "a", WATCH)
        assert await get(client, tag) == b"0"
        for data in (b"1", b"2", b"2"):
            await put(client, "a", data)
            await put(client, "other", data)
        assert [await get(client, tag) for _ in range(3)] == [b"1", b"2", b"2"]
        client.start("kvs-watch.cancel", {"matchtag": tag})
        assert await get(client, tag) == errno.ENODATA
        await put(client, "a", b"3")
        assert client.queues[tag].empty()

    in_broker(scenario)


def test_uniq_leaves_out_what_did_not_change(in_broker):
    async def scenario(broker):
        client = store(broker)
        await put(client, "a", b"0")
        tag = watch(client, "a", WATCH | WATCH_UNIQ)
        assert await get(client, tag) == b"0"
        for data in (b"0", b"0", b"1"):
            await put(client, "a", data)
        assert await get(client, tag) == b"1"

    in_broker(scenario)


def test_full_sees_a_change_of_a_parent_directory(in_broker):
    async def scenario(broker):
        client = store(broker)
        await put(client, "d.a", b"0")
        plain, full = watch(client, "d.a", WATCH), watch(client, "d.a", WATCH | WATCH_FULL)
        assert [await get(client, plain), await get(client, full)] == [b"0", b"0"]
        await unlink(client, "d")
        assert await get(client, full) == errno.ENOENT
        assert client.queues[plain].empty()

    in_broker(scenario)


def test_a_missing_key_ends_the_watch_unless_it_waits(in_broker):
    async def scenario(broker):
        client = store(broker)
        assert await get(client, watch(client, "a", WATCH)) == errno.ENOENT
        tag, once = watch(client, "a", WATCH | WAITCREATE), watch(client, "a", WAITCREATE, streaming=False)
        await put(client, "b", b"")
        await put(client, "a", b"1")
        assert [await get(client, tag), await get(client, once)] == [b"1", b"1"]
        await unlink(client, "a")
        assert await get(client, tag) == errno.ENOENT
        assert client.queues[once].empty()

    in_broker(scenario)


def test_append_sends_each_addition_once(in_broker):
    async def scenario(broker):
        client = store(broker)
        await put(client, "log", b"1\n")
        await put(client, "log", b"2\n", 32)
        tag = watch(client, "log", WATCH | WATCH_APPEND)
        assert [await get(client, tag), await get(client, tag)] == [b"1\n", b"2\n"]
        await put(client, "log", b"3\n", 32)
        assert await get(client, tag) == b"3\n"
        await put(client, "log", b"new")
        reply = await client.next(tag)
        assert reply.errnum == errno.EINVAL and "overwritten" in reply.text

    in_broker(scenario)


def test_append_begins_with_a_value_that_was_never_appended_to(in_broker):
    async def scenario(broker):
        client = store(broker)
        tag = watch(client, "log", WATCH | WATCH_APPEND | WAITCREATE)
        for data in (b"1", b"2", b"3"):
            await put(client, "log", data, 32)
        assert [await get(client, tag) for _ in range(3)] == [b"1", b"2", b"3"]
        await put(client, "dir.x", b"")
        assert await get(client, watch(client, "dir", WATCH | WATCH_APPEND)) == errno.EISDIR

    in_broker(scenario)


def test_stream_sends_the_pieces_and_ends(in_broker):
    async def scenario(broker):
        client = store(broker)
        for data in (b"1", b"2"):
            await put(client, "log", data, 32)
        tag = watch(client, "log", STREAM)
        assert [await get(client, tag) for _ in range(3)] == [b"1", b"2", errno.ENODATA]

    in_broker(scenario)


def test_directories_can_be_watched(in_broker):
    async def scenario(broker):
        client = store(broker)
        await put(client, "d.a", b"1")
        tag = watch(client, "d", WATCH | WATCH_FULL | READDIR)
        assert list((await client.next(tag)).obj["val"]["data"]) == ["a"]
        await put(client, "d.b", b"1")
        assert list((await client.next(tag)).obj["val"]["data"]) == ["a", "b"]

    in_broker(scenario)


def test_a_namespace_may_come_later_and_its_end_ends_the_watch(in_broker):
    async def scenario(broker):
        client = store(broker)
        assert await get(client, watch(client, "a", WATCH, "ns")) == errno.ENOTSUP
        tag = watch(client, "a", WATCH | WAITCREATE, "ns")
        await client.rpc("kvs.namespace-create", {"namespace": "ns", "owner": -1, "flags": 0})
        await put(client, "a", b"1", namespace="ns")
        assert await get(client, tag) == b"1"
        await client.rpc("kvs.namespace-remove", {"namespace": "ns"})
        assert await get(client, tag) == errno.ENOTSUP

    in_broker(scenario)


def test_keys_of_the_job_store_are_followed(in_broker):
    async def scenario(broker):
        log = {"val": "1\n"}

        def lookup(msg):
            known = {"": {"dir": ["0000"]}, "0000": {"dir": ["eventlog"]}, "0000.eventlog": log}
            if msg.obj["path"] not in known:
                raise RpcError(errno.ENOENT)
            return dict(known[msg.obj["path"]])

        broker.context("job-manager").service("job-store", {"lookup": lookup})
        client = store(broker)
        whole = watch(client, "job.0000.eventlog", WATCH)
        parts = watch(client, "job.0000.eventlog", WATCH | WATCH_APPEND)
        assert [await get(client, whole), await get(client, parts)] == [b"1\n", b"1\n"]
        log["val"] = "1\n2\n"
        assert [await get(client, whole), await get(client, parts)] == [b"1\n2\n", b"2\n"]

    in_broker(scenario)


def test_guests_cannot_watch_the_primary_namespace(in_broker):
    async def scenario(broker):
        store(broker)
        guest = broker.client(guest=True)
        assert await get(guest, watch(guest, "a", WATCH | WAITCREATE)) == errno.EPERM

    in_broker(scenario)


def test_a_client_that_is_gone_leaves_no_watcher(in_broker):
    async def scenario(broker):
        client, other = store(broker), broker.client()
        await put(client, "a", b"1")
        tag = watch(client, "a", WATCH)
        await get(client, tag)
        client.disconnect("kvs-watch")
        await put(other, "a", b"2")
        assert (await other.rpc("kvs-watch.stats-get"))["watchers"] == 0
        assert client.queues[tag].empty()

    in_broker(scenario)


@pytest.mark.parametrize(
    ("body", "flags"),
    [
        (None, FLAG_STREAMING),
        ({"namespace": "primary", "key": "a"}, FLAG_STREAMING),
        ({"namespace": "primary", "key": "a", "flags": WATCH}, 0),
        ({"namespace": "primary", "key": "a", "flags": 1 << 20}, FLAG_STREAMING),
    ],
)
def test_malformed_requests_get_eproto(in_broker, body, flags):
    async def scenario(broker):
        client = store(broker)
        reply = await client.next(client.start("kvs-watch.lookup", body, flags=flags))
        assert reply.errnum == errno.EPROTO

    in_broker(scenario)


@pytest.mark.parametrize(
    "flags",
    [
        WATCH | STREAM,
        WATCH_FULL,
        WATCH_UNIQ | WAITCREATE,
        WATCH_APPEND,
        STREAM | WATCH_APPEND,
        WATCH | WATCH_INITIAL_SENTINEL,
        WATCH_APPEND | WATCH_INITIAL_SENTINEL,
    ],
)
def test_flags_that_contradict_each_other_are_refused(in_broker, flags):
    async def scenario(broker):
        client = store(broker)
        await put(client, "a", b"0")
        assert await get(client, watch(client, "a", flags)) == errno.EPROTO

    in_broker(scenario)


@pytest.mark.parametrize("created_later", [False, True])
def test_an_empty_response_parts_what_was_there_from_what_is_appended(in_broker, created_later):
    async def scenario(broker):
        client = store(broker)
        flags = WATCH | WATCH_APPEND | WATCH_INITIAL_SENTINEL | WAITCREATE
        if not created_later:
            await put(client, "a", b"0")
            await put(client, "a", b"1", APPEND)
        tag = watch(client, "a", flags)
        if created_later:
            await put(client, "a", b"01")
        replies = [await client.next(tag) for _ in range(2 if created_later else 3)]
        assert b"".join(base64.b64decode(reply.obj["val"]["data"]) for reply in replies[:-1]) == b"01"
        assert (replies[-1].errnum, replies[-1].payload) == (0, None)
        await put(client, "a", b"2", APPEND)
        assert await get(client, tag) == b"2"

    in_broker(scenario)
