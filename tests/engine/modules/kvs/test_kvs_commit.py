"""From transactions to versions: merged, refused, durable, announced."""

from __future__ import annotations

import asyncio
import errno
import threading

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvs_world import commit, job_store, put, store, unlink, val, value

from headrace.engine.modules.kvs import log as kvs_log
from headrace.formats.spec.kvs_flags import NO_MERGE
from waiting import until_in_loop


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
        assert (await client.call("kvs.fence", commit() | {"name": "g", "nprocs": 0})).errnum == errno.EINVAL
        await client.rpc("kvs.fence", commit() | {"name": "g", "nprocs": 1})
        tags.append(client.start("kvs.fence", commit(put("k2", b"1")) | {"name": "f", "nprocs": 3}))
        assert len({(await client.next(tag)).obj["rootseq"] for tag in tags}) == 1
        assert [await value(client, f"k{n}") for n in range(3)] == [b"1"] * 3

    in_broker(scenario)


def test_fences_of_one_name_are_each_namespaces_own_and_end_with_the_service(in_broker):
    async def scenario(broker):
        here = {"0000": {"0000": {"0000": {"0001": {"guest": {}}, "0002": {"guest": {}}}}}}
        job_store(broker, here)
        client = store(broker)
        body = {"name": "f", "nprocs": 2}
        tags = [client.start("kvs.fence", commit(put("k", b"1"), namespace=f"job-{job}") | body) for job in (1, 2, 1)]
        await client.next(tags[0])
        await client.next(tags[2])
        assert await value(client, "k", namespace="job-1") == b"1"
        assert await value(client, "k", namespace="job-2") == errno.ENOENT
        await broker.contexts.pop("kvs").unload()
        assert (await client.next(tags[1])).errnum == errno.ENOSYS

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


def test_an_unload_writes_what_is_queued_and_refuses_what_comes_later(in_broker, tmp_path, monkeypatch):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"1")))
        go, begun, append = threading.Event(), threading.Event(), kvs_log.Log.append

        def slow(self, records):
            begun.set()
            assert go.wait(60)
            append(self, records)

        monkeypatch.setattr(kvs_log.Log, "append", slow)
        accepted = [client.start("kvs.commit", commit(put("b", b"1")))]
        await until_in_loop(begun.is_set)
        accepted += [client.start("kvs.commit", commit(put(f"c{n}", b"1"), flags=NO_MERGE)) for n in range(250)]
        ctx = broker.contexts.pop("kvs")
        # Two at once: that of a user and that of the broker, which ends.
        unloads = [asyncio.ensure_future(ctx.unload()) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        late = client.start("kvs.commit", commit(put("late", b"1")))
        assert (await client.next(late)).errnum == errno.ENOSYS
        fence = client.start("kvs.fence", commit(put("late", b"1")) | {"name": "f", "nprocs": 2})
        waits = client.start("kvs.wait-version", {"namespace": "primary", "rootseq": 1 << 30})
        go.set()
        await asyncio.gather(*unloads)
        assert {(await client.next(tag)).errnum for tag in accepted} == {0}
        assert {(await client.next(tag)).errnum for tag in (fence, waits)} == {errno.ENOSYS}
        log = kvs_log.Log(tmp_path / "kvs.sqlite")
        assert len(log.replay()["primary"].root.entries) == 252
        log.close()

    in_broker(scenario, statedir=str(tmp_path))


def test_what_cannot_be_written_is_refused_and_never_seen(in_broker, tmp_path, monkeypatch):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("a", b"1")))

        def full(_self, _records):
            raise kvs_log.sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(kvs_log.Log, "append", full)
            for _ in range(2):
                assert (await client.call("kvs.commit", commit(put("a", b"2")))).errnum == errno.ENOSPC
        assert await value(client, "a") == b"1"
        await client.rpc("kvs.commit", commit(put("a", b"3")))
        assert await value(client, "a") == b"3"
        said = [line for line in broker.logged if "kvs.sqlite" in line]
        assert len(said) == 2
        assert said[0].endswith("database or disk is full: changes are refused")
        assert said[1].endswith("can be written again: changes are accepted")

    in_broker(scenario, statedir=str(tmp_path))


def test_a_long_row_of_refusals_is_answered_to_its_end(in_broker):
    async def scenario(broker):
        client = store(broker)
        await client.rpc("kvs.commit", commit(put("dir.x", b"")))
        bad = commit({"key": "dir", "flags": 32, "dirent": val(b"x")})
        tags = [client.start("kvs.commit", bad) for _ in range(450)]
        assert {(await client.next(tag)).errnum for tag in tags} == {errno.EISDIR}

    in_broker(scenario)


def test_a_missing_blob_refuses_its_own_transaction_only(in_broker):
    async def scenario(broker):
        client = store(broker)
        lost = {"ver": 1, "type": "dirref", "data": ["sha1-" + "3" * 40]}
        await client.rpc("kvs.commit", commit({"key": "d", "flags": 0, "dirent": lost}))
        bodies = [commit(put("a", b"1")), commit(put("d.x", b"2")), commit(put("b", b"3"))]
        replies = [await client.next(tag) for tag in [client.start("kvs.commit", body) for body in bodies]]
        assert [reply.errnum for reply in replies] == [0, errno.ENOENT, 0]
        assert "is not in the content store" in replies[1].text
        assert [await value(client, key) for key in "ab"] == [b"1", b"3"]

    in_broker(scenario)


def test_namespaces_begin_and_end_in_the_order_in_which_they_are_told_to(in_broker, tmp_path):
    async def scenario(broker):
        client = store(broker)
        new, gone = {"namespace": "ns", "owner": -1, "flags": 0}, {"namespace": "ns"}
        row = [("create", new), ("create", new), ("remove", gone), ("remove", gone), ("create", new)]
        tags = [client.start(f"kvs.namespace-{method}", body) for method, body in row]
        assert [(await client.next(tag)).errnum for tag in tags] == [0, errno.EEXIST, 0, 0, 0]

    for statedir in ({}, {"statedir": str(tmp_path)}):
        in_broker(scenario, **statedir)


operations = st.tuples(st.sampled_from(["a", "a.b", "c", "a.b.d"]), st.sampled_from([b"", b"1", b"x" * 90, None]))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(operations, min_size=1, max_size=3), st.booleans(), st.booleans()), max_size=12))
def test_whatever_is_merged_the_end_is_that_of_one_after_the_other(in_broker, transactions):
    """Transactions that are sent at once against the same ones, each sent when the last was answered."""

    def bodies():
        for ops, merge, _ in transactions:
            made = [put(key, data) if data is not None else unlink(key) for key, data in ops]
            yield commit(*made, flags=0 if merge else NO_MERGE)

    async def scenario(broker):
        client = store(broker)
        ends = []
        for together in (False, True):
            tags, replies = [], []
            await client.rpc("kvs.commit", commit(*(unlink(key) for key in "ac")))
            for body, (_, _, pause) in zip(bodies(), transactions):
                tags.append(client.start("kvs.commit", body))
                if pause or not together:
                    replies += [(await client.next(tag)) for tag in tags]
                    tags.clear()
            replies += [(await client.next(tag)) for tag in tags]
            versions = [reply.obj["rootseq"] for reply in replies if not reply.errnum]
            assert versions == sorted(versions)
            root = await client.rpc("kvs.getroot", {"namespace": "primary"})
            ends.append(([reply.errnum for reply in replies], root["rootref"]))
        assert ends[0] == ends[1]

    in_broker(scenario)
