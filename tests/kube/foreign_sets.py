"""JobSets and TrainJobs that tests make in one namespace, and what has become of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from labelled_jobs import without_brokers
from patience import PATIENCE, until
from peers import Trainer

from headrace.flux_jobs.operator.names import ID_LABEL
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.flux_jobs.read.options import ANNOTATION
from headrace.programs.operator.install import Install
from headrace.programs.operator.package import PACKAGE

Object = dict[str, Any]

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_PODS = "/api/v1/namespaces/{}/pods"
_ENDS = ("Completed", "Complete", "Failed")


def replicated(name: str, image: str, command: list[str], size: int = 2, **more: Any) -> Object:
    """A replicated Job of a JobSet whose pods have a container `node`; `env` is that container's."""
    container = {"name": "node", "image": image, "command": command, "env": more.pop("env", [])}
    spec = {"parallelism": size, "completions": size, "template": {"spec": {"containers": [container]}}}
    return {"name": name, "replicas": 1, "template": {"metadata": {}, "spec": spec}, **more}


def labelled(job: Object, options: str = "") -> Object:
    """A replicated Job whose Jobs are clusters."""
    metadata = job["template"]["metadata"]
    labels = {**metadata.get("labels", {}), LABEL_KEY: LABEL_VALUE}
    annotations = {ANNOTATION: options} if options else {}
    template = {**job["template"], "metadata": {**metadata, "labels": labels, "annotations": annotations}}
    return {**job, "template": template}


class Sets:
    """The JobSets and TrainJobs of a namespace, and their Jobs and pods."""

    def __init__(self, trainer: Trainer, namespace: str) -> None:
        self.trainer, self.namespace = trainer, namespace
        self.cluster: Cluster = trainer.cluster

    def are_admitted(self) -> bool:
        """Whether the operator's webhook is asked about labelled Jobs."""
        template = labelled(replicated("node", "local/busybox:1", ["true"]))["template"]
        template["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        body = {"metadata": {**template["metadata"], "name": "asks"}, "spec": template["spec"]}
        try:
            made = self.cluster.api.request("POST", f"{_JOBS.format(self.namespace)}?dryRun=All", body)
        except KubeError as exc:
            # The certificate of the webhook is not yet there.
            if "failed calling webhook" not in str(exc):
                raise
            return False
        return bool(cluster_id(made))

    def jobset(self, name: str, *jobs: Object, **spec: Any) -> None:
        head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
        self._apply({**head, "metadata": {"name": name}, "spec": {"replicatedJobs": list(jobs), **spec}})

    def trainjob(self, name: str, runtime: str, kind: str = "ClusterTrainingRuntime", **spec: Any) -> None:
        head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": runtime}
        self._apply({**head, "metadata": {"name": name}, "spec": {"runtimeRef": reference, **spec}})

    def runtime(self, name: str, *jobs: Object, policy: Object | None = None) -> None:
        """A TrainingRuntime; the last Job is the step that trains."""
        *others, step = jobs
        metadata = step["template"]["metadata"]
        labels = {**metadata.get("labels", {}), "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        step = {**step, "template": {**step["template"], "metadata": {**metadata, "labels": labels}}}
        spec = {
            "mlPolicy": {"numNodes": 1, **(policy or {})},
            "template": {"spec": {"replicatedJobs": [*others, step]}},
        }
        head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
        self._apply({**head, "metadata": {"name": name}, "spec": spec})

    def _apply(self, one: Object) -> None:
        self.trainer.apply({**one, "metadata": {**one["metadata"], "namespace": self.namespace}})

    def patch(self, kind: str, name: str, spec: Object) -> None:
        path = f"{kind.format(self.namespace)}/{name}"
        self.cluster.api.request("PATCH", path, {"spec": spec}, "application/merge-patch+json")

    def get(self, kind: str, name: str) -> Object:
        return dict(self.cluster.api.get(f"{kind.format(self.namespace)}/{name}"))

    def condition(self, kind: str, name: str, wanted: str) -> Object:
        """Wait for a condition of a JobSet or TrainJob; it fails as soon as it has ended otherwise."""
        found: Object = {}

        def looked() -> bool:
            conditions = self.get(kind, name).get("status", {}).get("conditions", ())
            true = {one["type"]: one for one in conditions if one["status"] == "True"}
            found.update(true.get(wanted, {}))
            assert found or not true.keys() & set(_ENDS), f"{name}: waited for {wanted}, but has {json.dumps(true)}"
            return bool(found)

        until(looked, PATIENCE)
        return found

    def job(self, name: str, met: Callable[[Object], object] = bool) -> Object:
        """Wait until a Job is there and as wanted; the Job then."""
        found: list[Object] = []

        def looked() -> bool:
            jobs = self.cluster.api.get(_JOBS.format(self.namespace))["items"]
            found[:] = [one for one in jobs if one["metadata"]["name"] == name and met(one)]
            return bool(found)

        until(looked, PATIENCE)
        return found[0]

    def secrets(self) -> dict[str, dict[str, str]]:
        """The Secrets of clusters: base64 by key, by the clusters' IDs."""
        found = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/secrets?labelSelector={ID_LABEL}")["items"]
        return {one["metadata"]["labels"][ID_LABEL]: one["data"] for one in found}

    def secret(self, job: Object) -> dict[str, str]:
        """The Secret of a Job that is a cluster, once the operator has made it."""
        until(lambda: cluster_id(job) in self.secrets(), PATIENCE)
        return self.secrets()[cluster_id(job)]

    def events(self, name: str) -> list[str]:
        """What was told about objects of a name."""
        found = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [str(one["message"]) for one in found if one["involvedObject"]["name"] == name]

    def pods(self, job: str) -> list[Object]:
        query = f"?labelSelector=batch.kubernetes.io/job-name={job}"
        return list(self.cluster.api.get(_PODS.format(self.namespace) + query)["items"])

    def lead(self, job: str) -> Object:
        """The pod of index 0."""
        index = "batch.kubernetes.io/job-completion-index"
        (found,) = [one for one in self.pods(job) if one["metadata"]["labels"][index] == "0"]
        return found

    def exit_code(self, job: str) -> int:
        """How the container `node` of the lead ended."""
        (status,) = [one for one in self.lead(job)["status"]["containerStatuses"] if one["name"] == "node"]
        return int(status["state"]["terminated"]["exitCode"])

    def log(self, job: str) -> str:
        """What the command has written to the container `node` of the lead."""
        lead = self.lead(job)["metadata"]["name"]
        return without_brokers(self.cluster.kubectl("-n", self.namespace, "logs", lead, "-c", "node"))

    def inside(self, job: str, *words: str) -> str:
        """Run a command in the lead's container."""
        lead = self.lead(job)["metadata"]["name"]
        return self.cluster.kubectl("-n", self.namespace, "exec", lead, "-c", "node", "--", *words)


def cluster_id(job: Object) -> str:
    return str(job["spec"]["template"]["metadata"].get("labels", {}).get(ID_LABEL, ""))


def our_runtimes() -> list[Object]:
    """The training runtimes that the operator's install has."""
    return [one for one in PACKAGE.objects(Install(trainer=True)) if one["kind"] == "ClusterTrainingRuntime"]
