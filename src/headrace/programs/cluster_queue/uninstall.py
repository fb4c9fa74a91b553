"""`headrace fluxqueue uninstall`: the removal of the cluster queue, which lets go of all that waits in it.

First nothing more is held, then the queue ends, then what it holds is released, then all else of the install goes. What
is held is known by marks on the objects themselves (the gate of a pod, the annotation of a suspended object), so it is
found also where the queue and its FluxJobs are gone already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from headrace.cluster_queue.admission import gate_index
from headrace.cluster_queue.cycle.pin import binding, ungate
from headrace.cluster_queue.model.snapshot import is_placed
from headrace.cluster_queue.names import (
    BINDINGS,
    DEFAULT_NAMESPACE,
    DEFAULT_QUEUE,
    FLUXQUEUE,
    FLUXQUEUES,
    HELD,
    HOLD,
    NAMESPACES,
    PLACE,
    POLICIES,
    POLICY_BINDINGS,
    QUEUE,
    SCHEDULERS,
    WEBHOOK,
)
from headrace.cluster_queue.workloads import WorkloadKind, others, owner_of
from headrace.cluster_queue.workloads.workload import value_at, with_value
from headrace.k8s.objects.kinds import LEASES, MUTATING, PODS, SECRETS
from headrace.k8s.packaging.removal import DEFINITION, NAMESPACE, Item, Removal
from headrace.k8s.runtime.api import ApiError

from .install import Install
from .package import PACKAGE

Object = dict[str, Any]

_ADMISSION = (MUTATING.kind, POLICIES.kind, POLICY_BINDINGS.kind)
_PROGRAM = "Deployment"
# How many objects are released at a time, and how often what could not be released is looked at again.
_AT_A_TIME = 16
_ROUNDS = 5
# How many owners above an object are looked at.
_MOST_OWNERS = 8
# These make a pod anew that is deleted.
_REPLACED = ("ReplicaSet", "StatefulSet")
# The API server's answers to a write about something that is gone, or has changed since it was seen.
_STALE = (404, 409, 422)


def declared() -> list[Object]:
    """All objects that an install of the queue has with any options, and those that it makes for itself."""
    own = [
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        for kind, name in ((SECRETS, WEBHOOK), (LEASES, FLUXQUEUE))
    ]
    return [*PACKAGE.objects(Install(strict=True, grpc=True)), *own]


async def uninstall(removal: Removal, delete_queues: bool) -> None:
    """Remove the queue, and FluxQueues that people have written if that is wanted.

    Raises ApiError, Unreachable, TooLongError.
    """
    await removal.look()
    await removal.delete(removal.of(*_ADMISSION))
    # Until its pods are gone, the queue may act.
    await removal.delete(removal.of(_PROGRAM), "Foreground")
    await _release_all(removal)
    rest = (*_ADMISSION, _PROGRAM, DEFINITION, NAMESPACE)
    await removal.delete(one for one in removal.items if one.kind.kind not in rest)
    kept = "" if delete_queues else await _definition_kept(removal)
    await removal.delete(one for one in removal.of(DEFINITION) if one.name != kept)
    await _tell_of_labels(removal)
    await removal.delete_namespaces([DEFAULT_NAMESPACE])


async def _definition_kept(removal: Removal) -> str:
    """The name of the definition that stays with FluxQueues that people have written or changed; "" for none."""
    found = await removal.listed(FLUXQUEUES)
    theirs = [one for one in found if one.name != DEFAULT_QUEUE or not _is_of_program(one.body)]
    if not theirs:
        return ""
    how = "its settings stay with its definition; headrace fluxqueue uninstall --delete-queues deletes them"
    removal.keep(theirs, how)
    return f"{FLUXQUEUES.plural}.{FLUXQUEUES.group}"


def _is_of_program(item: Object) -> bool:
    """Whether nobody but the queue itself has written an object."""
    return all(one.get("manager") == FLUXQUEUE for one in item["metadata"].get("managedFields") or ())


async def _tell_of_labels(removal: Removal) -> None:
    labelled = await removal.listed(NAMESPACES, labels=QUEUE)
    if labelled:
        how = f"kubectl label namespace NAME {QUEUE}- removes it"
        removal.keep(labelled, f"the label {QUEUE}, which has no effect any more; {how}")


# --- what waits


class _Held(NamedTuple):
    """What waits in the cluster: pods with the gate or for our scheduler, and suspended objects; `on_hold` are those of
    both that their users keep from running.
    """

    pods: list[Item]
    suspended: list[tuple[WorkloadKind, Item]]
    on_hold: list[Item]


async def _release_all(removal: Removal) -> None:
    """Let all that waits go. Raises ApiError, Unreachable."""
    problems: dict[str, str] = {}
    at_a_time = asyncio.Semaphore(_AT_A_TIME)

    async def attempt(item: Item, release: Awaitable[str], is_last: bool) -> None:
        async with at_a_time:
            try:
                problem = await release
            except ApiError as exc:
                if exc.status in _STALE and not is_last:
                    return
                problem = exc.message
        if problem:
            problems[str(item)] = problem
        else:
            removal.release(item)

    for rounds_left in reversed(range(1 if removal.dry_run else _ROUNDS)):
        held = await _held(removal)
        releases = [(one, _release_pod(removal, one)) for one in held.pods if str(one) not in problems]
        releases += [(one, _resume(removal, kind, one)) for kind, one in held.suspended if str(one) not in problems]
        if not releases:
            break
        await asyncio.gather(*(attempt(one, release, not rounds_left) for one, release in releases))
    for text, why in problems.items():
        removal.keep([text], why)
    _tell_of_holds(removal, held.on_hold)


def _tell_of_holds(removal: Removal, on_hold: Iterable[Item]) -> None:
    for gated in (True, False):
        found = [one for one in on_hold if (one.kind == PODS) is gated]
        patch = (
            'kubectl patch pod NAME --type json -p \'[{"op": "remove", "path": "/spec/schedulingGates"}]\''
            if gated
            else 'kubectl patch KIND NAME --type merge -p \'{"spec": {"suspend": false}}\''
        )
        if found:
            removal.keep(found, f"on hold by its user ({HOLD}), and so not released; {patch} releases it")


async def _release_pod(removal: Removal, pod: Item) -> str:
    """Let a pod go: to kube-scheduler; one for our own scheduler, which ends, to the node that it was given, or to its
    controller, which makes it anew. Returns what keeps it. Raises ApiError, Unreachable.
    """
    api, meta = removal.api, pod.body["metadata"]
    owner, ours = owner_of(pod.body), pod.body["spec"].get("schedulerName") == SCHEDULERS[0]
    if ours and not is_placed(pod.body) and not (owner and owner["kind"] in _REPLACED):
        return f"no other scheduler than {SCHEDULERS[0]}, which ends with the queue, may bind it: delete it"
    if removal.dry_run:
        return ""
    if not ours:
        await api.patch(PODS, pod.namespace, pod.name, ungate(pod.body))
    elif is_placed(pod.body):
        await api.create(BINDINGS, pod.namespace, binding(pod.body, meta["annotations"][PLACE]))
    else:
        await api.delete(PODS, pod.namespace, pod.name, meta["uid"])
    return ""


async def _resume(removal: Removal, kind: WorkloadKind, item: Item) -> str:
    """Let an object make its pods, and take the mark of the queue off it. Raises ApiError, Unreachable."""
    if not removal.dry_run:
        body = kind.released(item.body, 0, 0)
        body = with_value(body, ("metadata", "uid"), item.body["metadata"]["uid"])
        await removal.api.merge(kind.kind, item.namespace, item.name, body)
    return ""


async def _held(removal: Removal) -> _Held:
    pods = [one for one in await removal.listed(PODS, trim=_waiting_pod) if one.body]
    above: dict[str, Object] = {}
    suspended: list[tuple[WorkloadKind, Item]] = []
    for kind in others():
        for one in await removal.listed(kind.kind, trim=partial(_trimmed, kind)):
            above[one.body["metadata"]["uid"]] = one.body
            if (one.body["metadata"].get("annotations") or {}).get(HELD) is not None:
                suspended.append((kind, one))
    on_hold = [one for one in (*pods, *(one for _, one in suspended)) if _is_on_hold(one.body, above)]
    return _Held(
        [one for one in pods if one not in on_hold], [one for one in suspended if one[1] not in on_hold], on_hold
    )


def _waiting_pod(pod: Object) -> Object:
    """A pod that waits for the queue; {} for any other."""
    spec, meta = pod["spec"], pod["metadata"]
    waits = gate_index(pod) >= 0 or spec.get("schedulerName") == SCHEDULERS[0]
    return pod if waits and not spec.get("nodeName") and not meta.get("deletionTimestamp") else {}


def _trimmed(kind: WorkloadKind, item: Object) -> Object:
    """The metadata of an object, and whether it is suspended."""
    kept: Object = {"metadata": item["metadata"]}
    return with_value(kept, kind.suspend, value_at(item, kind.suspend)) if kind.suspend else kept


def _is_on_hold(item: Object, above: Mapping[str, Object]) -> bool:
    """Whether the user of an object, or of one that has made it, keeps it from running."""
    # Users write owners as they like, also in circles.
    for _ in range(_MOST_OWNERS):
        if (item["metadata"].get("annotations") or {}).get(HOLD) == "true":
            return True
        owner = owner_of(item)
        if not owner or owner["uid"] not in above:
            return False
        item = above[owner["uid"]]
    return False
