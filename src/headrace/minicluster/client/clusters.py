"""Operations on MiniClusters on Kubernetes (find, follow, scale, delete), with the user's own rights.

The commands of `headrace mini` and the kubectl plugin call these functions and print their results. `apply` has the
operations on documents, `containers` those on containers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from headrace.k8s import progress as waiting
from headrace.k8s.objects.kinds import EVENTS, JOBS, MANAGED_BY_US, MINICLUSTERS, PODS, Kind
from headrace.k8s.progress import News
from headrace.k8s.runtime.api import Api, ApiError, Unreachable

from ..api.pod_plan import VIEW
from ..operator import names

Object = dict[str, Any]

# Phases in which a MiniCluster has ended or cannot start.
OVER = ("Finished", "Failed", "Invalid")
# Phases that `mini apply --no-wait` waits for.
SETTLED = (*OVER, "Running", "Suspended")
_RETRY = 1.0
_LAST_RETRY = 15.0
# Maximum number of characters of a label's value.
_LONGEST_LABEL = 63
# Seconds between two requests for the remaining pods.
_PODS_PERIOD = 0.5

NO_KIND = "the cluster does not know the kind MiniCluster: headrace operator manifests | kubectl apply -f -"


class NotFoundError(Exception):
    """There is no such MiniCluster or pod; the message names those that exist."""


class Deleted(NamedTuple):
    """A MiniCluster that was deleted.

    `uid` is "" if only its pods remain. `controllers` are the uids of its pods' controllers (its Jobs, or itself).
    `finalizers` are the finalizers that delay the deletion.
    """

    namespace: str
    name: str
    uid: str
    controllers: frozenset[str]
    finalizers: tuple[str, ...] = ()


class EndedError(Exception):
    """The MiniCluster has ended, so the request is refused; the message says how to run it again."""


class TooLargeError(Exception):
    """A size above the MiniCluster's `maxSize`; the message says how to raise `maxSize`."""


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
        if exc.status == 403:
            return f"no MiniCluster {name} in namespace {namespace}"
        if exc.status != 404:
            raise
        return NO_KIND
    listed = ", ".join(there) or "none"
    return f"no MiniCluster {name} in namespace {namespace} (existing: {listed})"


async def follow(
    api: Api, namespace: str, name: str, lost: Callable[[str], None] = lambda _why: None, kind: Kind = MINICLUSTERS
) -> AsyncIterator[Object | None]:
    """Yield the MiniCluster, or the object of another kind, as it is now and after each change.

    The last item is None, when the object is deleted. Uses a watch, or polls every second if the user may not watch.
    While the API server is unreachable, retries and calls `lost` with the reason each time. Raises ApiError.
    """
    try:
        async for found in _watched(api, kind, namespace, name, lost):
            yield found
    except ApiError as exc:
        if exc.status != 403:
            raise
        async for found in _polled(api, kind, namespace, name, lost):
            yield found


async def _watched(
    api: Api, what: Kind, namespace: str, name: str, lost: Callable[[str], None]
) -> AsyncIterator[Object | None]:
    fields = f"metadata.name={name}"
    pause = _RETRY
    while True:
        try:
            listing = await api.list_objects(what, namespace, fields=fields)
            if not listing.items:
                yield None
                return
            yield listing.items[0]
            async for kind, one in api.watch(what, listing.version, namespace, fields=fields):
                if kind == "DELETED":
                    yield None
                    return
                if kind != "BOOKMARK":
                    yield one
            pause = _RETRY
        except Unreachable as exc:
            # The API server may become reachable again. The caller decides how long to wait.
            lost(str(exc))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_RETRY)
        except ApiError as exc:
            if exc.status != 410:
                if not _is_temporary(exc):
                    raise
                lost(str(exc))
            await asyncio.sleep(pause)


def _is_temporary(exc: ApiError) -> bool:
    """Whether the error is temporary, as of an overloaded server or during an upgrade."""
    return exc.status == 429 or exc.status >= 500


async def _polled(
    api: Api, what: Kind, namespace: str, name: str, lost: Callable[[str], None]
) -> AsyncIterator[Object | None]:
    version = ""
    pause = _RETRY
    while True:
        try:
            found = await api.get(what, namespace, name)
        except Unreachable as exc:
            lost(str(exc))
            pause = min(pause * 2, _LAST_RETRY)
        except ApiError as exc:
            if exc.status == 404:
                yield None
                return
            if not _is_temporary(exc):
                raise
            lost(str(exc))
        else:
            pause = _RETRY
            if found["metadata"].get("resourceVersion") != version:
                version = found["metadata"].get("resourceVersion", "")
                yield found
        await asyncio.sleep(pause)


