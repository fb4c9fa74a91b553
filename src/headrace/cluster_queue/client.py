"""The queues as users see and use them through the API server: jobs, reasons, nodes, holds.

Requests are made with the user's own rights. A user who may not read the FluxJobs of all namespaces reads those of one.
The position of a job then tells how many jobs are before it, and so how many of these the user may not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.conditions import condition
from headrace.k8s.objects.kinds import EVENTS, PODS, Kind
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime.api import Api, ApiError
from headrace.sched.graph import Graph

from .admission import is_skipped
from .crd import settings_of
from .cycle.external import amounts_of
from .model import nodes, resources
from .model.cluster_queue import ClusterQueue
from .model.fluxjobs import EXACT, is_external, sets_in
from .model.queue_nodes import divided
from .model.snapshot import is_live, node_of
from .names import FLUXJOBS, FLUXQUEUE, FLUXQUEUES, HELD, HOLD, JOBID, NODES
from .workloads import KINDS, group, owner_of

Object = dict[str, Any]
_FORBIDDEN = 403
_NOT_FOUND = 404
# The short names of kinds in kubectl.
_SHORT = {"po": "pod", "deploy": "deployment", "rs": "replicaset", "sts": "statefulset", "mc": "minicluster"}
_OVER = ("Finished", "Failed")
# Maximum number of owners to follow above a pod. Users may write any owners, even circles.
_MOST_OWNERS = 8


class NoSuchJob(Exception):
    """A name matches no job, or several; the message lists the candidates."""


class Line(NamedTuple):
    """A job in a list.

    `position` is its position in its queue, 0 for none. If it is not `is_exact`, it has two leading digits only.
    """

    job: Object
    position: int
    is_exact: bool


class Listed(NamedTuple):
    """The requested jobs, with the waiting ones by position.

    `unread` has, by queue, how many jobs before the last listed one may not be read.
    """

    lines: list[Line]
    unread: Mapping[str, int]


def status_of(job: Object) -> Object:
    return dict(job.get("status") or {})


def queue_of(job: Object) -> str:
    return str((job.get("spec") or {}).get("queue", ""))


async def listed(api: Api, namespace: str, everywhere: bool, with_ended: bool) -> Listed:
    """The jobs of a namespace, or of all that may be read. Raises ApiError, Unreachable."""
    jobs, reads_all = await _fluxjobs(api, namespace)
    return lines_of(jobs, "" if everywhere else namespace, reads_all, with_ended)


async def _fluxjobs(api: Api, namespace: str) -> tuple[list[Object], bool]:
    """All FluxJobs or, for a user without that right, those of a namespace; and whether these are all."""
    try:
        return (await api.list_objects(FLUXJOBS)).items, True
    except ApiError as exc:
        if exc.status != _FORBIDDEN:
            raise
    return (await api.list_objects(FLUXJOBS, namespace)).items, False


def lines_of(jobs: Iterable[Object], namespace: str, reads_all: bool, with_ended: bool) -> Listed:
    """The list of the `jobs` in a namespace ("": all); `reads_all`: `jobs` are complete.

    A job with nodes whose growth waits has a place in the order: it is counted but not shown.
    """
    by_queue: dict[str, list[Object]] = {}
    rest: list[Line] = []
    for job in jobs:
        waits = _waits(job)
        if waits or _grows(job):
            by_queue.setdefault(queue_of(job), []).append(job)
        if not waits and (with_ended or status_of(job).get("state") not in _OVER):
            rest.append(Line(job, 0, True))
    waiting: list[Line] = []
    unread: dict[str, int] = {}
    for queue in sorted(by_queue):
        # The order of `queueing.pending`.
        in_order = sorted(by_queue[queue], key=_place)
        places = [(job, position) for position, job in enumerate(in_order, 1) if _waits(job)]
        if reads_all:
            waiting += [Line(job, position, True) for job, position in places]
        elif places:
            positions = [int(status_of(job)["position"]) for job, _ in places]
            waiting += [Line(job, one, one <= EXACT) for (job, _), one in zip(places, positions, strict=True)]
            # The last listed job's position tells how many jobs are before it; some of them were read.
            unread[queue] = max(max(positions) - places[-1][1], 0)
    rest.sort(key=lambda line: (line.job["metadata"].get("creationTimestamp", ""), line.job["metadata"]["name"]))
    shown = [one for one in [*rest, *waiting] if namespace in ("", one.job["metadata"]["namespace"])]
    return Listed(shown, unread)


def _waits(job: Object) -> bool:
    """Whether a job without nodes has a position in its queue."""
    return status_of(job).get("state", "Held") == "Held" and bool(status_of(job).get("position"))


def _grows(job: Object) -> bool:
    """Whether a job with nodes waits in its queue for more. A job over its quota waits outside the order."""
    status = status_of(job)
    over = condition(status, "Quota").get("status") == "False"
    return status.get("state") not in _OVER and bool(status.get("waits")) and not over


def _place(job: Object) -> tuple[int, float, int]:
    status = status_of(job)
    since = status["waits"][0]["since"] if status.get("waits") else status.get("queuedAt")
    return -int(job["spec"].get("priority", 0)), seconds_of(since) if since else 0.0, int(status.get("jobid", 0))


async def found(api: Api, namespace: str, name: str) -> Line:
    """The job with this name: the name of its object, of one of its pods, or of its FluxJob.

    The name may include a kind, as in `job/NAME`. Raises NoSuchJob, ApiError, Unreachable.
    """
    jobs, reads_all = await _fluxjobs(api, namespace)
    lines = lines_of(jobs, namespace, reads_all, True).lines
    kind, slash, short = name.rpartition("/")
    mine = [one for one in lines if one.job["spec"].get("name") == short and _is_of(one.job, kind)]
    mine = mine or [one for one in lines if any(_is_owner(owner, kind, short) for owner in _owners(one.job))]
    mine = mine or [one for one in lines if not slash and one.job["metadata"]["name"] == name]
    mine = mine or (await _of_pod(api, namespace, short, lines) if _names_kind(kind, PODS.kind) else [])
    if len(mine) == 1:
        return mine[0]
    if mine:
        names = ", ".join(f"{_kind_of(one.job)}/{short}" for one in mine)
        raise NoSuchJob(f"{name} is the name of {len(mine)} jobs in namespace {namespace}: say {names}")
    if suspended := await _suspended_by_user(api, namespace, kind, short):
        raise NoSuchJob(f"{suspended} is suspended by its user, and waits in no queue until it is resumed")
    some = sorted({str(one.job["spec"].get("name")) for one in lines})
    there = f"; there {'is' if len(some) == 1 else 'are'} {', '.join(some[:8])}{' ...' if some[8:] else ''}"
    raise NoSuchJob(f"no object {name} waits or runs in namespace {namespace}{there if some else ''}")


def _kind_of(job: Object) -> str:
    """The kind of the object of a FluxJob: the last part of the FluxJob's name."""
    return str(job["metadata"]["name"].rpartition("-")[2])


