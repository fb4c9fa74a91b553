"""The KVS as its clients see it: recorded conversations, versions, namespaces, and what a restart keeps."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import pytest
from kvs_world import commit, look, put, store, unlink, val, value

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content import service as content
from headrace.engine.modules.kvs import service as kvs
from headrace.formats.spec.kvs_flags import READLINK, TREEOBJ

DATA = Path(__file__).parents[3] / "data" / "kvs"


def conversation(name: str) -> list[tuple[dict, dict]]:
    lines = [json.loads(line) for line in (DATA / name).read_text().splitlines()[1:]]
    requests = [line for line in lines if line["dir"] == "c2b"]
    replies = [line for line in lines if line["dir"] == "b2c"]
    return list(zip(requests, replies, strict=True))


@pytest.mark.parametrize(
    "name", ["28-kvs-get.jsonl", "29-kvs-ls.jsonl", "30-kvs-dir.jsonl", "27-kvs-put.jsonl", "31-kvs-eventlog.jsonl"]
)
def test_recorded_conversations_are_answered_key_by_key(in_broker, name):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a.b", b"42")))
        for request, recorded in conversation(name):
            answer = await client.rpc(request["topic"], request["payload"])
            if request["topic"] == "kvs.commit":
                assert sorted(answer) == sorted(recorded["payload"])
            else:
                assert answer == recorded["payload"]

    in_broker(scenario)


def test_a_commit_can_be_read_and_counts_versions(in_broker):
    async def scenario(broker):
        client = store(broker)
        first = await client.rpc("kvs.commit", commit(put("a.b", b"1"), put("c", b"2")))
        second = await client.rpc("kvs.commit", commit(unlink("c")))
        assert second["rootseq"] == first["rootseq"] + 1
        assert [await value(client, key) for key in ("a.b", "c", "a")] == [b"1", errno.ENOENT, errno.EISDIR]
        root = await client.rpc("kvs.getroot", {"namespace": "primary"})
        assert root == second | {"owner": broker.owner, "flags": 0}

    in_broker(scenario)


def test_old_versions_stay_readable_by_reference(in_broker):
    async def scenario(broker):
        client = store(broker)
        old = await client.rpc("kvs.commit", commit(put("a", b"old")))
        await client.rpc("kvs.commit", commit(put("a", b"new")))
        assert await value(client, "a", rootref=old["rootref"]) == b"old"
        assert await value(client, "a", rootref="sha1-" + "0" * 40) == errno.ENOENT
        assert await value(client, "a", rootref="nonsense") == errno.EINVAL

    in_broker(scenario)


def test_references_can_be_loaded_from_the_content_service(in_broker):
    async def scenario(broker):
        client = store(broker)
        big = b"x" * 1000
        root = await client.rpc("kvs.commit", commit(put("d.big", big)))
        ref = root["rootref"]
        for name in ("d", "big"):
            reply = await client.call("content.load", payload=bytes.fromhex(ref[5:]))
            ref = json.loads(reply.payload)["data"][name]["data"][0]
        reply = await client.call("content.load", payload=bytes.fromhex(ref[5:]))
        assert reply.payload == big

    in_broker(scenario)


def test_namespaces_are_separate_and_end_with_their_waiters(in_broker):
    async def scenario(broker):
        client = store(broker)
        new = {"namespace": "ns", "owner": -1, "flags": 0}
        await client.rpc("kvs.namespace-create", new)
        assert (await client.call("kvs.namespace-create", new)).errnum == errno.EEXIST
        await client.rpc("kvs.commit", commit(put("k", b"1"), namespace="ns"))
        assert [await value(client, "k", namespace=n) for n in ("ns", "primary")] == [b"1", errno.ENOENT]
        listed = (await client.rpc("kvs.namespace-list"))["namespaces"]
        assert {"namespace": "ns", "owner": broker.owner, "flags": 0} in listed
        tag = client.start("kvs.wait-version", {"namespace": "ns", "rootseq": 99})
        await client.rpc("kvs.namespace-remove", {"namespace": "ns"})
        assert (await client.next(tag)).errnum == errno.ENOTSUP
        assert await value(client, "k", namespace="ns") == errno.ENOTSUP
        await client.rpc("kvs.namespace-remove", {"namespace": "ns"})
        assert (await client.call("kvs.namespace-remove", {"namespace": "primary"})).errnum == errno.ENOTSUP

    in_broker(scenario)


def test_a_namespace_can_begin_with_a_known_root(in_broker):
    async def scenario(broker):
        client = store(broker)
        root = await client.rpc("kvs.commit", commit(put("a", b"1")))
        new = {"namespace": "copy", "owner": -1, "flags": 0, "rootref": root["rootref"]}
        await client.rpc("kvs.namespace-create", new)
        assert await value(client, "a", namespace="copy") == b"1"
        new |= {"namespace": "bad", "rootref": "root"}
        assert (await client.call("kvs.namespace-create", new)).errnum == errno.EINVAL

    in_broker(scenario)


@pytest.mark.parametrize("durable", [False, True])
def test_a_namespace_whose_root_nobody_stored_exists_and_says_so(in_broker, tmp_path, durable):
    rootref = "sha1-" + "2" * 40

    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.namespace-create", {"namespace": "bad", "owner": -1, "flags": 0, "rootref": rootref})
        await broker.contexts.pop("kvs").unload()
        broker.load(kvs)
        found = (await client.rpc("kvs.lookup", look(".", TREEOBJ, namespace="bad")))["val"]
        assert found == {"ver": 1, "type": "dirref", "data": [rootref]}
        assert (await client.rpc("kvs.getroot", {"namespace": "bad"}))["rootref"] == rootref
        assert await value(client, "k", namespace="bad") == errno.ENOENT
        assert (await client.call("kvs.commit", commit(put("k", b"1"), namespace="bad"))).errnum == errno.ENOENT

    in_broker(scenario, **({"statedir": str(tmp_path)} if durable else {}))


def test_a_namespace_can_begin_with_an_empty_directory_that_was_never_stored(in_broker):
    empty = "sha1-" + hashlib.sha1(b'{"data":{},"type":"dir","ver":1}').hexdigest()

    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.namespace-create", {"namespace": "ns", "owner": -1, "flags": 0, "rootref": empty})
        await client.rpc("kvs.commit", commit(put("x", b"1"), namespace="ns"))
        assert await value(client, "x", namespace="ns") == b"1"

    in_broker(scenario)


def test_a_root_reference_lets_nobody_into_a_namespace_of_others(in_broker):
    async def scenario(broker):
        owner, guest = store(broker), broker.client(guest=True)
        await owner.rpc("kvs.namespace-create", {"namespace": "theirs", "owner": guest.userid, "flags": 0})
        root = (await owner.rpc("kvs.commit", commit(put("a", b"1"))))["rootref"]
        await owner.rpc("kvs.commit", commit(put("a", b"2")))
        assert await value(owner, "a", rootref=root) == b"1"
        for namespace in ("primary", "theirs", "none"):
            assert await value(guest, "a", rootref=root, namespace=namespace) == errno.EPERM
        assert (await guest.call("kvs.lookup-plus", look("a", rootref=root))).errnum == errno.EPERM
        first = (await guest.rpc("kvs.commit", commit(put("b", b"1"), namespace="theirs")))["rootref"]
        await guest.rpc("kvs.commit", commit(put("b", b"2"), namespace="theirs"))
        assert await value(guest, "b", rootref=first, namespace="theirs") == b"1"
        assert await value(guest, "b", rootref=first) == errno.EPERM

    in_broker(scenario)


def test_guests_write_nothing_that_refers_to_something_else(in_broker):
    ref = "sha1-" + "0" * 40
    dirents = {
        "symlink": {"target": "a"},
        "valref": [ref],
        "dirref": [ref],
        "dir": {"b": {"ver": 1, "type": "val", "data": ""}},
    }

    async def scenario(broker):
        owner, guest = store(broker), broker.client(guest=True)
        await owner.rpc("kvs.namespace-create", {"namespace": "ns", "owner": guest.userid, "flags": 0})
        for kind, data in dirents.items():
            op = {"key": "x", "flags": 0, "dirent": {"ver": 1, "type": kind, "data": data}}
            refused = await guest.call("kvs.commit", commit(op, namespace="ns"))
            assert refused.errnum == errno.EPERM and kind in refused.text
            assert (await owner.call("kvs.commit", commit(op, namespace="ns"))).errnum == 0
        empty = {"key": "d", "flags": 0, "dirent": {"ver": 1, "type": "dir", "data": {}}}
        big = put("v", b"x" * 200)
        assert (await guest.call("kvs.commit", commit(empty, big, unlink("x"), namespace="ns"))).errnum == 0

    in_broker(scenario)


def test_a_value_that_the_content_service_would_refuse_is_refused(in_broker):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"x" * 101)))
        await broker.contexts.pop("content").unload()
        broker.load(content, "blob-size-limit=100")
        nested = {"ver": 1, "type": "dir", "data": {"b": put("b", b"x" * 101)["dirent"]}}
        for op in (put("a", b"x" * 101), {"key": "d", "flags": 0, "dirent": nested}):
            refused = await client.call("kvs.commit", commit(put("small", b"1"), op))
            assert refused.errnum == errno.EFBIG and "at most 100 bytes" in refused.text
        assert await value(client, "small") == errno.ENOENT
        await client.rpc("kvs.commit", commit(put("a", b"x" * 100)))
        await broker.contexts.pop("content").unload()
        await client.rpc("kvs.commit", commit(put("a", b"x" * 101)))

    in_broker(scenario)


def test_an_empty_transaction_makes_a_version(in_broker):
    async def scenario(broker):
        client = store(broker)
        before = await client.rpc("kvs.commit", commit(put("a", b"1")))
        after = await client.rpc("kvs.commit", commit())
        assert after == {"rootref": before["rootref"], "rootseq": before["rootseq"] + 1}

    in_broker(scenario)


def test_guests_reach_only_their_own_namespaces(in_broker):
    async def scenario(broker):
        owner, guest = store(broker), broker.client(guest=True)
        await owner.rpc("kvs.commit", commit(put("a", b"1")))
        await owner.rpc("kvs.namespace-create", {"namespace": "theirs", "owner": guest.userid, "flags": 0})
        for topic, body in (
            ("kvs.lookup", look("a")),
            ("kvs.lookup-plus", look("a", rootref="sha1-" + "0" * 40)),
            ("kvs.getroot", {"namespace": "primary"}),
            ("kvs.commit", commit(put("a", b"2"))),
            ("kvs.wait-version", {"namespace": "primary", "rootseq": 0}),
            ("kvs.namespace-create", {"namespace": "x", "owner": guest.userid, "flags": 0}),
            ("kvs.namespace-remove", {"namespace": "theirs"}),
            ("kvs.blob", {"ref": "sha1-" + "0" * 40}),
        ):
            assert (await guest.call(topic, body)).errnum == errno.EPERM, topic
        link = {"ver": 1, "type": "symlink", "data": {"target": "a", "namespace": "primary"}}
        await owner.rpc("kvs.commit", commit({"key": "way", "flags": 0, "dirent": link}, namespace="theirs"))
        assert await value(guest, "way", namespace="theirs") == errno.EPERM
        assert await value(owner, "way", namespace="theirs") == b"1"

    in_broker(scenario)


@pytest.mark.parametrize(
    "topic",
    ["getroot", "wait-version", "lookup", "lookup-plus", "commit", "fence", "namespace-create", "namespace-remove"],
)
def test_requests_without_their_fields_get_eproto(in_broker, topic):
    async def scenario(broker):
        client = store(broker)
        for body in (None, {}, {"key": 1, "namespace": 2, "flags": "x", "name": 0}):
            assert (await client.call("kvs." + topic, body)).errnum == errno.EPROTO

    in_broker(scenario)


def test_a_statedir_keeps_namespaces_versions_and_references(in_broker, tmp_path):
    kept = {}

    async def before(broker):
        client = store(broker)
        link = {"key": "l", "flags": 0, "dirent": {"ver": 1, "type": "symlink", "data": {"target": "a.b"}}}
        await client.rpc("kvs.commit", commit(put("a.b", b"1"), put("big", b"x" * 500), link))
        await client.rpc("kvs.commit", commit({"key": "big", "flags": 32, "dirent": val(b"y")}))
        await client.rpc("kvs.namespace-create", {"namespace": "ns", "owner": 7, "flags": 0})
        await client.rpc("kvs.namespace-create", {"namespace": "gone", "owner": 7, "flags": 0})
        await client.rpc("kvs.namespace-remove", {"namespace": "gone"})
        await client.rpc("kvs.commit", commit(put("k", b"2"), namespace="ns"))
        for name in ("primary", "ns"):
            kept[name] = await client.rpc("kvs.getroot", {"namespace": name})

    async def after(broker):
        client = store(broker)
        for name in ("primary", "ns"):
            assert await client.rpc("kvs.getroot", {"namespace": name}) == kept[name]
        assert (await client.call("kvs.getroot", {"namespace": "gone"})).errnum == errno.ENOTSUP
        assert await value(client, "big") == b"x" * 500 + b"y"
        link = await client.rpc("kvs.lookup", look("l", READLINK))
        assert link["val"]["data"] == {"target": "a.b"}

    in_broker(before, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_without_a_statedir_a_reload_keeps_namespaces_versions_and_references(in_broker):
    async def scenario(broker):
        client = store(broker)
        old = await client.rpc("kvs.commit", commit(put("a.b", b"1"), put("big", b"x" * 500)))
        await client.rpc("kvs.commit", commit(put("a.b", b"2")))
        await client.rpc("kvs.namespace-create", {"namespace": "ns", "owner": 7, "flags": 0})
        waiting = client.start("kvs.wait-version", {"namespace": "primary", "rootseq": 99})
        roots = [await client.rpc("kvs.getroot", {"namespace": name}) for name in ("primary", "ns")]
        await broker.contexts.pop("kvs").unload()
        assert (await client.next(waiting)).errnum == errno.ENOSYS
        broker.load(kvs)
        assert [await client.rpc("kvs.getroot", {"namespace": name}) for name in ("primary", "ns")] == roots
        assert await value(client, "a.b") == b"2"
        assert await value(client, "a.b", rootref=old["rootref"]) == b"1"
        assert (await client.rpc("kvs.commit", commit(put("c", b"3"))))["rootseq"] == roots[0]["rootseq"] + 1

    in_broker(scenario)


def test_stats_have_the_sections_of_real_flux(in_broker):
    async def scenario(broker):
        client = store(broker)
        stats = await client.rpc("kvs.stats-get")
        assert sorted(stats) == ["cache", "namespace", "pending_requests", "transaction-opcount"]
        assert stats["pending_requests"] == 0
        assert stats["transaction-opcount"]["commit"]["count"] == 0
        for count in (1, 3, 5):
            await client.rpc("kvs.commit", commit(*(put(f"k{n}", b"") for n in range(count))))
        counts = (await client.rpc("kvs.stats-get"))["transaction-opcount"]
        assert counts["commit"] == {"count": 3, "min": 1, "mean": 3, "stddev": 2, "max": 5}
        fence = {"name": "f", "nprocs": 1, **commit(put("x", b""), put("y", b""))}
        await client.rpc("kvs.fence", fence)
        counts = (await client.rpc("kvs.stats-get"))["transaction-opcount"]
        assert (counts["commit"]["count"], counts["fence"]["count"], counts["fence"]["max"]) == (3, 1, 2)

    in_broker(scenario)


def test_a_database_that_was_emptied_is_in_the_log(in_broker, tmp_path):
    told = f"{tmp_path}/kvs.sqlite was emptied: it has 0 bytes. What is in the key-value store is lost"

    async def new(broker):
        store(broker)
        assert not broker.logged

    async def emptied(broker):
        store(broker)
        assert any(told in line for line in broker.logged)

    in_broker(new, statedir=str(tmp_path))
    for file in tmp_path.glob("kvs.sqlite-*"):
        file.unlink()
    (tmp_path / "kvs.sqlite").write_bytes(b"")
    in_broker(emptied, statedir=str(tmp_path))


@pytest.mark.parametrize("durable", [False, True])
def test_a_reload_begins_with_an_earlier_root_of_any_age_in_memory(in_broker, tmp_path, durable):
    async def scenario(broker):
        client = store(broker)
        old = await client.rpc("kvs.commit", commit(put("a", b"1"), put("d.e", b"x" * 200)))
        new = await client.rpc("kvs.commit", commit(put("a", b"2"), put("b", b"3"), unlink("d")))
        await broker.contexts.pop("kvs").unload()
        broker.load(kvs, f"initial-rootref={old['rootref']}")
        await client.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": new["rootseq"] + 1})
        assert (await client.rpc("kvs.getroot", {"namespace": "primary"}))["rootref"] == old["rootref"]
        assert [await value(client, key) for key in ("a", "b", "d.e")] == [b"1", errno.ENOENT, b"x" * 200]
        for number in range(300):
            await client.rpc("kvs.commit", commit(put("a", b"%d" % number)))
        assert await value(client, "d.e", rootref=old["rootref"]) == b"x" * 200

    in_broker(scenario, **({"statedir": str(tmp_path)} if durable else {}))


def test_a_root_that_is_not_there_or_not_a_directory_ends_the_load(in_broker):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"x" * 200)))
        await broker.contexts.pop("kvs").unload()
        for blob, text in ((b"x" * 200, "is not a tree object"), (b"y", "is not in the content store")):
            with pytest.raises(RpcError, match=text):
                await kvs.load(broker.context("kvs"), [f"initial-rootref=sha1-{hashlib.sha1(blob).hexdigest()}"])
            await broker.contexts.pop("kvs").unload()

    in_broker(scenario)


def test_one_commit_makes_one_version_without_merging(in_broker):
    async def scenario(broker):
        broker.load(content)
        broker.load(kvs, "transaction-merge=0")
        client = broker.client()
        asked = [client.start("kvs.commit", commit(put("a", b"%d" % number))) for number in range(3)]
        assert [(await client.next(one)).obj["rootseq"] for one in asked] == [1, 2, 3]

    in_broker(scenario)


@pytest.mark.parametrize(
    "arg", ["transaction-merge=2", "transaction-merge", "initial-rootref=abcdef", "initial", "x=1"]
)
def test_wrong_arguments_are_refused(in_broker, arg):
    async def scenario(broker):
        with pytest.raises(RpcError, match="kvs: "):
            broker.load(kvs, arg)

    in_broker(scenario)
