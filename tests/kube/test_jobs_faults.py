"""What goes wrong with labelled Jobs on a real Kubernetes, and what happens to them meanwhile."""

from __future__ import annotations

import base64
import json
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from installed import guarded, install, uninstall
from kubecluster import faults
from kubecluster.cluster import Cluster
from labelled_jobs import Jobs, labelled
from patience import TIMEOUT, until
from running_operator import VIEW, RunningOperator, container_state

from headrace.flux_jobs.operator.policy import flux_job, id_of
from headrace.minicluster.operator.builders.images import Images
from headrace.minicluster.operator.keys import fresh_keys
from headrace.programs.operator.install import Install
from waiting import stays

Object = dict[str, Any]


@pytest.fixture
def jobs(cluster: Cluster, operator: RunningOperator, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, Object]:
    """A folder, and fields of a Job whose command ends when `go` is there. The nodes see the files of this machine."""
    volume = {"name": "test", "hostPath": {"path": str(tmp_path)}}
    mount = {"name": "test", "mountPath": "/test"}
    return tmp_path, {"pod": {"volumes": [volume]}, "container": {"volumeMounts": [mount]}}


WAITS = ("sh", "-c", "until [ -e /test/go ]; do sleep .1; done; hostname")


def flux(jobs: Jobs, pod: str, *words: str) -> str:
    """Run a flux command in a pod; its output."""
    uri = "FLUX_URI=local:///mnt/flux/config/run/flux/local"
    return jobs.kubectl("exec", pod, "-c", "main", "--", "env", uri, "/mnt/flux/view/bin/flux", *words)


def up(jobs: Jobs, name: str, times: int = 1) -> None:
    """Wait until the brokers of a Job are up for the `times`-th time."""
    until(lambda: [reason for reason, _ in jobs.events(name)].count("BrokersUp") >= times)


def running(jobs: Jobs, name: str, index: int) -> str:
    """Wait until a pod of this index runs; its name."""
    found: list[str] = []

    def looked() -> bool:
        found[:] = [
            pod["metadata"]["name"]
            for pod in jobs.pods(name, index)
            if "running" in container_state(pod, "main") and not pod["metadata"].get("deletionTimestamp")
        ]
        return bool(found)

    until(looked)
    return found[0]


def test_a_killed_lead_is_replaced_and_runs_the_command_again_with_its_followers(
    jobs: Jobs, cluster: Cluster, held: tuple[Path, Object]
) -> None:
    folder, fields = held
    jobs.create("lead", *WAITS, **fields)
    up(jobs, "lead")
    lead, follower = running(jobs, "lead", 0), running(jobs, "lead", 1)
    faults.kill_container(cluster, jobs.namespace, lead, "main")
    up(jobs, "lead", 2)
    assert running(jobs, "lead", 0) != lead
    assert running(jobs, "lead", 1) == follower, "its broker was started again in place"
    (folder / "go").touch()
    assert (jobs.ended("lead")["kind"], jobs.ended("lead")["exit"]) == ("Complete", 0)


def test_a_killed_follower_is_replaced_and_takes_jobs_again(jobs: Jobs, cluster: Cluster) -> None:
    jobs.create("follower", options="{interactive: true}")
    up(jobs, "follower")
    lead, follower = running(jobs, "follower", 0), running(jobs, "follower", 1)
    faults.kill_container(cluster, jobs.namespace, follower, "main")
    until(lambda: running(jobs, "follower", 1) != follower)
    until(lambda: "2" in flux(jobs, lead, "resource", "list", "-s", "free", "-no", "{nnodes}"))
    assert sorted(flux(jobs, lead, "run", "-N2", "hostname").split()) == ["follower-0", "follower-1"]


def test_a_job_goes_on_without_an_operator_and_the_next_one_tells_its_end(
    jobs: Jobs, operator: RunningOperator, held: tuple[Path, Object]
) -> None:
    folder, fields = held
    jobs.create("alone", *WAITS, **fields)
    up(jobs, "alone")
    operator.stop(signal.SIGKILL)
    try:
        (folder / "go").touch()
        jobs.kubectl("wait", "--for=condition=Complete", "job/alone", TIMEOUT)
    finally:
        operator.start()
    assert jobs.ended("alone")["exit"] == 0
    assert sorted(jobs.log("alone").split()) == ["alone-0", "alone-1"]


def test_pods_wait_for_an_operator_that_is_not_there_yet(jobs: Jobs, operator: RunningOperator) -> None:
    operator.stop(signal.SIGKILL)
    try:
        jobs.create("early", "hostname")
        until(lambda: len(jobs.pods("early")) == 2)
        stays(lambda: not any("running" in container_state(pod, "headrace-view") for pod in jobs.pods("early")), 1.0)
    finally:
        operator.start()
    assert jobs.ended("early")["exit"] == 0


def test_a_job_that_is_deleted_before_its_secret_exists_leaves_nothing(jobs: Jobs, operator: RunningOperator) -> None:
    operator.stop(signal.SIGKILL)
    try:
        jobs.create("gone", "hostname")
        until(lambda: len(jobs.pods("gone")) == 2)
        jobs.kubectl("delete", "job", "gone", "--wait=false")
    finally:
        operator.start()
    until(lambda: jobs.kubectl("get", "job,pod,svc,secret", "-o", "name").split() == [])


