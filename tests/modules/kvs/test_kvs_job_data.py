"""Which keys are data of jobs, in transactions and in the tree."""

from __future__ import annotations

from headrace.modules.kvs.job_data import committed, touched
from headrace.modules.kvs.tree import Dir, value_node
from headrace.modules.kvs.txn import Op, apply

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
