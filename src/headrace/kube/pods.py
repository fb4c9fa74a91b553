"""What the pods of a MiniCluster tell: which brokers are up, how the lead ended, and why a pod does not run.

Pure: functions of pods as the API server has them (core/v1 PodStatus). The texts are for people: they say what is short
and where, and pods with the same trouble are told together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from . import names

Object = dict[str, Any]

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
# Characters of a message of the kubelet or scheduler that a reason repeats.
_LONGEST = 200
_IMAGE_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_BEGINNING = ("", "ContainerCreating", "PodInitializing")
_SHORT = re.compile(r"(\d+) Insufficient (\S+)")
_UNFIT = re.compile(r"(\d+) (.+)")


class LeadEnd(Struct, frozen=True):
    """How the lead ended: the job's own exit code, what it said of it, when (RFC 3339), its times (seconds since the
    epoch), the jobs by state, and the type of the exception that ended its job ("cancel", "timeout"), "" for none."""

    exit_code: int
    reason: str
    finished: str
    times: dict[str, Any] = {}
    jobs: dict[str, Any] = {}
    cause: str = ""


def index_of(pod: Object) -> int:
    """The pod's index in its Job; -1 where it has none."""
    text = (pod["metadata"].get("labels") or {}).get(INDEX_LABEL, "")
    return int(text) if text.isdigit() else -1


def current(pods: Iterable[Object]) -> list[Object]:
    """One pod for each index, the newest: a pod that failed stays beside the one that stands in for it."""
    newest: dict[int, Object] = {}
    for pod in pods:
        index = index_of(pod)
        other = newest.get(index)
        if index >= 0 and (other is None or _age(pod) > _age(other)):
            newest[index] = pod
    return [newest[index] for index in sorted(newest)]


def is_ready(pod: Object) -> bool:
    """Whether the pod's broker is up: the kubelet's readiness probe asks its runner.

    That a container beside the runner is not ready makes the pod not ready, but not its broker.
    """
    if _going(pod):
        return False
    runner = (pod["metadata"].get("labels") or {}).get(names.CLUSTER)
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == runner:
            return bool(one.get("ready"))
    return _condition(pod, "Ready").get("status") == "True"


def is_running(pod: Object) -> bool:
    return not _going(pod) and _phase(pod) == "Running"


def is_scheduled(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def ready_since(pod: Object) -> str:
    return str(_condition(pod, "Ready").get("lastTransitionTime", ""))


def started(pod: Object, container: str) -> str:
    """When the container of this name began to run (RFC 3339), "" where it has not."""
    state = _container(pod, container).get("state") or {}
    for one in ("running", "terminated"):
        if state.get(one):
            return str(state[one].get("startedAt") or "")
    return ""


def lead_end(pod: Object, container: str) -> LeadEnd | None:
    """How the lead's container ended, None while it has not.

    A container that Kubernetes starts again (restartPolicy OnFailure) has ended only where its pod has.
    """
    ended = (_container(pod, container).get("state") or {}).get("terminated")
    if not ended or _phase(pod) not in ("Succeeded", "Failed"):
        return None
    said = _message(ended.get("message") or "")
    code = int(ended.get("exitCode", 0))
    given = said.get("exit")
    reason = str(said.get("reason") or "")
    if not reason and ended.get("reason") not in (None, "", "Completed", "Error"):
        text = f"the lead's container ended with exit code {code} ({ended['reason']})"
        reason = _sentence(text, "" if said else ended.get("message") or "")
    return LeadEnd(
        exit_code=given if isinstance(given, int) and not isinstance(given, bool) else code,
        reason=reason,
        finished=str(ended.get("finishedAt") or ""),
        times=said["times"] if isinstance(said.get("times"), dict) else {},
        jobs=said["jobs"] if isinstance(said.get("jobs"), dict) else {},
        cause=str(said.get("cause") or ""),
    )


def has_ended(pod: Object, container: str) -> bool:
    """Whether the container has ended, whatever others of the pod still do."""
    return "terminated" in (_container(pod, container).get("state") or {})


def troubles(pods: Iterable[Object]) -> list[str]:
    """Why pods do not run, each reason once with the number of pods, the most frequent first."""
    found = Counter(reason for pod in pods for reason in [trouble(pod)] if reason)
    return [
        reason if len(found) == 1 else f"{reason} ({_count(number, 'pod')})" for reason, number in found.most_common()
    ]


def trouble(pod: Object) -> str:
    """Why the pod does not run; "" where it does, has ended in order, or is on its way."""
    if _going(pod):
        return "is being deleted"
    for name, status in _containers(pod):
        text = _container_trouble(name, status)
        if text:
            return text
    status = pod.get("status") or {}
    if _phase(pod) == "Failed":
        return _cut(f"{status.get('reason') or 'failed'}: {status.get('message') or ''}".rstrip(": "))
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        if scheduled.get("reason") == "SchedulingGated":
            return "held back by a scheduling gate"
        return unschedulable(scheduled.get("message", ""))
    return ""


def unschedulable(message: str) -> str:
    """The scheduler's message in short: "short of cpu on 2 nodes"."""
    _head, _, rest = message.partition("available: ")
    if not rest:
        return _cut(message) or "not scheduled"
    # What follows the counts is about claims and preemption.
    rest = rest.split(". ")[0].split(" preemption:")[0].strip().rstrip(".")
    parts = []
    for part in rest.split(", "):
        short, unfit = _SHORT.fullmatch(part), _UNFIT.fullmatch(part)
        if short:
            parts.append(f"short of {short[2]} on {_count(int(short[1]), 'node')}")
        elif unfit:
            parts.append(f"{_count(int(unfit[1]), 'node')} unfit: {unfit[2].removeprefix('node(s) ')}")
        else:
            parts.append(part)
    return _cut(", ".join(parts))


def _container_trouble(name: str, status: Object) -> str:
    state = status.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    why, said = waiting.get("reason") or "", waiting.get("message") or ""
    if why in _IMAGE_TROUBLE:
        return _sentence(f"image {status.get('image')} of container {name} cannot be pulled ({why})", said)
    if why == "CrashLoopBackOff":
        last = (status.get("lastState") or {}).get("terminated") or {}
        times = _count(int(status.get("restartCount", 0)), "time")
        text = f"container {name} ended with status {last.get('exitCode')} {times} and waits to be started again"
        return _sentence(text, str(_message(last.get("message") or "").get("reason") or ""))
    if why not in _BEGINNING:
        return _sentence(f"container {name} cannot be started ({why})", said)
    if ended.get("exitCode"):
        cause = ended.get("reason") or ""
        text = f"container {name} ended with status {ended['exitCode']}"
        message = ended.get("message") or ""
        told = str(_message(message).get("reason") or message)
        return _sentence(text if cause in ("", "Error") else f"{text} ({cause})", told)
    return ""


def _sentence(text: str, said: str) -> str:
    return _cut(f"{text}: {said}" if said else text)


def _containers(pod: Object) -> Iterator[tuple[str, Object]]:
    status = pod.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield one["name"], one


def _container(pod: Object, name: str) -> Object:
    return next((one for each, one in _containers(pod) if each == name), {})


def _condition(pod: Object, kind: str) -> Object:
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind:
            return dict(one)
    return {}


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _going(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _age(pod: Object) -> tuple[str, bool, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", not meta.get("deletionTimestamp"), meta.get("name") or ""


def _message(text: str) -> Object:
    """A termination message of our runner; {} for any other text."""
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