def status_of(cluster: Object) -> Object:
    """The status if it belongs to the current generation; {} until the operator has reconciled it."""
    status = cluster.get("status") or {}
    current = status.get("observedGeneration", 0) >= cluster["metadata"].get("generation", 0)
    return status if current else {}


def ended(cluster: Object) -> str:
    """The message for a MiniCluster that has ended, even if its spec was changed since; "" if not."""
    status = cluster.get("status") or {}
    if not (status.get("times") or {}).get("finished"):
        return ""
    name, code = cluster["metadata"]["name"], status.get("exitCode")
    how = f"exit code {code}" if code is not None else status.get("phase", "no exit code")
    if cluster.get("kind") == JOBS.kind:
        return f"Job {name} has ended ({how}) and does not run again: delete it, then create it again"
    return f"MiniCluster {name} has ended ({how}) and does not run again: headrace mini delete {name}, then apply it"


def other_manager(cluster: Object) -> str:
    """The message for a MiniCluster of another controller (`spec.managedBy`); "" if it is ours."""
    manager = (cluster.get("spec") or {}).get("managedBy") or ""
    if manager in ("", MANAGED_BY_US):
        return ""
    return f"managed by {manager} (spec.managedBy): Headrace's operator ignores it"


def progress(cluster: Object) -> str:
    """One line about the progress of a MiniCluster."""
    status = status_of(cluster)
    phase = status.get("phase") or other_manager(cluster) or "waiting for the operator of this namespace"
    ready = f" {status['ready']}" if status.get("ready") and phase in ("Starting", "Running") else ""
    reason = f": {status['reason']}" if status.get("reason") else ""
    return f"{phase}{ready}{reason}"


def exit_status(cluster: Object) -> int:
    """The exit status of a command that waited for the end: the job's; 1 if a failure has none."""
    status = status_of(cluster)
    if status.get("phase") == "Finished":
        return int(status.get("exitCode") or 0)
    return int(status.get("exitCode") or 1)


def connect_command(cluster: Object, words: list[str]) -> list[str]:
    """The command for a pod that connects to its broker: `words`, or a shell, with FLUX_URI set."""
    flux = cluster["spec"].get("flux") or {}
    view = flux.get("container") or {}
    mount = str(view.get("mountPath") or "/mnt/flux").rstrip("/")
    program = "flux" if view.get("disable") else f"{VIEW}/bin/flux"
    return [program, "proxy", f"local://{mount}/config/run/flux/local", *words]


def service_command(cluster: Object) -> list[str]:
    """The command for a pod that prints, as JSON, an address of the service that the broker has started."""
    program, *rest = connect_command(cluster, ["headrace", "api", "url", "--json"])
    if program != "flux":
        rest[rest.index("headrace")] = f"{VIEW}/bin/headrace"
    return [program, *rest]


async def scale(api: Api, namespace: str, name: str, size: int, tell: Callable[[str], None]) -> Object:
    """Change the size through the scale subresource; return the Scale.

    If `spec.autoscale` will change the size again, `tell` is called with a message. Raises NotFoundError, EndedError,
    TooLargeError, ApiError.
    """
    cluster = await find(api, namespace, name)
    over = ended(cluster)
    if over:
        raise EndedError(over)
    largest = cluster["spec"].get("maxSize") or size
    if size > largest:
        patch = json.dumps({"spec": {"maxSize": size}})
        raise TooLargeError(
            f"size {size} is above the maxSize of MiniCluster {name}, {largest}: raise spec.maxSize first, in its file "
            f"or by kubectl patch minicluster {name} -n {namespace} --type merge -p '{patch}'"
        )
    try:
        done = await api.merge(MINICLUSTERS, namespace, name, {"spec": {"replicas": size}}, "scale")
        if cluster["spec"].get("autoscale"):
            tell(f"{name} has spec.autoscale: its queue will change the size again")
        return done
    except ApiError as exc:
        if exc.status != 404:
            raise
        raise NotFoundError(await _no_such(api, namespace, name)) from None


async def delete(
    api: Api, namespace: str, name: str, tell: Callable[[str], None], *, without_saving: bool = False
) -> Deleted:
    """Delete a MiniCluster and its objects; return when the deletion is accepted.

    If `archive.path` is set, the operator saves the queue first; `without_saving` skips this. If the MiniCluster is
    being deleted already, `tell` is called with a message. Raises NotFoundError, ApiError.
    """
    try:
        metadata = (await find(api, namespace, name))["metadata"]
    except NotFoundError:
        controllers = await _remaining_controllers(api, namespace, name)
        if not controllers:
            raise
        tell(f"MiniCluster {name} is being deleted already")
        return Deleted(namespace, name, "", controllers)
    if metadata.get("deletionTimestamp"):
        tell(f"MiniCluster {name} is being deleted already")
    uid = metadata["uid"]
    controllers = frozenset(_controller(pod) for pod in await _pods_of(api, namespace, name))
    await api.delete(MINICLUSTERS, namespace, name, uid)
    finalizers = tuple(metadata.get("finalizers") or ())
    if without_saving and names.FINALIZER in finalizers:
        finalizers = await release(api, namespace, name, uid)
    return Deleted(namespace, name, uid, controllers, finalizers)


