"""Resource shapes: the examples of RFC 46."""

from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec import jobspec_validate, shape
from headrace.formats.spec.shape import ShapeError


def v(kind: str, count: Any = 1, *inner: Dict[str, Any], **keys: Any) -> Dict[str, Any]:
    return {"type": kind, "count": count, **keys, **({"with": list(inner)} if inner else {})}


def s(count: Any, *inner: Dict[str, Any], label: str = "default") -> Dict[str, Any]:
    return v("slot", count, *inner, label=label)


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("slot=4/node", [s(4, v("node"))]),
        ("slot=3-30/node", [s({"min": 3, "max": 30, "operator": "+", "operand": 1}, v("node"))]),
        (
            "slot=4{nodelevel}/node{-x}/socket=2+/core=4+",
            [s(4, v("node", 1, v("socket", {"min": 2}, v("core", {"min": 4})), exclusive=False), label="nodelevel")],
        ),
        (
            "slot=4{nodelevel}/node/socket=2/core=4",
            [s(4, v("node", 1, v("socket", 2, v("core", 4))), label="nodelevel")],
        ),
        (
            "[cluster/slot=2{ib}/node/[memory=4{unit:GB};ib10g];switch/slot=2{bicore}/node/core=2]",
            [
                v("cluster", 1, s(2, v("node", 1, v("memory", 4, unit="GB"), v("ib10g")), label="ib")),
                v("switch", 1, s(2, v("node", 1, v("core", 2)), label="bicore")),
            ],
        ),
        (
            "cluster=2/slot/node=1+{-x}/core=30",
            [v("cluster", 2, s(1, v("node", {"min": 1}, v("core", 30), exclusive=False)))],
        ),
        ("slot=4,9,16,25/node", [s("4,9,16,25", v("node"))]),
        ("slot=[4,9,16]/node", [s("4,9,16", v("node"))]),
        (
            "node/[slot=10{read-db}/[core;memory=4{unit:GB}];slot{db}/[core=6;memory=24{unit:GB}]]",
            [
                v(
                    "node",
                    1,
                    s(10, v("core"), v("memory", 4, unit="GB"), label="read-db"),
                    s(1, v("core", 6), v("memory", 24, unit="GB"), label="db"),
                )
            ],
        ),
        ("slot=10/[memory=2+{unit:GB};core]", [s(10, v("memory", {"min": 2}, unit="GB"), v("core"))]),
        (
            "slot=2{4GB-node}/node/memory=4+{unit:GB}",
            [s(2, v("node", 1, v("memory", {"min": 4}, unit="GB")), label="4GB-node")],
        ),
        ("slot=2-8:2:*/core", [s({"min": 2, "max": 8, "operator": "*", "operand": 2}, v("core"))]),
        (
            'node{x,-a,+b,c:1,d:{e:"f g",h},i:[1,"2"],j:null,k:2.5}',
            [
                v(
                    "node",
                    exclusive=True,
                    a=False,
                    b=True,
                    c=1,
                    d={"e": "f g", "h": True},
                    i=[1, "2"],
                    j=None,
                    k=2.5,
                )
            ],
        ),
        ('"a b" = 2 / core', [v("a b", 2, v("core"))]),
    ],
)
def test_shapes_expand_to_resources(text: str, resources: List[Dict[str, Any]]) -> None:
    assert shape.parse(text) == resources


def test_expanded_shapes_are_valid_jobspec_resources() -> None:
    resources = shape.parse(
        "[cluster/slot=2{ib}/node/[memory=4{unit:GB};core];switch/slot=2{bicore}/node=1+{-x}/core=2]"
    )
    jobspec_validate.validate(
        {
            "version": 999,
            "resources": resources,
            "tasks": [{"command": ["a"], "slot": "ib", "count": {"per_slot": 1}}],
            "attributes": {"system": {}},
        }
    )


def test_the_default_label_is_the_callers() -> None:
    assert shape.parse("slot/core", default_label="task")[0]["label"] == "task"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a resource type at position 0"),
        ("slot", "a slot needs resources after '/' at position 4"),
        ("slot=0/core", "'0' is not a count"),
        ("slot=8-2/core", "'8-2' is not a count"),
        ("slot=0-3/core", "'0-3' is not a count"),
        ("slot=/core", "expected a count at position 5"),
        ("[core;gpu", "expected ']' at position 9"),
        ("core]", "unexpected ']' at position 4"),
        ("core;gpu", "unexpected ';' at position 4"),
        ("node{unit:}", "expected a value at position 10"),
        ("node{x,}", "expected a key at position 7"),
        ("node{a:1,a:2}", "'a' is given twice"),
        ("slot{}/core", "expected the label of the slot"),
        ("[slot/core;slot/core]", "has 2 slots, so each needs a label"),
        ('"node', "not a JSON string"),
        ("node{a:[1}", "not a JSON value"),
        ("/".join(["rack"] * 500), "nested deeper"),
        ("node" + "{a:" * 500, "nested deeper"),
    ],
)
def test_errors_have_the_position(text: str, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        shape.parse(text)
    assert message in str(caught.value)


@given(st.text(alphabet='slot core node=[]{};:,/+-x1203*"', max_size=24) | st.text(max_size=12))
@settings(max_examples=300)
def test_any_text_is_a_shape_or_an_error(text: str) -> None:
    try:
        resources = shape.parse(text)
    except ShapeError:
        return
    assert resources
