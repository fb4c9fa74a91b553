"""A container of a MiniCluster's pod, for users: its log, and whether a command can run in it.

The API server's refusals name containers and their states. Users need to know why there is no log or shell yet, or no
longer, and what to do: `state_of` distinguishes the cases, and the errors here have the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct

from ..minicluster.pod_plan import KILLED
from .api import PODS, Api, ApiError
from .client import OVER, News, NotFoundError, ended, find, pod_of, progress, status_of
from .core import pods

Object = dict[str, Any]

# Seconds between two requests for a pod that has not started, since its log cannot be watched.
_LOOK = 1.0


class NotRunningError(Exception):
    """The container has not started, or has ended; the message has the reason and what can be done."""


class Chosen(Struct, frozen=True):
    """A container of the pod with an index, of a MiniCluster or of its group `group`; "" is the container with Flux."""

    namespace: str
    name: str
    index: int = 0
    group: str = ""
    container: str = ""

    @property
    def of_pod(self) -> str:
        return self.container or self.name


async def logs(api: Api, chosen: Chosen, going_on: bool, tell: Callable[[str], None]) -> AsyncIterator[bytes]:
    """The output of a container so far; with `going_on` also later output, from its start to its end, and that of the
    pods that replace one that was killed; `tell` gets what a start waits for, and that another pod follows. Raises
    NotFoundError, NotRunningError, ApiError, Unreachable.
    """
    news = News(tell)
    replaced = ""
    query = {"container": chosen.of_pod, "follow": "true" if going_on else ""}
    while True:
        try:
            pod = await pod_of(api, chosen.namespace, chosen.name, chosen.index, chosen.group)
            name = pod["metadata"]["name"]
            if name != replaced:
                async for chunk in api.stream(PODS, chosen.namespace, name, "log", query):
                    yield chunk
                if not going_on or not await _is_replaced(api, chosen, name):
                    return
                tell(f"pod {name} was ended, and MiniCluster {chosen.name} goes on in another one")
                replaced, news = name, News(tell)
            elif ended(await find(api, chosen.namespace, chosen.name)):
                return
        except NotFoundError:
            if not going_on:
                raise
            news.waits_for(await _before_its_pod(api, chosen))
        except ApiError as exc:
            # 404: the pod was deleted after it was found; another one may follow.
            if exc.status == 400:
                news.waits_for(_why_no_log(pod, chosen, exc, going_on))
            elif exc.status != 404 or not going_on:
                raise
        await asyncio.sleep(_LOOK)


async def _is_replaced(api: Api, chosen: Chosen, name: str) -> bool:
    """Whether a pod whose container has ended was killed or deleted while its MiniCluster goes on."""
    try:
        now = await api.get(PODS, chosen.namespace, name)
        if not pods.is_going(now) and pods.exit_code(now, chosen.of_pod) not in KILLED:
            return False
    except ApiError as exc:
        if exc.status != 404:
            raise
    try:
        return not ended(await find(api, chosen.namespace, chosen.name))
    except NotFoundError:
        return False


async def _before_its_pod(api: Api, chosen: Chosen) -> str:
    """What a MiniCluster without the chosen pod waits for. Raises NotFoundError if there will be no such pod."""
    cluster = await find(api, chosen.namespace, chosen.name)
    if ended(cluster) or status_of(cluster).get("phase") in OVER:
        pod = f"{chosen.name}-{chosen.group}-{chosen.index}" if chosen.group else f"{chosen.name}-{chosen.index}"
        raise NotFoundError(f"MiniCluster {chosen.name} has no pod {pod} ({progress(cluster)})")
    return f"MiniCluster {chosen.name} is {progress(cluster)}"


def _why_no_log(pod: Object, chosen: Chosen, exc: ApiError, going_on: bool) -> str:
    """Why a container has no log yet, given the API server's refusal `exc`.

    Raises NotRunningError if it never will have one, or is not waited for, and `exc` itself if it has another cause.
    """
    state, text = state_of(pod, chosen.of_pod)
    if state != "waiting":
        raise exc
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        raise NotRunningError(f"{text}, and has ended without")
    if not going_on:
        raise NotRunningError(f"{text}; headrace mini logs -f {chosen.name} waits for it")
    return text


def state_of(pod: Object, container: str) -> tuple[str, str]:
    """Whether a container is "waiting" for its start, "running" or "ended", and a sentence about it.

    Raises NotFoundError for a container that the pod does not have.
    """
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    spec = pod.get("spec") or {}
    known = [str(one.get("name")) for key in ("containers", "initContainers") for one in spec.get(key) or ()]
    if container not in known:
        raise NotFoundError(f"pod {name} has no container {container} (there: {', '.join(known)})")
    state: Object = {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if one.get("name") == container:
            state = one.get("state") or {}
    if "running" in state:
        return "running", f"container {container} of pod {name} runs"
    if "terminated" in state:
        code = state["terminated"].get("exitCode")
        return "ended", f"container {container} of pod {name} has ended with exit code {code}"
    why = pods.trouble(pod) or (state.get("waiting") or {}).get("reason") or "not scheduled yet"
    return "waiting", f"container {container} of pod {name} has not started ({status.get('phase') or 'Pending'}: {why})"


async def running_pod(api: Api, chosen: Chosen, cluster: Object) -> Object:
    """The chosen pod, if its container runs. Raises NotFoundError, NotRunningError, ApiError, Unreachable."""
    over = ended(cluster)
    try:
        pod = await pod_of(api, chosen.namespace, chosen.name, chosen.index, chosen.group)
    except NotFoundError:
        if over:
            raise NotRunningError(_nothing_left(cluster, with_logs=False)) from None
        raise
    state, text = state_of(pod, chosen.of_pod)
    if state == "running":
        return pod
    if over:
        raise NotRunningError(_nothing_left(cluster, with_logs=True))
    if state == "ended":
        raise NotRunningError(f"{text}; headrace mini logs {chosen.name} shows what it wrote")
    raise NotRunningError(f"{text}; connect when headrace mini status {chosen.name} tells Running")


def _nothing_left(cluster: Object, with_logs: bool) -> str:
    name, status = cluster["metadata"]["name"], cluster.get("status") or {}
    code = status.get("exitCode")
    how = f"{status.get('phase')}, exit code {code}" if code is not None else status.get("phase") or "no exit code"
    logs = f"headrace mini logs {name} shows what it wrote; " if with_logs else ""
    text = f"MiniCluster {name} has ended ({how}), and no broker is left to connect to"
    return f"{text}: {logs}to run it again, headrace mini delete {name}, then apply it"
