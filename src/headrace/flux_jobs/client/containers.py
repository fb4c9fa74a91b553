"""A container of a MiniCluster's pod, for users: its log, and whether a command can run in it.

The API server's refusals name containers and their states. Users need to know why there is no log or shell yet, or no
longer, and what to do: `state_of` distinguishes the cases, and the errors here have the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct

from headrace.flux_jobs.client.jobs import find as find_job
from headrace.flux_jobs.client.jobs import kind_and_name
from headrace.k8s.client.log_lines import Lines
from headrace.k8s.objects import conditions
from headrace.k8s.objects.kinds import MINICLUSTERS, PODS
from headrace.k8s.progress import News
from headrace.k8s.runtime.api import Api, ApiError, Unreachable
from headrace.minicluster.api.pod_plan import KILLED
from headrace.minicluster.client.clusters import OVER, NotFoundError, ended, find, progress, status_of
from headrace.minicluster.operator import names
from headrace.minicluster.operator.core import pods
from headrace.minicluster.operator.names import INVALID

Object = dict[str, Any]

# Seconds between two requests for a pod that has not started; its log cannot be watched yet.
_POLL_INTERVAL = 1.0
# How often the status of a container is read after the end of its log before the log stream counts as cut: the kubelet
# writes the status a moment after the end.
_END_CHECKS = 2


class NotRunningError(Exception):
    """The container has not started, or has ended; the message has the reason and a remedy."""


class Chosen(Struct, frozen=True):
    """A container of one pod of a cluster.

    The pod has the index `index` in the MiniCluster or in its group `group`. The container "" is the one with Flux. If
    `kind` is not MiniCluster, `name` is the name of a Job that is a cluster.
    """

    namespace: str
    name: str
    index: int = 0
    group: str = ""
    container: str = ""
    kind: str = MINICLUSTERS.kind

    @property
    def of_pod(self) -> str:
        return self.container or self.name

    @property
    def cluster(self) -> str:
        """The cluster's kind and name, for messages."""
        return f"{self.kind} {self.name}"

    @property
    def argument(self) -> str:
        """The cluster as an argument of `headrace mini`."""
        return self.name if self.kind == MINICLUSTERS.kind else f"{self.kind.lower()}/{self.name}"


async def choose(api: Api, namespace: str, text: str, index: int, group: str, container: str) -> Chosen:
    """The container that the arguments of a command name.

    `text` is the name of a MiniCluster, or KIND/NAME of an object whose Job is a cluster. Raises NotFoundError,
    ApiError.
    """
    foreign = kind_and_name(text)
    if foreign is None:
        return Chosen(namespace, text, index, group, container)
    if group:
        raise NotFoundError(f"{text} has no group {group}: only MiniClusters have groups")
    found = await find_job(api, namespace, *foreign)
    name, broker = found["metadata"]["name"], found["spec"]["container"]
    return Chosen(namespace, name, index, container=container or broker, kind=found["kind"])


async def cluster_of(api: Api, chosen: Chosen) -> Object:
    """The MiniCluster of a container, or its Job in the form of a MiniCluster.

    Raises NotFoundError, ApiError.
    """
    if chosen.kind == MINICLUSTERS.kind:
        return await find(api, chosen.namespace, chosen.name)
    return await find_job(api, chosen.namespace, chosen.kind.lower(), chosen.name)


async def _pod_of(api: Api, chosen: Chosen) -> Object:
    """The newest pod of the chosen index. Raises NotFoundError, ApiError."""
    job = f"{chosen.name}-{chosen.group}" if chosen.group else chosen.name
    labels = f"{names.JOB_NAME}={job},{names.COMPLETION_INDEX}={chosen.index}"
    found = (await api.list_objects(PODS, chosen.namespace, labels)).items
    if found:
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    phase = progress(await cluster_of(api, chosen))
    raise NotFoundError(f"{chosen.cluster} has no pod {job}-{chosen.index} ({phase})")


