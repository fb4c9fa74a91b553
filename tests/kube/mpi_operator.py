"""MPIJobs on a real Kubernetes, and what Kubeflow's mpi-operator does with them, as far as a queue meets it.

`turn` does what is due: the Job of the launcher, suspended as the MPIJob is, a pod for each worker while it is not, and
the conditions and the end of the workers that follow from the launcher's Job. Secrets, host files and Services of the
real one are left out. Source: mpi-operator 0.6, `mpi_job_controller.go`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import until
from running_fluxqueue import pod_spec
from running_operator import define_kind

Object = dict[str, Any]

_MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs"
_JOBS = "/apis/batch/v1/namespaces/{}/jobs"
_PODS = "/api/v1/namespaces/{}/pods"
_PREFIX = "training.kubeflow.org"


def definition() -> Object:
    """The kind MPIJob, without the schema of its fields."""
    schema = {
        "type": "object",
        "properties": {
            key: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} for key in ("spec", "status")
        },
    }
    version = {
        **{"name": "v2beta1", "served": True, "storage": True, "subresources": {"status": {}}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": "MPIJob", "listKind": "MPIJobList", "plural": "mpijobs", "singular": "mpijob"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "mpijobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }


class MPIJobs:
    """The MPIJobs of a namespace and their operator."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        define_kind(cluster, definition())
        self.cluster, self.namespace = cluster, namespace

    def body(self, name: str, launcher: Object, worker: Object, workers: int) -> Object:
        """An MPIJob of pods with these PodSpecs."""
        roles = {
            "Launcher": {"replicas": 1, "template": {"spec": launcher}},
            "Worker": {"replicas": workers, "template": {"spec": worker}},
        }
        spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
        return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name}, "spec": spec}

    def is_reviewed(self) -> bool:
        """Whether an MPIJob that is created now is held."""
        body = self.body("probe", pod_spec("true", "0"), pod_spec("true", "0"), 1)
        with contextlib.suppress(KubeError):
            made = self._request("POST", f"{_MPIJOBS}?dryRun=All", body)
            return bool(made["spec"]["runPolicy"].get("suspend"))
        return False

    def create(self, body: Object) -> None:
        until(self.is_reviewed)
        self._request("POST", _MPIJOBS, body)

    def get(self, name: str) -> Object:
        return self._request("GET", f"{_MPIJOBS}/{name}")

    def workers(self, name: str) -> list[Object]:
        """The pods of the workers that are not told to end, by index."""
        return [one for one in self._pods(name) if "deletionTimestamp" not in one["metadata"]]

    def until(self, met: Callable[[], object]) -> None:
        """Wait until something holds, while the operator works."""

        def turned() -> object:
            self.turn()
            return met()

        until(turned)

    def turn(self) -> None:
        """Bring what there is of each MPIJob up to what it wants."""
        for item in self._request("GET", _MPIJOBS)["items"]:
            if "deletionTimestamp" not in item["metadata"]:
                self._turn(item)

    def _turn(self, item: Object) -> None:
        spec, status = item["spec"], item.get("status") or {}
        suspend, roles = bool(spec["runPolicy"].get("suspend")), spec["mpiReplicaSpecs"]
        job = self._launcher(item, suspend)
        true = {one["type"] for one in (job.get("status") or {}).get("conditions") or () if one["status"] == "True"}
        end = "Succeeded" if "Complete" in true else "Failed" if "Failed" in true else ""
        pods = {one["metadata"]["name"]: one for one in self._pods(item["metadata"]["name"])}
        for index in range(roles["Worker"]["replicas"]):
            name = f"{item['metadata']['name']}-worker-{index}"
            if (suspend or end) and name in pods and "deletionTimestamp" not in pods[name]["metadata"]:
                self._request("DELETE", f"{_PODS}/{name}")
            elif not suspend and not end and name not in pods:
                meta = self._meta(item, name, "worker", **{f"{_PREFIX}/replica-index": str(index)})
                with contextlib.suppress(KubeError):
                    # The webhook or the name may not be free for a moment.
                    self._request("POST", _PODS, {"metadata": meta, "spec": roles["Worker"]["template"]["spec"]})
        if end and not status.get("conditions"):
            body = {"status": {"conditions": [{"type": end, "status": "True"}]}}
            self._request("PATCH", f"{_MPIJOBS}/{item['metadata']['name']}/status", body)

    def _launcher(self, item: Object, suspend: bool) -> Object:
        """The Job of the launcher, made or suspended as it should be."""
        name = f"{item['metadata']['name']}-launcher"
        try:
            job = self._request("GET", f"{_JOBS}/{name}")
        except KubeError:
            meta = self._meta(item, name, "launcher")
            template = {
                "metadata": {"labels": meta["labels"]},
                "spec": item["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"],
            }
            return self._request("POST", _JOBS, {"metadata": meta, "spec": {"template": template, "suspend": suspend}})
        if bool(job["spec"].get("suspend")) != suspend:
            job = self._request("PATCH", f"{_JOBS}/{name}", {"spec": {"suspend": suspend}})
        return job

    def _meta(self, item: Object, name: str, role: str, **labels: str) -> Object:
        meta = item["metadata"]
        own = {f"{_PREFIX}/operator-name": "mpi-operator", f"{_PREFIX}/job-name": meta["name"]}
        owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": meta["name"], "uid": meta["uid"]}
        return {
            "name": name,
            "labels": {**own, f"{_PREFIX}/job-role": role, **labels},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }

    def _pods(self, name: str) -> list[Object]:
        selector = f"?labelSelector={_PREFIX}/job-name={name},{_PREFIX}/job-role=worker"
        found = self._request("GET", f"{_PODS}{selector}")["items"]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    def _request(self, verb: str, path: str, body: Object | None = None) -> Object:
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        return dict(self.cluster.api.request(verb, path.format(self.namespace), body, kind))
