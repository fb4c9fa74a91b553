"""Groups of pods: the pods of a namespace with the same group label start together, or not at all.

A group is not an object of the API: its item is assembled from its pods (`item_of`). Each pod states the size of the
group, as with Fluence, so pods may be added later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from headrace.k8s.objects.conditions import ended, has_ended
from headrace.k8s.objects.kinds import PODS

from ..model import constraints, resources
from ..model.demand import Demand, PodSet
from ..model.resources import Malformed
from ..names import GROUP_NAMES, GROUP_SIZES, JOBID
from .pod import failure_of, gates_left, template_of
from .workload import NOTHING, Made, Object, WorkloadKind

KIND = "Group"


def name_of(pod: Object) -> str:
    """The name of a pod's group; "" for a pod without one."""
    labels = pod["metadata"].get("labels") or {}
    return next((str(labels[key]) for key in GROUP_NAMES if labels.get(key)), "")


def item_of(name: str, uid: str, pods: Iterable[Object]) -> Object:
    """The item of a group: its age, labels and annotations are those of its first pod."""
    found = sorted(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]))
    return {"metadata": {**found[0]["metadata"], "name": name, "uid": uid}, "pods": found}


def without_former(item: Object, jobid: int) -> Object:
    """A group without the ended pods of an earlier job of the same name.

    `jobid` is the group's own job, 0 for none yet.
    """
    pods = [pod for pod in item["pods"] if not _is_former(pod, jobid)]
    meta = item["metadata"]
    return item_of(meta["name"], meta["uid"], pods) if 0 < len(pods) < len(item["pods"]) else item


def _is_former(pod: Object, jobid: int) -> bool:
    labelled = (pod["metadata"].get("labels") or {}).get(JOBID, "")
    return bool(labelled) and labelled != str(jobid) and has_ended(PODS, pod)


def demand(item: Object, made: Made = NOTHING) -> Demand:
    pods: list[Object] = item["pods"]
    ends = [ended(PODS, pod) for pod in pods]
    if all(ends):
        failed = next((pod for pod, end in zip(pods, ends, strict=True) if end and end.failed), None)
        if failed is None:
            return Demand(sets=tuple(_sets_of(pods)), end="Finished")
        failure = f"{failed['metadata']['name']}: {failure_of(failed) or 'Failed'}"
        return Demand(sets=tuple(_sets_of(pods)), end="Failed", failure=failure)
    size, sets = _size(pods), tuple(_sets_of(pods))
    limits = [pod["spec"].get("activeDeadlineSeconds") for pod in pods]
    limit = max(limits) if all(limits) else None
    missing = f"the group has {len(pods)} of its {size} pods" if len(pods) < size else ""
    left = (f"{pod['metadata']['name']}: {why}" for pod in pods if (why := gates_left(pod)))
    missing = missing or next(left, "")
    return Demand(sets=sets, unseen=max(size - len(pods), 0), limit=limit, missing=missing)


def _sets_of(pods: list[Object]) -> Iterator[PodSet]:
    """The sets of pods with the same request and anti-affinity.

    A set's name is derived from its request, so it does not depend on which of its pods exist.
    """
    found: dict[str, list[Object]] = {}
    for pod in pods:
        spec, meta = template_of(pod), pod["metadata"]
        is_apart = constraints.is_apart(spec, meta["namespace"], meta.get("labels") or {})
        asked = resources.amounts_of(spec), constraints.constraint_of(spec), is_apart
        name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]
        found.setdefault(name, []).append(pod)
    for name, own in found.items():
        yield PodSet(
            pods=sum(1 for pod in own if not has_ended(PODS, pod)),
            templates=tuple(template_of(pod) for pod in own),
            labels=own[0]["metadata"].get("labels") or {},
            name=name,
            names=frozenset(pod["metadata"]["name"] for pod in own),
        )


def _size(pods: list[Object]) -> int:
    """The size of the group according to its pods. Raises Malformed."""
    sizes = {}
    for pod in pods:
        meta = pod["metadata"]
        known = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
        sizes[next((str(known[key]) for key in GROUP_SIZES if key in known), "")] = meta["name"]
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise Malformed(
            f"{GROUP_SIZES[0]}: must be the same in all pods of a group: {first} has {one or 'none'}, "
            f"{second} has {other or 'none'}"
        )
    (text,) = sizes
    if not text:
        raise Malformed(
            f"{GROUP_SIZES[0]}: must be the number of pods in the group, at least 1; no pod of the group has it"
        )
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise Malformed(f"{GROUP_SIZES[0]}: must be the number of pods in the group, at least 1, not {text[:40]!r}")
    return int(text)


WORKLOAD_KIND = WorkloadKind(PODS, 9, (), demand, objects=lambda item: tuple(item["pods"]))