def _is_of(job: Object, kind: str) -> bool:
    return _names_kind(kind, _kind_of(job))


def _names_kind(text: str, kind: str) -> bool:
    """Whether a text names a kind as in kubectl: `job`, `jobs.batch`, `deploy`; "" matches any kind."""
    name = text.lower().partition(".")[0]
    return not text or _SHORT.get(name, name) in (kind.lower(), f"{kind.lower()}s")


def _owners(job: Object) -> list[Object]:
    return list(job["metadata"].get("ownerReferences") or ())


def _is_owner(owner: Object, kind: str, name: str) -> bool:
    return owner["name"] == name and _names_kind(kind, owner["kind"])


async def _of_pod(api: Api, namespace: str, name: str, lines: list[Line]) -> list[Line]:
    """The job of the pod with this name: the job of its group or of an object above it. Raises NoSuchJob."""
    item = await _get(api, PODS, namespace, name)
    if item is None:
        return []
    if is_skipped(item):
        raise NoSuchJob(f"pod/{name} has a label that excludes it, so it is not queued")
    if group.name_of(item):
        alike = (one for one in lines if one.job["spec"].get("type") == group.WORKLOAD_KIND.number)
        return [one for one in alike if one.job["spec"].get("name") == group.name_of(item)]
    for _ in range(_MOST_OWNERS):
        if item is None or not (owner := owner_of(item)):
            break
        above = [one for one in lines if any(of["uid"] == owner["uid"] for of in _owners(one.job))]
        if above:
            return above
        item = await _get(api, KINDS[owner["kind"]].kind, namespace, owner["name"])
    return []


