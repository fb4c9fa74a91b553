"""The state of pods: which brokers are up, how the lead ended, and why a pod does not run.

Pure functions of pods as the API server sends them (core/v1 PodStatus). Messages are for users: they name the cause and
the place, and pods with the same trouble share one message.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects.conditions import condition, has_ended, holds
from headrace.k8s.objects.kinds import PODS
from headrace.k8s.objects.timestamps import text_of

from ...api.pod_plan import KILLED
from .. import names

Object = dict[str, Any]
# Containers, each as the uid of its pod and its name.
Pulled = frozenset[tuple[str, str]]

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
# Maximum number of characters of a reason that quotes a kubelet's or scheduler's message.
_LONGEST = 200
_IMAGE_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
# A pod must not run twice, so Kubernetes replaces a pod only when it knows that the pod has ended.
_LOST_NODE = "it is recreated once that Node is ready, deleted, or tainted node.kubernetes.io/out-of-service"
# The local address in a Go network error. It is removed from messages, because its port differs at each attempt.
_LOCAL_END = re.compile(r"[\d.]+:\d+->|\[[\da-f:.]+\]:\d+->")
_BEGINNING = ("", "ContainerCreating", "PodInitializing")
_SHORT = re.compile(r"(\d+) Insufficient (\S+)")
_UNFIT = re.compile(r"(\d+) (.+)")

# The fields of a pod's metadata and status that this module reads.
_META = (
    *("name", "namespace", "uid", "resourceVersion", "ownerReferences", "labels", "creationTimestamp"),
    "deletionTimestamp",
)
_STATUS = ("phase", "reason", "message", "conditions", "podIP", "initContainerStatuses", "containerStatuses")


def trimmed(pod: Object) -> Object:
    """A pod with only the fields that this module reads, because the operator caches many pods."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {key: meta[key] for key in _META if key in meta},
        "spec": {"nodeName": spec.get("nodeName", "")},
        "status": {key: status[key] for key in _STATUS if key in status},
    }


