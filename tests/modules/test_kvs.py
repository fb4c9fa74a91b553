from __future__ import annotations

import base64
import errno
import json
from pathlib import Path

import pytest

from headrace.broker.module import RpcError
from headrace.modules import content, kvs, kvs_log
from headrace.spec.kvs_flags import READDIR, READLINK, TREEOBJ

DATA = Path(__file__).parent.parent / "data" / "kvs"


def val(data: bytes) -> dict:
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}


def put(key: str, data: bytes) -> dict:
    return {"key": key, "flags": 0, "dirent": val(data)}


def unlink(key: str) -> dict:
    return {"key": key, "flags": 0, "dirent": None}


def commit(*ops: dict, namespace: str = "primary", flags: int = 0) -> dict:
    return {"namespace": namespace, "flags": flags, "ops": list(ops)}


def look(key: str, flags: int = 0, namespace: str = "primary", rootref: str | None = None) -> dict:
    body = {"key": key, "namespace": namespace, "flags": flags}
    if rootref is not None:
        body["rootdir"] = {"ver": 1, "type": "dirref", "data": [rootref]}
    return body


async def value(client, key: str, **kw) -> bytes | int:
    """The value at `key`, or the error number."""
    reply = await client.call("kvs.lookup", look(key, **kw))
    return reply.errnum or base64.b64decode(reply.obj["val"]["data"])


def job_store(broker, jobs: dict) -> None:
    """The job store's service over nested dicts."""

    def lookup(msg):
        found: object = jobs
        for name in msg.obj["path"].split(".") if msg.obj["path"] else ():
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise RpcError(errno.ENOENT)
        return {"dir": sorted(found)} if isinstance(found, dict) else {"val": found}

    broker.context("job-manager").service("job-store", {"lookup": lookup})


def store(broker, **_kw):
    broker.load(content)
    broker.load(kvs)
    return broker.client()


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


def test_a_directory_that_only_the_content_service_has_can_be_put_read_and_changed(in_broker):
    async def scenario(broker):
        client = store(broker)
        blob = json.dumps({"ver": 1, "type": "dir", "data": {"x": val(b"1")}}).encode()
        digest = (await client.call("content.store", payload=blob)).payload
        dirref = {"ver": 1, "type": "dirref", "data": ["sha1-" + digest.hex()]}
        await client.rpc("kvs.commit", commit({"key": "d", "flags": 0, "dirent": dirref}))
        assert await value(client, "d.x") == b"1"
        await client.rpc("kvs.commit", commit({"key": "e", "flags": 0, "dirent": dirref}, put("e.y", b"2")))
        assert [await value(client, key) for key in ("e.x", "e.y", "d.y")] == [b"1", b"2", errno.ENOENT]
        dirref["data"] = ["sha1-" + "1" * 40]
        reply = await client.call("kvs.commit", commit({"key": "f", "flags": 0, "dirent": dirref}, put("f.y", b"2")))
        assert reply.errnum == errno.ENOENT
        assert await value(client, "e.y") == b"2"

    in_broker(scenario)


def test_a_failing_transaction_changes_nothing_and_spares_its_neighbours(in_broker):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("dir.x", b"")))
        bad = commit(put("a", b"1"), {"key": "dir", "flags": 32, "dirent": val(b"x")})
        tags = [client.start("kvs.commit", body) for body in (commit(put("b", b"2")), bad, commit(put("c", b"3")))]
        replies = [await client.next(tag) for tag in tags]
        assert [reply.errnum for reply in replies] == [0, errno.EISDIR, 0]
        assert [await value(client, key) for key in "abc"] == [errno.ENOENT, b"2", b"3"]

    in_broker(scenario)


def test_commits_of_one_turn_are_merged_unless_asked_not_to(in_broker):
    async def scenario(broker):
        client = store(broker)

        async def seqs(*flags: int) -> list[int]:
            tags = [client.start("kvs.commit", commit(put("a", b"%d" % n), flags=f)) for n, f in enumerate(flags)]
            return [(await client.next(tag)).obj["rootseq"] for tag in tags]

        one, two = await seqs(0, 0)
        assert one == two
        first, second, third = await seqs(0, 1, 0)
        assert first < second < third

    in_broker(scenario)


