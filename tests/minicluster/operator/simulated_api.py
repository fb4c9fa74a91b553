"""An API server in memory, with the parts of Kubernetes that the operator meets: versions, uids, preconditions, merge
patches, status and finalizers, garbage collection, and a Job controller whose pods go where a test says.

It answers as the real one does in `tests/kube`; what it simplifies is said where it does.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from headrace.flux_jobs.operator.names import ID_LABEL
from headrace.k8s.objects.kinds import JOBS, MINICLUSTERS, PODS, Kind
from headrace.k8s.runtime.api import ApiError, Listing
from headrace.minicluster.operator.objects import KINDS

Object = dict[str, Any]

NOW = 1_700_000_000.0
TIME = "2023-11-14T22:13:20Z"


class CrashError(BaseException):
    """The operator was killed at this request."""


class Server:
    """`requests` has (verb, plural, name) of each request of the operator. `crash_at` counts the writes until a crash:
    before the write is carried out, or after it (`crash_after`)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.crash_at: int | None = None
        self.crash_after = False
        self.refuse: dict[tuple[str, str], ApiError] = {}
        """By (verb, plural): what such requests are answered with."""
        self._watchers: list[tuple[str, str, asyncio.Queue[tuple[str, Object]]]] = []
        self._version = 100
        self._uids = 0

    # --- what the operator calls

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object:
        self.requests.append(("get", kind.plural, name))
        self._allow("get", kind)
        return copy.deepcopy(self._find(kind, namespace, name))

    async def list_objects(
        self,
        kind: Kind,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] = lambda item: item,
    ) -> Listing:
        """Field selectors name fields of the object itself."""
        self.requests.append(("list", kind.plural, ""))
        wanted = dict(part.split("=") for part in filter(None, fields.split(",")))
        found = [one for one in self.all(kind.plural) if all(one.get(key) == text for key, text in wanted.items())]
        found = [one for one in found if _has_labels(one, labels)]
        return Listing([trim(copy.deepcopy(one)) for one in found], str(self._version))

    async def watch(
        self, kind: Kind, version: str, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """Simplified: a watch starts where the last listing has ended."""
        self.requests.append(("watch", kind.plural, ""))
        assert version == str(self._version), "a change between listing and watch would be lost"
        events: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()
        self._watchers.append((kind.plural, labels, events))
        while True:
            yield await events.get()

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object:
        return self._write("create", kind, body["metadata"]["name"], lambda: self.add(kind, namespace, body))

    async def apply(self, kind: Kind, namespace: str, name: str, body: Object, force: bool = True) -> Object:
        """Simplified: no field is ever removed."""
        return self._write("apply", kind, name, lambda: self._merge(kind, namespace, name, body, ""))

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object:
        return self._write("patch", kind, name, lambda: self._merge(kind, namespace, name, body, subresource))

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str = "", propagation: str = "Background"
    ) -> None:
        def act() -> Object:
            found = self._find(kind, namespace, name)
            if uid and found["metadata"]["uid"] != uid:
                raise ApiError(409, "Conflict", "the UID in the precondition differs")
            self.remove(found, propagation)
            return {}

        self._write("delete", kind, name, act)

    # --- what tests call

    def add(self, kind: Kind, namespace: str, body: Object) -> Object:
        key = (kind.plural, namespace, body["metadata"]["name"])
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f'{kind.plural} "{key[2]}" already exists')
        item = copy.deepcopy(body)
        self._uids += 1
        item["metadata"].update(
            {"namespace": namespace, "uid": f"uid-{self._uids}", "generation": 1, "creationTimestamp": TIME}
        )
        item.setdefault("kind", kind.kind)
        if kind is JOBS:
            item["status"] = {} if item["spec"].get("suspend") else {"startTime": TIME}
        if kind is MINICLUSTERS:
            item.pop("status", None)
        self.objects[key] = item
        self._touch(item)
        return item

    def all(self, plural: str) -> list[Object]:
        return [one for key, one in sorted(self.objects.items()) if key[0] == plural]

    def one(self, plural: str, name: str, namespace: str = "ns") -> Object | None:
        return self.objects.get((plural, namespace, name))

    def change(self, item: Object, **status: Any) -> None:
        """What a controller or kubelet writes into an object's status."""
        item.setdefault("status", {}).update(status)
        self._touch(item)

    def remove(self, item: Object, propagation: str = "Background") -> None:
        """Delete as the API server and the garbage collector do."""
        meta = item["metadata"]
        if meta.get("finalizers"):
            if not meta.get("deletionTimestamp"):
                meta["deletionTimestamp"] = TIME
                self._touch(item)
            if propagation == "Foreground":
                self._remove_children(meta["uid"])
            return
        self.objects.pop((KINDS[item["kind"]].plural, meta["namespace"], meta["name"]))
        self._tell("DELETED", item)
        self._remove_children(meta["uid"])

    def pods_of(self, name: str) -> list[Object]:
        job = self.one("jobs", name)
        uid = job["metadata"]["uid"] if job else ""
        return [one for one in self.all("pods") if one["metadata"]["ownerReferences"][0]["uid"] == uid]

    def control_jobs(self) -> None:
        """One turn of the Job controller: pods for indexes that lack one, none for indexes that are too many."""
        for job in self.all("jobs"):
            spec, status = job["spec"], job["status"]
            name = job["metadata"]["name"]
            ended = any(one["type"] in ("Complete", "Failed") for one in status.get("conditions", ()))
            pods = {int(one["metadata"]["labels"][_INDEX]): one for one in self.pods_of(name)}
            overdue = spec.get("activeDeadlineSeconds") == 1
            if overdue and not ended:
                failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": TIME}
                self.change(job, conditions=[failed])
                ended = True
            if ended or spec.get("suspend"):
                for pod in pods.values():
                    if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                        self.remove(pod)
                if spec.get("suspend"):
                    job["status"].pop("startTime", None)
                continue
            if "startTime" not in status:
                self.change(job, startTime=TIME)
            for index, pod in pods.items():
                if index >= spec["parallelism"]:
                    self.remove(pod)
            for index in range(spec["parallelism"]):
                if index not in pods:
                    self._add_pod(job, index)
            self._end_by_lead(job)

    def run_pods(self, name: str, ready: bool = True, only: set[int] | None = None) -> None:
        for pod in self.pods_of(name):
            if pod["status"].get("phase") == "Succeeded" or (
                only and int(pod["metadata"]["labels"][_INDEX]) not in only
            ):
                continue
            pod["spec"]["nodeName"] = "node-1"
            conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": TIME}]
            state = {"running": {"startedAt": TIME}}
            containers = [{"name": name, "image": "busybox", "state": state}]
            self.change(pod, phase="Running", podIP="10.0.0.9", conditions=conditions, containerStatuses=containers)

    def end_lead(self, name: str, code: int, message: str = "") -> None:
        for pod in self.pods_of(name):
            if pod["metadata"]["labels"][_INDEX] == "0":
                ended = {"exitCode": code, "startedAt": TIME, "finishedAt": TIME, "message": message}
                ended["reason"] = "Error" if code else ""
                containers = [{"name": name, "image": "busybox", "state": {"terminated": ended}}]
                conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": TIME}]
                phase = "Failed" if code else "Succeeded"
                self.change(pod, phase=phase, containerStatuses=containers, conditions=conditions)

    # --- inside

    def _end_by_lead(self, job: Object) -> None:
        name = job["metadata"]["name"]
        for pod in self.pods_of(name):
            phase = pod["status"].get("phase")
            if pod["metadata"]["labels"][_INDEX] == "0" and phase in ("Succeeded", "Failed"):
                kind = "Complete" if phase == "Succeeded" else "Failed"
                reason = "SuccessPolicy" if kind == "Complete" else "PodFailurePolicy"
                end = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": TIME}
                self.change(job, conditions=[end])
                for other in self.pods_of(name):
                    if other is not pod and other["status"].get("phase") not in ("Succeeded", "Failed"):
                        self.remove(other)

    def _add_pod(self, job: Object, index: int) -> None:
        meta = job["metadata"]
        owner = {"kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        labels = {_INDEX: str(index), "app.kubernetes.io/managed-by": "headrace"}
        if ID_LABEL in meta.get("labels", {}):
            labels[ID_LABEL] = meta["labels"][ID_LABEL]
        name = f"{meta['name']}-{index}-{self._uids}"
        body = {"kind": "Pod", "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": {}}
        self.add(PODS, meta["namespace"], {**body, "status": {"phase": "Pending"}})

    def _remove_children(self, uid: str) -> None:
        for item in list(self.objects.values()):
            owners = [one["uid"] for one in item["metadata"].get("ownerReferences") or ()]
            key = (KINDS[item["kind"]].plural, item["metadata"]["namespace"], item["metadata"]["name"])
            if uid in owners and key in self.objects:
                self.remove(item)

    def _find(self, kind: Kind, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind.plural, namespace, name]
        except KeyError:
            raise ApiError(404, "NotFound", f'{kind.plural} "{name}" not found') from None

    def _allow(self, verb: str, kind: Kind) -> None:
        if (verb, kind.plural) in self.refuse:
            raise self.refuse[verb, kind.plural]

    def _write(self, verb: str, kind: Kind, name: str, act: Any) -> Object:
        self.requests.append((verb, kind.plural, name))
        last = False
        if self.crash_at is not None:
            self.crash_at -= 1
            last = self.crash_at < 0
        if last and not self.crash_after:
            raise CrashError
        self._allow(verb, kind)
        made: Object = copy.deepcopy(act())
        if last:
            raise CrashError
        return made

    def _merge(self, kind: Kind, namespace: str, name: str, patch: Object, subresource: str) -> Object:
        item = self._find(kind, namespace, name)
        meta = patch.get("metadata") or {}
        for key in ("uid", "resourceVersion"):
            if key in meta and meta[key] != item["metadata"][key]:
                raise ApiError(409, "Conflict", f"{key} differs")
        before = copy.deepcopy(item)
        given = {"status": patch.get("status", {})} if subresource == "status" else {**patch, "status": None}
        if subresource != "status":
            given.pop("status")
        _merge(item, copy.deepcopy(given))
        if item == before:
            return item
        if item.get("spec") != before.get("spec"):
            item["metadata"]["generation"] += 1
        self._touch(item)
        if item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers"):
            item["metadata"].pop("finalizers", None)
            self.remove(item)
        return item

    def _touch(self, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._tell("MODIFIED", item)

    def _tell(self, event: str, item: Object) -> None:
        for plural, labels, events in self._watchers:
            if KINDS[item["kind"]].plural == plural and _has_labels(item, labels):
                events.put_nowait((event, copy.deepcopy(item)))


def _has_labels(item: Object, labels: str) -> bool:
    """Whether an object has the labels of a selector: key=value, or key alone for any value."""
    found = item["metadata"].get("labels") or {}
    wanted = [part.partition("=") for part in filter(None, labels.split(","))]
    return all(key in found and (not equals or found[key] == value) for key, equals, value in wanted)


_INDEX = "batch.kubernetes.io/job-completion-index"


def _merge(into: Object, patch: Object) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = value
