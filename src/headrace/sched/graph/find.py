"""Find vertices by expression, such as `sched-now=free and status=up` in Fluxion's tools.

An expression is criteria joined by `and`, `or`, `not` and parentheses. A criterion is `key=value`:
`sched-now=free|allocated`, `sched-future=free|reserved`, `status=up|down`, `jobid-alloc=ID`, `jobid-span=ID`,
`jobid-reserved=ID`, `jobid-tag=ID`, `names=HOSTLIST`, `property=KEY`, `agfilter=true|false`. A vertex counts as down,
allocated or reserved if a vertex above it does. Job ids may have any form of RFC 19.

`agfilter=true` selects every vertex. In JGF, the vertices above single resources then carry the total amounts below
them, and the amounts in use (by the job, if the expression names one).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.formats.spec import jobid as jobids
from headrace.formats.spec.hostlist import Hostlist
from headrace.sched.graph.formats.writers import graph_object, jgf
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.selection import Selection, select
from headrace.sched.graph.usage import Allocation

if TYPE_CHECKING:
    from headrace.sched.graph.formats.writers import Writer
    from headrace.sched.graph.model import Graph
    from headrace.sched.graph.scheduler import Scheduler

_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
# Maximum number of words and parentheses in an expression. Parsing recurses once per nested one.
_MOST_TOKENS = 200


class Facts:
    """Facts about the vertices of a scheduler's graph, each computed at the first question."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._known: dict[str, bytearray] = {}

    def holds(self, what: str, v: int) -> bool:
        """Whether a vertex, or one above it, is `down`, `allocated` or `reserved`."""
        known = self._known.get(what)
        if known is None:
            known = self._known[what] = self._spread(self._down() if what == "down" else self._held(what == "reserved"))
        return bool(known[v])

    def _down(self) -> Iterable[int]:
        graph = self.scheduler.graph
        return [v for v in graph.vertices() if not graph.up[v]]

    def _held(self, reserved: bool) -> Iterable[int]:
        return [
            v
            for job in self.scheduler.jobs.values()
            if job.reserved == reserved
            for v, mark in job.selection.marks.items()
            if mark.exclusive
        ]

    def _spread(self, vertices: Iterable[int]) -> bytearray:
        graph = self.scheduler.graph
        found = bytearray(len(graph))
        for v in vertices:
            found[v] = 1
        parent = graph.parent
        if graph.more_parents:
            for v in graph.vertices():
                if found[v] or any(found[up] for up in graph.ancestors(v)):
                    found[v] = 1
            return found
        for v in graph.preorder(graph.root)[1:]:
            if found[parent[v]]:
                found[v] = 1
        return found


# The arguments are the facts and a vertex.
Predicate = Callable[[Facts, int], bool]


class ExpressionError(ValueError):
    """A find expression is invalid; the message has the place and a valid form."""


def parse(text: str) -> Predicate:
    """The predicate of an expression. Raises ExpressionError."""
    tokens = _TOKEN.findall(text)
    if len(tokens) > _MOST_TOKENS:
        raise ExpressionError(f"find: more than {_MOST_TOKENS} words and parentheses")
    predicate, rest = _or(tokens, 0)
    if rest != len(tokens):
        raise ExpressionError(f"find: unexpected {tokens[rest]!r} in {text!r}")
    return predicate


def _or(tokens: list[str], i: int) -> tuple[Predicate, int]:
    left, i = _and(tokens, i)
    while i < len(tokens) and tokens[i] in ("or", "|"):
        right, i = _and(tokens, i + 1)
        left = _either(left, right)
    return left, i


def _and(tokens: list[str], i: int) -> tuple[Predicate, int]:
    left, i = _not(tokens, i)
    while i < len(tokens) and tokens[i] not in ("or", "|", ")"):
        if tokens[i] in ("and", "&"):
            i += 1
        right, i = _not(tokens, i)
        left = _both(left, right)
    return left, i


def _not(tokens: list[str], i: int) -> tuple[Predicate, int]:
    if i >= len(tokens):
        raise ExpressionError("find: the expression ends where a criterion such as sched-now=free should be")
    if tokens[i] == "not":
        inner, i = _not(tokens, i + 1)
        return (lambda f, v: not inner(f, v)), i
    if tokens[i] == "(":
        inner, i = _or(tokens, i + 1)
        if i >= len(tokens) or tokens[i] != ")":
            raise ExpressionError("find: a parenthesis is not closed")
        return inner, i + 1
    return _criterion(tokens[i]), i + 1


def _both(a: Predicate, b: Predicate) -> Predicate:
    return lambda f, v: a(f, v) and b(f, v)


def _either(a: Predicate, b: Predicate) -> Predicate:
    return lambda f, v: a(f, v) or b(f, v)


def _job(value: str) -> int:
    try:
        return jobids.parse(value)
    except ValueError as exc:
        raise ExpressionError(f"find: {exc}") from None


