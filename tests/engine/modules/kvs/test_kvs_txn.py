from __future__ import annotations

import base64
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.kvs import tree as t
from headrace.engine.modules.kvs.txn import apply, decode_ops, pack_ops, unpack_ops
from headrace.formats.spec.kvs_flags import APPEND


def val(data: bytes) -> dict:
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}


def put(key: str, data: bytes) -> dict:
    return {"key": key, "flags": 0, "dirent": val(data)}


def append(key: str, data: bytes) -> dict:
    return {"key": key, "flags": APPEND, "dirent": val(data)}


def unlink(key: str) -> dict:
    return {"key": key, "flags": 0, "dirent": None}


def link(key: str, target: str, namespace: str | None = None) -> dict:
    data = {"target": target} if namespace is None else {"target": target, "namespace": namespace}
    return {"key": key, "flags": 0, "dirent": {"ver": 1, "type": "symlink", "data": data}}


def commit(root: t.Dir, *ops: dict) -> t.Dir:
    return apply(root, decode_ops(list(ops), t.Refs()), "primary", [])


def plain(node: t.Node) -> object:
    if isinstance(node, t.Dir):
        return {name: plain(entry) for name, entry in node.entries.items()}
    return "->" + node.target if isinstance(node, t.Symlink) else t.value_bytes(node)


class Model:
    """The same operations on nested dicts."""

    def __init__(self) -> None:
        self.root: dict = {}

    def parent(self, key: str, make: bool) -> tuple[dict | None, str]:
        *dirs, last = key.split(".")
        here = self.root
        for name in dirs:
            if not isinstance(here.get(name), dict):
                if not make:
                    return None, last
                here[name] = {}
            here = here[name]
        return here, last

    def do(self, kind: str, key: str, data: bytes) -> bool:
        """False when the operation must be refused."""
        here, last = self.parent(key, kind != "unlink")
        if kind == "unlink":
            if here is not None:
                here.pop(last, None)
        elif kind == "put":
            here[last] = data
        elif isinstance(here.get(last), dict):
            return False
        else:
            here[last] = here.get(last, b"") + data
        return True


keys = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)
steps = st.lists(
    st.tuples(st.sampled_from(["put", "append", "unlink"]), keys, st.binary(max_size=70)), min_size=1, max_size=25
)
MAKE = {"put": put, "append": append, "unlink": lambda key, _data: unlink(key)}


@given(steps)
def test_transactions_do_what_nested_dicts_do_and_leave_old_roots_alone(actions):
    root, model = t.Dir({}), Model()
    seen = []
    for kind, key, data in actions:
        seen.append((root, plain(root)))
        before = plain(root)
        accepted = model.do(kind, key, data)
        if accepted:
            root = commit(root, MAKE[kind](key, data))
        else:
            with pytest.raises(t.KvsError):
                commit(root, MAKE[kind](key, data))
            model.root = before
        assert plain(root) == model.root
    for old, content in seen:
        assert plain(old) == content


@given(steps)
def test_a_packed_transaction_gives_the_same_reference(actions):
    ops = decode_ops([MAKE[kind](key, data) for kind, key, data in actions if kind != "append"], t.Refs())
    root = apply(t.Dir({}), ops, "primary", [])
    assert apply(t.Dir({}), unpack_ops(pack_ops(ops)), "primary", []).reference(t.Refs()) == root.reference(t.Refs())


def test_two_appends_to_one_version_do_not_meet():
    base = commit(t.Dir({}), put("log", b"a"), append("log", b"b"))
    left, right = commit(base, append("log", b"L")), commit(base, append("log", b"R"))
    assert [plain(root)["log"] for root in (base, left, right)] == [b"ab", b"abL", b"abR"]


def test_an_appended_value_lists_one_blob_for_each_append():
    refs = t.Refs()
    root = commit(t.Dir({}), put("log", b"a"), append("log", b"b"))
    assert t.to_treeobj(root.entries["log"], refs)["data"] == [refs.blobref(b"a"), refs.blobref(b"b")]


@pytest.mark.parametrize(
    ("op", "errnum"),
    [
        (append("dir", b"x"), errno.EISDIR),
        (append("link", b"x"), errno.EOPNOTSUPP),
        (put("far.x", b"x"), errno.EINVAL),
        (put("loop.x", b"x"), errno.ELOOP),
    ],
)
def test_refused_operations(op, errnum):
    root = commit(t.Dir({}), put("dir.x", b"1"), link("link", "dir"), link("far", "dir", "other"), link("loop", "loop"))
    with pytest.raises(t.KvsError) as caught:
        commit(root, op)
    assert caught.value.errnum == errnum


def test_a_path_goes_through_symlinks_and_the_last_one_is_replaced():
    root = commit(t.Dir({}), put("dir.x", b"1"), link("link", "dir"), put("link.y", b"2"))
    assert plain(root)["dir"] == {"x": b"1", "y": b"2"}
    assert plain(commit(root, put("link", b"3")))["link"] == b"3"


@pytest.mark.parametrize(
    "ops",
    [
        None,
        [None],
        [{"key": "a", "flags": 0}],
        [{"key": 1, "flags": 0, "dirent": None}],
        [{"key": "a", "flags": 1, "dirent": None}],
        [{"key": "a", "flags": APPEND, "dirent": None}],
        [link("a", "b") | {"flags": APPEND}],
        [unlink(".")],
        [unlink("")],
    ],
)
def test_malformed_operations_are_refused(ops):
    with pytest.raises(t.KvsError):
        decode_ops(ops, t.Refs())


def test_depth_is_bounded_whatever_symlinks_and_subtrees_add():
    deep = ".".join("d" * (t.MAX_DEPTH - 28))
    root = commit(t.Dir({}), put(deep + ".x", b""), link("s", deep))
    with pytest.raises(t.KvsError) as caught:
        commit(root, put("s." + ".".join("e" * 40), b""))
    assert caught.value.errnum == errno.ENAMETOOLONG
    subtree: dict = {"ver": 1, "type": "dir", "data": {}}
    for _ in range(40):
        subtree = {"ver": 1, "type": "dir", "data": {"e": subtree}}
    with pytest.raises(t.KvsError):
        commit(root, {"key": "s.sub", "flags": 0, "dirent": subtree})


def test_an_unread_directory_must_be_loaded_before_it_is_changed():
    refs = t.Refs()
    below = commit(t.Dir({}), put("x", b"1"))
    root = t.Dir({"d": t.DirRef(below.reference(refs))})
    with pytest.raises(t.Missing) as caught:
        commit(root, put("d.y", b"2"))
    caught.value.node.fill(t.dir_blob(below, refs), refs)
    opened: list[t.DirRef] = []
    after = apply(root, decode_ops([put("d.y", b"2")], refs), "primary", opened)
    assert plain(after) == {"d": {"x": b"1", "y": b"2"}} and opened == [caught.value.node]
