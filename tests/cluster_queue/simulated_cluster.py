"""A cluster in memory, with what the cluster queue meets of Kubernetes: the webhook, the controllers of all kinds, a
scheduler that looks at cores, node names and selectors, kubelets, and garbage collection. `Cluster.queue` is the core,
which may be killed at any write.

What it simplifies: versions are numbers, a selector of a controller is its uid, and pods run at once when bound.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

from headrace.cluster_queue.admission import is_bound_here, judge
from headrace.cluster_queue.cycle import actions
from headrace.cluster_queue.cycle.chronicle import Record
from headrace.cluster_queue.cycle.cycle import Cycle
from headrace.cluster_queue.model import resources
from headrace.cluster_queue.model.nodes import is_usable
from headrace.cluster_queue.model.snapshot import Change
from headrace.cluster_queue.names import FLUXJOBS, FLUXQUEUES, NAMESPACES, NODES, QUEUE
from headrace.cluster_queue.workloads import KINDS
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.kinds import JOBS, PODS, Kind
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.admission.reviews import Review

Object = dict[str, Any]

# The namespace of the queue itself.
OWN = "own"
_POD_INDEX = "apps.kubernetes.io/pod-index"
_INDEX = "batch.kubernetes.io/job-completion-index"
_ROLE = "training.kubeflow.org/job-role"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


class CrashError(Exception):
    """The core was killed at this write."""


class Stale(Exception):
    """The API server refuses a write that comes too late."""


class Cluster:
    """`crash_at` counts the writes of the core until it is killed: before the write, or (`crash_after`) after it."""

    def __init__(self, nodes: int = 2, cores: int = 4, **queue: Any) -> None:
        self.now = 1_800_000_000.0
        self.items: dict[tuple[str, str, str], Object] = {}
        self.kinds: dict[str, Kind] = {}
        self.writes: list[actions.Action] = []
        self.log: list[str] = []
        self.records: list[Record] = []
        self.crash_at: int | None = None
        self.crash_after = False
        self.restarts = 0
        # Names of nodes to which kube-scheduler binds nothing, for a reason of its own.
        self.unbindable: set[str] = set()
        # How many cores admission adds to a pod that a controller makes.
        self.sidecar: Callable[[], int] = lambda: 0
        # Fields that admission sets in the spec of a pod that a controller makes.
        self.added: Object = {}
        self._version = 0
        self._changes: list[Change] = []
        self._wake_at = float("inf")
        for index in range(nodes):
            self.node(f"n{index}", cores)
        self.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {QUEUE: "default"}}})
        self.put(NAMESPACES, {"metadata": {"name": "other"}})
        self.put(FLUXQUEUES, {"metadata": {"name": "default"}, "spec": {"policy": "fcfs", **queue}})
        self.restart()

    # --- objects

    def put(self, kind: Kind, item: Object) -> Object:
        """Create or replace an object."""
        self._version += 1
        meta = item["metadata"]
        meta.setdefault("uid", f"uid-{self._version}")
        meta.setdefault("creationTimestamp", text_of(self.now))
        meta["resourceVersion"] = str(self._version)
        self.kinds[kind.plural] = kind
        self.items[kind.plural, meta.get("namespace", ""), meta["name"]] = item
        self._changes.append(Change(kind, copy.deepcopy(item)))
        return item

    def drop(self, kind: Kind, item: Object) -> None:
        meta = item["metadata"]
        if self.items.pop((kind.plural, meta.get("namespace", ""), meta["name"]), None) is not None:
            self._changes.append(Change(kind, copy.deepcopy(item), gone=True))

    def all(self, kind: Kind) -> list[Object]:
        return [one for (plural, _, _), one in sorted(self.items.items()) if plural == kind.plural]

    def one(self, kind: Kind, name: str, namespace: str = "ns") -> Object:
        return self.items[kind.plural, namespace, name]

    def node(self, name: str, cores: int = 4, labels: Object | None = None, **spec: Any) -> Object:
        status = {
            "allocatable": {"cpu": str(cores), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return self.put(NODES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})

    def create(self, kind: Kind, item: Object) -> Object:
        """Create as a user does: by way of the webhook, where the namespace is labelled."""
        namespace = item["metadata"]["namespace"]
        if QUEUE in (self.one(NAMESPACES, namespace, "")["metadata"].get("labels") or {}):
            review = Review("", "CREATE", kind.plural, "", namespace, item["metadata"]["name"], item, None)
            verdict = judge(review, self)
            assert verdict.refusal is None, verdict.refusal
            item = verdict.changed or item
        item = copy.deepcopy(item)
        if kind == PODS and item["metadata"].get("ownerReferences"):
            item["spec"].update(copy.deepcopy(self.added))
            if more := self.sidecar():
                item["spec"]["containers"].append({"name": "sidecar", "resources": {"requests": {"cpu": str(more)}}})
        return self.put(kind, item)

    def binds(self, namespace: str) -> bool:
        """As the webhook is told (`admission.Known`)."""
        return any(one["spec"].get("placement") == "bind" for one in self.all(FLUXQUEUES))

    def above(self, item: Object) -> tuple[Object, ...]:
        """No object that is created here may have pods without the gate, so the webhook needs no owners."""
        return ()

    def lose(self, name: str) -> None:
        """The kubelet of a node dies, and Kubernetes tells its pods to end: they do not, as long as it is dead."""
        self.set_ready(name, "Unknown")
        for pod in self._pods_on(name):
            pod["metadata"]["deletionTimestamp"] = text_of(self.now)
            self.put(PODS, pod)

    def bring_back(self, name: str) -> None:
        """The kubelet of a node is back, and ends the pods that were told to."""
        self.set_ready(name, "True")
        for pod in self._pods_on(name):
            if _is_told_to_end(pod):
                self.drop(PODS, pod)

    def set_ready(self, name: str, status: str) -> None:
        node = self.one(NODES, name, "")
        node["status"]["conditions"] = [{"type": "Ready", "status": status}]
        self.put(NODES, node)

    def _pods_on(self, node: str) -> list[Object]:
        pods = (one for one in self.all(PODS) if one["spec"].get("nodeName") == node)
        return [one for one in pods if one["status"]["phase"] == "Running"]

    def pod(self, name: str, cores: int = 1, namespace: str = "ns", **more: Any) -> Object:
        meta = {"name": name, "namespace": namespace, **more}
        return self.create(PODS, {"metadata": meta, "spec": _pod_spec(cores), "status": {"phase": "Pending"}})

    def job(self, name: str, pods: int = 1, cores: int = 1, **spec: Any) -> Object:
        marks = {key: spec.pop(key, {}) for key in ("annotations", "labels")}
        meta = {"name": name, "namespace": "ns", **marks}
        return self.create(JOBS, {"metadata": meta, "spec": _job_spec(name, pods, cores, **spec), "status": {}})

    def sets(self, kind: str, name: str, annotations: Object | None = None, **sets: Any) -> Object:
        """A JobSet, TrainJob, MPIJob or MiniCluster with sets of pods: (Jobs, pods of each, cores, node selector). The
        sets of a MiniCluster have one Job each, those of an MPIJob are `launcher` and `worker` without Jobs.
        """
        meta = {"name": name, "namespace": "ns", "annotations": annotations or {}}
        spec: Object = {}
        if kind in ("JobSet", "TrainJob"):
            spec["replicatedJobs"] = [
                {"name": own, "replicas": jobs, "template": {"spec": _job_spec(name, pods, cores, selector, own)}}
                for own, (jobs, pods, cores, selector) in sets.items()
            ]
        elif kind == "MPIJob":
            spec["mpiReplicaSpecs"] = {
                own.title(): {"replicas": pods, "template": _job_spec(name, pods, cores, selector, own)["template"]}
                for own, (_, pods, cores, selector) in sets.items()
            }
        else:
            spec["jobs"] = {
                own: _job_spec(name, pods, cores, selector, own) for own, (_, pods, cores, selector) in sets.items()
            }
        return self.create(KINDS[kind].kind, {"metadata": meta, "spec": spec})

    def suspend(self, kind: str, name: str) -> None:
        """As a user does."""
        item = self.one(KINDS[kind].kind, name)
        self.put(KINDS[kind].kind, _merged(item, KINDS[kind].suspended()))

    def replicas(self, kind: str, name: str, replicas: int, cores: int = 1, **annotations: str) -> Object:
        """A Deployment, ReplicaSet or StatefulSet."""
        spec = {"replicas": replicas, "template": {"metadata": {"labels": {"job": name}}, "spec": _pod_spec(cores)}}
        meta = {"name": name, "namespace": "ns", "annotations": annotations}
        return self.create(KINDS[kind].kind, {"metadata": meta, "spec": spec})

    def change(self, kind: str, name: str, cores: int = 0, **spec: Any) -> None:
        """Change fields of an object's spec, or (`cores`) its template."""
        item = self.one(KINDS[kind].kind, name)
        item["spec"].update(spec)
        if cores:
            item["spec"]["template"]["spec"] = _pod_spec(cores)
        self.put(KINDS[kind].kind, item)

    def end(self, pod: Object, phase: str = "Succeeded") -> None:
        pod["status"] = {"phase": phase}
        self.put(PODS, pod)

    def end_all(self, name: str) -> None:
        """The pods of a job, or the pod, end with success."""
        for pod in self.pods_of(name):
            if pod["status"]["phase"] == "Running":
                self.end(pod)

    def delete(self, kind: Kind, name: str, namespace: str = "ns") -> None:
        self.drop(kind, self.one(kind, name, namespace))

    def pods_of(self, name: str) -> list[Object]:
        return [
            one
            for one in self.all(PODS)
            if one["metadata"].get("labels", {}).get("job", one["metadata"]["name"]) == name
        ]

    def status(self, name: str) -> Object:
        """The status of the FluxJob of a job or a pod."""
        for kind in KINDS:
            found = self.items.get((FLUXJOBS.plural, "ns", f"{name}-{kind.lower()}"))
            if found:
                return dict(found.get("status") or {})
        return {}

    def state(self, name: str) -> str:
        return str(self.status(name).get("state", ""))

    # --- the core

    def restart(self) -> None:
        """Another core begins from the objects that there are."""
        self.queue = Cycle(OWN)
        self.restarts += 1
        self._changes = [Change(self.kinds[plural], copy.deepcopy(one)) for (plural, _, _), one in self.items.items()]

    def settle(self, seconds: float = 0) -> None:
        """Let time pass, and all parts act until nothing changes any more."""
        until = self.now + seconds
        while True:
            self._turn()
            if self._changes:
                continue
            if self._wake_at > until:
                break
            self.now = max(self.now, self._wake_at)
        self.now = until

    def _turn(self) -> None:
        for _ in range(1000):
            if not self._changes and self.now < self._wake_at:
                return
            changes, self._changes = self._changes, []
            try:
                steps = self.queue.step(changes, self.now)
                self.records += steps.records
                self._wake_at = steps.wake_at if steps.wake_at > self.now else self.now + 0.5
                self._carry_out(steps.writes)
            except CrashError:
                self.crash_at = None
                self.restart()
            self._control()
            self.check()
        raise AssertionError(f"it does not come to rest: {self.writes[-10:]}")

    def _carry_out(self, writes: dict[str, tuple[actions.Action, ...]]) -> None:
        for uid, several in writes.items():
            try:
                for action in several:
                    self._write(action)
            except Stale:
                self.queue.context.touch(uid)
                self._wake_at = self.now

    def _write(self, action: actions.Action) -> None:
        if self.crash_at is not None:
            self.crash_at -= 1
            if self.crash_at < 0 and not self.crash_after:
                raise CrashError
        self.writes.append(action)
        if isinstance(action, actions.Create):
            body = copy.deepcopy(action.body)
            if (FLUXJOBS.plural, body["metadata"]["namespace"], body["metadata"]["name"]) in self.items:
                raise Stale
            self.put(FLUXJOBS, body)
        elif isinstance(action, actions.Publish):
            item = self._current(action.kind, action.item, with_version=True)
            item["status"] = _merged(item.get("status") or {}, action.status)
            self.put(action.kind, item)
            self.log.append(f"{item['metadata']['name']} {item['status'].get('state')}")
        elif isinstance(action, actions.Change):
            self.put(action.kind, _merged(self._current(action.kind, action.item), action.body))
        elif isinstance(action, actions.PatchPod):
            item = copy.deepcopy(self._current(PODS, action.pod))
            _patch(item, action.operations)
            self.put(PODS, item)
        elif isinstance(action, actions.Bind):
            self._bind_to(copy.deepcopy(self._current(PODS, action.pod)), action.node)
        elif isinstance(action, actions.Delete):
            self.drop(action.kind, self._current(action.kind, action.item))
        elif isinstance(action, actions.Tell):
            self.log.append(f"{action.item['metadata']['name']}: {action.report.reason}: {action.report.message}")
        if self.crash_at is not None and self.crash_at < 0:
            raise CrashError

    def _current(self, kind: Kind, seen: Object, with_version: bool = False) -> Object:
        meta = seen["metadata"]
        found = self.items.get((kind.plural, meta.get("namespace", ""), meta["name"]))
        keys = ("uid", "resourceVersion") if with_version else ("uid",)
        if found is None or any(found["metadata"][key] != meta[key] for key in keys):
            raise Stale
        return found

    # --- the rest of Kubernetes

    def _control(self) -> None:
        for kind, control in (
            *(("TrainJob", self._control_trainjob), ("JobSet", self._control_jobset)),
            *(("MiniCluster", self._control_minicluster), ("MPIJob", self._control_mpijob)),
            ("Job", self._control_job),
        ):
            for item in self.all(KINDS[kind].kind):
                control(item)
        for deployment in self.all(KINDS["Deployment"].kind):
            self._control_deployment(deployment)
        for kind in ("ReplicaSet", "StatefulSet"):
            for item in self.all(KINDS[kind].kind):
                self._control_replicas(kind, item)
        for pod in self.all(PODS):
            if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates") and not is_bound_here(pod):
                self._bind(pod)
        uids = {one["metadata"]["uid"] for workload in KINDS.values() for one in self.all(workload.kind)}
        for kind in (FLUXJOBS, KINDS["JobSet"].kind, JOBS, KINDS["ReplicaSet"].kind, PODS):
            for one in self.all(kind):
                owners = [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())]
                if owners and uids.isdisjoint(owners):
                    self.drop(kind, one)

    def _control_job(self, job: Object) -> None:
        spec, status, meta = job["spec"], dict(job["status"]), job["metadata"]
        if status.get("conditions"):
            return
        pods = [one for one in self.all(PODS) if _owner(one) == meta["uid"]]
        active = [one for one in pods if one["status"]["phase"] in ("Pending", "Running") and not _is_told_to_end(one)]
        if spec.get("suspend"):
            for one in active:
                self.drop(PODS, one)
            active = []
        ended = {one["metadata"]["labels"][_INDEX] for one in pods if one["status"]["phase"] == "Succeeded"}
        failures = Counter(one["metadata"]["labels"][_INDEX] for one in pods if one["status"]["phase"] == "Failed")
        given_up = {index for index, number in failures.items() if number > spec.get("backoffLimitPerIndex", inf)}
        status.update(active=len(active), succeeded=len(ended))
        if given_up:
            status["failedIndexes"] = Idset(map(int, given_up)).encode()
        if spec.get("suspend"):
            status.pop("startTime", None)
        else:
            status.setdefault("startTime", text_of(self.now))
        if failures.total() > spec.get("backoffLimit", inf):
            for one in active:
                self.drop(PODS, one)
            status["conditions"] = [{"type": "Failed", "status": "True"}]
        elif len(ended | given_up) == spec["completions"]:
            status["conditions"] = [{"type": "Failed" if given_up else "Complete", "status": "True"}]
        elif not spec.get("suspend"):
            taken = ended | given_up | {one["metadata"]["labels"][_INDEX] for one in active}
            left = [str(index) for index in range(spec["completions"]) if str(index) not in taken]
            given = spec["template"].get("metadata", {}).get("labels", {})
            for index in left[: spec["parallelism"] - len(active)]:
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
                self.create(
                    PODS,
                    {
                        "metadata": {
                            "name": f"{meta['name']}-{index}-{self._version}",
                            "namespace": meta["namespace"],
                            "labels": {"job": meta["name"], **given, _INDEX: index},
                            "ownerReferences": [{**owner, "controller": True}],
                        },
                        "spec": copy.deepcopy(spec["template"]["spec"]),
                        "status": {"phase": "Pending"},
                    },
                )
        if status != job["status"]:
            job["status"] = status
            self.put(JOBS, job)

    def _make(self, kind: Kind, of: str, owner: Object, name: str, spec: Object, labels: Object) -> None:
        """Make an object as a controller does, or set its suspension as that of its owner is."""
        found = self.items.get((kind.plural, "ns", name))
        if found is None:
            owners = [_reference(KINDS[of].kind.api_version, of, owner["metadata"])]
            meta = {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": owners}
            self.create(kind, {"metadata": meta, "spec": copy.deepcopy(spec), "status": {}})
        elif found["spec"].get("suspend") != spec.get("suspend"):
            found["spec"]["suspend"] = spec.get("suspend")
            self.put(kind, found)

    def _finish(self, kind: str, item: Object, status: Object) -> None:
        if (item.get("status") or {}) != status:
            item["status"] = status
            self.put(KINDS[kind].kind, item)

    def _owned_jobs(self, item: Object) -> list[Object]:
        return [one for one in self.all(JOBS) if _owner(one) == item["metadata"]["uid"]]

    def _control_trainjob(self, item: Object) -> None:
        name, spec = item["metadata"]["name"], item["spec"]
        jobset = {key: spec[key] for key in ("replicatedJobs", "failurePolicy") if key in spec}
        jobset["suspend"] = bool(spec.get("suspend"))
        self._make(KINDS["JobSet"].kind, "TrainJob", item, name, jobset, {})
        made = self.one(KINDS["JobSet"].kind, name)
        if conditions := (made.get("status") or {}).get("conditions"):
            end = "Failed" if conditions[0]["type"] == "Failed" else "Complete"
            self._finish("TrainJob", item, {"conditions": [{"type": end, "status": "True"}]})

    def _control_jobset(self, item: Object) -> None:
        """Where a Job has failed, all are deleted and made anew, as often as the failure policy says."""
        name, spec, status = item["metadata"]["name"], item["spec"], item.get("status") or {}
        if status.get("conditions"):
            return
        jobs, restarts = self._owned_jobs(item), status.get("restarts", 0)
        if any(_has_failed(job) for job in jobs):
            if restarts < spec.get("failurePolicy", {}).get("maxRestarts", 0):
                self._finish("JobSet", item, {"restarts": restarts + 1})
            else:
                self._finish("JobSet", item, {"conditions": [{"type": "Failed", "status": "True"}]})
            for job in jobs:
                self.drop(JOBS, job)
            return
        for one in spec["replicatedJobs"]:
            for index in range(one["replicas"]):
                labels = {_REPLICATED: one["name"], "jobset.sigs.k8s.io/job-index": str(index)}
                own = {**one["template"]["spec"], "suspend": bool(spec.get("suspend"))}
                template = own["template"]
                meta = {"labels": {**template["metadata"]["labels"], **labels}}
                own["template"] = {**template, "metadata": meta}
                self._make(JOBS, "JobSet", item, f"{name}-{one['name']}-{index}", own, labels)
        if all(job["status"].get("conditions") for job in self._owned_jobs(item)):
            self._finish("JobSet", item, {"conditions": [{"type": "Completed", "status": "True"}]})

    def _control_minicluster(self, item: Object) -> None:
        name, spec = item["metadata"]["name"], item["spec"]
        for own, template in spec["jobs"].items():
            of = f"{name}-{own}"
            meta = {"labels": {**template["template"]["metadata"]["labels"], "batch.kubernetes.io/job-name": of}}
            pods = {**template["template"], "metadata": meta}
            suspend = bool(spec.get("suspend"))
            self._make(JOBS, "MiniCluster", item, of, {**template, "template": pods, "suspend": suspend}, {})
        if all(job["status"].get("conditions") for job in self._owned_jobs(item)):
            self._finish("MiniCluster", item, {"phase": "Finished"})

    def _control_mpijob(self, item: Object) -> None:
        """Workers are pods of its own, the launcher is that of a Job; workers go when the launcher has ended."""
        name, roles = item["metadata"]["name"], item["spec"]["mpiReplicaSpecs"]
        suspend = bool((item["spec"].get("runPolicy") or {}).get("suspend"))
        template = copy.deepcopy(roles["Launcher"]["template"])
        template["metadata"]["labels"][_ROLE] = "launcher"
        launcher = {"parallelism": 1, "completions": 1, "template": template, "suspend": suspend}
        self._make(JOBS, "MPIJob", item, f"{name}-launcher", launcher, {})
        has_ended = bool(self._owned_jobs(item)[0]["status"].get("conditions"))
        for index in range(roles["Worker"]["replicas"]):
            found = self.items.get((PODS.plural, "ns", f"{name}-worker-{index}"))
            if found and (suspend or has_ended or found["status"]["phase"] not in ("Pending", "Running")):
                self.drop(PODS, found)
            elif not found and not suspend and not has_ended:
                worker = copy.deepcopy(roles["Worker"]["template"])
                labels = {**worker["metadata"]["labels"], _ROLE: "worker"}
                labels["training.kubeflow.org/replica-index"] = str(index)
                owners = [_reference("kubeflow.org/v2beta1", "MPIJob", item["metadata"])]
                meta = {"name": f"{name}-worker-{index}", "namespace": "ns", "labels": labels}
                pod = {"metadata": {**meta, "ownerReferences": owners}, "spec": worker["spec"]}
                self.create(PODS, {**pod, "status": {"phase": "Pending"}})
        if has_ended:
            self._finish("MPIJob", item, {"conditions": [{"type": "Succeeded", "status": "True"}]})

    def _control_deployment(self, deployment: Object) -> None:
        """A rollout by one pod at a time: the old ReplicaSet gives up one, the new one has one more. With the strategy
        Recreate all old pods go first.
        """
        meta, spec = deployment["metadata"], deployment["spec"]
        kind = KINDS["ReplicaSet"].kind
        sets = [one for one in self.all(kind) if _owner(one) == meta["uid"]]
        current = [one for one in sets if one["spec"]["template"] == spec["template"]]
        if not current:
            self.put(
                kind,
                {
                    "metadata": {
                        "name": f"{meta['name']}-{self._version}",
                        "namespace": "ns",
                        "ownerReferences": [_reference("apps/v1", "Deployment", meta)],
                    },
                    "spec": {"replicas": 0, "template": copy.deepcopy(spec["template"])},
                },
            )
            return
        old = [one for one in sets if one["spec"]["replicas"] and one is not current[0]]
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            for one in old:
                one["spec"]["replicas"] = 0
                self.put(kind, one)
            if old or any(
                _owner(pod) in [one["metadata"]["uid"] for one in sets if one is not current[0]]
                for pod in self.all(PODS)
            ):
                return
        new, rest = current[0], sum(one["spec"]["replicas"] for one in old)
        ready = sum(1 for pod in self.all(PODS) if _owner(pod) == new["metadata"]["uid"] and _runs(pod))
        wanted = new["spec"]["replicas"]
        if wanted > spec["replicas"] or not old:
            wanted = spec["replicas"]
        elif wanted + rest < spec["replicas"]:
            wanted += 1
        elif ready == wanted:
            old[0]["spec"]["replicas"] -= 1
            self.put(kind, old[0])
        if wanted != new["spec"]["replicas"]:
            new["spec"]["replicas"] = wanted
            self.put(kind, new)

    def _control_replicas(self, kind: str, item: Object) -> None:
        meta, spec = item["metadata"], item["spec"]
        pods = [one for one in self.all(PODS) if _owner(one) == meta["uid"]]
        for pod in [one for one in pods if one["status"]["phase"] not in ("Pending", "Running")]:
            self.drop(PODS, pod)
            pods.remove(pod)
        if kind == "ReplicaSet":
            pods = [pod for pod in pods if not _is_told_to_end(pod)]
        # Pods that do not run go first, and of a StatefulSet the last ones.
        pods.sort(key=lambda pod: (kind == "ReplicaSet" and not _runs(pod), _ordinal(pod) or 0))
        for pod in (
            pods[spec["replicas"] :] if kind == "StatefulSet" else pods[::-1][: max(len(pods) - spec["replicas"], 0)]
        ):
            self.drop(PODS, pod)
        taken = {_ordinal(pod) for pod in pods}
        start = spec.get("ordinals", {}).get("start", 0)
        free = [index for index in range(start, start + spec["replicas"]) if index not in taken]
        for count in range(spec["replicas"] - len(pods)):
            labels = dict(spec["template"]["metadata"]["labels"])
            name = f"{meta['name']}-{self._version}"
            if kind == "StatefulSet":
                name, labels[_POD_INDEX] = f"{meta['name']}-{free[count]}", str(free[count])
            self.create(
                PODS,
                {
                    "metadata": {
                        "name": name,
                        "namespace": "ns",
                        "labels": labels,
                        "ownerReferences": [_reference("apps/v1", kind, meta)],
                    },
                    "spec": copy.deepcopy(spec["template"]["spec"]),
                    "status": {"phase": "Pending"},
                },
            )

    def _bind(self, pod: Object) -> None:
        for node in self.all(NODES):
            name = node["metadata"]["name"]
            if name in self.unbindable or not is_usable(node) or not _may(pod, name):
                continue
            if self.free(name) >= resources.amounts_of(pod["spec"]).get("cpu", 0):
                assert (pod["spec"].get("nodeSelector") or {}).items() <= node["metadata"]["labels"].items(), pod
                pod["spec"]["nodeName"], pod["status"] = name, {"phase": "Running"}
                self.put(PODS, pod)
                return

    def _bind_to(self, pod: Object, node: str) -> None:
        """A Binding: refused for a pod that has a gate or a node; a pod for which there is no room would fail."""
        assert not pod["spec"].get("schedulingGates"), pod
        if pod["spec"].get("nodeName"):
            raise Stale
        assert self.free(node) >= resources.amounts_of(pod["spec"]).get("cpu", 0), f"OutOfcpu: {pod}"
        pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
        self.put(PODS, pod)

    def free(self, node: str) -> int:
        """The cores of a node that no pod has."""
        used = [resources.amounts_of(one["spec"]).get("cpu", 0) for one in self._pods_on(node)]
        return 1000 * int(self.one(NODES, node, "")["status"]["allocatable"]["cpu"]) - sum(used)

    # --- what must hold at every moment

    def check(self) -> None:
        """A pod that runs in a labelled namespace, and is not told to end, is on a node that its FluxJob says, for a
        pod of its set.
        """
        for pod in self.all(PODS):
            meta = pod["metadata"]
            node = pod["spec"].get("nodeName")
            if not node or meta["namespace"] != "ns" or "fluxqueue/jobid" not in meta.get("labels", {}):
                continue
            if _is_told_to_end(pod):
                # Its place may have gone to the pod that replaces it.
                continue
            told = self.status(meta["labels"].get("job", meta["name"]))
            if pod["status"]["phase"] == "Running" and told.get("state") in ("Released", "Running"):
                nodes = list(Hostlist.parse(told["nodes"]))
                assert node in nodes, (pod, told)
                for own in told.get("sets", ()):
                    # The sets of a MiniCluster have the names of its Jobs.
                    if own["name"].removeprefix(f"{meta['labels'].get('job')}-") == meta["labels"].get("set"):
                        assert node in [nodes[index] for index in Idset.parse(own["indexes"])], (pod, told)


def _reference(version: str, kind: str, meta: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def _owner(item: Object) -> str:
    return next((str(one["uid"]) for one in item["metadata"].get("ownerReferences", ())), "")


def _has_failed(job: Object) -> bool:
    return any(one["type"] == "Failed" for one in job["status"].get("conditions", ()))


def _runs(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _is_told_to_end(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _ordinal(pod: Object) -> int | None:
    index = pod["metadata"]["labels"].get(_POD_INDEX)
    return None if index is None else int(index)


def _job_spec(name: str, pods: int, cores: int, selector: Object | None = None, own: str = "", **spec: Any) -> Object:
    """The spec of a Job, whose pods are marked with their workload and their set."""
    template: Object = {"metadata": {"labels": {"job": name, **({"set": own} if own else {})}}}
    template["spec"] = _pod_spec(cores)
    if selector:
        template["spec"]["nodeSelector"] = selector
    return {"parallelism": pods, "completions": pods, "template": template, **spec}


def _pod_spec(cores: int) -> Object:
    resources = {"requests": {"cpu": str(cores)}} if cores else {}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}]}


def _may(pod: Object, node: str) -> bool:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(one["values"] == [node] for term in terms for one in term["matchFields"])


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merged(after.get(key), value)
    return after


def _patch(item: Object, operations: tuple[Object, ...]) -> None:
    """RFC 6902, as far as the core uses it."""
    for one in operations:
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
        inside: Any = item
        for part in above:
            inside = inside[int(part)] if isinstance(inside, list) else inside[part]
        key = int(last) if isinstance(inside, list) else last
        if one["op"] == "test":
            held = inside[key] if (key in inside if isinstance(inside, dict) else key < len(inside)) else None
            if json.dumps(held, sort_keys=True) != json.dumps(one["value"], sort_keys=True):
                raise Stale
        elif one["op"] == "remove":
            del inside[key]
        else:
            inside[key] = one["value"]
