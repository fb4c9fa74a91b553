from __future__ import annotations

import msgspec
from hypothesis import given
from kvs_trees import objects, tree

from headrace.engine.modules.kvs import tree as t
from headrace.engine.modules.kvs.tree import pack, unpack


@given(objects)
def test_packing_keeps_the_reference(obj):
    root = tree(obj)
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(pack(root)))
    assert unpack(packed).reference(t.Refs()) == root.reference(t.Refs())
