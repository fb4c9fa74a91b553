"""The request of a job to its queue's graph: its pods, duration and constraints on nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import ceil, isfinite
from typing import Any

from headrace.formats.spec import duration as durations
from headrace.sched.graph.request import JobRequest, parse_jobspec, together

from ..crd import LONGEST, Settings
from ..names import DURATION, GANG, GROUP_NAMES, GROUP_SIZES, HOLD, QUEUE, SCHEDULERS, SKIP, WITHIN
from ..workloads import group
from . import constraints, nodes, resources
from .assignment import Slot
from .cluster_queue import ClusterQueue
from .demand import PodSet, Request, SetRequest
from .entry import Entry

Object = dict[str, Any]


class Refusal(ValueError):
    """No queue accepts the workload: the message names the field and the rule."""


def request_for(entry: Entry, settings: Settings, has_taints: bool, started_with: float | None = None) -> Request:
    """The request of a job to a queue with these settings.

    `has_taints`: there are nodes with taints. `started_with` is the duration of a job with nodes; its current duration
    and level may no longer be valid for the queue. Raises Refusal, RequestError.
    """
    meta, demand = entry.item["metadata"], entry.demand
    if started_with is None:
        seconds, within = _duration(entry, settings), _within(entry, settings)
    else:
        known = (text for text, _ in marks_of(entry, WITHIN) if text in settings.topology)
        seconds, within = started_with, next(known, "")
    level = nodes.level_of(within, settings.topology) if within else ""
    where = meta["namespace"], *(one.labels for one in demand.sets)
    left = dict.fromkeys(field for one in demand.templates for field in constraints.left_to_scheduler(one, *where))
    sets = {one.name: _asked_set(one, entry, has_taints) for one in demand.sets}
    return Request(sets=sets, duration=seconds, within=within, level=level, left=tuple(left))


def jobspec_of(entry: Entry, asked: Request) -> Object:
    """The jobspec (RFC 14) of all pods of a job; {} without sets.

    It is not cached, because very many jobs wait.
    """
    # The object of a job with nodes may have changed to something that no queue accepts. `asked` is then still the
    # request with which the job was started, and lacks sets that the object has by now.
    sets = [one for one in entry.demand.sets if one.name in asked.sets]
    pods = {one.name: one.pods for one in sets if one.pods} or {one.name: 1 for one in sets[:1]}
    specs = _jobspecs(entry.item["metadata"], pods, asked)
    return resources.jobspec_of_sets(specs, asked.level) if len(specs) > 1 else next(iter(specs.values()), {})


def _asked_set(one: PodSet, entry: Entry, has_taints: bool) -> SetRequest:
    namespace, others = entry.item["metadata"]["namespace"], [other for other in entry.demand.sets if other is not one]
    enlarged = [entry.enlarged[one.name][1]] if one.name in entry.enlarged else []
    return SetRequest(
        resources.largest([*enlarged, *(resources.amounts_of(template) for template in one.templates)]),
        constraints.together(constraints.constraint_of(template, has_taints) for template in one.templates),
        _avoids(one, one, namespace),
        any(_avoids(one, other, namespace) or _avoids(other, one, namespace) for other in others),
    )


def _avoids(one: PodSet, other: PodSet, namespace: str) -> bool:
    return any(constraints.is_apart(template, namespace, other.labels) for template in one.templates)


def _jobspecs(meta: Object, pods: Mapping[str, int], asked: Request) -> dict[str, Object]:
    """The jobspec for these numbers of pods of each set. With a single set, it includes the level."""
    alone = len(pods) == 1
    found: dict[str, Object] = {}
    for name, number in pods.items():
        own, label = asked.sets[name], "pod" if alone else name
        head = meta["name"], meta["namespace"], number, own.amounts, asked.duration, own.constraint
        found[name] = resources.jobspec(*head, is_apart=own.is_apart, within=asked.level if alone else "", label=label)
    return found


def request_of(entry: Entry, asked: Request, pods: Mapping[str, int], others: Mapping[str, Any]) -> JobRequest:
    """The request for these numbers of pods of each set. `others` are further constraints, by set."""
    specs = _jobspecs(entry.item["metadata"], pods, asked)
    found = []
    for name, spec in specs.items():
        request, own = parse_jobspec(spec), asked.sets[name]
        constraint = constraints.together([own.constraint, others.get(name)])
        found.append(JobRequest(request.resources, request.duration, constraint, is_apart=own.keeps_apart))
    return together(found, asked.level) if len(found) > 1 else found[0]


def marks_of(entry: Entry, name: str) -> Iterator[tuple[str, str]]:
    """The values of an annotation of a job's objects (a group has several), each with its path."""
    for meta in (one["metadata"] for one in entry.workload.objects(entry.item)):
        if name in (annotations := meta.get("annotations") or {}):
            yield str(annotations[name]), f"{_whose(entry, meta)}metadata.annotations[{name}]"