def test_setroot_events_name_the_changed_keys(in_broker):
    async def scenario(broker):
        client = store(broker)
        broker.events.subscribe(client, "kvs.namespace-primary-setroot")
        root = await client.rpc("kvs.commit", commit(put("a.b", b"1"), unlink("c")))
        event = await client.events.get()
        assert event.obj == root | {
            "namespace": "primary",
            "owner": broker.owner,
            "names": [],
            "keys": {"a.b": 0, "c": 0},
        }

    in_broker(scenario)


def test_a_fence_commits_when_all_have_entered(in_broker):
    async def scenario(broker):
        client = store(broker)
        tags = [client.start("kvs.fence", commit(put(f"k{n}", b"1")) | {"name": "f", "nprocs": 3}) for n in range(2)]
        assert await value(client, "k0") == errno.ENOENT
        wrong = await client.call("kvs.fence", commit() | {"name": "f", "nprocs": 2})
        assert wrong.errnum == errno.EINVAL
        tags.append(client.start("kvs.fence", commit(put("k2", b"1")) | {"name": "f", "nprocs": 3}))
        assert len({(await client.next(tag)).obj["rootseq"] for tag in tags}) == 1
        assert [await value(client, f"k{n}") for n in range(3)] == [b"1"] * 3

    in_broker(scenario)


def test_wait_version_answers_when_the_version_is_there(in_broker):
    async def scenario(broker):
        client = store(broker)
        seq = (await client.rpc("kvs.commit", commit(put("a", b"1"))))["rootseq"]
        assert (await client.rpc("kvs.wait-version", {"namespace": "primary", "rootseq": seq}))["rootseq"] == seq
        tag = client.start("kvs.wait-version", {"namespace": "primary", "rootseq": seq + 1})
        root = await client.rpc("kvs.commit", commit(put("a", b"2")))
        assert (await client.next(tag)).obj == root

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
        new |= {"namespace": "bad", "rootref": "sha1-" + "2" * 40}
        assert (await client.call("kvs.namespace-create", new)).errnum == errno.ENOENT

    in_broker(scenario)


def test_guests_reach_only_their_own_namespaces(in_broker):
    async def scenario(broker):
        owner, guest = store(broker), broker.client(guest=True)
        await owner.rpc("kvs.commit", commit(put("a", b"1")))
        await owner.rpc("kvs.namespace-create", {"namespace": "theirs", "owner": guest.userid, "flags": 0})
        for topic, body in (
            ("kvs.lookup", look("a")),
            ("kvs.lookup", look("a", rootref="sha1-" + "0" * 40)),
            ("kvs.getroot", {"namespace": "primary"}),
            ("kvs.commit", commit(put("a", b"2"))),
            ("kvs.wait-version", {"namespace": "primary", "rootseq": 0}),
            ("kvs.namespace-create", {"namespace": "x", "owner": guest.userid, "flags": 0}),
            ("kvs.namespace-remove", {"namespace": "theirs"}),
            ("kvs.blob", {"ref": "sha1-" + "0" * 40}),
        ):
            assert (await guest.call(topic, body)).errnum == errno.EPERM, topic
        link = {"ver": 1, "type": "symlink", "data": {"target": "a", "namespace": "primary"}}
        await guest.rpc("kvs.commit", commit({"key": "way", "flags": 0, "dirent": link}, namespace="theirs"))
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


JOBID = 0x0000_0008_D200_0000
LOG = '{"timestamp":1.0,"name":"submit"}\n'


def jobs() -> dict:
    job = {"eventlog": LOG, "jobspec": "{}" * 50, "guest": {"exec": {"eventlog": "e"}}}
    return {"0000": {"0008": {"d200": {"0000": job}}}}


