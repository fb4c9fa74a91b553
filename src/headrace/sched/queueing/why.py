"""Why a job waits or can never run, as a text for its user: the resource that is short, and where.

The matcher's own reason is the first failure of a search; users need the sum. So free resources are counted over the
nodes that are up and satisfy the job's constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.formats.spec import jobspec as js
from headrace.formats.spec.constraint_why import excluding
from headrace.sched.graph import Scheduler, census
from headrace.sched.graph.matcher import Failure, explain
from headrace.sched.graph.model import Graph
from headrace.sched.graph.request import JobRequest, Request, total_needs

PROMISED = "resources are free but promised to jobs before it"
# Why the first job of a queue waits although its resources are free at the moment.
_HELD_LATER = "resources are free now, but not until it would end: other jobs have them later"
# The maximum number of nodes that a reason names.
_NAMED = 3


class _Part(NamedTuple):
    """A part of a request: `times` nodes, slots or pods with `needs` each.

    `idle`: it needs them exclusively. All of them are in one vertex of the type `within` ("": anywhere), of which the
    request asks for `groups`.
    """

    name: str
    times: int
    needs: dict[str, int]
    idle: bool
    within: str = ""
    groups: int = 1


def no_match(scheduler: Scheduler, jobspec: Mapping[str, Any], request: JobRequest, now: int, reserves: bool) -> str:
    """Why a request that does not wait gets no resources: it can never be met, or some are short.

    It is for `now` or, if it `reserves`, also for a later time.
    """
    graph = scheduler.graph
    if request.duration > graph.end - now:
        most, asked = graph.end - now, request.duration
        return f"unsatisfiable request: attributes.system.duration: must be at most {most} seconds here, not {asked}"
    outcome = scheduler.satisfiable(request)
    if outcome.unsatisfiable:
        return while_down(scheduler, request, outcome.failure) or refusal(scheduler, jobspec, request, outcome.failure)
    why = shortage(scheduler, request, now)
    if why is PROMISED and not any(job.start > now for job in scheduler.jobs.values()):
        why = _failed(scheduler, request, now) or why
    return f"no room now: {why}{'; jobs without a known end hold the requested resources' if reserves else ''}"


def while_down(scheduler: Scheduler, request: JobRequest, failure: Failure | None) -> str:
    """Why a request has no room while nodes are down, drained or cordoned.

    "" if it has no room with them, either. `failure` is why a search among the other nodes found nothing.
    """
    graph = scheduler.graph
    nodes = list(_eligible(scheduler, request))
    down = [v for v in nodes if not graph.up[v]]
    if not down or failure is None or failure.structural or _lacks(scheduler, request):
        return ""
    named = ", ".join(graph.name(v) for v in down[:_NAMED])
    more = f" and {len(down) - _NAMED} more" if len(down) > _NAMED else ""
    if len(down) == len(nodes):
        return f"no room while all eligible nodes are down, drained or cordoned ({named}{more})"
    part = _part(request, scheduler)
    room = _room(census.held(graph, [v for v in nodes if graph.up[v]]), part)
    why = explain(graph, failure)
    if not request.sets and not part.within and room < part.times:
        why = f"it needs {_all(graph, part)}, the other nodes have room for {room}"
    return f"no room while {len(down)} eligible node(s) are down, drained or cordoned ({named}{more}): {why}"


def at_the_front(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """The shortage at `now` for the first job of a queue if `shortage` returns `PROMISED`."""
    if request.sets:
        where = f"in one {request.within}" if request.within else "beside each other"
        return f"insufficient resources: its parts have no room {where} now"
    return _failed(scheduler, request.lasting(1), now) or _HELD_LATER


def _failed(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """Why a search at `now` fails; "" if it does not fail.

    A vertex that is taken whole includes resources that were not requested, which sums of amounts do not show.
    """
    matcher = scheduler.matcher(request, now)
    matcher.match(request.resources)
    graph, failure = scheduler.graph, matcher.failure
    if failure is None:
        return ""
    where = "" if failure.where == graph.root else f" in {graph.path(failure.where)}"
    return _short(graph, failure.type, failure.wanted, failure.available, where)


def shortage(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """The shortage at `now` of a pending job."""
    if request.sets:
        return _shortage_of_sets(scheduler, request, now)
    graph, up = scheduler.graph, scheduler.graph.up
    allowed = scheduler.allowed(request.constraint)
    nodes = list(_eligible(scheduler, request))
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
            # The root has the sums. Types of which the whole system has too few come before types that are only in use.
            totals = graph.totals[graph.root]
            for kind, wanted in sorted(needs.items(), key=lambda need: totals.get(need[0], 0) >= need[1]):
                have = scheduler.free(graph.root, kind, now) if kind in places else len(usable)
                if have < wanted:
                    return _short(graph, kind, wanted, have, where)
        free = census.free(scheduler, usable, tuple(places), now)
        for kind, wanted in needs.items() if where else ():
            have = sum(count * (amounts[places[kind]] if kind in places else 1) for amounts, count in free.items())
            if have < wanted:
                return _short(graph, kind, wanted, have, where)
        fits = _room(((dict(zip(places, amounts)), count) for amounts, count in free.items()), part)
    if fits < part.times:
        return _short(graph, f"idle {part.name}" if part.idle else _each(graph, part), part.times, fits, where)
    return _short_within(scheduler, usable, part, now) or PROMISED


def _short_within(scheduler: Scheduler, usable: list[int], part: _Part, now: int) -> str:
    """A shortage of vertices of type `part.within` that have room for a whole group; "" for none."""
    if not part.within or part.idle:
        return ""
    graph, kinds = scheduler.graph, tuple(part.needs)
    room = {}
    for v, inside in _by_ancestor(graph, usable, part.within).items():
        free = census.free(scheduler, inside, kinds, now)
        room[v] = _room(((dict(zip(kinds, amounts)), count) for amounts, count in free.items()), part)
    return _too_narrow(graph, room, part, "free in")


def _too_narrow(graph: Graph, room: dict[int, int], part: _Part, how: str) -> str:
    """The reason if too few vertices, which have `room` each, have enough of it; "" if enough have."""
    if sum(one >= part.times for one in room.values()) >= part.groups:
        return ""
    best = max(room, key=lambda v: room[v], default=-1)
    most = f"the most is {room[best]}, in {graph.name(best)}" if best >= 0 else f"there is no {part.within}"
    return f"insufficient resources: {_all(graph, part)} are not {how} one {part.within} ({most})"


def _by_ancestor(graph: Graph, nodes: Iterable[int], type: str) -> dict[int, list[int]]:
    """Nodes by their ancestor of a type."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        v = node
        while v >= 0 and graph.type[v] != type:
            v = graph.parent[v]
        if v >= 0:
            found.setdefault(v, []).append(node)
    return found


