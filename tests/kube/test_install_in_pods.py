"""The install file as users apply it: the operator in a pod of its own image, its webhook behind its Service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import IMAGE, installed_in_pods
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from labelled_jobs import Jobs as LabelledJobs
from labelled_jobs import labelled
from patience import TIMEOUT, until
from running_operator import MiniClusters, RunningOperator, define_kind

from headrace.cli.main import headrace
from headrace.minicluster.operator.names import CONFIGURATION, OPERATOR
from headrace.programs.operator.install import Install

PLACE = "headrace-system"


@pytest.fixture
def installed(
    cluster: Cluster, operator: RunningOperator, view: str, namespace: str, tmp_path: Path
) -> Iterator[MiniClusters]:
    """A namespace whose MiniClusters an installed operator of two replicas looks after; the other one rests."""
    chosen = Install(
        namespace=PLACE, image=IMAGE, view_image=view, watched=(namespace,), replicas=2, flux_operator_namespace=PLACE,
        metrics_api=True,
    )  # fmt: skip
    with installed_in_pods(cluster, operator, chosen, tmp_path):
        yield MiniClusters(cluster, namespace)


def _jobs_are_clusters(jobs: LabelledJobs) -> None:
    """A labelled Job goes through the webhook and the controller of the install, and ends as its command does."""
    jobs.kubectl("apply", "-f", "-", input=json.dumps(labelled("ranks", "flux", "getattr", "rank")))
    end = jobs.ended("ranks")
    assert (end["kind"], end["exit"]) == ("Complete", 0)
    assert sorted(jobs.log("ranks").split()) == ["0", "1"]
    jobs.kubectl("apply", "-f", "-", input=json.dumps(labelled("fails", "sh", "-c", "exit 3")))
    end = jobs.ended("fails")
    assert (end["kind"], end["exit"]) == ("Failed", 3)


def test_the_installed_operator_guards_and_runs_miniclusters(cluster: Cluster, installed: MiniClusters) -> None:
    def refused() -> bool:
        try:
            installed.apply("wrong", size=2, maxSize=1)
        except KubeError as exc:
            assert "maxSize" in str(exc) or "webhook" in str(exc)
            return True
        return False

    assert refused()
    hook = cluster.api.get(f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}")[
        "webhooks"
    ][0]
    assert hook["clientConfig"]["caBundle"] and hook["failurePolicy"] == "Fail"

    def sourceless_is_refused() -> bool:
        """A rule that only the webhook knows, once its Service leads to it."""
        volumes = {"v": {"path": "/x"}}
        try:
            installed.apply("wrong", containers=[{"image": "local/busybox:1", "command": "x", "volumes": volumes}])
        except KubeError as exc:
            return "spec.containers[0].volumes.v: has no source" in str(exc).replace("\n* ", " ")
        return False

    until(sourceless_is_refused)
    installed.apply("hello", size=2, tasks=2)
    status = installed.phase("hello", "Finished")
    assert status["exitCode"] == 0
    assert installed.log("hello").splitlines().count("hello") == 2
    _jobs_are_clusters(LabelledJobs(cluster, installed.namespace))
    lease = cluster.kubectl("get", "lease", OPERATOR, f"--namespace={PLACE}", "-o", "jsonpath={.spec.holderIdentity}")
    assert lease.startswith(OPERATOR)
    for pod in cluster.kubectl("get", "pods", f"--namespace={PLACE}", "-o", "name").split():
        lines = cluster.kubectl("logs", pod, f"--namespace={PLACE}")
        assert "forbidden" not in lines.lower() and "Traceback" not in lines
    _goes_without_a_trace(cluster)


def _goes_without_a_trace(cluster: Cluster) -> None:
    """The APIs of metrics are served, and go with the operator: else no namespace could be deleted any more."""

    def apis() -> list[str]:
        found = cluster.kubectl("get", "apiservices", "-l", f"app.kubernetes.io/name={OPERATOR}", "-o", "name")
        return found.split()

    for one in apis():
        cluster.kubectl("wait", "--for=condition=Available", one, TIMEOUT)
    assert len(apis()) == 2
    assert headrace(["operator", "uninstall", "--kubeconfig", str(cluster.kubeconfig), "--delete-miniclusters"]) == 0
    assert apis() == []
    cluster.kubectl("create", "namespace", f"{PLACE}-after")
    cluster.kubectl("delete", "namespace", f"{PLACE}-after", TIMEOUT)
    # Other tests have MiniClusters in this cluster, too.
    define_kind(cluster)
