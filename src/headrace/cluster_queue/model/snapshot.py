"""The cluster as last seen by the cycle, with the indexes that the steps need. No decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from headrace.k8s.objects.conditions import POD_ENDS
from headrace.k8s.objects.kinds import PODS, Kind
from headrace.k8s.runtime.cache import owner_of

from ..admission import gate_index
from ..names import CLAIMS, FLUXJOBS, FLUXQUEUES, HELD, JOBID, NAMESPACES, NODES, PLACE, PRIORITY_CLASSES, QUEUE
from ..workloads import KINDS, WorkloadKind, group, maker_of, name_in_uid, uid_of_group
from ..workloads import owner_of as known_owner
from .fluxjobs import is_external, jobid_of

Object = dict[str, Any]
_Key = TypeVar("_Key")

# Maximum number of owners to follow above an object. The known kinds need three, but users may write any owners.
MOST_OWNERS = 8


class Change(NamedTuple):
    """An object as it is now or, if `gone`, as it last was."""

    kind: Kind
    item: Object
    gone: bool = False


class Touched(NamedTuple):
    """The objects that changes are about.

    Workloads by uid; nodes by name, both for their own changes and for those of their pods (`loads`); queues by name;
    volume claims by namespace and name.
    """

    workloads: dict[str, None]
    nodes: dict[str, None]
    loads: dict[str, None]
    queues: dict[str, None]
    claims: dict[tuple[str, str], None]


class Snapshot:
    """The objects of the cluster.

    `workloads` and `pods` are by uid, `fluxjobs` by the uid of their workload, `externals` by job id, all else by name.

    A workload is an object of a known kind whose owner is not of a known kind. The objects that it owns, and all their
    pods, belong to it. `namespace` is the namespace of the queue itself, where the FluxJobs of `externals` are.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.workloads: dict[str, tuple[WorkloadKind, Object]] = {}
        # The resource version in which each workload was first seen. It orders workloads of the same second: creation
        # times are whole seconds, and each write to an object gives it a newer version.
        self.first_versions: dict[str, int] = {}
        self.pods: dict[str, Object] = {}
        # Owned objects, and the owner of each object, both by uid; pods by their maker, and the maker of each pod.
        self._owned: dict[str, tuple[WorkloadKind, Object]] = {}
        self._owner: dict[str, str] = {}
        self._owns: dict[str, dict[str, None]] = {}
        self._made: dict[str, dict[str, Object]] = {}
        self._maker: dict[str, str] = {}
        self.pods_on: dict[str, dict[str, Object]] = {}
        self.fluxjobs: dict[str, Object] = {}
        # By FluxJob uid, the uid of its workload; and FluxJobs without a workload. An object that is deleted alone
        # (`kubectl delete --cascade=orphan`) leaves its FluxJob behind.
        self._workload_of: dict[str, str] = {}
        self.orphans: dict[str, Object] = {}
        self.externals: dict[int, Object] = {}
        self._external_ids: dict[str, int] = {}
        self.nodes: dict[str, Object] = {}
        self.queues: dict[str, Object] = {}
        self._queue_of: dict[str, str] = {}
        self._bound_claims: set[tuple[str, str]] = set()
        self._in_namespace: dict[str, dict[str, None]] = {}
        # By the name of the PriorityClass, its value and whether it is the default.
        self._priorities: dict[str, tuple[int, bool]] = {}

    def queue_of(self, namespace: str) -> str:
        """The queue of a namespace; "" for a namespace without the label."""
        return self._queue_of.get(namespace, "")

    def has_claim(self, namespace: str, name: str) -> bool:
        """Whether a PersistentVolumeClaim exists and is bound to a volume."""
        return (namespace, name) in self._bound_claims

    def has_priority_class(self, name: str) -> bool:
        """Whether a PriorityClass exists."""
        return name in self._priorities

    def priority_of(self, spec: Object, is_pod: bool) -> int:
        """The priority of a PodSpec: the current value of its PriorityClass.

        Else, for a pod, the value that admission has set; else that of the default class. The value in a template is
        ignored, because nothing checks it.
        """
        found = self._priorities.get(spec.get("priorityClassName") or "")
        if found is not None:
            return found[0]
        default = max((value for value, is_default in self._priorities.values() if is_default), default=0)
        return int(spec.get("priority", default)) if is_pod else default

    def apply(self, changes: Iterable[Change]) -> Touched:
        """Apply changes; returns the objects that they are about."""
        touched = Touched({}, {}, {}, {}, {})
        for change in changes:
            self._apply(change, touched)
        return touched

    def everything(self) -> Touched:
        """All objects, as if each had changed."""
        uids = dict.fromkeys([*self.workloads, *self.fluxjobs, *self.orphans])
        return Touched(uids, dict.fromkeys(self.nodes), dict.fromkeys(self.pods_on), dict.fromkeys(self.queues), {})

    def _apply(self, change: Change, touched: Touched) -> None:
        kind, item, gone = change
        name, uid = item["metadata"]["name"], item["metadata"].get("uid", "")
        if kind == PODS:
            owner, former = maker_of(item), self._maker.get(uid, "")
            if former not in ("", owner):
                # The pod has got another controller or group, or has left one.
                self._apply_pod(item, uid, former, True, touched)
                self._apply_made(item, uid, former, True, touched)
            _put(self._maker, uid, owner, gone)
            self._apply_pod(item, uid, owner, gone, touched)
            self._apply_made(item, uid, owner, gone, touched)
        elif kind.kind in KINDS:
            self._apply_owner(KINDS[kind.kind], item, uid, gone, touched)
        elif kind == FLUXJOBS:
            self._apply_fluxjob(item, uid, gone, touched)
        elif kind == NODES:
            _put(self.nodes, name, item, gone)
            touched.nodes[name] = None
        elif kind == FLUXQUEUES:
            _put(self.queues, name, item, gone)
            touched.queues[name] = None
        elif kind == NAMESPACES:
            queue = "" if gone else (item["metadata"].get("labels") or {}).get(QUEUE, "")
            if queue != self._queue_of.get(name, ""):
                _put(self._queue_of, name, queue, not queue)
                touched.workloads.update(self._in_namespace.get(name, {}))
        elif kind == CLAIMS:
            self._apply_claim(item, gone, touched)
        elif kind == PRIORITY_CLASSES:
            before = self._priorities.get(name)
            _put(self._priorities, name, (int(item["value"]), bool(item.get("globalDefault"))), gone)
            if before != self._priorities.get(name):
                touched.workloads.update(dict.fromkeys(self.workloads))

    def _apply_owner(self, kind: WorkloadKind, item: Object, uid: str, gone: bool, touched: Touched) -> None:
        """Apply an object that may have an owner.

        Pods are found by their maker, so they follow the object to a new owner.
        """
        reference = None if gone else known_owner(item)
        owner = str(reference["uid"]) if reference else ""
        if owner and uid in (owner, *self._above(owner)):
            owner = ""
        before = self._owner.get(uid, "")
        if before != owner:
            if before:
                _leave(self._owns, before, uid)
                touched.workloads[self.root_of(before)] = None
            _put(self._owner, uid, owner, not owner)
            if owner:
                self._owns.setdefault(owner, {})[uid] = None
        _put(self._owned, uid, (kind, item), not owner)
        self._apply_workload(kind, item, uid, gone or bool(owner), touched)
        if owner:
            touched.workloads[self.root_of(owner)] = None

    def _apply_made(self, pod: Object, uid: str, owner: str, gone: bool, touched: Touched) -> None:
        """Apply a pod that is a workload by itself, or part of a group that is one."""
        if owner == uid:
            self._apply_workload(KINDS["Pod"], pod, uid, gone, touched)
        elif name := name_in_uid(owner):
            pods = self._made.get(owner, {}).values()
            together = group.item_of(name, owner, pods) if pods else pod
            self._apply_workload(group.WORKLOAD_KIND, together, owner, not pods, touched)

    def _apply_fluxjob(self, item: Object, uid: str, gone: bool, touched: Touched) -> None:
        if is_external(item):
            if self.is_own(item):
                self._apply_external(item, uid, gone)
            return
        owner, former = "" if gone else workload_of(item), self._workload_of.get(uid, "")
        if former != owner and self.fluxjobs.get(former, item)["metadata"]["uid"] == uid:
            self.fluxjobs.pop(former, None)
            touched.workloads[former] = None
        _put(self._workload_of, uid, owner, not owner)
        # Without a job id, the FluxJob was not created by this program.
        is_orphan = not gone and not owner and jobid_of(item) > 0
        _put(self.orphans, uid, item, not is_orphan)
        if owner:
            self.fluxjobs[owner] = item
            touched.workloads[owner] = None
        elif is_orphan:
            touched.workloads[uid] = None

    def is_own(self, fluxjob: Object) -> bool:
        """Whether a FluxJob is in the namespace where the queue creates those of external jobs."""
        return bool(fluxjob["metadata"]["namespace"] == self.namespace)

    def _apply_external(self, item: Object, uid: str, gone: bool) -> None:
        """Apply the FluxJob of an external job.

        A FluxJob keeps the job id with which it was first seen. A second FluxJob with the same id is ignored.
        """
        jobid = self._external_ids.setdefault(uid, jobid_of(item))
        is_its_own = self.externals.get(jobid, item)["metadata"]["uid"] == uid
        if gone:
            del self._external_ids[uid]
        if is_its_own:
            _put(self.externals, jobid, item, gone)

    def _apply_claim(self, claim: Object, gone: bool, touched: Touched) -> None:
        key = claim["metadata"]["namespace"], claim["metadata"]["name"]
        is_bound = not gone and (claim.get("status") or {}).get("phase") == "Bound"
        if is_bound != (key in self._bound_claims):
            self._bound_claims ^= {key}
            touched.claims[key] = None

    def _apply_workload(self, kind: WorkloadKind, item: Object, uid: str, gone: bool, touched: Touched) -> None:
        namespace = item["metadata"]["namespace"]
        if gone:
            self.workloads.pop(uid, None)
            self.first_versions.pop(uid, None)
            _leave(self._in_namespace, namespace, uid)
        else:
            self.workloads[uid] = kind, item
            self.first_versions.setdefault(uid, int(item["metadata"].get("resourceVersion") or 0))
            self._in_namespace.setdefault(namespace, {})[uid] = None
        touched.workloads[uid] = None

    def _apply_pod(self, pod: Object, uid: str, owner: str, gone: bool, touched: Touched) -> None:
        before = self.pods.pop(uid, None)
        if before is not None:
            node = node_of(before)
            _leave(self.pods_on, node, uid)
            touched.loads[node] = None
        if gone:
            _leave(self._made, owner, uid)
        else:
            self.pods[uid] = pod
            self._made.setdefault(owner, {})[uid] = pod
            if node := node_of(pod):
                self.pods_on.setdefault(node, {})[uid] = pod
                touched.loads[node] = None
        touched.workloads[self.root_of(owner)] = None

    def root_of(self, uid: str) -> str:
        """The uid of the workload to which an object belongs."""
        return [uid, *self._above(uid)][-1]

    def _above(self, uid: str) -> Iterator[str]:
        """The owner of an object, that owner's owner, and so on."""
        for _ in range(MOST_OWNERS):
            if not (uid := self._owner.get(uid, "")):
                return
            yield uid

    def _below(self, uid: str, depth: int = MOST_OWNERS) -> Iterator[str]:
        """An object and everything that it owns, directly or indirectly."""
        yield uid
        for one in self._owns.get(uid, ()) if depth else ():
            yield from self._below(one, depth - 1)

    def made_by(self, uid: str) -> dict[str, list[Object]]:
        """The objects of known kinds that a workload owns, directly or not, by kind and sorted by name."""
        found: dict[str, list[Object]] = {}
        for one in self._below(uid):
            workload, item = self._owned.get(one, (None, {}))
            if workload and one != uid and self._is_beside(uid, item):
                found.setdefault(workload.kind.kind, []).append(item)
        return {kind: sorted(items, key=lambda item: str(item["metadata"]["name"])) for kind, items in found.items()}

    def pods_of(self, uid: str) -> Iterator[Object]:
        """The pods of a workload."""
        for one in self._below(uid):
            yield from (pod for pod in self._made.get(one, {}).values() if self._is_beside(uid, pod))

    def _is_beside(self, uid: str, item: Object) -> bool:
        """Whether an object is in the namespace of a workload.

        References to owners in other namespaces are invalid (Kubernetes 1.34, "Owners and Dependents").
        """
        found = self.workloads.get(uid)
        return found is None or found[1]["metadata"]["namespace"] == item["metadata"]["namespace"]

    def live_pods(self, uid: str) -> Iterator[Object]:
        """The pods of a workload that hold resources of their nodes, or will."""
        return (pod for pod in self.pods_of(uid) if is_live(pod))


