from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

import msgspec
import pytest

from headrace.engine.modules.kvs import tree as t
from headrace.engine.modules.kvs.log import Log, LogError, Space, create_record, remove_record, version_record
from headrace.engine.modules.kvs.tree import pack
from headrace.engine.modules.kvs.txn import Op, apply


def ops(*pairs: tuple[str, bytes]) -> list[Op]:
    return [Op(key, 0, t.value_node(data)) for key, data in pairs]


def test_the_log_replays_versions_and_removals(tmp_path):
    log = Log(tmp_path / "log")
    log.append([create_record(Space("p", 1, 0, 0, t.Dir({}))), create_record(Space("q", 1, 0, 0, t.Dir({})))])
    log.append([version_record("p", 1, ops(("a.b", b"1")), []), version_record("p", 2, ops(("c", b"2")), [])])
    log.append([remove_record("q")])
    log.close()
    spaces = Log(tmp_path / "log").replay()
    assert list(spaces) == ["p"] and spaces["p"].seq == 2
    expected = apply(t.Dir({}), ops(("a.b", b"1"), ("c", b"2")), "p", [])
    assert spaces["p"].root.reference(t.Refs()) == expected.reference(t.Refs())


def test_directories_opened_by_a_transaction_need_no_content_store_at_replay(tmp_path):
    refs = t.Refs()
    below = t.Dir({"x": t.Val(b"1")})
    node = t.DirRef(below.reference(refs))
    root = t.Dir({"d": node})
    log = Log(tmp_path / "log")
    log.append([create_record(Space("p", 1, 0, 0, root))])
    node.fill(t.dir_blob(below, refs), refs)
    opened: list[t.DirRef] = []
    after = apply(root, ops(("d.y", b"2")), "p", opened)
    log.append([version_record("p", 1, ops(("d.y", b"2")), opened)])
    assert log.replay()["p"].root.reference(refs) == after.reference(refs)


def test_a_record_that_is_none_is_named(tmp_path):
    good = create_record(Space("p", 1, 0, 0, t.Dir({})))
    for bad in (b"", b"\xff", good[:-3], b"\x93\x01\x02\x03", version_record("unknown", 1, ops(("a", b"1")), [])):
        log = Log(tmp_path / f"log{bad.hex()}")
        log.append([good, bad])
        with pytest.raises(LogError, match="record 2 of the log is not one"):
            log.replay()
        log.close()


def test_a_value_that_comes_back_otherwise_is_noticed(tmp_path):
    log = Log(tmp_path / "log")
    log.append([create_record(Space("p", 1, 0, 0, t.Dir({}))), version_record("p", 1, ops(("a", b"kept")), [])])
    # As a disk does it, whatever SQLite takes the value for.
    log._db.execute("UPDATE log SET record = CAST(replace(CAST(record AS TEXT), 'kept', 'kapt') AS BLOB) WHERE id = 2")
    with pytest.raises(LogError, match=r"record 2 of the log is not one: .*other bytes than were written"):
        log.replay()
    log.close()


def test_a_log_from_before_records_had_sums_is_read_and_continued(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "log", isolation_level=None)) as old:
        old.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        old.execute("INSERT INTO log (record) VALUES (?)", (create_record(Space("p", 1, 0, 0, t.Dir({}))),))
    for seq in (1, 2):
        log = Log(tmp_path / "log")
        log.append([version_record("p", seq, ops(("a", b"%d" % seq)), [])])
        assert log.replay()["p"].seq == seq
        log.close()


def test_compaction_replaces_versions_by_trees(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.engine.modules.kvs.log._COMPACT_BYTES", 1000)
    log = Log(tmp_path / "log")
    root = t.Dir({})
    log.append([create_record(Space("p", 1, 0, 0, root))])
    for seq in range(1, 100):
        root = apply(root, ops(("a", b"%d" % seq)), "p", [])
        log.append([version_record("p", seq, ops(("a", b"%d" % seq)), [])])
    assert log.overgrown
    log.compact([Space("p", 1, 0, 99, root)])
    assert not log.overgrown
    log.close()
    again = Log(tmp_path / "log")
    assert again._db.execute("SELECT count(*) FROM log").fetchone() == (1,)
    assert again.replay()["p"].seq == 99 and t.value_bytes(again.replay()["p"].root.entries["a"]) == b"99"


WRITER = """
import sys
from headrace.engine.modules.kvs import tree as t
from headrace.engine.modules.kvs.log import Log, Space, create_record, version_record
from headrace.engine.modules.kvs.txn import Op
log = Log(sys.argv[1])
log.append([create_record(Space("p", 1, 0, 0, t.Dir({})))])
seq = 0
while True:
    seq += 1
    log.append([version_record("p", seq, [Op("a", 0, t.Val(b"%d" % seq))], [])])
    print(seq, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as writer:
        acknowledged = 0
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == 20:
                os.kill(writer.pid, signal.SIGKILL)
                break
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split()[:-1])])
    assert acknowledged >= 20
    assert Log(tmp_path / "log").replay()["p"].seq >= acknowledged


def test_a_record_is_on_disk_as_in_every_version():
    packed = [["a", 0, pack(t.value_node(b"1"))]]
    assert [
        msgspec.msgpack.decode(record)
        for record in (
            create_record(Space("p", 1, 2, 3, t.Dir({}))),
            version_record("p", 4, ops(("a", b"1")), []),
            remove_record("p"),
        )
    ] == [["create", "p", 1, 2, 3, pack(t.Dir({}))], ["version", "p", 4, packed, {}], ["remove", "p"]]


def test_nobody_else_can_read_the_log(tmp_path):
    log = Log(tmp_path / "log")
    log.append([create_record(Space("p", 1, 0, 0, t.Dir({})))])
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("log", "log-shm", "log-wal"), 0o600
    )
    log.close()
