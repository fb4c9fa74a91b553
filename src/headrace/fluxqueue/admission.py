"""What the webhook changes of objects when they are created in a labelled namespace (`/hold-v1`). Pure: a function of
the review and of which queues bind, so a dry run is answered as a creation is.

Every pod gets the gate, so no kind of object escapes. Objects that can are suspended as well, so that as long as they
wait they have no pods. Their templates are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kube.runtime.admission.reviews import Review, Verdict
from ..kube.runtime.kinds import PODS
from .names import GATE, HELD, KUEUE_QUEUE, SCHEDULERS, SKIP
from .workloads import BY_PLURAL, Workload, owner_of
from .workloads.workload import value_at, with_value

Object = dict[str, Any]

# The annotation of a static pod's copy at the API server, which the kubelet runs whatever becomes of the copy.
_MIRROR = "kubernetes.io/config.mirror"


def judge(review: Review, binds: Callable[[str], bool]) -> Verdict:
    """The verdict on a creation; `binds` says whether a namespace's queue binds pods itself. Nothing is refused."""
    kind = BY_PLURAL.get(review.resource)
    if review.operation != "CREATE" or review.subresource or kind is None or not review.new:
        return Verdict()
    if is_skipped(review.new) or kind.left_alone(review.new):
        return Verdict()
    if kind.kind == PODS:
        return Verdict(changed=_gated(review.new, binds(review.namespace)))
    return Verdict(changed=_suspended(review.new, kind))


def is_skipped(item: Object) -> bool:
    """Whether an object says by a label that it does not wait here."""
    labels = item["metadata"].get("labels") or {}
    return labels.get(SKIP) == "true" or KUEUE_QUEUE in labels


def is_bound_here(pod: Object) -> bool:
    """Whether it is this program that binds a pod, by the name of its scheduler: no other scheduler looks at it."""
    return pod["spec"].get("schedulerName") in SCHEDULERS


def gate_index(pod: Object) -> int:
    """The place of our gate among those of a pod; -1 without it."""
    gates = pod["spec"].get("schedulingGates") or ()
    return next((place for place, one in enumerate(gates) if one.get("name") == GATE), -1)


def _gated(pod: Object, binds: bool) -> Object | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    of_daemon_set = any(one.get("controller") and one.get("kind") == "DaemonSet" for one in owners)
    is_static = _MIRROR in (pod["metadata"].get("annotations") or {})
    if pod["spec"].get("nodeName") or of_daemon_set or is_static:
        return None
    spec = pod["spec"]
    if gate_index(pod) < 0:
        spec = {**spec, "schedulingGates": [*(spec.get("schedulingGates") or ()), {"name": GATE}]}
    if binds and not is_bound_here(pod):
        spec = {**spec, "schedulerName": SCHEDULERS[0]}
    return {**pod, "spec": spec} if spec is not pod["spec"] else None


def _suspended(item: Object, kind: Workload) -> Object | None:
    if not kind.suspend or kind.is_suspended(item) or owner_of(item):
        return None
    # The API server checks an object after it was changed here: fields may be missing, null or of another form than
    # theirs, for which it refuses the object.
    spec, above = item.get("spec"), value_at(item, kind.suspend[:-1])
    if not isinstance(spec, dict) or not isinstance(above, (dict, type(None))):
        return None
    return with_value(with_value(item, ("metadata", "annotations", HELD), "true"), kind.suspend, True)
