"""What the KVS fetches: blobs of the content service and jobs' data; and what it leaves in the content service."""

from __future__ import annotations

import errno
import json

from kvs_world import commit, job_store, look, put, store, unlink, val, value

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.content import service as content
from headrace.engine.modules.kvs import service as kvs
from headrace.formats.spec.kvs_flags import READDIR, SYNC, TREEOBJ

JOBID = 0x0000_0008_D200_0000
LOG = '{"timestamp":1.0,"name":"submit"}\n'


def jobs() -> dict:
    job = {"eventlog": LOG, "jobspec": "{}" * 50, "guest": {"exec": {"eventlog": "e"}}}
    return {"0000": {"0008": {"d200": {"0000": job}}}}


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


def test_sync_leaves_a_checkpoint_that_the_content_service_can_load(in_broker):
    async def scenario(broker):
        client = store(broker)
        root = await client.rpc("kvs.commit", commit(put("d.big", b"x" * 99), flags=SYNC))
        checkpoint = (await client.rpc("content.checkpoint-get", {}))["value"][0]
        assert (checkpoint["rootref"], checkpoint["sequence"]) == (root["rootref"], root["rootseq"])
        again = await client.rpc("kvs.commit", commit(flags=SYNC))
        assert again["rootref"] == root["rootref"]
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


def test_a_sync_that_the_content_service_refuses_fails_and_the_next_one_stores_all(in_broker):
    async def scenario(broker):
        stored, refused = [], [True]

        def keep(msg):
            if msg.payload == b"x" * 99 and refused.pop():
                raise RpcError(errno.ENOSPC, "full")
            stored.append(msg.payload)
            return EMPTY

        services = {"store": keep, "checkpoint-put": lambda _msg: EMPTY, "checkpoint-get": lambda _msg: {"value": []}}
        broker.context("content").service("content", services)
        broker.load(kvs)
        client = broker.client()
        reply = await client.call("kvs.commit", commit(put("d.big", b"x" * 99), flags=SYNC))
        assert (reply.errnum, reply.text) == (errno.ENOSPC, "full")
        assert await value(client, "d.big") == b"x" * 99
        stored.clear()
        refused.append(False)
        await client.rpc("kvs.commit", commit(flags=SYNC))
        kinds = [json.loads(blob)["type"] if blob.startswith(b"{") else "blob" for blob in stored]
        assert sorted(kinds) == ["blob", "dir", "dir"], "what stands above the missing blob is stored once more"

    in_broker(scenario)


def test_an_answer_of_the_job_store_is_asked_for_once_a_request(in_broker):
    async def scenario(broker):
        asked = []

        def lookup(msg):
            asked.append(msg.obj["path"])
            return {"val": LOG} if msg.obj["path"].endswith("eventlog") else {"dir": ["0000"]}

        broker.context("job-manager").service("job-store", {"lookup": lookup})
        client = store(broker)
        assert await value(client, "job.0000.0008.d200.0000.eventlog") == LOG.encode()
        assert len(asked) == len(set(asked))

    in_broker(scenario)


def test_a_job_that_waits_fails_when_its_signed_jobspec_is_written(in_broker):
    async def scenario(broker):
        here = jobs()
        job_store(broker, here)
        raised = []

        def raise_(msg):
            raised.append(msg.obj)
            return EMPTY

        broker.context("other").service("job-manager", {"raise": raise_})
        client = store(broker)
        path = "job.0000.0008.d200.0000"
        for other in (f"{path}.guest.J", f"{path}.jobspec", "job.0000.0008.d200.0001.J", "J", "jobs.J"):
            await client.rpc("kvs.commit", commit(put(other, b"x")))
        assert raised == []
        await client.rpc("kvs.commit", commit(put("job.0000..0008.d200.0000.J", b"x")))
        (body,) = raised
        assert (body["id"], body["type"], body["severity"]) == (JOBID, "exec", 0)
        assert "signed jobspec" in body["note"]
        here["0000"]["0008"]["d200"]["0000"]["eventlog"] = LOG + '{"timestamp":2.0,"name":"start"}\n'
        await client.rpc("kvs.commit", commit(put(f"{path}.J", b"y")))
        assert len(raised) == 1

    in_broker(scenario)
