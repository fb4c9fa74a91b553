"""Finding vertices by expression: `sched-now=free and status=up`, as Fluxion's tools write it.

An expression is criteria joined by `and`, `or`, `not` and parentheses. A criterion is `key=value`:
`sched-now=free|allocated`, `sched-future=free|reserved`, `status=up|down`, `jobid-alloc=ID`, `jobid-span=ID`,
`jobid-reserved=ID`, `jobid-tag=ID`, `names=NAME`, `property=KEY`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.graph.selection import Selection, from_vertices
from headrace.graph.usage import Allocation

if TYPE_CHECKING:
    from headrace.graph.scheduler import Scheduler
    from headrace.graph.writers import Writer

# predicate(scheduler, vertex, now)
Predicate = Callable[["Scheduler", int, int], bool]
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")


class ExpressionError(ValueError):
    """A find expression that cannot be understood; the message has the place and what would be right."""


def parse(text: str) -> Predicate:
    """The predicate an expression stands for. Raises ExpressionError."""
    tokens = _TOKEN.findall(text)
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
        return (lambda s, v, t: not inner(s, v, t)), i
    if tokens[i] == "(":
        inner, i = _or(tokens, i + 1)
        if i >= len(tokens) or tokens[i] != ")":
            raise ExpressionError("find: a parenthesis is not closed")
        return inner, i + 1
    return _criterion(tokens[i]), i + 1


def _both(a: Predicate, b: Predicate) -> Predicate:
    return lambda s, v, t: a(s, v, t) and b(s, v, t)


def _either(a: Predicate, b: Predicate) -> Predicate:
    return lambda s, v, t: a(s, v, t) or b(s, v, t)


def _allocated(s: Scheduler, v: int, t: int) -> bool:
    plan = s.plans.get(v)
    if plan is not None and plan.at(t) >= s.graph.size[v]:
        return True
    # What lies below a vertex given whole is taken with it.
    return any((p := s.plans.get(up)) is not None and p.at(t) > 0 for up in s.graph.ancestors(v))


def _reserved(s: Scheduler, v: int, t: int) -> bool:
    plans = [s.plans.get(u) for u in (v, *s.graph.ancestors(v))]
    return any(
        start > t and used
        for plan in plans
        if plan is not None
        for start, used in zip(plan.times, plan.used, strict=True)
    )


def _job_test(value: str, reserved: bool | None) -> Predicate:
    try:
        jobid = int(value)
    except ValueError:
        raise ExpressionError(f"find: a job id must be an integer, not {value!r}") from None

    def test(s: Scheduler, v: int, t: int) -> bool:
        job = s.jobs.get(jobid)
        if job is None or (reserved is not None and job.reserved != reserved):
            return False
        return job.selection.covers(v)

    return test


def _criterion(token: str) -> Predicate:
    key, equals, value = token.partition("=")
    if equals and value:
        if key == "sched-now" and value in ("free", "allocated"):
            wanted = value == "allocated"
            return lambda s, v, t: _allocated(s, v, t) == wanted
        if key == "sched-future" and value in ("free", "reserved"):
            wanted = value == "reserved"
            return lambda s, v, t: _reserved(s, v, t) == wanted
        if key == "status" and value in ("up", "down"):
            wanted = value == "up"
            return lambda s, v, t: bool(s.graph.up[v]) == wanted
        if key == "jobid-alloc":
            return _job_test(value, False)
        if key == "jobid-reserved":
            return _job_test(value, True)
        if key in ("jobid-span", "jobid-tag"):
            return _job_test(value, None)
        if key == "names":
            return lambda s, v, t: s.graph.name(v) == value
        if key == "property":
            return lambda s, v, t: value in s.graph.properties.get(v, {})
    raise ExpressionError(f"find: {token!r} is not a criterion such as sched-now=free, status=down or jobid-alloc=1")


def matching(scheduler: Scheduler, predicate: Predicate, now: int) -> Selection:
    """The vertices for which the predicate holds, with the vertices on the way to them."""
    graph = scheduler.graph
    taken = [(v, graph.size[v], True) for v in graph.preorder(graph.root) if predicate(scheduler, v, now)]
    return from_vertices(graph, taken)


def listing(scheduler: Scheduler, predicate: Predicate, writer: Writer, now: int) -> str:
    """The matching vertices in a writer's format; empty if there are none."""
    selection = matching(scheduler, predicate, now)
    if not selection.marks:
        return ""
    return writer(scheduler.graph, Allocation(0, now, scheduler.graph.end, False, selection))
