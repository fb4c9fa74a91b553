"""The webhook `/hold-v1`: its changes to objects of labelled namespaces, and its refusals. Pure.

The verdict depends only on the review, on which queues bind, and on the owners of the object. So a dry run gets the
same answer as a creation.

Every pod gets the gate, so pods of every kind of object are held. Objects that can be suspended are suspended as well,
so they have no pods while they wait. Templates are never changed. An object is refused if pods made from its templates
would get no gate, unless the object is unmanaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from headrace.k8s.objects.kinds import PODS
from headrace.k8s.objects.problems import Problem, refusal
from headrace.k8s.runtime.admission.reviews import Review, Verdict

from .names import GATE, HELD, KUEUE_QUEUE, SCHEDULERS, SKIP
from .workloads import BY_PLURAL, KINDS, WorkloadKind, owner_of
from .workloads.workload import value_at, with_value

Object = dict[str, Any]

# The labels of a selector are not given to pods.
_SELECTOR = "matchLabels"
# The path of a field, as the path of its parent (None at the top) and its key. It is converted to text only for a
# refusal.
_Trail = tuple[Any, str]


class Known(Protocol):
    """The facts about the cluster that a verdict depends on beyond the review."""

    def binds(self, namespace: str) -> bool:
        """Whether the queue of a namespace binds pods itself."""

    def above(self, item: Object) -> Iterable[Object]:
        """The chain of controllers above an object, nearest first, with their `kind`."""


def judge(review: Review, known: Known) -> Verdict:
    """The verdict on the creation of an object, or on a change to an object that makes pods."""
    kind = BY_PLURAL.get(review.resource)
    if kind is None or review.subresource or not review.new or review.operation not in ("CREATE", "UPDATE"):
        return Verdict()
    if _is_unmanaged(review.new, kind):
        return Verdict()
    if kind.kind == PODS:
        is_new = review.operation == "CREATE"
        return Verdict(changed=_gated(review.new, known.binds(review.namespace)) if is_new else None)
    problems = [*_ungated(review.new.get("spec"))]
    if problems and not any(_is_unmanaged(one, KINDS[one["kind"]]) for one in known.above(review.new)):
        return Verdict(refusal=refusal(kind.kind, review.name, problems))
    return Verdict(changed=_suspended(review.new, kind) if review.operation == "CREATE" else None)


def _is_unmanaged(item: Object, kind: WorkloadKind) -> bool:
    return is_skipped(item) or kind.is_unmanaged(item)


def _ungated(spec: Any) -> Iterator[Problem]:
    """The fields of an object's spec that would keep its pods from getting the gate.

    These are the node of a PodSpec, and labels that exclude pods from the queue. They are searched at any depth,
    because each kind has its templates in other fields.
    """
    parts: list[tuple[Any, _Trail]] = [(spec, (None, "spec"))]
    while parts:
        part, trail = parts.pop()
        if isinstance(part, list):
            parts += [(one, (trail, f"[{index}]")) for index, one in enumerate(part)]
        elif isinstance(part, dict):
            parts += [(one, (trail, f".{key}")) for key, one in part.items()]
            if part.get("nodeName") and trail[1].lower().endswith("spec"):
                yield Problem(f"{_path(trail)}.nodeName", "must not be set: the queue assigns nodes to pods")
            for key, labels in part.items():
                if key.lower().endswith("labels") and key != _SELECTOR and isinstance(labels, dict):
                    for name in (one for one in (SKIP, KUEUE_QUEUE) if _skips(labels, one)):
                        rule = (
                            "must not be a label of the pods only: set it on the object itself to exclude all its pods"
                        )
                        yield Problem(f"{_path(trail)}.{key}[{name}]", rule)


def _path(trail: _Trail | None) -> str:
    keys = []
    while trail:
        trail, key = trail
        keys.append(key)
    return "".join(reversed(keys))


def _skips(labels: Object, name: str) -> bool:
    return name in labels and (name != SKIP or labels[name] == "true")


def is_skipped(item: Object) -> bool:
    """Whether an object's labels exclude it from the queue."""
    labels = item["metadata"].get("labels") or {}
    return _skips(labels, SKIP) or _skips(labels, KUEUE_QUEUE)


def is_bound_here(pod: Object) -> bool:
    """Whether this program binds a pod, by the pod's scheduler name: no other scheduler handles it."""
    return pod["spec"].get("schedulerName") in SCHEDULERS


def gate_index(pod: Object) -> int:
    """The index of the queue's gate among the gates of a pod; -1 without it."""
    gates = pod["spec"].get("schedulingGates") or ()
    return next((place for place, one in enumerate(gates) if one.get("name") == GATE), -1)


def _gated(pod: Object, binds: bool) -> Object | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    of_daemon_set = any(one.get("controller") and one.get("kind") == "DaemonSet" for one in owners)
    # The API server's copy of a static pod names its node.
    if pod["spec"].get("nodeName") or of_daemon_set:
        return None
    spec = pod["spec"]
    if gate_index(pod) < 0:
        spec = {**spec, "schedulingGates": [*(spec.get("schedulingGates") or ()), {"name": GATE}]}
    if binds and not is_bound_here(pod):
        spec = {**spec, "schedulerName": SCHEDULERS[0]}
    return {**pod, "spec": spec} if spec is not pod["spec"] else None


def _suspended(item: Object, kind: WorkloadKind) -> Object | None:
    if not kind.suspend or kind.is_suspended(item) or owner_of(item):
        return None
    # The API server validates an object only after the webhook has changed it. Fields may be missing, null or of a
    # wrong type, for which the API server then rejects the object.
    spec, above = item.get("spec"), value_at(item, kind.suspend[:-1])
    if not isinstance(spec, dict) or not isinstance(above, (dict, type(None))):
        return None
    return with_value(with_value(item, ("metadata", "annotations", HELD), "true"), kind.suspend, True)
