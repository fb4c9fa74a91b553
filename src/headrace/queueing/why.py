"""Why a job waits or can never run, in words for its user: which resource is short, by how much, and where.

The matcher's own reason is the first failure of a search; users need the sum. So free resources are counted over the
nodes that are up and satisfy the job's constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.graph import Scheduler, census
from headrace.graph.matcher import Failure, explain
from headrace.graph.request import JobRequest, Request, total_needs
from headrace.spec import jobspec as js
from headrace.spec.constraint_why import excluding

PROMISED = "resources are free but promised to jobs before it"


class _Part(NamedTuple):
    """A request for each node or slot: `times` times `needs`; `idle` if it needs them exclusively."""

    name: str
    times: int
    needs: dict[str, int]
    idle: bool


def no_match(scheduler: Scheduler, jobspec: Mapping[str, Any], request: JobRequest, now: int, reserves: bool) -> str:
    """Why a request that does not wait is given nothing at `now` nor, if it `reserves`, at a later time: that it can
    never be met, or what is short.
    """
    graph = scheduler.graph
    if request.duration > graph.end - now:
        most, asked = graph.end - now, request.duration
        return f"unsatisfiable request: attributes.system.duration: must be at most {most} seconds here, not {asked}"
    outcome = scheduler.satisfiable(request)
    if outcome.unsatisfiable:
        allowed = scheduler.allowed(request.constraint)
        down = sum(not graph.up[v] for v in (graph.nodes() if allowed is None else allowed))
        if down and outcome.failure and not (outcome.failure.structural or _lacking(scheduler, request)):
            return f"no room while {down} eligible node(s) are down or drained: {explain(graph, outcome.failure)}"
        return refusal(scheduler, jobspec, request, outcome.failure)
    why = shortage(scheduler, request, now)
    if why is PROMISED and not any(job.start > now for job in scheduler.jobs.values()):
        # Sums of amounts do not show what is taken whole, with what it has that was not asked for.
        matcher = scheduler.matcher(request, now)
        matcher.match(request.resources)
        why = explain(graph, matcher.failure) if matcher.failure else why
    return f"no room now: {why}{'; jobs whose ends are not known hold what it asks for' if reserves else ''}"


def shortage(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """What is short at `now` for a pending job."""
    if request.sets:
        return _shortage_of_sets(scheduler, request, now)
    graph, up = scheduler.graph, scheduler.graph.up
    allowed = scheduler.allowed(request.constraint)
    nodes = graph.nodes() if allowed is None else allowed
    usable = [v for v in nodes if up[v]]
    if not usable:
        return _nobody(scheduler, request) or "all eligible nodes are down or drained"
    where = "" if allowed is None and len(usable) == len(nodes) else f" on {len(usable)} eligible node(s)"
    part = _part(request, scheduler)
    if part.idle:
        fits = census.idle(scheduler, usable, now)
    else:
        needs = request.needs
        places = {kind: place for place, kind in enumerate(kind for kind in needs if kind != "node")}
        if not where:
            # The root has the sums. A type that the whole system has too few of comes before types that are only in
            # use.
            totals = graph.totals[graph.root]
            for kind, wanted in sorted(needs.items(), key=lambda need: totals.get(need[0], 0) >= need[1]):
                have = scheduler.free(graph.root, kind, now) if kind in places else len(usable)
                if have < wanted:
                    return _short(kind, wanted, have, where)
        free = census.free(scheduler, usable, tuple(places), now)
        for kind, wanted in needs.items() if where else ():
            have = sum(count * (amounts[places[kind]] if kind in places else 1) for amounts, count in free.items())
            if have < wanted:
                return _short(kind, wanted, have, where)
        fits = 0
        for amounts, count in free.items():
            slots = [amounts[places[kind]] // n for kind, n in part.needs.items()]
            fits += count * (all(slots) if part.name == "node" else min(slots, default=0))
    if fits < part.times:
        inside = " + ".join(f"{n} {kind}" for kind, n in sorted(part.needs.items()))
        name = f"idle {part.name}" if part.idle else f"{part.name} of {inside}" if inside else part.name
        return _short(name, part.times, fits, where)
    return PROMISED


def _shortage_of_sets(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """As `shortage`, for a request of several sets: what is short for one of them alone, or for all together."""
    alone = (shortage(scheduler, one, now) for one in request.sets)
    short = next((one for one in alone if one is not PROMISED), "")
    if short:
        return short
    for kind, wanted in request.needs.items():
        have = scheduler.free(scheduler.graph.root, kind, now)
        if have < wanted:
            return _short(kind, wanted, have, "")
    return PROMISED


def _short(name: str, wanted: int, have: int, where: str) -> str:
    return f"insufficient resources: {name} x{wanted - have} short ({wanted} wanted, {have} free{where})"


def takes_whole_nodes(request: JobRequest, scheduler: Scheduler) -> bool:
    """Whether a job shares its nodes with no other: it asks for that, or the match policy gives whole nodes only."""
    top: Request = request.resources[0]
    if top.is_slot and len(top.with_) == 1:
        return top.with_[0].type == "node"
    return top.type == "node" and (bool(top.exclusive) or "node" in scheduler.policy.whole)


def _part(request: JobRequest, scheduler: Scheduler) -> _Part:
    top: Request = request.resources[0]
    inner = top.with_
    needs = {kind: n for kind, n in (total_needs(inner) if inner else {}).items() if kind != "node"}
    if top.is_slot and len(inner) == 1 and inner[0].type == "node":
        node = inner[0]
        return _Part("node", top.count.low * node.count.low, needs, True)
    if top.type == "node":
        return _Part("node", top.count.low, needs, takes_whole_nodes(request, scheduler))
    if top.is_slot:
        return _Part("slot", top.count.low, needs, False)
    return _Part(top.type, 0, {}, False)


def refusal(scheduler: Scheduler, jobspec: Mapping[str, Any], request: JobRequest, failure: Failure | None) -> str:
    """Why even an idle system could not run a job: for slots of cores and GPUs in flux-core's words, otherwise what
    there is too little of, or the matcher's reason; then the part of the constraint that no node satisfies.
    """
    nobody = _nobody(scheduler, request)
    text = _refusal(scheduler, jobspec, request, failure, scheduler.allowed(request.constraint))
    return f"unsatisfiable request: {text}; {nobody}" if nobody else f"unsatisfiable request: {text}"


def _nobody(scheduler: Scheduler, request: JobRequest) -> str:
    """The part of a request's constraint that excludes every node; "" if there is none."""
    found = (_excluding(scheduler, one.constraint or {}) for one in request.sets or (request,))
    return next(filter(None, found), "")