async def _get(api: Api, kind: Kind, namespace: str, name: str) -> Object | None:
    """An object; None if it does not exist or the user may not read it."""
    try:
        return await api.get(kind, namespace, name)
    except ApiError as exc:
        if exc.status not in (_FORBIDDEN, _NOT_FOUND):
            raise
        return None


async def _suspended_by_user(api: Api, namespace: str, kind: str, name: str) -> str:
    """The object of this name that its user has suspended, as KIND/NAME; "" if none can be read."""
    for one in KINDS.values():
        if not one.suspend or not _names_kind(kind, one.kind.kind):
            continue
        item = await _get(api, one.kind, namespace, name)
        if item and one.is_suspended(item) and HELD not in (item["metadata"].get("annotations") or {}):
            return f"{one.kind.kind.lower()}/{name}"
    return ""


async def events_of(api: Api, job: Object) -> list[Object]:
    """The queue's Events about a job's objects, oldest first; [] if the user may not read Events."""
    meta = job["metadata"]
    uids = {one["uid"] for one in meta.get("ownerReferences") or ()}
    try:
        items = (await api.list_objects(EVENTS, meta["namespace"])).items
    except ApiError as exc:
        if exc.status != _FORBIDDEN:
            raise
        return []
    mine = [
        one
        for one in items
        if one.get("involvedObject", {}).get("uid") in uids and one.get("source", {}).get("component") == FLUXQUEUE
    ]
    return sorted(mine, key=lambda one: int(one["metadata"]["resourceVersion"]))


async def put_on_hold(api: Api, job: Object, is_on_hold: bool) -> None:
    """Add or remove the hold annotation on a job's objects. Raises NoSuchJob, ApiError, Unreachable."""
    meta, state = job["metadata"], status_of(job).get("state", "Held")
    if state not in ("Held", "Refused"):
        raise NoSuchJob(f"{job['spec'].get('name')} is {state}: only waiting jobs can be held and released")
    if is_external(job):
        raise NoSuchJob(
            f"{job['spec'].get('name')} is a reservation of another scheduler, and only that scheduler can end it"
        )
    for owner in meta.get("ownerReferences") or ():
        body = {"metadata": {"uid": owner["uid"], "annotations": {HOLD: "true" if is_on_hold else None}}}
        await api.merge(_kind(owner), meta["namespace"], owner["name"], body)


def _kind(owner: Object) -> Kind:
    known = KINDS.get(owner["kind"])
    if known is None:
        raise NoSuchJob(f"this program does not know the kind {owner['kind']}: is it older than the queue?")
    return known.kind


class NodeLine(NamedTuple):
    """A node.

    `has` and `free` are its amounts by type (`free` is None if not known). `jobs` are the names of the jobs with slots
    on it.
    """

    name: str
    queue: str
    is_usable: bool
    has: Mapping[str, int]
    free: Mapping[str, int] | None
    jobs: tuple[str, ...]


class Seen(NamedTuple):
    """The current queues with their nodes.

    `problems` has the reasons of Invalid queues, which have no nodes.
    """

    queues: Mapping[str, ClusterQueue]
    lines: list[NodeLine]
    reads_pods: bool
    problems: Mapping[str, str]

    def graph(self, queue: str) -> Graph:
        return self.queues[queue].scheduler.graph


