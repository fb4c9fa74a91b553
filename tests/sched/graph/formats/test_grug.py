"""GraphML recipes: how many, how numbered, and what is wrong with a bad one."""

from __future__ import annotations

import pytest

from headrace.sched.graph.formats import grug
from headrace.sched.graph.model import GraphError

HEAD = """<graphml><key id="root" for="node" attr.name="root"><default>0</default></key><graph>
<node id="cluster"><data key="root">1</data><data key="type">cluster</data></node>
<node id="node"><data key="type">node</data><data key="basename">n</data></node>
<node id="core"><data key="type">core</data></node>"""


def edge(source: str, target: str, **data: object) -> str:
    inner = "".join(f'<data key="{key}">{value}</data>' for key, value in data.items())
    return f'<edge source="{source}" target="{target}">{inner}</edge>'


def recipe(*edges: str) -> str:
    return HEAD + "".join(edges) + "</graph></graphml>"


def test_edges_multiply_and_number_within_the_parent() -> None:
    graph = grug.read(recipe(edge("cluster", "node", multi_scale=2), edge("node", "core", multi_scale=3, id_start=1)))
    paths = [graph.path(v) for v, kind in enumerate(graph.type) if kind == "core"]
    assert paths == [f"/cluster0/n{n}/core{c}" for n in (0, 1) for c in (1, 2, 3)]


def test_a_wider_scope_numbers_across_parents_with_a_stride() -> None:
    cores = edge("node", "core", multi_scale=2, id_scope=1, id_stride=2)
    graph = grug.read(recipe(edge("cluster", "node", multi_scale=2), cores))
    assert [graph.id[v] for v, kind in enumerate(graph.type) if kind == "core"] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml", "not well-formed"),
        ("<graphml/>", "exactly one node"),
        (recipe(edge("cluster", "rack")), "no recipe node 'rack'"),
        (recipe(edge("cluster", "node", multi_scale="x")), "multi_scale must be an integer"),
        (recipe(edge("cluster", "node", multi_scale=-1)), "at least 0"),
        (recipe(edge("cluster", "node"), edge("node", "cluster")), "contained twice"),
        (recipe(edge("cluster", "node", multi_scale=10**9)), "more than"),
        (recipe(edge("cluster", "node", gen_method="GUESS")), "generation method GUESS"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><graphml/>', "document type"),
    ],
)
def test_bad_recipe_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        grug.read(text)