def test_a_job_that_is_suspended_starts_anew_with_its_keys(jobs: Jobs, held: tuple[Path, Object]) -> None:
    folder, fields = held
    jobs.create("pauses", *WAITS, suspend=True, **fields)
    until(lambda: jobs.get("service")["items"])
    assert jobs.pods("pauses") == jobs.get("secret")["items"] == []
    for number in (1, 2):
        jobs.kubectl("patch", "job", "pauses", "-p", '{"spec": {"suspend": false}}')
        up(jobs, "pauses", number)
        if number == 1:
            secret = jobs.get("secret")["items"]
            jobs.kubectl("patch", "job", "pauses", "-p", '{"spec": {"suspend": true}}')
            until(lambda: jobs.pods("pauses") == [])
    (folder / "go").touch()
    assert jobs.ended("pauses")["exit"] == 0
    assert jobs.get("secret")["items"] == secret


def scale(jobs: Jobs, name: str, size: int) -> None:
    jobs.kubectl("patch", "job", name, "-p", json.dumps({"spec": {"parallelism": size, "completions": size}}))


def test_a_job_grows_to_its_largest_size_and_tells_the_jobs_that_it_loses_when_it_shrinks(jobs: Jobs) -> None:
    jobs.create("grows", options="{interactive: true, maxSize: 3}", size=1)
    up(jobs, "grows")
    lead = running(jobs, "grows", 0)
    scale(jobs, "grows", 3)
    until(lambda: "3" in flux(jobs, lead, "resource", "list", "-s", "free", "-no", "{nnodes}"))
    kept, lost = (
        flux(jobs, lead, "submit", f"--requires=hosts:grows-{index}", "sleep", "1000").strip() for index in (0, 2)
    )
    for job in (kept, lost):
        flux(jobs, lead, "job", "wait-event", job, "start")
    scale(jobs, "grows", 2)
    until(lambda: "JobsLost" in dict(jobs.events("grows")))
    text = dict(jobs.events("grows"))["JobsLost"]
    # Without a locale, flux writes ids with an f.
    assert (lost[1:] in text, kept[1:] in text) == (True, False)
    assert flux(jobs, lead, "jobs", "-no", "{id.f58}").split() == [kept]


def test_a_name_that_does_not_resolve_is_told(jobs: Jobs) -> None:
    jobs.create("lost", "hostname", pod={"subdomain": "nobody"})
    until(lambda: "NameNotResolved" in dict(jobs.events("lost")))
    assert "there is no Service nobody" in dict(jobs.events("lost"))["NameNotResolved"]


def test_pods_that_fit_no_node_say_what_is_short(jobs: Jobs) -> None:
    jobs.create("large", "hostname", container={"resources": {"requests": {"cpu": "100"}}})
    until(lambda: "PodsNotRunning" in dict(jobs.events("large")))
    assert dict(jobs.events("large"))["PodsNotRunning"] == "0 of 2 pods run: short of cpu on 2 nodes"


def test_a_job_that_admission_has_not_seen_gets_a_warning(jobs: Jobs) -> None:
    jobs.post(labelled("unseen", "sleep", "1000", size=1))
    until(lambda: "NotACluster" in dict(jobs.events("unseen")))
    assert jobs.get("secret")["items"] == []


def test_a_pod_without_the_secret_joins_nothing(jobs: Jobs) -> None:
    """A stranger has all that a pod of the Job has, but keys of its own."""
    job = flux_job(
        labelled("safe", options="{interactive: true, maxSize: 2}", size=1), Images(VIEW), uuid.uuid4().hex[:10]
    )
    jobs.post(job)
    up(jobs, "safe")
    lead = running(jobs, "safe", 0)
    (secret,) = jobs.get("secret")["items"]
    made = fresh_keys()
    texts = {
        "curve.cert": made.curve,
        "channel.cert": made.channel,
        "channel-client.pub": made.channel_client_public,
    }
    data = {**secret["data"], **{name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}}
    other: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "data": data}
    template = jobs.get("job", "safe")["spec"]["template"]
    for volume in template["spec"]["volumes"]:
        if volume["name"] == "headrace-cluster":
            volume["secret"]["secretName"] = "own"
    for one in template["spec"]["containers"]:
        one["env"] = [*one["env"], {"name": "JOB_COMPLETION_INDEX", "value": "1"}]
    template["spec"]["hostname"] = "safe-1"
    labels = {
        "flux-framework.org/headrace-cluster": template["metadata"]["labels"]["flux-framework.org/headrace-cluster"]
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "labels": labels},
        "spec": template["spec"],
    }
    for body in (other, pod):
        jobs.kubectl("apply", "-f", "-", input=json.dumps(body))
    jobs.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/stranger", TIMEOUT)
    told = "no broker with the certificate of"
    until(lambda: told in jobs.kubectl("logs", "stranger", "-c", "main"))
    stays(lambda: flux(jobs, lead, "resource", "list", "-s", "free", "-no", "{nnodes}") == "1\n", 3.0)


def test_the_rights_of_an_install_suffice_from_admission_to_the_end(
    jobs: Jobs, cluster: Cluster, operator: RunningOperator, tmp_path: Path
) -> None:
    """Applied by kubectl, admitted by the operator's webhook, scaled, and ended."""
    chosen = Install(namespace="headrace-rights")
    install(cluster, chosen)
    operator.stop()
    try:
        with guarded(cluster, chosen, tmp_path):

            def created() -> bool:
                body = labelled("right", "sleep", "1000", size=1, options="{maxSize: 2, run: program}")
                # The API server learns of the webhook moments later.
                jobs.kubectl("apply", "-f", "-", input=json.dumps(body))
                if id_of(jobs.get("job", "right")):
                    return True
                jobs.kubectl("delete", "job", "right")
                return False

            until(created)
            up(jobs, "right")
            scale(jobs, "right", 2)
            lead = running(jobs, "right", 0)
            until(lambda: flux(jobs, lead, "resource", "list", "-s", "free", "-no", "{nnodes}") == "2\n")
            flux(jobs, lead, "shutdown", "--quiet")
            assert "exit" in jobs.ended("right")
    finally:
        operator.start()
        uninstall(cluster, chosen)