async def logs(api: Api, chosen: Chosen, follow: bool, tell: Callable[[str], None]) -> AsyncIterator[bytes]:
    """The output of a container so far or, with `follow`, until its end.

    With `follow`, the output continues with that of the pods that replace a killed pod. `tell` is called with the
    reason why a container has not started, and when another pod continues. Raises NotFoundError, NotRunningError,
    ApiError, Unreachable.
    """
    news = News(tell)
    replaced = ""
    while True:
        try:
            pod = await _pod_of(api, chosen)
            name = pod["metadata"]["name"]
            if name != replaced:
                async for chunk in _followed(api, chosen, name, news) if follow else _read_so_far(api, chosen, name):
                    yield chunk
                if not follow or not await _is_replaced(api, chosen, name):
                    return
                tell(f"pod {name} has ended, and {chosen.cluster} continues in another pod")
                replaced, news = name, News(tell)
            elif ended(await cluster_of(api, chosen)):
                return
        except NotFoundError:
            if not follow:
                raise
            news.waits_for(await _before_its_pod(api, chosen))
        except ApiError as exc:
            # 404: the pod was deleted after it was found; another pod may replace it.
            if exc.status == 400:
                news.waits_for(_why_no_log(pod, chosen, exc, follow))
            elif exc.status != 404 or not follow:
                raise
        await asyncio.sleep(_POLL_INTERVAL)


def _read_so_far(api: Api, chosen: Chosen, name: str) -> AsyncIterator[bytes]:
    return api.stream(PODS, chosen.namespace, name, "log", {"container": chosen.of_pod})


async def _followed(api: Api, chosen: Chosen, name: str, news: News) -> AsyncIterator[bytes]:
    """The output of a container until it has ended or its pod is gone.

    The end of a stream does not mean that the container has ended: proxies and a restart of the API server cut streams.
    """
    lines = Lines()
    query = {"container": chosen.of_pod, "follow": "true", "timestamps": "true"}
    is_first = True
    while True:
        trouble = ""
        try:
            async for chunk in api.stream(PODS, chosen.namespace, name, "log", {**query, "sinceTime": lines.since}):
                new = lines.new_of(chunk)
                if new:
                    yield new
        except Unreachable as exc:
            trouble = str(exc)
        except ApiError as exc:
            if is_first or not _may_pass(exc):
                raise
            trouble = str(exc)
        if await _has_ended(api, chosen, name, is_unread=bool(trouble)):
            return
        if trouble:
            news.waits_for(trouble)
        lines.restart()
        is_first = False


def _may_pass(exc: ApiError) -> bool:
    """True if a log that cannot be read on may be readable later, or its pod is gone (404).

    The pod's status shows whether the pod is gone. Kubernetes responds with 400 while it restarts the container, and
    with 500 if the node does not respond.
    """
    return exc.status in (400, 404, 429) or exc.status >= 500


async def _has_ended(api: Api, chosen: Chosen, name: str, is_unread: bool) -> bool:
    """True if a container has ended, or its pod is gone.

    With `is_unread`, the log cannot be read. A pod that is being deleted then counts as gone, too, because a node that
    does not respond does not update its status.
    """
    for attempt in range(_END_CHECKS):
        if attempt:
            await asyncio.sleep(_POLL_INTERVAL)
        try:
            pod = await api.get(PODS, chosen.namespace, name)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return True
        if "terminated" in _state(pod, chosen.of_pod) or pods.is_over(pod) or (is_unread and pods.is_terminating(pod)):
            return True
    return False


async def _is_replaced(api: Api, chosen: Chosen, name: str) -> bool:
    """True if a pod whose container has ended was killed or deleted, and its cluster has not ended."""
    try:
        now = await api.get(PODS, chosen.namespace, name)
        killed = _state(now, chosen.of_pod).get("terminated", {}).get("exitCode") in KILLED or _is_lost(now, chosen)
        if not pods.is_terminating(now) and not killed:
            return False
    except ApiError as exc:
        if exc.status != 404:
            raise
    try:
        return not ended(await cluster_of(api, chosen))
    except NotFoundError:
        return False


def _is_lost(pod: Object, chosen: Chosen) -> bool:
    """True if a pod has failed and the end of its container is unknown, as after an eviction."""
    end = conditions.ended(PODS, pod)
    return end is not None and end.failed and "terminated" not in _state(pod, chosen.of_pod)


