"""Which keys are data of jobs, in transactions and in the tree."""

from __future__ import annotations

from headrace.engine.modules.kvs.job_data import LogAppend, committed, log_appends, touched
from headrace.engine.modules.kvs.tree import Dir, value_node
from headrace.engine.modules.kvs.txn import Op, apply
from headrace.formats.spec.kvs_flags import APPEND

JOB = "job.0000.0001.0002.0003"


def op(key: str, data: bytes | None = b"x") -> Op:
    return Op(key, 0, None if data is None else value_node(data))


def test_keys_of_a_job_directory_are_told_with_what_became_of_them() -> None:
    ops = [op(f"{JOB}.eventlog"), op(f".{JOB}..R"), op(f"{JOB}.R", None), op("job.a"), op(f"{JOB}.guest.mine"), op("b")]
    assert touched(ops) == {f"{JOB}.eventlog": True, f"{JOB}.R": False}


def test_what_the_tree_has_below_jobs_is_found_but_for_their_own_namespaces() -> None:
    keys = (f"{JOB}.eventlog", f"{JOB}.guest.mine", "job.0000.value", "other.a")
    assert committed(apply(Dir({}), [op(key) for key in keys], "primary", [])) == {f"{JOB}.eventlog": True}
    assert committed(Dir({})) == {}


def append(key: str) -> Op:
    return Op(key, APPEND, value_node(b"x"))


def test_appends_to_logs_of_a_job_without_a_committed_value_are_for_the_job_store() -> None:
    log, path = f"{JOB}.guest.exec.eventlog", f"{JOB[4:]}.guest.exec.eventlog"
    assert log_appends(
        Dir({}),
        [append("a"), append(f".{log}"), op(f"{JOB}.guest.mine"), append(f"{JOB}.R"), append(f"{JOB}.eventlog")],
    ) == [LogAppend(1, path, "x"), LogAppend(4, f"{JOB[4:]}.eventlog", "x")]
    assert not log_appends(Dir({}), [append(f"{JOB}.x.eventlog"), append(f"{JOB}.eventlog.x")])
    assert {one.job for one in log_appends(Dir({}), [append(log), append(f"{JOB}.eventlog")])} == {JOB[4:]}
    # What stands over the log, or is put there by the same transaction, is what readers of the KVS see.
    assert not log_appends(Dir({}), [op(log), append(log)])
    assert not log_appends(apply(Dir({}), [op(log)], "primary", []), [append(log)])
    assert [one.number for one in log_appends(Dir({}), [append(log), append(log), op(log), append(log)])] == [0, 1]
