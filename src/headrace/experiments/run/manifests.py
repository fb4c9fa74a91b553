"""Runs that are objects of Kubernetes: a Job, JobSet, MPIJob, TrainJob, Pod or MiniCluster, whose end is known.

The object is created, followed to its end, and deleted, each time with a name of its own. Its pods are known by a label
that all pod templates in it get.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.experiments.store.folder import STDOUT
from headrace.experiments.values import PHASES, Cell
from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects import conditions
from headrace.k8s.objects.kinds import EVENTS, JOBS, JOBSETS, MINICLUSTERS, MPIJOBS, PODS, TRAINJOBS, Kind
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime.api import Api, ApiError, Unreachable
from headrace.minicluster.client.apply import resource
from headrace.minicluster.client.clusters import follow

from .jobs import Ended, Lost
from .places import PlaceError

Object = dict[str, Any]

# The label with the name of a run's object, on the object and on its pods.
RUN = "flux-framework.org/headrace-experiment-run"
KNOWN = {one.kind: one for one in (JOBS, JOBSETS, MPIJOBS, TRAINJOBS, PODS, MINICLUSTERS)}
# A TrainJob has no pod templates. The JobSet that it becomes has its name, and JobSet labels the pods with that.
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
# The pod of an MPIJob whose output is that of the program.
_ROLE = "training.kubeflow.org/job-role"
# Why a container waits if its image cannot be had. Source: kubelet, pkg/kubelet/images.
NO_IMAGE = frozenset(("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"))
# Seconds between two looks at pods that have not started, and at an object that is being deleted.
_LOOK = 1.0
_FIRST_LINE = 64


class Objects:
    """Creates, follows and deletes the objects of runs in a namespace, with labels."""

    def __init__(self, api: Api, namespace: str, labels: dict[str, str]) -> None:
        self._api = api
        self._namespace = namespace
        self._labels = labels

    async def run(self, cell: Cell, name: str, record: Path) -> Ended:
        """Carry out a run as the object `name`. Raises Lost, PlaceError, ApiError, Unreachable, OSError."""
        manifest = cell.job.manifest
        kind = await self._kind(manifest)
        body = named(manifest, name, self._labels)
        created = await self._api.create(kind, self._namespace, body)
        ended = Ended(phases={"created": seconds_of(created["metadata"]["creationTimestamp"])})
        try:
            end = await self._end(kind, name, cell.job.timeout)
            pods = await self._pods(kind, name)
            await self._logs(pods, record, ended)
            ended.phases |= await self._phases(pods)
            ended.nodes = str(Hostlist(sorted({str(pod["spec"].get("nodeName") or "") for pod in pods} - {""})))
            _judge(end, pods, ended, cell.job.timeout)
        finally:
            await self._delete(kind, name)
        ended.phases["deleted"] = time.time()
        ended.phases = {phase: ended.phases[phase] for phase in PHASES if phase in ended.phases}
        return ended

    async def _kind(self, manifest: Object) -> Kind:
        """Raises PlaceError for a kind whose end is not known."""
        name = str(manifest.get("kind", ""))
        if name not in KNOWN:
            raise PlaceError(f"manifest of kind {name or 'none'}: must be one of {', '.join(sorted(KNOWN))}")
        try:
            return (await resource(self._api, str(manifest.get("apiVersion", "")), name))[0]
        except ApiError as exc:
            raise PlaceError(f"manifest: {exc.message}") from None

    async def _end(self, kind: Kind, name: str, timeout: float) -> conditions.Ended | None:
        """Wait for the end of an object; None after the timeout (0: none). Raises Lost."""
        watching = asyncio.create_task(self._followed(kind, name))
        images = asyncio.create_task(self._images(kind, name))
        try:
            await asyncio.wait((watching, images), timeout=timeout or None, return_when=asyncio.FIRST_COMPLETED)
            if images.done():
                images.result()
            return watching.result() if watching.done() else None
        finally:
            for task in (watching, images):
                task.cancel()
            await asyncio.gather(watching, images, return_exceptions=True)

    async def _followed(self, kind: Kind, name: str) -> conditions.Ended:
        async for found in follow(self._api, self._namespace, name, kind=kind):
            if found is None:
                break
            end = conditions.ended(kind, found)
            if end:
                return end
        raise Lost(f"{kind.kind} {name} was deleted")

    async def _images(self, kind: Kind, name: str) -> None:
        """Look at the pods, without end. Raises Lost if an image cannot be had."""
        while True:
            pods: list[Object] = []
            # `_followed` reports an API server that is gone.
            with contextlib.suppress(ApiError, Unreachable):
                pods = await self._pods(kind, name)
            for waiting in (state["waiting"] for state in _states(pods) if "waiting" in state):
                if waiting.get("reason") in NO_IMAGE:
                    raise Lost(f"{waiting['reason']}: {waiting.get('message', '')}")
            await asyncio.sleep(_LOOK)

    async def _pods(self, kind: Kind, name: str) -> list[Object]:
        label = f"{_JOBSET_NAME}={name}" if kind.kind == TRAINJOBS.kind else f"{RUN}={name}"
        found = (await self._api.list_objects(PODS, self._namespace, label)).items
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def _logs(self, pods: list[Object], record: Path, ended: Ended) -> None:
        """Write the output of a run's pods, one after the other, and find the time of its first line."""
        first = []
        with open(record / STDOUT, "wb") as out:
            for pod in _speaking(pods):
                name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
                try:
                    stamped = {"container": container, "timestamps": "true", "limitBytes": str(_FIRST_LINE)}
                    text = b"".join([part async for part in self._log(name, stamped)])
                    if b" " in text:
                        first.append(seconds_of(text.partition(b" ")[0].decode()))
                    async for part in self._log(name, {"container": container}):
                        out.write(part)
                except ApiError as exc:
                    # A container that has not started has no log.
                    if exc.status not in (400, 404):
                        raise
        if first:
            ended.phases["output"] = min(first)

    def _log(self, pod: str, query: dict[str, str]) -> Any:
        return self._api.stream(PODS, self._namespace, pod, "log", query)

    async def _phases(self, pods: list[Object]) -> dict[str, float]:
        names = {pod["metadata"]["name"] for pod in pods}
        events = (await self._api.list_objects(EVENTS, self._namespace, fields="reason=Pulled")).items
        pulled = [one.get("lastTimestamp") for one in events if one["involvedObject"].get("name") in names]
        scheduled = [conditions.condition(pod.get("status"), "PodScheduled").get("lastTransitionTime") for pod in pods]
        states = list(_states(pods))
        started = [(one.get("running") or one.get("terminated") or {}).get("startedAt") for one in states]
        finished = [(one.get("terminated") or {}).get("finishedAt") for one in states]
        found = {"scheduled": scheduled, "pulled": pulled, "program": started, "ended": finished}
        times = {phase: [seconds_of(text) for text in texts if text] for phase, texts in found.items()}
        return {phase: max(moments) for phase, moments in times.items() if moments}

    async def _delete(self, kind: Kind, name: str) -> None:
        """Delete an object, and wait until it and its pods are gone."""
        try:
            await self._api.delete(kind, self._namespace, name, propagation="Foreground")
            while await self._exists(kind, name) or await self._pods(kind, name):
                await asyncio.sleep(_LOOK)
        except ApiError as exc:
            if exc.status != 404:
                raise

    async def _exists(self, kind: Kind, name: str) -> bool:
        try:
            await self._api.get(kind, self._namespace, name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return False
        return True

    async def delete_all(self, manifests: list[Object], label: str) -> None:
        """Delete all objects of these kinds with a label, without waiting. Raises ApiError, Unreachable."""
        for api_version, name in {(str(one.get("apiVersion")), str(one.get("kind"))) for one in manifests}:
            kind = await self._kind({"apiVersion": api_version, "kind": name})
            for found in (await self._api.list_objects(kind, self._namespace, label)).items:
                await self._api.delete(kind, self._namespace, found["metadata"]["name"])


def named(manifest: Object, name: str, labels: dict[str, str]) -> Object:
    """The object of a run: the manifest with a name, and with labels on it and on all of its pods."""
    made = copy.deepcopy(manifest)
    all_labels = {**labels, RUN: name}
    metadata = made.setdefault("metadata", {})
    metadata.pop("generateName", None)
    metadata.pop("namespace", None)
    metadata["name"] = name
    for one in (made, *_templates(made.get("spec"))):
        inner = one.setdefault("metadata", {})
        inner["labels"] = {**(inner.get("labels") or {}), **all_labels}
    if made.get("kind") == MINICLUSTERS.kind:
        pod = made.setdefault("spec", {}).setdefault("pod", {})
        pod["labels"] = {**(pod.get("labels") or {}), **all_labels}
    return made


def _templates(value: Any) -> Iterator[Object]:
    """All pod templates below a value: objects whose `spec` has containers."""
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield value
            return
        for inner in value.values():
            yield from _templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _templates(inner)


def _states(pods: list[Object]) -> Iterator[Object]:
    """The states of the first containers of pods."""
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            if status.get("name") == pod["spec"]["containers"][0]["name"]:
                yield status.get("state") or {}


def _speaking(pods: list[Object]) -> list[Object]:
    """The pods whose output is that of the run: the launcher of an MPIJob, otherwise all."""
    launchers = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(_ROLE) == "launcher"]
    return launchers or pods


def _judge(end: conditions.Ended | None, pods: list[Object], ended: Ended, timeout: float) -> None:
    codes = [int(one["terminated"]["exitCode"]) for one in _states(_speaking(pods)) if "terminated" in one]
    ended.exit = max(codes, default=None)
    if end is None:
        ended.state, ended.reason = "timeout", f"time limit: not ended after {timeout:g} s"
        ended.phases.setdefault("ended", time.time())
        return
    if end.time:
        ended.phases["ended"] = seconds_of(end.time)
    if end.succeeded:
        ended.exit = 0
    elif not ended.exit:
        # No container failed, but the object did, such as by its own time limit.
        ended.state, ended.reason = "failed", end.text
    ended.phases.setdefault("ended", time.time())
