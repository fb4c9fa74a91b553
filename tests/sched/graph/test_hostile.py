"""Documents that were tampered with: a clear error or a graph that works, never anything else, and nothing changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec.constraint import ConstraintError
from headrace.sched.graph import Graph, Scheduler, jobspec_text, parse_jobspec, update
from headrace.sched.graph.formats import jgf, rv1
from headrace.sched.graph.formats.writers import WRITERS
from headrace.sched.graph.model import GraphError
from headrace.sched.graph.request import RequestError

NUMBERS = [-1, 0, 1, 2**31, 2**62, 2**64, 10**30, -(2**63), 0.5, 1e300]
WORDS = ["", "0", "-1", "0-3", "0-99999999999", "node", "slot", "core", "^", "*", "a/b", "\0", "x" * 300]
OBJECTS: list[Any] = [None, True, [], {}, [[]], ["0"], {"containment": "/"}, {"not": [{}]}, {"min": 1, "max": 10**18}]
POWER = {"min": 2, "max": 2**62, "operator": "^", "operand": 10**9}
HOSTILE = st.sampled_from([*NUMBERS, *WORDS, *OBJECTS, POWER])
CORE = {"type": "core", "count": 1}
SLOT = {"type": "slot", "count": 2, "label": "t", "with": [CORE, {"type": "memory", "count": 3}]}
JOBSPEC: dict[str, Any] = {
    "version": 1,
    "resources": [{"type": "node", "count": {"min": 1, "max": 2, "operator": "+", "operand": 1}, "with": [SLOT]}],
    "tasks": [],
    "attributes": {"system": {"duration": 60, "constraints": {"and": [{"hostlist": ["node[0-1]"]}, {"ranks": ["0"]}]}}},
}
R: dict[str, Any] = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}, {"rank": "2", "children": {"core": "1"}}],
        "nodelist": ["node[0-1]", "other"],
        "properties": {"fast": "1-2"},
        "starttime": 5,
        "expiration": 5000,
    },
}


def cluster() -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(2):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(4):
            graph.add("core", node, id=c, rank=n)
        graph.add("memory", node, id=0, size=8, rank=n)
    return graph.finish()


def jgf_document() -> dict[str, Any]:
    graph = cluster()
    nodes = [
        {
            "id": str(v),
            "metadata": {
                "type": graph.type[v],
                "id": graph.id[v],
                "rank": graph.rank[v],
                "size": graph.size[v],
                "status": 0,
                "properties": {"a": "1"},
                "paths": {"containment": graph.path(v)},
            },
        }
        for v in range(len(graph))
    ]
    edges = [{"source": str(graph.parent[v]), "target": str(v), "metadata": {}} for v in range(1, len(graph))]
    return {"graph": {"nodes": nodes, "edges": edges}}


def places(obj: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside a document."""
    inner = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    found = [path] if path else []
    for key, value in inner:
        found += places(value, (*path, key))
    return found


def tampered(document: Any) -> st.SearchStrategy[Any]:
    """A document with up to three places replaced, removed or doubled."""
    change = st.tuples(st.sampled_from(places(document)), st.sampled_from(["set", "del", "double"]), HOSTILE)

    def apply(changes: list[tuple[tuple[Any, ...], str, Any]]) -> Any:
        out = copy.deepcopy(document)
        for path, how, value in changes:
            holder = out
            try:
                for key in path[:-1]:
                    holder = holder[key]
                if how == "set":
                    holder[path[-1]] = copy.deepcopy(value)
                elif how == "del":
                    del holder[path[-1]]
                elif isinstance(holder, list):
                    holder.append(copy.deepcopy(holder[path[-1]]))
            except (LookupError, TypeError):
                pass
        return out

    return st.lists(change, min_size=1, max_size=3).map(apply)


def use(graph: Graph, jobspec: Any = JOBSPEC) -> None:
    """Plan on a graph and write the result in every format; in the end nothing is held."""
    for policy in ("first", "low", "lonodex"):
        scheduler = Scheduler(graph, policy)
        try:
            request = parse_jobspec(jobspec)
            outcomes = [scheduler.reserve(jobid, request, graph.start) for jobid in range(3)]
            scheduler.satisfiable(request)
        except (RequestError, ConstraintError) as exc:
            assert str(exc)
        else:
            for outcome in outcomes:
                if outcome.allocation is not None:
                    for name, writer in WRITERS.items():
                        # A job without cores and GPUs has no R_lite.
                        assert writer(graph, outcome.allocation) or name == "rlite"
        for jobid in list(scheduler.jobs):
            scheduler.cancel(jobid)
        assert not any(p.times for p in (*scheduler.plans.values(), *scheduler.shared.values()))


@settings(max_examples=150, deadline=None)
@given(tampered(JOBSPEC))
def test_tampered_jobspec(jobspec: Any) -> None:
    use(cluster(), jobspec)


@settings(max_examples=150, deadline=None)
@given(tampered(jgf_document()))
def test_tampered_jgf(document: Any) -> None:
    try:
        graph = jgf.read(json.dumps(document))
    except GraphError as exc:
        assert str(exc).startswith("JGF") or "contained" in str(exc) or "root" in str(exc) or "no vertices" in str(exc)
    else:
        use(graph)


@settings(max_examples=150, deadline=None)
@given(tampered(R))
def test_tampered_r(document: Any) -> None:
    try:
        graph = rv1.read(json.dumps(document))
    except GraphError as exc:
        assert str(exc)
    else:
        use(graph)


@pytest.mark.parametrize("form", ["jgf", "rv1exec"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_tampered_selection_is_entered_in_full_or_not_at_all(form: str, data: st.DataObject) -> None:
    graph = cluster()
    scheduler = Scheduler(graph, "low")
    document = data.draw(tampered(jgf_document() if form == "jgf" else R))
    try:
        scheduler.add(7, update.read(graph, form, json.dumps(document)), 0, 10, False)
    except ValueError as exc:
        assert str(exc)
        assert not scheduler.jobs
    else:
        for kind in ("core", "memory"):
            assert 0 <= scheduler.free(graph.root, kind, 5) <= graph.totals[graph.root][kind]
        scheduler.cancel(7)
    assert not any(p.times for p in (*scheduler.plans.values(), *scheduler.shared.values()))


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 30_000 + "]" * 30_000, "{a: " * 30_000 + "b"])
def test_a_jobspec_that_is_nested_too_deeply_is_an_error(text: str) -> None:
    with pytest.raises(jobspec_text.ERRORS, match=r"nest|recursion"):
        jobspec_text.read(text, cluster())
