"""What a job asks of its queue's graph: its pods, their durations, and which nodes they may have. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from ...spec import duration as durations
from .. import constraints, nodes, requests
from ..crd import Settings
from ..names import DURATION, SCHEDULERS, WITHIN
from .job import Asked, Job

Object = dict[str, Any]


class Refusal(ValueError):
    """A workload that no queue takes: the message names the field and the rule."""


def asked_of(job: Job, settings: Settings, has_taints: bool, part: int | None = None) -> Asked:
    """What a job asks for of a queue with these settings; `has_taints`: there are nodes with taints. `part`: for so
    many of its pods alone. Raises Refusal, RequestError.
    """
    meta, wish = job.item["metadata"], job.wish
    seconds = _duration(meta, wish.limit, settings)
    amounts = requests.largest(requests.amounts_of(one) for one in wish.templates)
    constraint = constraints.together(constraints.constraint_of(one, has_taints) for one in wish.templates)
    pods, is_apart = (
        max(wish.pods if part is None else part, 1),
        any(constraints.is_apart(one, wish.labels) for one in wish.templates),
    )
    within = (meta.get("annotations") or {}).get(WITHIN, "")
    if within and within not in settings.topology:
        known = ", ".join(settings.topology) or "none"
        raise Refusal(
            f"metadata.annotations[{WITHIN}]: must be a label of the queue's topology ({known}), not {within}"
        )
    level = nodes.level_of(within, settings.topology) if within else ""
    spec = requests.jobspec(
        *(meta["name"], meta["namespace"], pods, amounts, seconds, constraint), is_apart=is_apart, within=level
    )
    left = dict.fromkeys(field for one in wish.templates for field in constraints.left_to_scheduler(one, wish.labels))
    return Asked(
        pods=wish.pods,
        amounts=amounts,
        duration=seconds,
        constraint=constraint,
        is_apart=is_apart,
        within=within,
        left=tuple(left),
        jobspec=spec,
    )


def check_placement(job: Job, settings: Settings, has_claim: Callable[[str, str], bool]) -> None:
    """Whether the pods of a job may be bound as the queue does it; `has_claim` says whether the claim for a volume of
    this namespace and name is bound. Raises Refusal.
    """
    for one in job.wish.templates:
        if settings.placement == "pin" and one.get("schedulerName") in SCHEDULERS:
            raise Refusal(
                f"schedulerName of its pods: {one['schedulerName']} is for queues with placement bind, not for pin"
            )
        if settings.placement == "bind":
            _check_bindable(one, job.item["metadata"]["namespace"], has_claim)


def _check_bindable(template: Object, namespace: str, has_claim: Callable[[str, str], bool]) -> None:
    """Volumes and devices that kube-scheduler would find are none of a queue's that binds. Raises Refusal."""
    if template.get("resourceClaims"):
        raise Refusal("resourceClaims of its pods: a queue with placement bind finds no devices for claims")
    for volume in template.get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if "ephemeral" in volume or (claim and not has_claim(namespace, claim)):
            which = f"PersistentVolumeClaim {claim}" if claim else "claim that it makes"
            raise Refusal(
                f"volumes of its pods: {volume['name']}: the {which} is not bound, and a queue with placement bind "
                "finds no volumes"
            )


def _duration(meta: Object, limit: float | None, settings: Settings) -> float:
    """How long an object runs, in seconds; 0 if that is not known. Raises Refusal."""
    text = (meta.get("annotations") or {}).get(DURATION)
    seconds = float(limit) if limit is not None else settings.default_duration
    if text is not None:
        where = f"metadata.annotations[{DURATION}]"
        try:
            seconds = durations.parse(text)
        except durations.DurationError as exc:
            raise Refusal(f"{where}: {exc}") from None
        if not seconds or not isfinite(seconds):
            raise Refusal(f"{where}: {text} is no time that a job could run: must be more than zero, such as 30m")
    if settings.max_duration and seconds > settings.max_duration:
        most = durations.encode(settings.max_duration)
        raise Refusal(f"its duration, {durations.encode(seconds)}, is over the queue's maxDuration, {most}")
    return seconds