def _room(shapes: Iterable[tuple[Mapping[str, int], int]], part: _Part) -> int:
    """The number of units of a part that fit. `shapes` are amounts of nodes, each with a number of nodes."""
    fits = 0
    for amounts, count in shapes:
        slots = [amounts.get(kind, 0) // n for kind, n in part.needs.items()]
        fits += count * (all(slots) if part.name == "node" else min(slots, default=0))
    return fits


def _eligible(scheduler: Scheduler, request: JobRequest) -> Iterable[int]:
    """The nodes that satisfy the constraint of a request, including those that are down."""
    allowed = scheduler.allowed(request.constraint)
    return scheduler.graph.nodes() if allowed is None else allowed


def _shortage_of_sets(scheduler: Scheduler, request: JobRequest, now: int) -> str:
    """As `shortage`, for a request of several sets: the shortage of one set, or of all together."""
    alone = (shortage(scheduler, one, now) for one in request.sets)
    short = next((one for one in alone if one is not PROMISED), "")
    if short:
        return short
    for kind, wanted in request.needs.items():
        have = scheduler.free(scheduler.graph.root, kind, now)
        if have < wanted:
            return _short(scheduler.graph, kind, wanted, have, "")
    return PROMISED


def _short(graph: Graph, name: str, wanted: int, have: int, where: str) -> str:
    unit = _unit(graph, name)
    short, asked, free = (_written(amount, unit) for amount in (wanted - have, wanted, have))
    return f"insufficient resources: {name} x{short} short ({asked} wanted, {free} free{where})"


def amount_of(graph: Graph, kind: str, amount: int) -> str:
    """An amount of a resource type as users write it: `0.5` of cpu, `8Gi` of memory."""
    return _written(amount, _unit(graph, kind))


def _unit(graph: Graph, kind: str) -> str:
    """The unit of the first pool of a type; "" if none has a unit."""
    return next((unit for v, unit in graph.unit.items() if graph.type[v] == kind), "")


def _written(amount: int, unit: str) -> str:
    if unit == "m":
        return f"{amount / 1000:g}"
    if unit == "MiB":
        return f"{amount // 1024}Gi" if amount % 1024 == 0 else f"{amount}Mi"
    return str(amount)


def _all(graph: Graph, part: _Part) -> str:
    """All of a part as text, such as `2 slots of 1 core`."""
    return f"{part.times} {_each(graph, part, 's' if part.times > 1 else '')}"


def _each(graph: Graph, part: _Part, plural: str = "") -> str:
    """A part as text, such as `slot of 2 core + 1 gpu` or `pod of cpu 2 + memory 4Gi`."""
    amounts = ((kind, n, amount_of(graph, kind, n)) for kind, n in sorted(part.needs.items()) if kind != part.name)
    inside = " + ".join(f"{n} {kind}" if text == str(n) else f"{kind} {text}" for kind, n, text in amounts)
    return f"{part.name}{plural} of {inside}" if inside else f"{part.name}{plural}"


def takes_whole_nodes(request: JobRequest, scheduler: Scheduler) -> bool:
    """Whether a job gets whole nodes: it asks for them, or the match policy gives nothing else."""
    top: Request = request.resources[0]
    if top.is_slot and len(top.with_) == 1:
        return top.with_[0].type == "node"
    return top.type == "node" and (bool(top.exclusive) or "node" in scheduler.policy.whole)


def _part(request: JobRequest, scheduler: Scheduler) -> _Part:
    top: Request = request.resources[0]
    inner = top.with_
    if top.type != "node" and not top.is_slot and len(inner) == 1 and (inner[0].is_slot or inner[0].type == "node"):
        part = _part_of(inner[0], scheduler, False)
        return part._replace(within=top.type, groups=top.count.low)
    return _part_of(top, scheduler, takes_whole_nodes(request, scheduler))


def _part_of(top: Request, scheduler: Scheduler, is_whole: bool) -> _Part:
    inner = top.with_
    needs = {kind: n for kind, n in (total_needs(inner) if inner else {}).items() if kind != "node"}
    if top.is_slot and len(inner) == 1 and inner[0].type == "node":
        node = inner[0]
        return _Part("node", top.count.low * node.count.low, needs, True)
    if top.type == "node":
        return _Part("node", top.count.low, needs, is_whole)
    if top.is_slot:
        # A slot for a pod takes one unit of a node's pool of pods.
        return _Part("pod" if needs.get("pod") == 1 else "slot", top.count.low, needs, False)
    return _Part(top.type, 0, {}, False)


def refusal(scheduler: Scheduler, jobspec: Mapping[str, Any], request: JobRequest, failure: Failure | None) -> str:
    """Why even an idle system could not run a job.

    For slots of cores and GPUs the text is flux-core's, otherwise it names the shortage or the matcher's reason. The
    part of the constraint that no node satisfies follows.
    """
    return f"unsatisfiable request: {never(scheduler, jobspec, request, failure)}"


def never(scheduler: Scheduler, jobspec: Mapping[str, Any], request: JobRequest, failure: Failure | None) -> str:
    """As `refusal`, without its first words."""
    nobody = _nobody(scheduler, request)
    text = _refusal(scheduler, jobspec, request, failure, scheduler.allowed(request.constraint))
    return text if nobody in text else f"{text}; {nobody}"


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
        return _reason(scheduler, request, failure)
    try:
        wanted = js.slot_request(dict(jobspec))
    except js.JobspecError:
        return _reason(scheduler, request, failure)
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


def _lacks(scheduler: Scheduler, request: JobRequest) -> str:
    """The shortage among all nodes that a request may use, including those that are down; "" for none."""
    for one in request.sets or (request,):
        why = _too_large(scheduler, one)
        if why:
            return why
    for kind, amount, have in _lacking(scheduler, request):
        asked, there = (amount_of(scheduler.graph, kind, n) for n in (amount, have))
        return f"need {asked} {kind}, the whole system has {there}"
    for one in request.sets or (request,):
        why = _too_many(scheduler, one)
        if why:
            return why
    return ""


def _too_large(scheduler: Scheduler, request: JobRequest) -> str:
    """Why no eligible node, even if idle, could hold one node, slot or pod of a request; "" if one could."""
    graph, part = scheduler.graph, _part(request, scheduler)
    shapes = [amounts for amounts, _ in census.held(graph, _eligible(scheduler, request))]
    if not shapes or not part.needs:
        return ""
    which = "node" if scheduler.allowed(request.constraint) is None else "eligible node"
    for kind, n in part.needs.items():
        most = max(amounts.get(kind, 0) for amounts in shapes)
        if n > most:
            asked, there = amount_of(graph, kind, n), amount_of(graph, kind, most)
            has = f"the largest {which} has {there}" if most else f"no {which} has any"
            return f"a {part.name} needs {kind} {asked}, {has}"
    return "" if _room([(one, 1) for one in shapes], part) else f"no {which} has room for a {_each(graph, part)}"


def _too_many(scheduler: Scheduler, request: JobRequest) -> str:
    """Why the eligible nodes, even if idle, have too little room for a request; "" if they have enough."""
    graph, part = scheduler.graph, _part(request, scheduler)
    nodes = list(_eligible(scheduler, request))
    if not nodes or not part.needs:
        return ""
    room = _room(census.held(graph, nodes), part)
    if room < part.times:
        return f"need {_all(graph, part)}, the nodes have room for {room}"
    if not part.within:
        return ""
    inside = {v: _room(census.held(graph, of), part) for v, of in _by_ancestor(graph, nodes, part.within).items()}
    return _too_narrow(graph, inside, part, "there in").removeprefix("insufficient resources: ")


def _reason(scheduler: Scheduler, request: JobRequest, failure: Failure | None) -> str:
    """The shortage among the eligible nodes, why none is eligible, or the matcher's reason."""
    return (
        _lacks(scheduler, request)
        or _nobody(scheduler, request)
        or (explain(scheduler.graph, failure) if failure is not None else "no part of the system matches it")
    )


def _lacking(scheduler: Scheduler, request: JobRequest) -> list[tuple[str, int, int]]:
    """The types of which the whole system has too little, with the requested and existing amounts."""
    have = scheduler.graph.totals[scheduler.graph.root]
    return [(kind, n, have.get(kind, 0)) for kind, n in request.needs.items() if have.get(kind, 0) < n]
