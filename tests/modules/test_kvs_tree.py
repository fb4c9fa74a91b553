from __future__ import annotations

import errno
import gc
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.modules import kvs_tree as t


class Env:
    """Walks over trees alone, with namespaces and a job store given as dicts."""

    def __init__(self, spaces: dict[str, t.View] | None = None, jobs: dict[str, object] | None = None) -> None:
        self.refs = t.Refs()
        self.spaces = spaces or {}
        self.jobs = jobs or {}

    def outside(self, path: str) -> object:
        found: object = self.jobs
        for name in path.split(".") if path else ():
            found = found.get(name) if isinstance(found, dict) else None
        return sorted(found) if isinstance(found, dict) else found

    def root_of(self, namespace: str) -> t.View:
        if namespace not in self.spaces:
            raise t.KvsError(errno.ENOTSUP)
        return self.spaces[namespace]

    def frozen(self, view: object) -> t.Dir:
        raise t.NeedFrozen(view)


def tree(obj: dict) -> t.Dir:
    """{"a": {"b": b"value", "c": "->target"}} as nodes."""

    def node(value: object) -> t.Node:
        if isinstance(value, dict):
            return tree(value)
        if isinstance(value, str):
            return t.Symlink(value[2:])
        return t.value_node(value)

    return t.Dir({name: node(value) for name, value in obj.items()})


names = st.text('abc-ü"\\', min_size=1, max_size=3)
objects = st.recursive(
    st.dictionaries(names, st.one_of(st.binary(max_size=80), names.map("->".__add__)), max_size=4),
    lambda inner: st.dictionaries(names, st.one_of(inner, st.binary(max_size=8)), max_size=4),
    max_leaves=12,
)


def test_a_directory_hashes_as_recorded_from_real_flux():
    root = tree({"a": {"b": b"42"}})
    assert root.entries["a"].reference(t.Refs()) == "sha1-89c4973b7c142a14f7337805cd5edc5953dfcb61"


def test_values_over_54_bytes_become_blobs():
    refs = t.Refs()
    assert t.to_treeobj(t.value_node(b"x" * 54), refs)["type"] == "val"
    assert t.to_treeobj(t.value_node(b"x" * 55), refs) == {
        "ver": 1,
        "type": "valref",
        "data": [refs.blobref(b"x" * 55)],
    }


@given(objects)
def test_a_tree_can_be_read_back_from_its_blobs(obj):
    env = Env()
    root = tree(obj)
    blobs = {}

    def visit(node: t.Node) -> None:
        if isinstance(node, t.Dir):
            blobs[node.reference(env.refs)] = env.refs.blob(node.reference(env.refs))
            for entry in node.entries.values():
                visit(entry)
        elif isinstance(node, t.ValRef):
            for blob in node.blobs:
                blobs[blob.reference(env.refs)] = env.refs.blob(blob.ref)

    visit(root)
    other = t.Refs()

    def rebuild(node: t.Node) -> object:
        if isinstance(node, t.DirRef):
            node.fill(blobs[node.ref], other)
            node = node.loaded
        if isinstance(node, t.Dir):
            return {name: rebuild(entry) for name, entry in node.entries.items()}
        if isinstance(node, t.Symlink):
            return "->" + node.target
        for blob in node.blobs if isinstance(node, t.ValRef) else ():
            if blob.data is None:
                blob.fill(blobs[blob.ref], other)
        return t.value_bytes(node)

    assert rebuild(t.DirRef(root.reference(env.refs))) == obj


@given(objects)
def test_packing_keeps_the_reference(obj):
    root = tree(obj)
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(t.pack(root)))
    assert t.unpack(packed).reference(t.Refs()) == root.reference(t.Refs())


@given(objects)
def test_directory_blobs_are_canonical_json(obj):
    blob = t.dir_blob(tree(obj), t.Refs())
    again = json.dumps(json.loads(blob), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again.encode() == blob


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.sampled_from(["ver", "type", "data", "target", "a", "a.b", ""]), s),
    )
)
def test_any_object_is_a_node_or_a_kvs_error(obj):
    try:
        node = t.from_treeobj(obj, t.Refs())
    except t.KvsError as exc:
        assert exc.errnum == errno.EINVAL and exc.text
    else:
        assert t.to_treeobj(node, t.Refs())["ver"] == 1


