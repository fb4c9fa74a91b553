"""What users do with MiniClusters on Kubernetes: apply, follow, read logs, scale, delete; with the users' own rights.

The commands of `headrace mini` and the kubectl plugin call these functions and print what they give.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ..minicluster.pod_plan import VIEW
from . import names
from .api import MINICLUSTERS, PODS, Api, ApiError, Kind, Unreachable

Object = dict[str, Any]

# The field manager of what users apply.
MANAGER = "headrace-mini"
# Phases after which a MiniCluster does nothing more by itself.
OVER = ("Finished", "Failed", "Invalid")
# Phases in which there is nothing to wait for before its end.
SETTLED = (*OVER, "Running", "Suspended")
_RETRY = 1.0
_LAST_RETRY = 15.0


class NotFoundError(Exception):
    """There is no such MiniCluster, or no such pod of one; the message says what there is."""


class EndedError(Exception):
    """The MiniCluster has ended, and would not do what is asked; the message says how to run it again."""


async def apply(api: Api, document: Object, namespace: str, force: bool) -> Object:
    """Server-side apply of one document of any kind; the stored object. `namespace` counts where the document has
    none. Raises ApiError: status 409 where another manager has set one of its fields and `force` is false."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ApiError(400, "Invalid", f"{document.get('kind', 'a document')} has no metadata.name")
    kind, namespaced = await resource(api, str(document.get("apiVersion", "")), str(document.get("kind", "")))
    where = (metadata.get("namespace") or namespace) if namespaced else ""
    body = {**document, "metadata": {**metadata, **({"namespace": where} if where else {})}}
    return await api.apply(kind, where, metadata["name"], body, force)


async def resource(api: Api, api_version: str, kind: str) -> tuple[Kind, bool]:
    """The resource of a kind, and whether it has namespaces, as the API server tells it. Raises ApiError."""
    if (api_version, kind) == (MINICLUSTERS.api_version, MINICLUSTERS.kind):
        return MINICLUSTERS, True
    group, _, version = api_version.rpartition("/")
    try:
        found = await api.get(Kind(group, version, "", kind), "", "")
    except ApiError as exc:
        if exc.status != 404:
            raise
        found = {}
    for one in found.get("resources") or ():
        if one.get("kind") == kind and "/" not in one["name"]:
            return Kind(group, version, one["name"], kind), bool(one.get("namespaced"))
    raise ApiError(404, "NotFound", f"the API server knows no {kind} of {api_version or 'no version'}")


async def find(api: Api, namespace: str, name: str) -> Object:
    """The MiniCluster. Raises NotFoundError, ApiError."""
    try:
        return await api.get(MINICLUSTERS, namespace, name)
    except ApiError as exc:
        if exc.status != 404:
            raise
        raise NotFoundError(await _no_such(api, namespace, name)) from None


async def _no_such(api: Api, namespace: str, name: str) -> str:
    try:
        there = [one["metadata"]["name"] for one in (await api.list_objects(MINICLUSTERS, namespace)).items]
    except ApiError as exc:
        if exc.status != 404:
            raise
        return "the cluster does not know the kind MiniCluster: headrace operator manifests | kubectl apply -f -"
    listed = ", ".join(there) or "none"
    return f"no MiniCluster {name} in namespace {namespace} (there: {listed})"


async def follow(api: Api, namespace: str, name: str) -> AsyncIterator[Object | None]:
    """The MiniCluster as it is and after each change; None, the last, when it is deleted. Raises ApiError."""
    fields = f"metadata.name={name}"
    pause = _RETRY
    while True:
        try:
            listing = await api.list_objects(MINICLUSTERS, namespace, fields=fields)
            if not listing.items:
                yield None
                return
            yield listing.items[0]
            async for kind, one in api.watch(MINICLUSTERS, listing.version, namespace, fields=fields):
                if kind == "DELETED":
                    yield None
                    return
                if kind != "BOOKMARK":
                    yield one
            pause = _RETRY
        except Unreachable:
            # It may come back: who follows decides when that is too long.
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_RETRY)
        except ApiError as exc:
            if exc.status != 410:
                raise