def test_job_data_is_read_from_the_job_store(in_broker):
    async def scenario(broker):
        job_store(broker, jobs())
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"1")))
        path = "job.0000.0008.d200.0000"
        assert await value(client, path + ".eventlog") == LOG.encode()
        assert await value(client, path + ".nope") == errno.ENOENT
        assert await value(client, path) == errno.EISDIR
        root = (await client.rpc("kvs.lookup", look(".", READDIR)))["val"]["data"]
        assert sorted(root) == ["a", "job"] and root["job"]["type"] == "dir"
        listed = (await client.rpc("kvs.lookup", look(path, READDIR)))["val"]["data"]
        assert sorted(listed) == ["eventlog", "guest", "jobspec"]
        assert await value(client, "exec.eventlog", namespace=f"job-{JOBID}") == b"e"
        assert await value(client, "exec.eventlog", namespace=f"job-{JOBID + 1}") == errno.ENOTSUP

    in_broker(scenario)


def test_getroot_makes_job_data_part_of_the_snapshot(in_broker):
    async def scenario(broker):
        here = jobs()
        job_store(broker, here)
        client = store(broker)
        ref = (await client.rpc("kvs.getroot", {"namespace": "primary"}))["rootref"]
        here["0000"]["0008"]["d200"]["0000"]["eventlog"] = "changed"
        path = "job.0000.0008.d200.0000.eventlog"
        assert await value(client, path, rootref=ref) == LOG.encode()
        assert await value(client, path) == b"changed"
        for name in path.split("."):
            reply = await client.call("content.load", payload=bytes.fromhex(ref[5:]))
            entry = json.loads(reply.payload)["data"][name]
            ref = entry["data"][0]
        assert entry == val(LOG.encode())

    in_broker(scenario)


def test_a_treeobj_of_a_job_directory_is_a_dirref_that_can_be_copied(in_broker):
    async def scenario(broker):
        job_store(broker, jobs())
        client = store(broker)
        dirent = (await client.rpc("kvs.lookup", look("job.0000.0008", TREEOBJ)))["val"]
        assert dirent["type"] == "dirref"
        await client.rpc("kvs.commit", commit({"key": "copy", "flags": 0, "dirent": dirent}))
        assert await value(client, "copy.d200.0000.eventlog") == LOG.encode()

    in_broker(scenario)


def test_what_a_job_puts_into_its_namespace_is_seen_below_its_directory(in_broker):
    async def scenario(broker):
        job_store(broker, jobs())
        client = store(broker)
        space = f"job-{JOBID}"
        await client.rpc("kvs.commit", commit(put("mine", b"m"), namespace=space))
        assert await value(client, "mine", namespace=space) == b"m"
        guest = "job.0000.0008.d200.0000.guest"
        assert [await value(client, f"{guest}.{key}") for key in ("mine", "exec.eventlog")] == [b"m", b"e"]
        refused = await client.call("kvs.commit", commit(unlink("job.0000.0008.d200.0000.eventlog")))
        assert refused.errnum == errno.EPERM and "purge" in refused.text
        await client.rpc("kvs.commit", commit(unlink(guest + ".mine")))
        assert await value(client, "mine", namespace=space) == errno.ENOENT

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


def test_a_commit_is_answered_only_when_another_process_could_read_it(in_broker, tmp_path):
    async def scenario(broker):
        client = store(broker)
        for n in range(20):
            root = await client.rpc("kvs.commit", commit(put(f"k{n}", b"v")))
            # A second connection sees what is committed to the file, without any help of the first.
            log = kvs_log.Log(tmp_path / "kvs.sqlite")
            space = log.replay()["primary"]
            log.close()
            assert space.seq == root["rootseq"] and f"k{n}" in space.root.entries

    in_broker(scenario, statedir=str(tmp_path))