def _whose(entry: Entry, meta: Object) -> str:
    """The prefix that names the object in a refusal; "" for a job with one object."""
    return f"{meta['name']}: " if entry.workload is group.WORKLOAD_KIND else ""


def check_marks(entry: Entry) -> None:
    """Check the labels and annotations of a job's objects. Raises Refusal."""
    for meta in (one["metadata"] for one in entry.workload.objects(entry.item)):
        whose, labels, annotations = _whose(entry, meta), meta.get("labels") or {}, meta.get("annotations") or {}
        for where, marks, names in (("annotations", annotations, (HOLD, GANG)), ("labels", labels, (SKIP,))):
            for name in names:
                if marks.get(name, "true") not in ("true", "false"):
                    raise Refusal(f'{whose}metadata.{where}[{name}]: must be "true" or "false", not {marks[name]!r}')
        if GROUP_NAMES[0] in annotations and GROUP_NAMES[0] not in labels:
            raise Refusal(
                f"metadata.annotations[{GROUP_NAMES[0]}]: must be a label, not an annotation, of the pods that start "
                f"together; their number is the annotation {GROUP_SIZES[0]}"
            )
        if labels.get(QUEUE, entry.queue) != entry.queue:
            raise Refusal(
                f"{whose}metadata.labels[{QUEUE}]: must be a label of the namespace only, whose queue is {entry.queue}"
            )


def check_priority(entry: Entry, has_class: Callable[[str], bool]) -> None:
    """Check that the PriorityClass of a job's pods exists, so that they can be created. Raises Refusal.

    Existing pods already have a priority value.
    """
    for one in entry.demand.templates:
        name = one.get("priorityClassName")
        if name and "priority" not in one and not has_class(name):
            raise Refusal(f"priorityClassName of its pods: there is no PriorityClass {name}, so they cannot be created")


def check_placement(entry: Entry, settings: Settings, has_claim: Callable[[str, str], bool]) -> None:
    """Check that a job's pods may be bound in the way of the queue. Raises Refusal.

    `has_claim` says whether the volume claim of this namespace and name is bound.
    """
    for one in entry.demand.templates:
        if settings.placement == "pin" and one.get("schedulerName") in SCHEDULERS:
            raise Refusal(
                f"schedulerName of its pods: {one['schedulerName']} is for queues with placement bind, not for pin"
            )
        if settings.placement == "bind":
            _check_bindable(one, entry.item["metadata"]["namespace"], has_claim)
    for claim in entry.demand.claims if settings.placement == "bind" else ():
        if not has_claim(entry.item["metadata"]["namespace"], claim):
            raise Refusal(
                f"spec.volumeClaimTemplates: the PersistentVolumeClaim {claim} is not bound, and a queue with "
                "placement bind does not bind volumes"
            )


