from __future__ import annotations

import pytest

from headrace.cli.jobs.pstree import _ASCII, _BOX, _COMPACT, Node, lines_of


def _node(label: str, *below: Node, combine: bool = True) -> Node:
    node = Node(label)
    node.add(list(below), combine)
    return node


TREE = [
    "r",
    "├── a",
    "│   ├── 2*[x]",
    "│   └── y",
    "├── b",
    "│   └── c",
    "│       └── z",
    "└── x",
]


def _tree() -> Node:
    return _node(
        "r",
        _node("a", Node("x"), Node("y"), Node("x")),
        _node("b", _node("c", Node("z"))),
        Node("x"),
    )


def test_a_tree_is_drawn_with_its_connectors():
    assert list(lines_of(_tree(), _BOX)) == TREE


@pytest.mark.parametrize(("style", "line"), [(_COMPACT, "│   └─z"), (_ASCII, "|       `-- z")])
def test_other_connectors_draw_the_same_tree(style, line):
    drawn = list(lines_of(_tree(), style))
    assert (len(drawn), drawn[6]) == (len(TREE), line)


def test_only_leaves_that_look_alike_are_combined():
    drawn = lines_of(_node("r", Node("x"), _node("x", Node("x")), Node("x"), Node("y", "1 "), Node("y", "2 ")), _BOX)
    assert list(drawn) == ["r", "├── 2*[x]", "├── x", "│   └── x", "1 ├── y", "2 └── y"]


def test_nothing_is_combined_unless_it_may_be():
    assert list(lines_of(_node("r", Node("x"), Node("x"), combine=False), _BOX)) == ["r", "├── x", "└── x"]
