from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content import service as content
from waiting import until_in_loop

DATA = Path(__file__).parents[3] / "data" / "kvs"


def raw(line: dict) -> bytes:
    return line["payload_text"].encode() if "payload_text" in line else base64.b64decode(line["payload_b64"])


def test_the_recorded_conversation_is_answered_byte_by_byte(in_broker):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()
        lines = [json.loads(line) for line in (DATA / "66-content.jsonl").read_text().splitlines()[1:]]
        lines = [line for line in lines if line["topic"].startswith("content.")]
        assert len(lines) == 4
        for request, recorded in zip(lines[::2], lines[1::2], strict=True):
            reply = await client.call(request["topic"], payload=raw(request))
            assert reply.errnum == 0 and reply.payload == raw(recorded)

    in_broker(scenario)


@pytest.mark.parametrize("durable", [False, True])
@given(blobs=st.lists(st.binary(max_size=30), min_size=1, max_size=8))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_stored_blob_can_be_loaded(in_broker, tmp_path_factory, durable, blobs):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()
        tags = [client.start("content.store", payload=blob or None) for blob in blobs]
        for blob, tag in zip(blobs, tags):
            digest = (await client.next(tag)).payload
            assert digest == hashlib.sha1(blob).digest()
            assert ((await client.call("content.load", payload=digest)).payload or b"") == blob
            assert (await client.call("content.validate", payload=digest)).errnum == 0

    in_broker(scenario, **({"statedir": str(tmp_path_factory.mktemp("s"))} if durable else {}))