def test_what_cannot_be_written_is_refused_and_never_seen(in_broker, tmp_path, monkeypatch):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"1")))

        def full(_self, _records):
            raise kvs_log.sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(kvs_log.Log, "append", full)
            assert (await client.call("kvs.commit", commit(put("a", b"2")))).errnum == errno.ENOSPC
        assert await value(client, "a") == b"1"
        await client.rpc("kvs.commit", commit(put("a", b"3")))
        assert await value(client, "a") == b"3"

    in_broker(scenario, statedir=str(tmp_path))


def test_stats_have_the_sections_of_real_flux(in_broker):
    async def scenario(broker):
        client = store(broker)
        stats = await client.rpc("kvs.stats-get")
        assert sorted(stats) == ["cache", "namespace", "pending_requests", "transaction-opcount"]
        assert stats["pending_requests"] == 0

    in_broker(scenario)


def test_sync_leaves_a_checkpoint_that_the_content_service_can_load(in_broker):
    async def scenario(broker):
        client = store(broker)
        root = await client.rpc("kvs.commit", commit(put("d.big", b"x" * 99), flags=kvs.SYNC))
        checkpoint = (await client.rpc("content.checkpoint-get", {}))["value"][0]
        assert (checkpoint["rootref"], checkpoint["sequence"]) == (root["rootref"], root["rootseq"])
        again = await client.rpc("kvs.commit", commit(flags=kvs.SYNC))
        assert again == root
        await broker.contexts.pop("kvs").unload()
        ref = root["rootref"]
        for name in ("d", "big"):
            reply = await client.call("content.load", payload=bytes.fromhex(ref[5:]))
            ref = json.loads(reply.payload)["data"][name]["data"][0]
        assert (await client.call("content.load", payload=bytes.fromhex(ref[5:]))).payload == b"x" * 99

    in_broker(scenario)


def test_a_stopped_instance_leaves_a_checkpoint_in_its_statedir(in_broker, tmp_path):
    kept = {}

    async def before(broker):
        kept.update(await store(broker).rpc("kvs.commit", commit(put("a", b"1"))))

    async def after(broker):
        broker.load(content)
        client = broker.client()
        assert (await client.rpc("content.checkpoint-get", {}))["value"][0]["rootref"] == kept["rootref"]
        assert (await client.call("content.load", payload=bytes.fromhex(kept["rootref"][5:]))).errnum == 0

    in_broker(before, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_snapshots_with_ended_jobs_outlive_a_restart_with_a_statedir(in_broker, tmp_path):
    kept = {}
    path = "job.0000.0008.d200.0000.eventlog"

    async def before(broker):
        here = jobs()
        here["0000"]["0008"]["d200"]["0000"]["eventlog"] += '{"timestamp":2.0,"name":"clean"}\n'
        job_store(broker, here)
        client = store(broker)
        dirent = (await client.rpc("kvs.lookup", look("job.0000.0008.d200.0000", TREEOBJ)))["val"]
        kept["ref"] = dirent["data"][0]
        await client.rpc("kvs.commit", commit({"key": "copy", "flags": 0, "dirent": dirent}))
        root = (await client.rpc("kvs.getroot", {"namespace": "primary"}))["rootref"]
        assert b"clean" in await value(client, path, rootref=root)

    async def after(broker):
        client = store(broker)
        assert b"clean" in await value(client, "eventlog", rootref=kept["ref"])
        assert b"clean" in await value(client, "copy.eventlog")

    in_broker(before, statedir=str(tmp_path))
    in_broker(after, statedir=str(tmp_path))


def test_purging_a_job_removes_what_was_committed_below_it(in_broker):
    async def scenario(broker):
        here = jobs()
        job_store(broker, here)
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("mine", b"m"), namespace=f"job-{JOBID}"))
        here.clear()
        broker.events.subscribe(client, "kvs.namespace-primary-setroot")
        broker.contexts["job-manager"].publish("job-purge-inactive", {"jobs": [JOBID]})
        await client.events.get()
        assert await value(client, "job.0000.0008.d200.0000.guest.mine") == errno.ENOENT

    in_broker(scenario)