async def nodes_seen(api: Api, namespace: str) -> Seen:
    """The nodes of all queues. Without the right to read all pods, their free amounts are unknown.

    Raises ApiError, Unreachable.
    """
    items = {one["metadata"]["name"]: one for one in (await api.list_objects(NODES)).items}
    queues = {one["metadata"]["name"]: one for one in (await api.list_objects(FLUXQUEUES)).items}
    jobs, _ = await _fluxjobs(api, namespace)
    try:
        pods = (await api.list_objects(PODS)).items
        reads_pods = True
    except ApiError as exc:
        if exc.status != _FORBIDDEN:
            raise
        pods, reads_pods = [], False
    taken: dict[str, list[resources.Amounts]] = {}
    # By job id and node, the amounts of existing pods.
    there: dict[tuple[str, str], list[resources.Amounts]] = {}
    for pod in pods:
        if is_live(pod) and node_of(pod):
            amounts, node = resources.amounts_of(pod["spec"], pod.get("status")), node_of(pod)
            taken.setdefault(node, []).append(amounts)
            there.setdefault(((pod["metadata"].get("labels") or {}).get(JOBID, ""), node), []).append(amounts)
    running: dict[str, list[str]] = {}
    for job in jobs:
        jobid = status_of(job).get("jobid", "")
        for node, several in _places_of(job).items():
            running.setdefault(node, []).append(f"{job['metadata']['namespace']}/{job['spec'].get('name')}")
            has = resources.total(there.get((jobid, node), ()))
            taken.setdefault(node, []).append(resources.beyond(resources.total(several), has))
        has_nodes = is_external(job) and status_of(job).get("state") == "Running"
        for node, of in amounts_of(job) if has_nodes else ():
            taken.setdefault(node, []).append(of)
    lines, made, problems = [], {}, {}
    for name, mine in divided(queues, items).items():
        if mine.problem:
            problems[name] = mine.problem
            continue
        queue = made[name] = ClusterQueue(settings_of(queues[name]))
        for node in sorted(mine.nodes):
            queue.put_node(items[node], 0)
            has = nodes.amounts_of(items[node])
            used = resources.total(taken.get(node, ()))
            free = {kind: max(amount - used.get(kind, 0), 0) for kind, amount in has.items()} if reads_pods else None
            line = NodeLine(node, name, nodes.is_usable(items[node]), has, free, tuple(running.get(node, ())))
            lines.append(line)
    return Seen(made, lines, reads_pods, problems)


def nodes_of(job: Object) -> str:
    """The nodes of a job (RFC 29) without freed ones; if it has ended, the nodes that it had."""
    over = status_of(job).get("state") in _OVER
    return str(status_of(job).get("nodes", "")) if over else Hostlist(_places_of(job)).encode()


def _places_of(job: Object) -> dict[str, list[resources.Amounts]]:
    """The amounts of each slot of a job, by node."""
    status = status_of(job)
    if status.get("state") not in ("Released", "Running"):
        return {}
    freed, names = Idset.parse(status.get("freed", "")), list(Hostlist.parse(status.get("nodes", "")))
    asked = _amounts_by_set(job)
    found: dict[str, list[resources.Amounts]] = {}
    for index, (node, own) in enumerate(zip(names, sets_in(status, len(names), "pod"), strict=True)):
        if index not in freed:
            found.setdefault(node, []).append(asked.get(own) or asked.get("pod", {}))
    return found


def _amounts_by_set(job: Object) -> dict[str, resources.Amounts]:
    """The amounts of each pod of a set in a job's jobspec, by the label of its slots.

    {} for a job of another scheduler.
    """
    text = "" if is_external(job) else job["spec"].get("jobspec", "")
    waiting = list(json.loads(text)["resources"]) if text else []
    found: dict[str, resources.Amounts] = {}
    while waiting:
        one = waiting.pop()
        if one["type"] == "slot":
            found[one.get("label", "pod")] = {part["type"]: part["count"] for part in one["with"]}
        else:
            waiting += one.get("with") or []
    return found
