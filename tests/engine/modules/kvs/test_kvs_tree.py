from __future__ import annotations

import errno
import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvs_trees import objects, tree

from headrace.engine.modules.kvs import tree as t


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
    refs = t.Refs()
    root = tree(obj)
    blobs = {}

    def visit(node: t.Node) -> None:
        if isinstance(node, t.Dir):
            blobs[node.reference(refs)] = refs.blob(node.reference(refs))
            for entry in node.entries.values():
                visit(entry)
        elif isinstance(node, t.ValRef):
            for blob in node.blobs:
                blobs[blob.reference(refs)] = refs.blob(blob.ref)

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

    assert rebuild(t.DirRef(root.reference(refs))) == obj


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
