"""Jobs with the label that makes them clusters, as admission makes them, in a namespace of the cluster of the tests."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from kubecluster.cluster import Cluster
from patience import until
from running_operator import VIEW

from headrace.flux_jobs.operator.names import STATUS_ANNOTATION
from headrace.flux_jobs.operator.policy import flux_job
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.flux_jobs.read.options import ANNOTATION
from headrace.minicluster.operator.builders.images import Images

Object = dict[str, Any]

_FOLDERS = {
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    **{kind: f"/api/v1/namespaces/{{}}/{kind}s" for kind in ("pod", "service", "secret", "configmap", "event")},
}
_JOB = "batch.kubernetes.io/job-name"
_INDEX = "batch.kubernetes.io/job-completion-index"


def labelled(name: str, *command: str, size: int = 2, options: str = "", image: str = "busybox", **more: Any) -> Object:
    """An Indexed Job as a user writes it; `container` and `pod` are fields of both, the others of the Job's spec."""
    container = {"name": "main", "image": f"local/{image}:1", "command": list(command), **more.pop("container", {})}
    pod = {"restartPolicy": "Never", "containers": [container], **more.pop("pod", {})}
    metadata: Object = {"name": name, "labels": {LABEL_KEY: LABEL_VALUE}}
    if options:
        metadata["annotations"] = {ANNOTATION: options}
    spec = {"completionMode": "Indexed", "completions": size, "parallelism": size, "template": {"spec": pod}, **more}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


# The beginning of a broker's line.
_BROKERS = re.compile(r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d\.\d+ UTC \d{4} \S+\[\d+\]: ")


def without_brokers(log: str) -> str:
    """A log of a lead without the lines of brokers, such as that a name does not resolve yet."""
    return "".join(line for line in log.splitlines(keepends=True) if not _BROKERS.match(line))


class Jobs:
    """The labelled Jobs of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def create(self, name: str, *command: str, **fields: Any) -> Object:
        """Create a Job; `fields` are those of `labelled`."""
        return self.post(flux_job(labelled(name, *command, **fields), Images(VIEW), uuid.uuid4().hex[:10]))

    def post(self, job: Object) -> Object:
        """Create a Job as it is."""
        found: Object = self.cluster.api.request("POST", _FOLDERS["job"].format(self.namespace), job)
        return found

    def kubectl(self, *words: str, input: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, input=input)

    def get(self, kind: str, name: str = "") -> Object:
        """An object, or the list of those of a kind."""
        found: Object = self.cluster.api.get("/".join([_FOLDERS[kind].format(self.namespace), name]).rstrip("/"))
        return found

    def pods(self, name: str, index: int | None = None) -> list[Object]:
        """The pods of a Job, of one index or of all."""
        selector = f"{_JOB}={name}" + ("" if index is None else f",{_INDEX}={index}")
        where = f"{_FOLDERS['pod'].format(self.namespace)}?labelSelector={selector}"
        return list(self.cluster.api.get(where).get("items") or ())

    def ended(self, name: str) -> Object:
        """Wait until the Job is Complete or Failed, and the operator has told its end; what it has told, and `kind`."""
        found: Object = {}

        def looked() -> bool:
            job = self.get("job", name)
            conditions = {one["type"] for one in job["status"].get("conditions", []) if one["status"] == "True"}
            text = job["metadata"].get("annotations", {}).get(STATUS_ANNOTATION)
            over = conditions & {"Complete", "Failed"}
            if over and text:
                found.update(json.loads(text), kind=over.pop())
            return bool(found)

        until(looked)
        return found

    def log(self, name: str, index: int = 0, container: str = "main") -> str:
        """What the command has written to the container of an index; its pod must have started."""
        return without_brokers(self.whole_log(name, index, container))

    def whole_log(self, name: str, index: int = 0, container: str = "main") -> str:
        """What the container of an index has written, with what brokers have to say."""
        return self.kubectl("logs", self.pods(name, index)[0]["metadata"]["name"], "-c", container)

    def exit_code(self, name: str, index: int = 0, container: str = "main") -> int:
        """The exit code of the container of an index, whose pod has ended."""
        statuses = self.pods(name, index)[0]["status"]["containerStatuses"]
        return int(next(one for one in statuses if one["name"] == container)["state"]["terminated"]["exitCode"])

    def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of the operator's Events about a Job, in the order in which they were made."""
        found = [
            one
            for one in self.get("event")["items"]
            if one["involvedObject"]["name"] == name and one["reportingComponent"] == "headrace-operator"
        ]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in found]
