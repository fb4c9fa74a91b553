"""Trees of the KVS for tests, written as dicts."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.engine.modules.kvs import tree as t


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