async def release(api: Api, namespace: str, name: str, uid: str) -> tuple[str, ...]:
    """Remove the operator's finalizer from a MiniCluster; return the other finalizers."""
    while True:
        try:
            metadata = (await api.get(MINICLUSTERS, namespace, name))["metadata"]
            others = [one for one in metadata.get("finalizers") or () if one != names.FINALIZER]
            if metadata["uid"] != uid:
                return ()
            # With resourceVersion, the patch is refused if another finalizer was removed or added in the meantime.
            body = {"metadata": {"uid": uid, "resourceVersion": metadata["resourceVersion"], "finalizers": others}}
            await api.merge(MINICLUSTERS, namespace, name, body)
            return tuple(others)
        except ApiError as exc:
            if exc.status == 404:
                return ()
            if exc.status != 409:
                raise


def _held_by(deleted: Deleted) -> str:
    """The message about what a deletion waits for before the pods end."""
    others = ", ".join(one for one in deleted.finalizers if one != names.FINALIZER)
    if names.FINALIZER not in deleted.finalizers:
        return f"waits for its finalizers to be removed ({others})" if others else "is being deleted"
    without = f"headrace mini delete --without-saving {deleted.name}"
    return f"waits until the operator has saved its queue (at most a minute; if no operator runs: {without})"


async def _remaining_controllers(api: Api, namespace: str, name: str) -> frozenset[str]:
    """The uids of the controllers of a deleted MiniCluster's remaining pods, if they are being deleted."""
    pods = await _pods_of(api, namespace, name)
    if not pods:
        return frozenset()
    jobs = {one["metadata"]["uid"]: one["metadata"] for one in await _labelled(api, JOBS, namespace, name)}
    # If a MiniCluster was deleted with `--cascade=orphan`, its Jobs have no owner and are not deleted.
    staying = {uid for uid, job in jobs.items() if not job.get("ownerReferences") and not job.get("deletionTimestamp")}
    return frozenset(_controller(pod) for pod in pods) - staying


async def wait_until_deleted(api: Api, deleted: Deleted, tell: Callable[[str], None]) -> None:
    """Wait until a deleted MiniCluster and its pods are gone. Raises ApiError, Unreachable.

    `tell` is called with a message about the wait after two seconds and after each change.
    """
    news = News(tell)
    loop = asyncio.get_running_loop()
    notice = loop.call_later(waiting.SILENCE, tell, f"MiniCluster {deleted.name} {_held_by(deleted)}")
    try:
        async for found in follow(api, deleted.namespace, deleted.name):
            if found is None or found["metadata"]["uid"] != deleted.uid:
                break
    finally:
        notice.cancel()
    for text in await _lost_queue(api, deleted):
        tell(f"MiniCluster {deleted.name}: {text}")
    while True:
        remaining = [pod for pod in await _pods_of(api, deleted.namespace, deleted.name) if _is_of(pod, deleted)]
        if not remaining:
            return
        news.waits_for(f"{len(remaining)} pod{'s' if len(remaining) > 1 else ''} of {deleted.name} to end")
        await asyncio.sleep(_PODS_PERIOD)


async def _lost_queue(api: Api, deleted: Deleted) -> list[str]:
    """The messages of Events about a lost queue; [] if the user may not list Events."""
    if not deleted.uid:
        return []
    fields = f"involvedObject.uid={deleted.uid},reason=QueueLost"
    try:
        found = (await api.list_objects(EVENTS, deleted.namespace, fields=fields)).items
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return []
    return [str(one.get("message") or "") for one in found]


async def _pods_of(api: Api, namespace: str, name: str) -> list[Object]:
    """The pods of all Jobs of a MiniCluster; [] if the user may not list pods."""
    return await _labelled(api, PODS, namespace, name)


async def _labelled(api: Api, kind: Kind, namespace: str, name: str) -> list[Object]:
    """The objects with a MiniCluster's label; [] if the user may not list this kind."""
    if len(name) > _LONGEST_LABEL:
        return []  # such a MiniCluster is invalid and has no objects
    try:
        return (await api.list_objects(kind, namespace, f"{names.CLUSTER}={name}")).items
    except ApiError as exc:
        if exc.status != 403:
            raise
        return []


def _is_of(pod: Object, deleted: Deleted) -> bool:
    """Whether a pod belongs to the deleted MiniCluster, and not to a new one of the same name."""
    return _controller(pod) in deleted.controllers


def _controller(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(one.get("uid", "")) for one in owners if one.get("controller")), "")