def _excluding(scheduler: Scheduler, constraint: dict[str, Any]) -> str:
    return excluding(constraint, lambda part: scheduler.allowed(part) != frozenset())


def _refusal(
    scheduler: Scheduler,
    jobspec: Mapping[str, Any],
    request: JobRequest,
    failure: Failure | None,
    allowed: frozenset[int] | None,
) -> str:
    if request.sets:
        return _lacks(scheduler, request, failure)
    try:
        wanted = js.slot_request(dict(jobspec))
    except js.JobspecError:
        return _lacks(scheduler, request, failure)
    graph = scheduler.graph
    total = slots = eligible = 0
    per_node = wanted.nslots // wanted.nnodes if wanted.nnodes else 1
    for amounts, count in census.held(graph, graph.nodes() if allowed is None else allowed):
        cores, gpus = amounts.get("core", 0), amounts.get("gpu", 0)
        fit = cores // wanted.cores
        if wanted.gpus:
            fit = min(fit, gpus // wanted.gpus)
        total += cores * count
        slots += fit * count
        eligible += (fit >= per_node) * count
    slot = f"{per_node if wanted.nnodes else wanted.nslots} slot(s) of {wanted.cores} core(s)"
    if wanted.gpus:
        slot += f" and {wanted.gpus} gpu(s)"
    if wanted.nnodes:
        kind, of = ("exclusive ", "") if wanted.exclusive else ("", f" with {slot}")
        return f"need {wanted.nnodes} {kind}node(s){of}, only {eligible} eligible"
    return f"need {slot}, only {slots} such slot(s) available (total cores: {total})"


def _lacks(scheduler: Scheduler, request: JobRequest, failure: Failure | None) -> str:
    """What the whole system has too little of, or the matcher's reason."""
    for kind, amount, have in _lacking(scheduler, request):
        return f"need {amount} {kind}, the whole system has {have}"
    return explain(scheduler.graph, failure) if failure is not None else "no part of the system matches it"


def _lacking(scheduler: Scheduler, request: JobRequest) -> list[tuple[str, int, int]]:
    """The types that the whole system has too little of, each with the amounts that are asked for and there."""
    have = scheduler.graph.totals[scheduler.graph.root]
    return [(kind, n, have.get(kind, 0)) for kind, n in request.needs.items() if have.get(kind, 0) < n]
