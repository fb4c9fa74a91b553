"""KVS tree objects (RFC 11) and blobrefs (RFC 10)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import treeobj
from headrace.formats.spec.treeobj import TreeObjectError

FOO = "sha1-f1d2d2f924e986ac86fdf7b36c94bcdf32beec15"

objects = st.recursive(
    st.binary(max_size=20).map(treeobj.val)
    | st.binary(max_size=5).map(lambda data: treeobj.valref([treeobj.blobref(data)]))
    | st.binary(max_size=5).map(lambda data: treeobj.dirref(treeobj.blobref(data, "sha256")))
    | st.builds(treeobj.symlink, st.text(max_size=5), st.none() | st.text(max_size=5)),
    lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3).map(treeobj.dir_),
    max_leaves=6,
)


@given(st.binary(max_size=50), st.sampled_from([0, 2000, 2048, 100_000]), st.sampled_from(["sha1", "sha256"]))
def test_digests_are_those_of_hashlib_whatever_makes_them(data, more, hash):
    data += bytes(more)
    digest = treeobj.digest(data, hash)
    assert digest == hashlib.new(hash, data).digest()
    assert len(digest) == treeobj.digest_size(hash)


def test_a_blobref_names_hash_and_digest():
    assert treeobj.blobref(b"foo\n") == FOO
    assert treeobj.blobref(b"", "sha256") == "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with pytest.raises(TreeObjectError, match="sha1 or sha256"):
        treeobj.blobref(b"", "md5")


def test_objects_look_as_in_the_rfc():
    assert treeobj.val(b"422\n") == {"ver": 1, "type": "val", "data": "NDIyCg=="}
    assert treeobj.valref([FOO, FOO]) == {"ver": 1, "type": "valref", "data": [FOO, FOO]}
    assert treeobj.dirref(FOO) == {"ver": 1, "type": "dirref", "data": [FOO]}
    assert treeobj.dir_() == {"ver": 1, "type": "dir", "data": {}}
    assert treeobj.symlink("a.a") == {"ver": 1, "type": "symlink", "data": {"target": "a.a"}}
    assert treeobj.symlink("b.b", "a") == {"ver": 1, "type": "symlink", "data": {"namespace": "a", "target": "b.b"}}


@given(st.binary(max_size=200))
def test_a_value_comes_back_from_its_val(data):
    assert treeobj.decode_val(treeobj.val(data)) == data


@given(objects)
def test_what_the_builders_make_is_valid(obj):
    treeobj.validate(obj)


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (None, "root: must be an object"),
        ([], "root: must be an object"),
        ({}, "ver must be 1"),
        ({"ver": 2, "type": "val", "data": ""}, "ver must be 1"),
        ({"ver": True, "type": "val", "data": ""}, "ver must be 1"),
        ({"ver": 1, "type": "hdir", "data": {}}, "unknown type 'hdir'"),
        ({"ver": 1, "type": [], "data": {}}, "unknown type"),
        ({"ver": 1, "type": "val"}, "not base64"),
        ({"ver": 1, "type": "val", "data": "x"}, "not base64"),
        ({"ver": 1, "type": "val", "data": 7}, "not base64"),
        ({"ver": 1, "type": "val", "data": "ƒ"}, "not base64"),
        ({"ver": 1, "type": "valref", "data": []}, "list of blobrefs"),
        ({"ver": 1, "type": "valref", "data": FOO}, "list of blobrefs"),
        ({"ver": 1, "type": "valref", "data": [FOO[:-1]]}, "list of blobrefs"),
        ({"ver": 1, "type": "valref", "data": [FOO.upper()]}, "list of blobrefs"),
        ({"ver": 1, "type": "dirref", "data": [FOO, FOO]}, "exactly one"),
        ({"ver": 1, "type": "symlink", "data": {}}, "target"),
        ({"ver": 1, "type": "symlink", "data": {"target": "a", "namespace": None}}, "namespace"),
        ({"ver": 1, "type": "dir", "data": []}, "object of entries"),
        (treeobj.dir_({"a": treeobj.dir_({"b": {"ver": 1}})}), r"^a\.b: unknown type"),
    ],
)
def test_an_object_that_breaks_the_rfc_is_refused_by_its_path(obj, reason):
    with pytest.raises(TreeObjectError, match=reason):
        treeobj.validate(obj)


def test_directories_nested_too_deep_are_refused():
    obj = treeobj.val(b"")
    for _ in range(treeobj.MAX_DEPTH + 1):
        obj = treeobj.dir_({"d": obj})
    with pytest.raises(TreeObjectError, match="deep"):
        treeobj.validate(obj)
    treeobj.validate(obj["data"]["d"])


def test_only_a_val_is_decoded():
    with pytest.raises(TreeObjectError, match="expected a val"):
        treeobj.decode_val(treeobj.dir_())
