from __future__ import annotations

import errno

import pytest
from kvs_trees import tree

from headrace.engine.modules.kvs import tree as t
from headrace.engine.modules.kvs import walk as w
from headrace.formats.spec.kvs_flags import READDIR, READLINK, TREEOBJ


class Env:
    """Walks over trees alone, with namespaces and a job store given as dicts."""

    def __init__(self, spaces: dict[str, w.View] | None = None, jobs: dict[str, object] | None = None) -> None:
        self.refs = t.Refs()
        self.spaces = spaces or {}
        self.jobs = jobs or {}

    def outside(self, path: str) -> object:
        found: object = self.jobs
        for name in path.split(".") if path else ():
            found = found.get(name) if isinstance(found, dict) else None
        return sorted(found) if isinstance(found, dict) else found

    def root_of(self, namespace: str) -> w.View:
        if namespace not in self.spaces:
            raise t.KvsError(errno.ENOTSUP)
        return self.spaces[namespace]

    def frozen(self, view: object) -> t.Dir:
        raise w.NeedFrozen(view)


ROOT = {"a": {"b": b"42", "d": {}}, "link": "->a.b", "dirlink": "->a", "loop": "->loop", "dangling": "->nope.x"}


@pytest.mark.parametrize(
    ("key", "flags", "expected"),
    [
        ("a.b", 0, b"42"),
        ("a..b.", 0, b"42"),
        ("link", 0, b"42"),
        ("dirlink.b", 0, b"42"),
        ("a", 0, errno.EISDIR),
        ("a.b", READDIR, errno.ENOTDIR),
        ("a.b", READLINK, errno.EINVAL),
        ("loop", 0, errno.ELOOP),
        ("loop.x", 0, errno.ELOOP),
        ("nope", 0, None),
        ("a.b.c", 0, None),
        ("dangling", 0, None),
        ("", 0, errno.EINVAL),
        ("x." * 200, 0, errno.ENAMETOOLONG),
    ],
)
def test_lookup_answers(key, flags, expected):
    env = Env()
    try:
        node = w.find(tree(ROOT), key, env, not flags & (READLINK | TREEOBJ))
        found = None if node is None else w.answer(node, flags, env)
    except t.KvsError as exc:
        assert exc.errnum == expected
    else:
        assert found == (None if expected is None else t.val_treeobj(expected))


def test_readlink_and_treeobj_do_not_follow_the_last_symlink():
    env = Env()
    node = w.find(tree(ROOT), "link", env, False)
    assert w.answer(node, READLINK, env) == {"ver": 1, "type": "symlink", "data": {"target": "a.b"}}


def test_a_symlink_reaches_into_its_namespace():
    env = Env({"other": tree({"x": b"1"})})
    root = t.Dir({"far": t.Symlink("x", "other"), "gone": t.Symlink("x", "no-such")})
    assert t.value_bytes(w.find(root, "far", env)) == b"1"
    with pytest.raises(t.KvsError) as caught:
        w.find(root, "gone", env)
    assert caught.value.errnum == errno.ENOTSUP


JOBS = {"0000": {"0001": {"eventlog": "log", "guest": {"exec": {"eventlog": "e"}}}}}


def test_jobs_appear_below_the_primary_root():
    env = Env(jobs=JOBS)
    top = w.Top(tree({"a": b"1"}))
    assert sorted(w.answer(top, READDIR, env)["data"]) == ["a", "job"]
    assert t.value_bytes(w.find(top, "job.0000.0001.eventlog", env)) == b"log"
    assert list(w.answer(w.find(top, "job.0000.0001", env), READDIR, env)["data"]) == ["eventlog", "guest"]
    assert w.find(top, "job.0000.0002", env) is None
    assert w.find(top, "job.0000.0001.eventlog.x", env) is None


def test_without_jobs_there_is_no_job_directory():
    top = w.Top(tree({"a": b"1"}))
    assert list(w.answer(top, READDIR, Env())["data"]) == ["a"]
    assert w.find(top, "job", Env()) is None


def test_what_was_committed_below_a_job_lies_over_its_data():
    env = Env(jobs=JOBS)
    top = w.Top(tree({"job": {"0000": {"0001": {"mine": b"m", "eventlog": b"over"}}}}))
    here = w.find(top, "job.0000.0001", env)
    assert list(w.answer(here, READDIR, env)["data"]) == ["eventlog", "guest", "mine"]
    assert t.value_bytes(w.find(top, "job.0000.0001.eventlog", env)) == b"over"
    assert t.value_bytes(w.find(top, "job.0000.0001.guest.exec.eventlog", env)) == b"e"
