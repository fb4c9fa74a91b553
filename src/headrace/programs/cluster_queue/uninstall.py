"""`headrace fluxqueue uninstall`: removes the cluster queue and releases everything that it holds.

It first deletes the webhook, so that no more objects are held, then stops the queue, releases the held objects, and
deletes the rest of the install. Held objects are found by their own marks (a pod's gate, the annotation of a suspended
object), even if the queue and its FluxJobs are gone already.
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
# The number of objects that are released at a time, and of rounds for objects that could not be released.
_AT_A_TIME = 16
_ROUNDS = 5
# The number of owners above an object that are checked.
_MOST_OWNERS = 8
# Controllers that replace a pod that is deleted.
_REPLACED = ("ReplicaSet", "StatefulSet")
# HTTP statuses of a write to an object that is gone, or has changed since it was read.
_STALE = (404, 409, 422)


def declared() -> list[Object]:
    """All objects that an install of the queue has with any options, and those that it creates itself."""
    own = [
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        for kind, name in ((SECRETS, WEBHOOK), (LEASES, FLUXQUEUE))
    ]
    return [*PACKAGE.objects(Install(strict=True, grpc=True)), *own]


async def uninstall(removal: Removal, delete_queues: bool) -> None:
    """Remove the queue. With `delete_queues`, FluxQueues that users have written are deleted, too.

    Raises ApiError, Unreachable, TooLongError.
    """
    await removal.find_objects()
    await removal.delete(removal.of(*_ADMISSION))
    # The queue may act until its pods are gone.
    await removal.delete(removal.of(_PROGRAM), "Foreground")
    await _release_all(removal)
    rest = (*_ADMISSION, _PROGRAM, DEFINITION, NAMESPACE)
    await removal.delete(one for one in removal.items if one.kind.kind not in rest)
    kept = "" if delete_queues else await _definition_kept(removal)
    await removal.delete(one for one in removal.of(DEFINITION) if one.name != kept)
    await _report_labels(removal)
    await removal.delete_namespaces([DEFAULT_NAMESPACE])


async def _definition_kept(removal: Removal) -> str:
    """The name of the definition to keep, because users have written or changed FluxQueues; "" for none."""
    found = await removal.listed(FLUXQUEUES)
    theirs = [one for one in found if one.name != DEFAULT_QUEUE or not _is_of_program(one.body)]
    if not theirs:
        return ""
    how = "its settings and its definition are kept; headrace fluxqueue uninstall --delete-queues deletes them"
    removal.keep(theirs, how)
    return f"{FLUXQUEUES.plural}.{FLUXQUEUES.group}"


def _is_of_program(item: Object) -> bool:
    """True if only the queue itself has written an object."""
    return all(one.get("manager") == FLUXQUEUE for one in item["metadata"].get("managedFields") or ())


async def _report_labels(removal: Removal) -> None:
    labelled = await removal.listed(NAMESPACES, labels=QUEUE)
    if labelled:
        how = f"kubectl label namespace NAME {QUEUE}- removes it"
        removal.keep(labelled, f"the label {QUEUE}, which has no effect any more; {how}")


# --- held objects


class _Held(NamedTuple):
    """Objects that the queue holds: pods with its gate or its scheduler's name, and suspended objects.

    `on_hold` are the objects of both kinds whose users keep them from running.
    """

    pods: list[Item]
    suspended: list[tuple[WorkloadKind, Item]]
    on_hold: list[Item]


async def _release_all(removal: Removal) -> None:
    """Release all held objects. Raises ApiError, Unreachable."""
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
    _report_holds(removal, held.on_hold)


def _report_holds(removal: Removal, on_hold: Iterable[Item]) -> None:
    for gated in (True, False):
        found = [one for one in on_hold if (one.kind == PODS) is gated]
        patch = (
            'kubectl patch pod NAME --type json -p \'[{"op": "remove", "path": "/spec/schedulingGates"}]\''
            if gated
            else 'kubectl patch KIND NAME --type merge -p \'{"spec": {"suspend": false}}\''
        )
        if found:
            removal.keep(found, f"not released, because its user put it on hold ({HOLD}); {patch} releases it")


async def _release_pod(removal: Removal, pod: Item) -> str:
    """Release a pod; returns the reason if it cannot be released.

    A gated pod goes to kube-scheduler. A pod for our own scheduler, which is removed, is bound to the node that the
    queue has assigned, or else deleted, so that its controller replaces it. Raises ApiError, Unreachable.
    """
    api, meta = removal.api, pod.body["metadata"]
    owner, ours = owner_of(pod.body), pod.body["spec"].get("schedulerName") == SCHEDULERS[0]
    if ours and not is_placed(pod.body) and not (owner and owner["kind"] in _REPLACED):
        return f"only {SCHEDULERS[0]}, which ends with the queue, may bind it: delete it"
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
    """Resume an object, and remove the queue's mark from it. Raises ApiError, Unreachable."""
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
    """The pod if it waits for the queue, else {}."""
    spec, meta = pod["spec"], pod["metadata"]
    waits = gate_index(pod) >= 0 or spec.get("schedulerName") == SCHEDULERS[0]
    return pod if waits and not spec.get("nodeName") and not meta.get("deletionTimestamp") else {}


def _trimmed(kind: WorkloadKind, item: Object) -> Object:
    """The metadata of an object, and its suspend field."""
    kept: Object = {"metadata": item["metadata"]}
    return with_value(kept, kind.suspend, value_at(item, kind.suspend)) if kind.suspend else kept


def _is_on_hold(item: Object, above: Mapping[str, Object]) -> bool:
    """True if the user of an object, or of one of its owners, keeps it from running."""
    # Owner references are written by users, and may form cycles.
    for _ in range(_MOST_OWNERS):
        if (item["metadata"].get("annotations") or {}).get(HOLD) == "true":
            return True
        owner = owner_of(item)
        if not owner or owner["uid"] not in above:
            return False
        item = above[owner["uid"]]
    return False
