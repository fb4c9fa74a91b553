"""Admission of Jobs on a real API server: labelled ones become clusters or are refused, others are never reviewed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from installed import guarded, install
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from msgspec import structs
from patience import until
from running_operator import RunningOperator

from headrace.kube.foreign.names import ID_LABEL
from headrace.kube.foreign.policy import id_of, original
from headrace.kube.install import Install
from headrace.kube.operator_names import JOBS_CONFIGURATION
from headrace.minicluster.foreign.cluster import LABEL_KEY, LABEL_VALUE
from headrace.minicluster.foreign.job import read
from minicluster.foreign.samples import job

INSTALL = Install(namespace="headrace-jobs")
_HOOK = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{JOBS_CONFIGURATION}"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def operator(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningOperator]:
    """An operator whose webhook stands before the control plane's Jobs; it looks after none of the tests'."""
    install(control_plane, INSTALL)
    folder = tmp_path_factory.mktemp("jobs")
    with guarded(control_plane, INSTALL, folder, f"--namespace={INSTALL.namespace}") as found:
        # The API server learns of the webhook moments later.
        until(lambda: id_of(Jobs(control_plane, "default").create(labelled(job()), "dryRun=All")) != "")
        yield found


class Jobs:
    """Jobs of one namespace, written as the administrator; refusals are KubeError."""

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def create(self, body: Object, options: str = "") -> Object:
        return dict(self.plane.api.request("POST", f"{self._path}?{options}", body))

    def get(self, name: str) -> Object:
        return dict(self.plane.api.get(f"{self._path}/{name}"))

    def patch(self, name: str, body: Object) -> Object:
        return dict(self.plane.api.request("PATCH", f"{self._path}/{name}", body, "application/merge-patch+json"))

    def kubectl(self, *words: str, body: Object) -> str:
        return str(self.plane.kubectl(f"--namespace={self.namespace}", *words, "-f", "-", input=json.dumps(body)))


@pytest.fixture
def jobs(operator: RunningOperator, control_plane: Cluster, namespace: str) -> Jobs:
    return Jobs(control_plane, namespace)


def labelled(document: Object) -> Object:
    return {**document, "metadata": {**document["metadata"], "labels": {LABEL_KEY: LABEL_VALUE}}}


def test_a_job_that_is_applied_with_the_label_is_a_cluster(jobs: Jobs) -> None:
    jobs.kubectl("apply", body=labelled(job(size=2)))
    found = jobs.get("hello")
    (broker,) = found["spec"]["template"]["spec"]["containers"]
    assert broker["command"] == ["/mnt/flux/view/bin/headrace-pod", "cluster"] and broker["args"] == ["hostname"]
    assert found["metadata"]["labels"][ID_LABEL] == id_of(found) != ""
    # What the operator makes the plan of is the Job that was applied.
    before = read({**job(size=2), "metadata": {**found["metadata"], "labels": {}}})
    assert structs.replace(read(original(found)), job={}) == structs.replace(before, job={})


def test_a_job_that_cannot_be_a_cluster_is_refused_as_kubectl_shows_it(jobs: Jobs) -> None:
    with pytest.raises(KubeError, match=r'The Job "hello" is invalid: metadata\.annotations\..*\.runn: is no option'):
        jobs.kubectl("create", body=labelled(job("{runn: node}", size=2)))