def status_of(cluster: Object) -> Object:
    """The status that tells of the stored specification; {} where the operator has not looked at it yet."""
    status = cluster.get("status") or {}
    current = status.get("observedGeneration", 0) >= cluster["metadata"].get("generation", 0)
    return status if current else {}


def ended(cluster: Object) -> str:
    """What to say of a MiniCluster that has ended, whatever its specification is by now; "" for one that has not."""
    status = cluster.get("status") or {}
    if not (status.get("times") or {}).get("finished"):
        return ""
    name, code = cluster["metadata"]["name"], status.get("exitCode")
    how = f"exit code {code}" if code is not None else status.get("phase", "no exit code")
    return f"MiniCluster {name} has ended ({how}) and does not run again: headrace mini delete {name}, then apply it"


def progress(cluster: Object) -> str:
    """One line about how far a MiniCluster is."""
    status = status_of(cluster)
    phase = status.get("phase") or "waiting for the operator"
    ready = f" {status['ready']}" if status.get("ready") and phase in ("Starting", "Running") else ""
    reason = f": {status['reason']}" if status.get("reason") else ""
    return f"{phase}{ready}{reason}"


def exit_status(cluster: Object) -> int:
    """What a command that waited for a MiniCluster's end exits with: the job's status, 1 where it has none."""
    status = status_of(cluster)
    if status.get("phase") == "Finished":
        return int(status.get("exitCode") or 0)
    return int(status.get("exitCode") or 1)


async def pod_of(api: Api, namespace: str, name: str, index: int, group: str = "") -> Object:
    """The newest pod of an index of a MiniCluster, or of one of its groups. Raises NotFoundError, ApiError."""
    job = f"{name}-{group}" if group else name
    labels = f"{names.JOB_NAME}={job},{names.COMPLETION_INDEX}={index}"
    pods = (await api.list_objects(PODS, namespace, labels)).items
    if pods:
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    phase = progress(await find(api, namespace, name))
    raise NotFoundError(f"MiniCluster {name} has no pod {job}-{index} ({phase})")


async def logs(api: Api, namespace: str, pod: Object, container: str, going_on: bool) -> AsyncIterator[bytes]:
    """What a container of a pod has written; with `going_on` also what it writes, from its start to its end."""
    name = pod["metadata"]["name"]
    query = {"container": container, "follow": "true" if going_on else ""}
    while True:
        try:
            async for chunk in api.stream(PODS, namespace, name, "log", query):
                yield chunk
            return
        except ApiError as exc:
            # "container is waiting to start": there is no event that tells when its log can be read.
            if not (going_on and exc.status == 400 and "waiting to start" in exc.message):
                raise
        await asyncio.sleep(_RETRY)


def connect_command(cluster: Object, words: list[str]) -> list[str]:
    """What runs in a pod to connect to its broker: `words`, or a shell, with FLUX_URI set."""
    flux = cluster["spec"].get("flux") or {}
    view = flux.get("container") or {}
    mount = str(view.get("mountPath") or "/mnt/flux").rstrip("/")
    program = "flux" if view.get("disable") else f"{VIEW}/bin/flux"
    return [program, "proxy", f"local://{mount}/config/run/flux/local", *words]


async def scale(api: Api, namespace: str, name: str, size: int) -> Object:
    """Change the size through the scale subresource; the Scale. Raises NotFoundError, EndedError, ApiError."""
    over = ended(await find(api, namespace, name))
    if over:
        raise EndedError(over)
    try:
        return await api.merge(MINICLUSTERS, namespace, name, {"spec": {"replicas": size}}, "scale")
    except ApiError as exc:
        if exc.status != 404:
            raise
        raise NotFoundError(await _no_such(api, namespace, name)) from None


async def delete(api: Api, namespace: str, name: str) -> None:
    """Delete a MiniCluster and what it owns; returns when that is accepted. Raises NotFoundError, ApiError."""
    cluster = await find(api, namespace, name)
    await api.delete(MINICLUSTERS, namespace, name, cluster["metadata"]["uid"])