def claims_of(entry: Entry) -> Iterator[tuple[str, str]]:
    """The volume claims of a job's pods, by namespace and name."""
    volumes = (volume for one in entry.demand.templates for volume in one.get("volumes") or ())
    for claim in (*map(_claim_of, volumes), *entry.demand.claims):
        if claim:
            yield entry.item["metadata"]["namespace"], claim


def _claim_of(volume: Object) -> str:
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def _check_bindable(template: Object, namespace: str, has_claim: Callable[[str, str], bool]) -> None:
    """Check that a template needs no volume or device lookup, which a binding queue lacks. Raises Refusal."""
    if template.get("resourceClaims"):
        raise Refusal("resourceClaims of its pods: a queue with placement bind does not allocate devices")
    for volume in template.get("volumes") or ():
        claim = _claim_of(volume)
        if "ephemeral" in volume or (claim and not has_claim(namespace, claim)):
            which = f"PersistentVolumeClaim {claim}" if claim else "claim that Kubernetes creates for it"
            raise Refusal(
                f"volumes of its pods: {volume['name']}: the {which} is not bound, and a queue with placement bind "
                "does not bind volumes"
            )


def _within(entry: Entry, settings: Settings) -> str:
    """The label for which all nodes of a job have one value; "" for none. Raises Refusal."""
    marks = {text: where for text, where in marks_of(entry, WITHIN) if text}
    for text, where in marks.items():
        if text not in settings.topology:
            known = ", ".join(settings.topology) or "none"
            raise Refusal(f"{where}: must be a label of the queue's topology ({known}), not {text}")
        if len(marks) > 1:
            raise Refusal(f"{where}: must be the same in all pods of a group that have it, not {' or '.join(marks)}")
    return next(iter(marks), "")


def _duration(entry: Entry, settings: Settings) -> float:
    """The duration of a job in seconds, rounded up: the longest of its objects; 0 if not known.

    Raises Refusal.
    """
    marks = [(_parsed(text, where), text, where) for text, where in marks_of(entry, DURATION)]
    if marks:
        seconds, text, where = max(marks)
    else:
        limit = entry.demand.limit
        where, seconds = "activeDeadlineSeconds", settings.default_duration if limit is None else limit
        text = str(seconds)
        if limit == 0:
            raise Refusal(f"{where}: must be more than zero, not 0")
    if seconds > LONGEST:
        raise Refusal(f"{where}: must be at most {LONGEST} seconds, about 68 years, not {text}")
    if settings.max_duration and seconds > settings.max_duration:
        most = durations.encode(settings.max_duration)
        raise Refusal(
            f"{where}: its duration, {durations.encode(seconds)}, is longer than the queue's maxDuration, {most}"
        )
    return float(ceil(seconds))


def _parsed(text: str, where: str) -> float:
    try:
        seconds = durations.parse(text)
    except durations.DurationError as exc:
        raise Refusal(f"{where}: {exc}") from None
    if not seconds or not isfinite(seconds):
        raise Refusal(f"{where}: must be more than zero, such as 30m, not {text}")
    return seconds


def beside(entry: Entry, queue: ClusterQueue, name: str, slots: Iterable[Slot]) -> Any:
    """The constraint on nodes of a set that results from other slots of its job; None for none."""
    asked, slots = entry.request, list(slots)
    own = asked.sets.get(name) if asked else None
    if asked is None or own is None:
        return None
    taken = {one.node for one in slots if _is_apart(name, own, one.set, asked.sets.get(one.set))}
    parts = none_of(taken)
    if asked.within:
        parts.append(queue.beside([one.node for one in slots], asked.within))
    return constraints.together(parts)


def none_of(names: Collection[str]) -> list[Any]:
    """The constraint that excludes some nodes, as a list of one; an empty list for no nodes."""
    return [{"not": [{"hostlist": sorted(names)}]}] if names else []


def _is_apart(name: str, own: SetRequest, other_name: str, other: SetRequest | None) -> bool:
    """Whether pods of two sets must not share a node."""
    return own.is_apart if name == other_name else bool(own.keeps_apart and other and other.keeps_apart)