def _job_test(value: str, reserved: bool | None) -> Predicate:
    jobid = _job(value)

    def test(facts: Facts, v: int) -> bool:
        job = facts.scheduler.jobs.get(jobid)
        if job is None or (reserved is not None and job.reserved != reserved):
            return False
        return job.selection.covers(v)

    return test


def _criterion(token: str) -> Predicate:
    key, _, text = token.partition("=")
    value = text.lower()
    if key == "sched-now" and value in ("free", "allocated"):
        return lambda f, v: f.holds("allocated", v) == (value == "allocated")
    if key == "sched-future" and value in ("free", "reserved"):
        return lambda f, v: f.holds("reserved", v) == (value == "reserved")
    if key == "status" and value in ("up", "down"):
        return lambda f, v: f.holds("down", v) == (value == "down")
    if key == "jobid-alloc" and text:
        return _job_test(text, False)
    if key == "jobid-reserved" and text:
        return _job_test(text, True)
    if key in ("jobid-span", "jobid-tag") and text:
        return _job_test(text, None)
    if key == "agfilter" and value in ("true", "t", "false", "f"):
        return lambda f, v: value.startswith("t")
    if key == "names" and text:
        try:
            names = frozenset(Hostlist.parse(text))
        except ValueError as exc:
            raise ExpressionError(f"find: {token}: {exc}") from None
        return lambda f, v: f.scheduler.graph.name(v) in names
    if key == "property" and text:
        return lambda f, v: text in f.scheduler.graph.properties.get(v, {})
    raise ExpressionError(f"find: {token!r} is not a criterion such as sched-now=free, status=down or jobid-alloc=1")


def matching(scheduler: Scheduler, predicate: Predicate) -> Selection:
    """The vertices for which the predicate holds, and the vertices above them, all as exclusive vertices."""
    graph, facts = scheduler.graph, Facts(scheduler)
    kept: set[int] = set()
    order = graph.preorder(graph.root)
    reached_from = _reached_from(graph, order)
    for v in reversed(order):
        if v in kept or predicate(facts, v):
            kept.add(v)
            above = reached_from.get(v, graph.parent[v])
            if above >= 0:
                kept.add(above)
    return select(
        graph, [Pick(v, graph.size[v], True, False, ()) for v in order if v in kept], reached_from=reached_from
    )


def _reached_from(graph: Graph, order: Iterable[int]) -> dict[int, int]:
    """For vertices with several parents, the parent from which the order first reaches them."""
    if not graph.more_parents:
        return {}
    found: dict[int, int] = {}
    for v in order:
        for child in graph.children[v]:
            if child in graph.more_parents:
                found.setdefault(child, v)
    return found


def listing(scheduler: Scheduler, text: str, writer: Writer, now: int) -> str:
    """The vertices that match an expression in a writer's format; "" for none. Raises ExpressionError."""
    selection = matching(scheduler, parse(text))
    if not selection.marks:
        return ""
    found = Allocation(0, now, scheduler.graph.end, False, selection)
    if writer is jgf and re.search(r"\bagfilter=t", text.lower()):
        return _with_amounts(scheduler, text, found)
    return writer(scheduler.graph, found)


def _with_amounts(scheduler: Scheduler, text: str, found: Allocation) -> str:
    """JGF of the found vertices above single resources, with the amounts of counted types below each."""
    graph = scheduler.graph
    named = re.search(r"\bjobid-\w+=([^\s()]+)", text)
    if named is None:
        jobs = [job for job in scheduler.jobs.values() if job.start <= found.start < job.end]
    else:
        jobs = [scheduler.jobs[jobid]] if (jobid := _job(named[1])) in scheduler.jobs else []
    used = _amounts(scheduler, jobs)
    above = [v for v in found.selection.marks if graph.children[v] and (named is None or v in used)]
    selection = select(graph, [Pick(v, graph.size[v], True, False, ()) for v in sorted(above, key=graph.depth)])
    whole = graph_object(graph, found._replace(selection=selection))
    for item, entry in zip(selection.items, whole["graph"]["nodes"], strict=True):
        v = item.vertex
        total = dict(graph.totals[v])
        total[graph.type[v]] = total.get(graph.type[v], 0) - graph.size[v]
        entry["metadata"]["agfilter"] = {
            name: f"used:{used.get(v, {}).get(name, 0)}, total:{total.get(name, 0)}"
            for name in sorted(scheduler.filters)
            if name != graph.type[v]
        }
    return json.dumps(whole) + "\n"


def _amounts(scheduler: Scheduler, jobs: Iterable[Allocation]) -> dict[int, dict[str, int]]:
    """The amounts by type that some jobs hold below each vertex."""
    graph = scheduler.graph
    found: dict[int, dict[str, int]] = {}
    for job in jobs:
        for item in job.selection.items:
            kind = graph.type[item.vertex]
            for up in graph.ancestors(item.vertex) if item.exclusive and kind in scheduler.filters else ():
                counts = found.setdefault(up, {})
                counts[kind] = counts.get(kind, 0) + item.needs
    return found