def test_a_statedir_keeps_blobs_and_checkpoints(in_broker, tmp_path):
    digests = []

    async def before(broker):
        broker.load(content)
        client = broker.client()
        digests.append((await client.call("content.store", payload=b"kept")).payload)
        for n in range(7):
            await client.rpc("content.checkpoint-put", {"value": {"version": 1, "rootref": f"r{n}", "timestamp": 2.2}})
        assert (await client.call("content.flush")).errnum == 0

    async def after(broker):
        broker.load(content)
        client = broker.client()
        assert (await client.call("content.load", payload=digests[0])).payload == b"kept"
        values = (await client.rpc("content.checkpoint-get", {}))["value"]
        assert [value["rootref"] for value in values] == ["r6", "r5", "r4", "r3", "r2"]
        assert (await client.rpc("content.checkpoint-get", {"key": "kvs-primary"}))["value"] == values[0]
        assert (await client.call("content.checkpoint-get", {"key": "other"})).errnum == errno.ENOENT

    in_broker(before, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_refusals_have_the_errors_of_rfc_10(in_broker):
    async def scenario(broker):
        broker.load(content, "blob-size-limit=4")
        client = broker.client()
        assert (await client.call("content.store", payload=b"12345")).errnum == errno.EFBIG
        for topic in ("content.load", "content.validate"):
            assert (await client.call(topic, payload=bytes(20))).errnum == errno.ENOENT
            assert (await client.call(topic, payload=b"short")).errnum == errno.EPROTO
            assert (await client.call(topic)).errnum == errno.EPROTO
        assert (await client.call("content.flush")).errnum == errno.ENOSYS
        assert (await client.call("content.checkpoint-get", {})).errnum == errno.ENOENT
        assert (await client.call("content.checkpoint-put", {"value": 1})).errnum == errno.EPROTO
        assert (await broker.client(guest=True).call("content.store", payload=b"x")).errnum == errno.EPERM

    in_broker(scenario)


def test_memory_is_bounded_and_what_was_stored_stays(in_broker):
    async def scenario(broker):
        broker.load(content, "memory-limit=10")
        client = broker.client()
        digest = (await client.call("content.store", payload=b"12345678")).payload
        refused = await client.call("content.store", payload=b"abcdefgh")
        assert refused.errnum == errno.ENOSPC and "statedir" in refused.text
        assert (await client.call("content.store", payload=b"12345678")).payload == digest
        assert (await client.call("content.load", payload=digest)).payload == b"12345678"

    in_broker(scenario)


def test_a_failing_disk_refuses_the_store_and_later_ones_work(in_broker, tmp_path, monkeypatch):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()

        def full(_self, _batch):
            raise content.sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(content.SqliteStore, "store", full)
            for _ in range(2):
                assert (await client.call("content.store", payload=b"a")).errnum == errno.ENOSPC
        assert [line.endswith("content.sqlite: database or disk is full") for line in broker.logged] == [True]
        assert (await client.call("content.load", payload=hashlib.sha1(b"a").digest())).errnum == errno.ENOENT
        assert (await client.call("content.store", payload=b"a")).errnum == 0

    in_broker(scenario, statedir=str(tmp_path))


@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
def test_what_the_file_gives_back_is_checked_and_can_be_stored_again(in_broker, tmp_path, hash_name):
    async def scenario(broker):
        broker.load(content)
        client = broker.client()
        good = (await client.call("content.store", payload=b"good")).payload
        digest = (await client.call("content.store", payload=b"stored")).payload
        file = content.sqlite3.connect(tmp_path / "content.sqlite")
        file.execute("UPDATE objects SET object = ? WHERE hash = ?", (b"stirred", digest))
        file.commit()
        await client.call("content.dropcache")
        for topic in ("content.load", "content.validate", "content-backing.load"):
            told = await client.call(topic, payload=digest)
            assert told.errnum == errno.EIO
            assert f"{tmp_path}/content.sqlite: blob {hash_name}-{digest.hex()} is damaged" in told.text
        assert len([line for line in broker.logged if "is damaged" in line]) == 1
        assert (await client.call("content.load", payload=good)).payload == b"good"
        assert (await client.call("content.store", payload=b"stored")).payload == digest
        assert (await client.call("content.load", payload=digest)).payload == b"stored"
        file.close()

    in_broker(scenario, statedir=str(tmp_path), **{"content.hash": hash_name})


def test_sha256_addresses_when_the_instance_is_set_to_it(in_broker):
    async def scenario(broker):
        broker.load(content)
        reply = await broker.client().call("content.store", payload=b"x")
        assert reply.payload == hashlib.sha256(b"x").digest()

    in_broker(scenario, **{"content.hash": "sha256"})


@pytest.mark.parametrize(
    ("attrs", "args"),
    [
        ({"content.hash": "md5"}, []),
        ({}, ["nonsense=1"]),
        ({}, ["blob-size-limit=big"]),
        ({}, ["purge-old-entry"]),
        ({"content.backing-module": "none", "statedir": "/nowhere"}, []),
    ],
)
def test_wrong_settings_are_refused_at_load(in_broker, attrs, args):
    async def scenario(broker):
        with pytest.raises(RpcError) as caught:
            broker.load(content, *args)
        assert caught.value.errnum == errno.EINVAL

    in_broker(scenario, **attrs)


def test_a_flush_batch_limit_bounds_what_one_sync_writes(in_broker, tmp_path, monkeypatch):
    batches = []
    store = content.SqliteStore.store
    monkeypatch.setattr(
        content.SqliteStore, "store", lambda disk, batch: (batches.append(len(batch)), store(disk, batch))
    )

    async def scenario(broker):
        broker.load(content, "flush-batch-limit=2")
        client = broker.client()
        blobs = [b"a", b"b", b"a", b"c", b"d", b"e"]
        tags = [client.start("content.store", payload=blob) for blob in blobs]
        for blob, tag in zip(blobs, tags):
            assert (await client.next(tag)).payload == hashlib.sha1(blob).digest()

    in_broker(scenario, statedir=str(tmp_path))
    assert batches == [2, 2, 1]


def test_what_is_in_the_store_stays_in_memory_up_to_the_purge_target(in_broker, tmp_path):
    async def scenario(broker):
        broker.load(content, "purge-target-size=10")
        client = broker.client()
        first = (await client.call("content.store", payload=b"12345678")).payload
        assert await stats(client) == (1, 8)
        await client.call("content.store", payload=b"abcd")
        assert await stats(client) == (1, 4)
        assert (await client.call("content.load", payload=first)).payload == b"12345678"
        assert await stats(client) == (1, 8)
        await client.call("content.dropcache")
        assert await stats(client) == (0, 0)

    async def stats(client):
        found = await client.rpc("content.stats-get")
        return found["valid"], found["size"]

    in_broker(scenario, statedir=str(tmp_path))


def test_what_was_used_lately_is_purged_later(in_broker, tmp_path):
    async def scenario(broker):
        broker.load(content, "purge-target-size=1", "purge-old-entry=1")
        client = broker.client()
        for blob in (b"12", b"34"):
            await client.call("content.store", payload=blob)
        assert (await client.rpc("content.stats-get"))["size"] == 4
        while (await client.rpc("content.stats-get"))["size"]:
            await asyncio.sleep(0.05)

    in_broker(scenario, statedir=str(tmp_path))


def test_an_unload_finishes_what_is_being_written_and_refuses_the_rest(in_broker, tmp_path, monkeypatch):
    async def scenario(broker):
        broker.load(content)
        # A KVS that never answers.
        broker.context("kvs").service("kvs", {"blob": lambda _msg: None})
        client = broker.client()
        missing = client.start("content.load", payload=bytes(20))
        go, begun, write = threading.Event(), threading.Event(), content.SqliteStore.store

        def slow(self, batch):
            begun.set()
            assert go.wait(60)
            write(self, batch)

        monkeypatch.setattr(content.SqliteStore, "store", slow)
        written = client.start("content.store", payload=b"first")
        await until_in_loop(begun.is_set)
        refused = [client.start("content.store", payload=b"second"), client.start("content.flush")]
        for _ in range(10):
            await asyncio.sleep(0)
        unload = asyncio.ensure_future(broker.contexts.pop("content").unload())
        for _ in range(10):
            await asyncio.sleep(0)
        refused += [client.start("content.store", payload=b"third"), client.start("content.flush")]
        refused += [client.start("content.load", payload=bytes(20)), client.start("content.checkpoint-get", {})]
        assert [(await client.next(tag)).errnum for tag in refused] == [errno.ENOSYS] * 6
        go.set()
        await unload
        assert (await client.next(written)).errnum == 0
        assert (await client.next(missing)).errnum == errno.ENOSYS
        broker.load(content)
        assert (await client.call("content.load", payload=hashlib.sha1(b"first").digest())).payload == b"first"

    in_broker(scenario, statedir=str(tmp_path))


def test_a_database_that_was_emptied_is_in_the_log(in_broker, tmp_path):
    path = tmp_path / "content.sqlite"

    async def scenario(broker):
        broker.load(content)
        told = f"{path} was emptied: it has 0 bytes. Data that is stored only under its hash"
        assert [line for line in broker.logged if told in line] == ([] if is_new else broker.logged)
        assert (await broker.client().call("content.store", payload=b"a")).errnum == 0

    is_new = True
    in_broker(scenario, statedir=str(tmp_path))
    is_new = False
    for file in tmp_path.glob("content.sqlite-*"):
        file.unlink()
    path.write_bytes(b"")
    in_broker(scenario, statedir=str(tmp_path))


def test_nobody_else_can_read_the_blobs_of_a_file(tmp_path):
    store = content.SqliteStore(str(tmp_path / "content.sqlite"))
    store.store([(b"h" * 20, b"secret")])
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    store.close()