@pytest.mark.parametrize(
    "obj",
    [
        {"ver": 1, "type": "val", "data": "!"},
        {"ver": 1, "type": "valref", "data": []},
        {"ver": 1, "type": "valref", "data": ["sha1-nope"]},
        {"ver": 1, "type": "dirref", "data": ["sha1-" + "0" * 40] * 2},
        {"ver": 1, "type": "dir", "data": {"a.b": {"ver": 1, "type": "val", "data": ""}}},
        {"ver": 1, "type": "symlink", "data": {"target": ""}},
        {"ver": 1, "type": "hdir", "data": {}},
        {"ver": 2, "type": "val", "data": ""},
    ],
)
def test_wrong_tree_objects_are_refused(obj):
    with pytest.raises(t.KvsError):
        t.from_treeobj(obj, t.Refs())


def test_nesting_is_bounded():
    obj = {"ver": 1, "type": "dir", "data": {}}
    for _ in range(t.MAX_DEPTH + 2):
        obj = {"ver": 1, "type": "dir", "data": {"a": obj}}
    with pytest.raises(t.KvsError):
        t.from_treeobj(obj, t.Refs())


ROOT = {"a": {"b": b"42", "d": {}}, "link": "->a.b", "dirlink": "->a", "loop": "->loop", "dangling": "->nope.x"}


@pytest.mark.parametrize(
    ("key", "flags", "expected"),
    [
        ("a.b", 0, b"42"),
        ("a..b.", 0, b"42"),
        ("link", 0, b"42"),
        ("dirlink.b", 0, b"42"),
        ("a", 0, errno.EISDIR),
        ("a.b", t.READDIR, errno.ENOTDIR),
        ("a.b", t.READLINK, errno.EINVAL),
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
        node = t.find(tree(ROOT), key, env, not flags & (t.READLINK | t.TREEOBJ))
        found = None if node is None else t.answer(node, flags, env)
    except t.KvsError as exc:
        assert exc.errnum == expected
    else:
        assert found == (None if expected is None else t.val_treeobj(expected))


def test_readlink_and_treeobj_do_not_follow_the_last_symlink():
    env = Env()
    node = t.find(tree(ROOT), "link", env, False)
    assert t.answer(node, t.READLINK, env) == {"ver": 1, "type": "symlink", "data": {"target": "a.b"}}


def test_a_symlink_reaches_into_its_namespace():
    env = Env({"other": tree({"x": b"1"})})
    root = t.Dir({"far": t.Symlink("x", "other"), "gone": t.Symlink("x", "no-such")})
    assert t.value_bytes(t.find(root, "far", env)) == b"1"
    with pytest.raises(t.KvsError) as caught:
        t.find(root, "gone", env)
    assert caught.value.errnum == errno.ENOTSUP


JOBS = {"0000": {"0001": {"eventlog": "log", "guest": {"exec": {"eventlog": "e"}}}}}


def test_jobs_appear_below_the_primary_root():
    env = Env(jobs=JOBS)
    top = t.Top(tree({"a": b"1"}))
    assert sorted(t.answer(top, t.READDIR, env)["data"]) == ["a", "job"]
    assert t.value_bytes(t.find(top, "job.0000.0001.eventlog", env)) == b"log"
    assert list(t.answer(t.find(top, "job.0000.0001", env), t.READDIR, env)["data"]) == ["eventlog", "guest"]
    assert t.find(top, "job.0000.0002", env) is None
    assert t.find(top, "job.0000.0001.eventlog.x", env) is None


def test_without_jobs_there_is_no_job_directory():
    top = t.Top(tree({"a": b"1"}))
    assert list(t.answer(top, t.READDIR, Env())["data"]) == ["a"]
    assert t.find(top, "job", Env()) is None


def test_what_was_committed_below_a_job_lies_over_its_data():
    env = Env(jobs=JOBS)
    top = t.Top(tree({"job": {"0000": {"0001": {"mine": b"m", "eventlog": b"over"}}}}))
    here = t.find(top, "job.0000.0001", env)
    assert list(t.answer(here, t.READDIR, env)["data"]) == ["eventlog", "guest", "mine"]
    assert t.value_bytes(t.find(top, "job.0000.0001.eventlog", env)) == b"over"
    assert t.value_bytes(t.find(top, "job.0000.0001.guest.exec.eventlog", env)) == b"e"


def test_an_equal_tree_keeps_the_registered_one_alive():
    refs = t.Refs()
    first, second = tree({"a": b"x" * 60}), tree({"a": b"x" * 60})
    ref = first.reference(refs)
    assert second.reference(refs) == ref
    del first
    gc.collect()
    assert refs.blob(ref) == t.dir_blob(second, refs)
    del second
    gc.collect()
    assert refs.blob(ref) is None