async def _before_its_pod(api: Api, chosen: Chosen) -> str:
    """The phase of a cluster that lacks the chosen pod.

    Raises NotFoundError if the pod will never exist.
    """
    cluster = await cluster_of(api, chosen)
    if ended(cluster) or status_of(cluster).get("phase") in OVER:
        pod = f"{chosen.name}-{chosen.group}-{chosen.index}" if chosen.group else f"{chosen.name}-{chosen.index}"
        raise NotFoundError(f"{chosen.cluster} has no pod {pod} ({progress(cluster)})")
    return f"{chosen.cluster} is {progress(cluster)}"


def _why_no_log(pod: Object, chosen: Chosen, exc: ApiError, follow: bool) -> str:
    """The reason why a container has no log yet, given the API server's refusal `exc`.

    Raises NotRunningError if it will never have a log, or if the log is not to be waited for (`follow`). Raises `exc`
    if it has another cause.
    """
    state, text = state_of(pod, chosen.of_pod)
    if state != "waiting":
        raise exc
    if conditions.has_ended(PODS, pod):
        raise NotRunningError(f"{text}, and has ended without it")
    if not follow:
        raise NotRunningError(f"{text}; headrace mini logs -f {chosen.argument} waits for it")
    return text


def state_of(pod: Object, container: str) -> tuple[str, str]:
    """A container's state ("waiting", "running" or "ended"), and a sentence about it.

    Raises NotFoundError for a container that the pod does not have.
    """
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    spec = pod.get("spec") or {}
    state = _state(pod, container)
    known = [str(one.get("name")) for key in ("containers", "initContainers") for one in spec.get(key) or ()]
    if container not in known:
        raise NotFoundError(f"pod {name} has no container {container} (existing: {', '.join(known)})")
    if "running" in state:
        return "running", f"container {container} of pod {name} runs"
    if "terminated" in state:
        code = state["terminated"].get("exitCode")
        return "ended", f"container {container} of pod {name} has ended with exit code {code}"
    why = pods.trouble(pod) or (state.get("waiting") or {}).get("reason") or "not scheduled yet"
    return "waiting", f"container {container} of pod {name} has not started ({status.get('phase') or 'Pending'}: {why})"


def _state(pod: Object, container: str) -> Object:
    """The state of a container (core/v1 ContainerState), {} if there is none.

    Containers that `kubectl debug` has added are included.
    """
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(kind) or ():
            if one.get("name") == container:
                return dict(one.get("state") or {})
    return {}


async def running_pod(api: Api, chosen: Chosen, cluster: Object) -> Object:
    """The chosen pod if its container is running.

    Raises NotFoundError, NotRunningError, ApiError, Unreachable.
    """
    if chosen.kind != MINICLUSTERS.kind and status_of(cluster).get("phase") == INVALID:
        advice = "delete it, and create it with the label while the operator's webhook answers"
        raise NotRunningError(f"{chosen.cluster} is not a cluster ({progress(cluster)}) and has no broker: {advice}")
    over = ended(cluster)
    try:
        pod = await _pod_of(api, chosen)
    except NotFoundError:
        if over:
            raise NotRunningError(_nothing_left(chosen, cluster, with_logs=False)) from None
        raise
    state, text = state_of(pod, chosen.of_pod)
    if state == "running":
        return pod
    if over:
        raise NotRunningError(_nothing_left(chosen, cluster, with_logs=True))
    if state == "ended":
        raise NotRunningError(f"{text}; headrace mini logs {chosen.argument} shows what it wrote")
    raise NotRunningError(f"{text}; connect when headrace mini status {chosen.argument} shows Running")


def _nothing_left(chosen: Chosen, cluster: Object, with_logs: bool) -> str:
    name, status = chosen.argument, cluster.get("status") or {}
    code = status.get("exitCode")
    how = f"{status.get('phase')}, exit code {code}" if code is not None else status.get("phase") or "no exit code"
    logs = f"headrace mini logs {name} shows what it wrote; " if with_logs else ""
    advice = f"headrace mini delete {name}, then apply it"
    if chosen.kind != MINICLUSTERS.kind:
        advice = "delete it, then create it again"
    text = f"{chosen.cluster} has ended ({how}), and no broker is running"
    return f"{text}: {logs}to run it again, {advice}"