class LeadEnd(Struct, frozen=True):
    """The end of the lead.

    `exit_code` is the job's. `finished` is the time (RFC 3339). `times` are the instance's times (seconds since the
    epoch). `jobs` is the number of jobs by state. `cause` is the type of the exception that ended the job ("cancel",
    "timeout"), "" for none. `killed`: the pod was killed, so the exit code is not the job's.
    """

    exit_code: int
    reason: str
    finished: str
    times: dict[str, Any] = {}
    jobs: dict[str, Any] = {}
    cause: str = ""
    killed: bool = False

    @property
    def job_started(self) -> str:
        """When its job began to run (RFC 3339); "" if the time is unknown or invalid."""
        seconds = self.times.get("run")
        return text_of(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e11 else ""


def index_of(pod: Object) -> int:
    """The pod's index in its Job; -1 without one."""
    text = (pod["metadata"].get("labels") or {}).get(INDEX_LABEL, "")
    return int(text) if text.isdigit() else -1


def current(pods: Iterable[Object]) -> list[Object]:
    """The newest pod of each index. A failed pod continues to exist beside its replacement."""
    newest: dict[int, Object] = {}
    for pod in pods:
        index = index_of(pod)
        other = newest.get(index)
        if index >= 0 and (other is None or _age(pod) > _age(other)):
            newest[index] = pod
    return [newest[index] for index in sorted(newest)]


def is_ready(pod: Object) -> bool:
    """Whether the pod's broker is up: the runner responds to the kubelet's readiness probe.

    The pod's condition Ready may be false because of another container, so it is used only if the runner's container
    has no status yet.
    """
    if is_terminating(pod) or is_node_lost(pod):
        return False
    runner = (pod["metadata"].get("labels") or {}).get(names.CLUSTER)
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == runner:
            return bool(one.get("ready"))
    return holds(pod.get("status"), "Ready")


def is_node_lost(pod: Object) -> bool:
    """Whether the pod's node does not answer.

    The control plane then sets the pod's condition Ready to False, but cannot change what the kubelet has reported
    about the containers (ContainersReady).
    """
    ready = condition(pod.get("status"), "Ready")
    marked = ready.get("status") == "False" and ready.get("reason") != "ReadinessGatesNotReady"
    return marked and holds(pod.get("status"), "ContainersReady")


def is_yet_to_be_ready(pod: Object) -> bool:
    """Whether the pod runs, and its readiness probe has not succeeded since its containers started."""
    since = ready_since(pod)
    starts = [(one.get("state") or {}).get("running", {}).get("startedAt", "") for _, one in _containers(pod)]
    return is_running(pod) and not (is_ready(pod) or is_node_lost(pod)) and since <= max(starts, default="")


def is_running(pod: Object) -> bool:
    return not is_terminating(pod) and _phase(pod) == "Running"


def is_scheduled(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def scheduled_since(pod: Object) -> str:
    return str(condition(pod.get("status"), "PodScheduled").get("lastTransitionTime", ""))


def has_volumes(pod: Object) -> bool:
    """Whether the kubelet has mounted the pod's volumes, including the keys of the Secret at that time."""
    began = any({"running", "terminated"} & (one.get("state") or {}).keys() for _, one in _containers(pod))
    return began or holds(pod.get("status"), "PodReadyToStartContainers")


def waits_for_volumes(pod: Object) -> bool:
    """Whether the pod has a node, and its volumes are not mounted yet."""
    return is_scheduled(pod) and not (is_terminating(pod) or is_over(pod) or has_volumes(pod))


def ready_since(pod: Object) -> str:
    return str(condition(pod.get("status"), "Ready").get("lastTransitionTime", ""))


def started(pod: Object, container: str) -> str:
    """When the container with this name started (RFC 3339); "" if it has not started."""
    state = _container(pod, container).get("state") or {}
    for one in ("running", "terminated"):
        if state.get(one):
            return str(state[one].get("startedAt") or "")
    return ""


def lead_end(pod: Object, container: str) -> LeadEnd | None:
    """The end of the lead's container; None if it has not ended.

    With restartPolicy OnFailure, Kubernetes restarts the container, so it has ended only if its pod has.
    """
    ended = (_container(pod, container).get("state") or {}).get("terminated")
    if not ended or not has_ended(PODS, pod):
        return None
    return _end_of(ended)


def former_end(pod: Object, container: str) -> LeadEnd | None:
    """The end of the container's run before its last restart; None if it was not restarted."""
    ended = (_container(pod, container).get("lastState") or {}).get("terminated")
    return _end_of(ended) if ended else None


def _end_of(ended: Object) -> LeadEnd:
    """The end of the lead according to its terminated container (core/v1 ContainerStateTerminated)."""
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
        killed=bool(said.get("killed")) or ("exit" not in said and code in KILLED),
    )


def out_of_memory(pods: Iterable[Object]) -> str:
    """The message that containers were killed because they ran out of memory; "" if none was."""

    def is_killed(pod: Object) -> bool:
        ends = [(one.get("state") or {}).get("terminated") or {} for _, one in _containers(pod)]
        return any(one.get("reason") == "OOMKilled" for one in ends)

    hosts = [host_of(pod) for pod in pods if is_killed(pod)]
    return _cut(f"out of memory (OOMKilled): {Hostlist(hosts)}") if hosts else ""


def host_of(pod: Object) -> str:
    """The pod's host name, by which users know it: the name of its Job and its index."""
    owner = next((one["name"] for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), "")
    return f"{owner}-{index_of(pod)}" if owner and index_of(pod) >= 0 else str(pod["metadata"]["name"])


def exit_code(pod: Object, container: str) -> int | None:
    """The exit code of the container with this name; None if it has not ended."""
    ended = (_container(pod, container).get("state") or {}).get("terminated")
    return int(ended.get("exitCode", 0)) if ended else None


def restarts(pod: Object) -> int:
    """How often Kubernetes has restarted the pod's containers except sidecars (OnFailure)."""
    return sum(int(one.get("restartCount") or 0) for one in (pod.get("status") or {}).get("containerStatuses") or ())


def ended_before(pod: Object, lead: Object, container: str) -> bool:
    """Whether the pod had succeeded before the lead was created or its container was restarted."""
    ends = [(one.get("state") or {}).get("terminated") or {} for _, one in _containers(pod)]
    last = max((one.get("finishedAt") or "" for one in ends), default="")
    began = lead["metadata"].get("creationTimestamp") or ""
    if restarts(lead):
        began = max(began, started(lead, container))
    return _phase(pod) == "Succeeded" and bool(last) and last <= began


def is_over(pod: Object) -> bool:
    """Whether the pod has ended."""
    return has_ended(PODS, pod)


def is_terminating(pod: Object) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def troubles(pods: Iterable[Object], pulled: Pulled = frozenset()) -> list[str]:
    """Why pods do not run: each reason once with the number of pods, the most frequent first."""
    pods = list(pods)
    found = Counter(reason for pod in pods if not is_terminating(pod) for reason in [trouble(pod, pulled)] if reason)
    texts = [
        reason if len(found) == 1 else f"{reason} ({_count(number, 'pod')})" for reason, number in found.most_common()
    ]
    return [*deletions([pod for pod in pods if is_terminating(pod)]), *texts]


def deletions(terminating: list[Object]) -> list[str]:
    """The message that these pods are being deleted, with their names."""
    lost = [pod for pod in terminating if is_node_lost(pod)]
    texts = [f"{_being_deleted(lost)} on a node that does not answer: {_LOST_NODE}"] if lost else []
    if len(terminating) > len(lost):
        texts.append(_being_deleted([pod for pod in terminating if not is_node_lost(pod)]))
    return texts


def _being_deleted(terminating: list[Object]) -> str:
    hosts = sorted(map(host_of, terminating))
    return f"pod {hosts[0]} is being deleted" if len(hosts) == 1 else _cut(f"pods {Hostlist(hosts)} are being deleted")


def missing(job: str, size: int, current: list[Object]) -> list[str]:
    """Messages about missing pods of a Job that had all its pods before; Kubernetes will replace them."""
    hosts = [f"{job}-{index}" for index in sorted({*range(size)} - {index_of(pod) for pod in current})]
    text = "Kubernetes waits 10 s or more before it recreates"
    if len(hosts) < 2:
        return [f"{text} pod {host}" for host in hosts]
    return [_cut(f"{text} pods {Hostlist(hosts)}")]


def trouble(pod: Object, pulled: Pulled = frozenset()) -> str:
    """Why the pod does not run; "" if it runs, has succeeded, or is starting.

    `pulled` are the containers whose images the kubelet has begun to pull.
    """
    if is_terminating(pod):
        return "is being deleted"
    if is_node_lost(pod):
        return f"node {(pod.get('spec') or {}).get('nodeName')} does not answer"
    for name, status in _containers(pod):
        text = _container_trouble(name, status)
        if not text and (pod["metadata"].get("uid"), name) in pulled and _waits_for_image(status):
            text = f"image {status.get('image')} of container {name} is being pulled"
        if text:
            return text
    status = pod.get("status") or {}
    if _phase(pod) == "Failed":
        return _cut(f"{status.get('reason') or 'failed'}: {status.get('message') or ''}".rstrip(": "))
    scheduled = condition(pod.get("status"), "PodScheduled")
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
    # The rest of the message, after the counts, is about claims and preemption.
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


def _waits_for_image(status: Object) -> bool:
    """Whether a container waits for its image.

    The kubelet reports the image's id when it creates the container.
    """
    return "waiting" in (status.get("state") or {}) and not status.get("imageID")


def _container_trouble(name: str, status: Object) -> str:
    state = status.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    why, said = waiting.get("reason") or "", _LOCAL_END.sub("", waiting.get("message") or "")
    if why in _IMAGE_TROUBLE:
        return _sentence(f"image {status.get('image')} of container {name} cannot be pulled ({why})", said)
    if why == "CrashLoopBackOff":
        last = (status.get("lastState") or {}).get("terminated") or {}
        times = _count(int(status.get("restartCount", 0)), "time")
        text = f"container {name} ended with status {last.get('exitCode')} {times} and waits for a restart"
        return _sentence(text, str(_message(last.get("message") or "").get("reason") or ""))
    if why not in _BEGINNING:
        return _sentence(f"container {name} cannot be started ({why})", said)
    if ended.get("exitCode"):
        cause = ended.get("reason") or ""
        text = f"container {name} ended with status {ended['exitCode']}"
        message = ended.get("message") or ""
        cause_text = str(_message(message).get("reason") or message)
        return _sentence(text if cause in ("", "Error") else f"{text} ({cause})", cause_text)
    return ""


def _sentence(text: str, said: str) -> str:
    """`text: said`. If `said` is too long, keep its end, because container runtimes name the cause last."""
    room = _LONGEST - len(text) - len(": ...")
    said = " ".join(said.split())
    if len(said) > room > 0:
        said = f"...{said[-room:]}"
    return _cut(f"{text}: {said}" if said else text)


def _containers(pod: Object) -> Iterator[tuple[str, Object]]:
    status = pod.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield one["name"], one


def _container(pod: Object, name: str) -> Object:
    return next((one for each, one in _containers(pod) if each == name), {})


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _age(pod: Object) -> tuple[str, bool, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", not meta.get("deletionTimestamp"), meta.get("name") or ""


def _message(text: str) -> Object:
    """A termination message of the runner; {} for any other text."""
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