def workload_of(fluxjob: Object) -> str:
    """The uid of the workload of a FluxJob; "" if the FluxJob belongs to no object."""
    meta, spec = fluxjob["metadata"], fluxjob.get("spec") or {}
    if not meta.get("ownerReferences"):
        return ""
    if spec.get("type") == group.WORKLOAD_KIND.number:
        return uid_of_group(meta["namespace"], spec.get("name", ""))
    return owner_of(fluxjob)


def _leave(index: dict[str, dict[str, Any]], key: str, uid: str) -> None:
    """Remove a uid from the entry of a key, and the entry with its last uid."""
    found = index.get(key, {})
    found.pop(uid, None)
    if not found:
        index.pop(key, None)


def _put(into: dict[_Key, Any], key: _Key, value: Any, gone: bool) -> None:
    if gone:
        into.pop(key, None)
    else:
        into[key] = value


def node_of(pod: Object) -> str:
    """The node that a pod is bound or pinned to; "" for none.

    A gated pod is on no node, whatever its annotations say.
    """
    if gate_index(pod) >= 0:
        return ""
    pinned = (pod["metadata"].get("annotations") or {}).get(PLACE, "")
    return str(pod["spec"].get("nodeName") or pinned)


def is_live(pod: Object) -> bool:
    """Whether a pod has not ended. A pod that is being deleted holds its resources until it is gone."""
    return (pod.get("status") or {}).get("phase") not in POD_ENDS


def lasts_for_ever(pod: Object) -> bool:
    """Whether a bound pod runs until someone deletes it.

    Its containers are restarted whenever they end (core/v1 PodSpec, `restartPolicy`), as in DaemonSets and Deployments.
    """
    spec, meta = pod["spec"], pod["metadata"]
    has_end = "activeDeadlineSeconds" in spec or "deletionTimestamp" in meta
    return spec.get("restartPolicy") == "Always" and bool(spec.get("nodeName")) and not has_end


def is_held(item: Object) -> bool:
    """Whether an object was suspended by this program's webhook at its creation, and still is."""
    return bool((item["metadata"].get("annotations") or {}).get(HELD) == "true")


def is_placed(pod: Object) -> bool:
    """Whether a live pod was given to a node as a pod of a job.

    Its user may have created it with these marks, but only the queue removes the gate.
    """
    meta = pod["metadata"]
    is_marked = PLACE in (meta.get("annotations") or {}) and JOBID in (meta.get("labels") or {})
    return is_marked and gate_index(pod) < 0 and is_live(pod)
