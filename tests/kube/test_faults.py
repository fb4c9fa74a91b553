"""What goes wrong with MiniClusters: status, Events and exit code tell it, and what can be mended is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kubecluster import build, faults
from kubecluster.cluster import Cluster
from patience import TIMEOUT, until
from running_operator import MiniClusters, RunningOperator, container_state, index_of

# An instance without a command stays until it is stopped.
STAYS: dict[str, Any] = {"interactive": True, "command": ""}


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder, and the container of a MiniCluster whose job makes `over` there when `go` is there, and ends. The nodes
    see the files of this machine."""
    volumes = {"test": {"hostPath": str(tmp_path), "path": "/test"}}
    command = "sh -c 'until [ -e /test/go ]; do sleep .1; done; touch /test/over'"
    return tmp_path, {"image": "local/busybox:1", "command": command, "volumes": volumes}


def codes_of_leads(miniclusters: MiniClusters, name: str) -> list[int]:
    """The exit codes of the containers of all leads, also of those that were replaced."""
    leads = [pod for pod in miniclusters.pods(name) if index_of(pod) == 0]
    return [container_state(pod, name)["terminated"]["exitCode"] for pod in leads]


def failure_of(status: dict[str, Any]) -> str:
    """The reason of the condition Failed."""
    return str(next(one["reason"] for one in status["conditions"] if one["type"] == "Failed"))


def test_a_command_that_is_not_there_fails_with_127(miniclusters: MiniClusters) -> None:
    miniclusters.apply("nosuch", size=2, command="no-such-program")
    status = miniclusters.phase("nosuch", "Failed")
    assert status["exitCode"] == 127
    assert status["reason"].startswith(
        "the job has failed (exec): task 0 (host nosuch-0): start failed: no-such-program"
    )
    assert miniclusters.events("nosuch")[-1] == "Failed"


def test_a_job_that_kills_itself_fails_with_its_code_and_does_not_run_again(miniclusters: MiniClusters) -> None:
    miniclusters.apply("selfkill", size=2, command="sh -c 'kill -9 $$'")
    status = miniclusters.phase("selfkill", "Failed")
    assert status["exitCode"] == 137
    assert status["reason"] == "the job was ended by signal 9"
    assert failure_of(status) == "JobFailed"
    assert codes_of_leads(miniclusters, "selfkill") == [247]


def test_a_job_that_is_cancelled_is_told_so(miniclusters: MiniClusters) -> None:
    command = "sh -c 'flux cancel -m enough $FLUX_JOB_ID; sleep 1000'"
    miniclusters.apply("stopped", size=1, command=command)
    status = miniclusters.phase("stopped", "Failed")
    assert (status["reason"], failure_of(status)) == ("the job was cancelled: enough", "JobCancelled")
    assert status["exitCode"] == 143
    assert (status["jobs"]["run"], status["jobs"]["inactive"]) == (0, 1)
    assert codes_of_leads(miniclusters, "stopped") == [241]


@pytest.mark.parametrize("fault", [faults.stopped, faults.hung])
def test_names_that_resolve_late_delay_the_brokers_by_no_more_than_that(
    miniclusters: MiniClusters, cluster: Cluster, fault: Callable[[Cluster, str], AbstractContextManager[None]]
) -> None:
    with fault(cluster, "coredns"):
        miniclusters.apply("late", **STAYS, size=2)
        for index in range(2):
            miniclusters.running("late", index)
        until(lambda: miniclusters.status("late").get("brokersUp") == 1)
        assert miniclusters.status("late")["phase"] == "Starting"
    began = time.monotonic()
    miniclusters.phase("late", "Running")
    # The Flux Operator's followers sleep for 15 seconds after each attempt that has failed.
    assert time.monotonic() - began < 15


def test_a_job_that_kills_itself_while_no_operator_runs_does_not_run_again(
    miniclusters: MiniClusters, operator: RunningOperator, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    command = "sh -c 'until [ -e /test/go ]; do sleep .1; done; kill -9 $$'"
    miniclusters.apply("alone", size=1, containers=[{**container, "command": command}])
    miniclusters.phase("alone", "Running")
    operator.stop()
    try:
        (folder / "go").touch()
        miniclusters.kubectl("wait", "--for=condition=Failed", "job/alone", TIMEOUT)
    finally:
        operator.start()
    status = miniclusters.phase("alone", "Failed")
    assert (status["exitCode"], status["reason"]) == (137, "the job was ended by signal 9")
    assert codes_of_leads(miniclusters, "alone") == [247]


def test_a_command_that_fails_is_run_again_in_its_pod_where_that_is_asked_for(
    miniclusters: MiniClusters, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    command = "sh -c 'echo >> /test/runs; [ $(wc -l < /test/runs) -gt 1 ] || exit 3; hostname'"
    pod = {"restartPolicy": "OnFailure"}
    miniclusters.apply("again", size=2, tasks=2, pod=pod, containers=[{**container, "command": command}])
    status = miniclusters.phase("again", "Finished")
    assert (status["exitCode"], status["podFailures"]) == (0, 1)
    assert (folder / "runs").read_text().count("\n") >= 3
    miniclusters.apply("toooften", size=2, pod=pod, backoffLimit=1, command="sh -c 'exit 3'")
    status = miniclusters.phase("toooften", "Failed")
    assert (status["exitCode"], failure_of(status)) == (3, "JobFailed")


def test_who_waits_for_a_short_job_to_run_sees_it_run(miniclusters: MiniClusters) -> None:
    miniclusters.apply("short", size=1, suspend=True, command="true")
    miniclusters.phase("short", "Suspended")
    where = {**os.environ, "KUBECONFIG": str(miniclusters.cluster.kubeconfig)}
    wait = ["wait", "--for=condition=JobRunning", "mc/short", TIMEOUT, "-n", miniclusters.namespace]
    with subprocess.Popen([build.program("kubernetes", "kubectl"), *wait], env=where, stdout=subprocess.PIPE) as waits:
        miniclusters.kubectl("patch", "mc", "short", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        assert waits.wait() == 0
    miniclusters.phase("short", "Finished")
    miniclusters.kubectl("wait", "--for=condition=JobRunning=false", "mc/short", TIMEOUT)
    running = next(one for one in miniclusters.status("short")["conditions"] if one["type"] == "JobRunning")
    assert running["reason"] == "Ended" and running["message"].startswith("the job ran from 2")


def test_an_image_that_is_not_there_is_named(miniclusters: MiniClusters) -> None:
    miniclusters.apply("noimage", size=2, containers=[{"image": "local/absent:1", "command": "true"}])
    reason = miniclusters.reason("noimage", lambda text: "cannot be pulled" in text)
    assert reason.startswith("0 of 2 pods, image ")
    assert "local/absent:1 of container noimage cannot be pulled" in reason
    assert miniclusters.status("noimage")["phase"] == "Starting"


def test_an_image_that_is_being_pulled_is_named(miniclusters: MiniClusters, cluster: Cluster) -> None:
    # A registry that takes connections and never answers.
    with socket.create_server((cluster.addresses.machine, 0)) as registry:
        image = f"{cluster.addresses.machine}:{registry.getsockname()[1]}/large:1"
        miniclusters.apply("pulls", size=1, containers=[{"image": image, "command": "true"}])
        reason = miniclusters.reason("pulls", lambda text: "image" in text)
        assert reason == f"0 of 1 pods, image {image} of container pulls is being pulled"
        miniclusters.kubectl("delete", "mc", "pulls", "--wait=false")


def test_pods_that_fit_no_node_say_what_is_short(miniclusters: MiniClusters) -> None:
    resources = {"requests": {"cpu": "100"}}
    containers = [{"image": "local/busybox:1", "command": "true", "resources": resources}]
    miniclusters.apply("large", size=2, containers=containers)
    assert miniclusters.reason("large", lambda reason: "short" in reason) == "0 of 2 pods, short of cpu on 2 nodes"
    status = miniclusters.status("large")
    assert status["phase"] == "Pending"
    waiting = next(one for one in status["conditions"] if one["type"] == "JobWaitingForResources")
    assert (waiting["status"], waiting["message"]) == ("True", "0 of 2 pods, short of cpu on 2 nodes")


def test_a_quota_is_named(miniclusters: MiniClusters) -> None:
    miniclusters.kubectl("create", "quota", "small", "--hard=pods=1")
    miniclusters.apply("much", size=2)
    reason = miniclusters.reason("much", lambda text: "quota" in text)
    assert "exceeded quota: small" in reason


def test_a_start_that_gets_only_some_of_its_pods_fails_in_time_and_lets_them_go(
    miniclusters: MiniClusters, cluster: Cluster
) -> None:
    cores = int(miniclusters.get("node", "node-0")["status"]["allocatable"]["cpu"])
    resources = {"requests": {"cpu": f"{cores * 600}m"}}
    containers = [{"image": "local/busybox:1", "command": "true", "resources": resources}]
    miniclusters.apply("half", size=3, containers=containers)
    miniclusters.reason("half", lambda text: text == "2 of 3 pods, short of cpu on 2 nodes")
    # The time is over when it is set: how long two pods take to start is not known.
    miniclusters.kubectl("patch", "mc", "half", "--type=merge", "-p", '{"spec": {"startTimeoutSeconds": 1}}')
    status = miniclusters.phase("half", "Failed")
    assert status["reason"] == "not all pods ran within spec.startTimeoutSeconds (1): short of cpu on 2 nodes"
    until(lambda: not [pod for pod in miniclusters.pods("half") if pod["status"]["phase"] in ("Pending", "Running")])
    until(lambda: miniclusters.get("job", "half")["status"].get("active", 0) == 0)


def test_a_killed_follower_is_replaced_and_takes_jobs_again(miniclusters: MiniClusters, cluster: Cluster) -> None:
    miniclusters.apply("follower", size=2, **STAYS)
    miniclusters.phase("follower", "Running")
    faults.kill_container(cluster, miniclusters.namespace, miniclusters.running("follower", 1), "follower")
    reason = miniclusters.reason("follower", lambda text: "1 of 2 brokers up" in text)
    assert miniclusters.status("follower")["phase"] == "Running", reason
    miniclusters.wait("follower", "ready", "2/2")
    assert miniclusters.flux("follower", "run", "-N2", "echo", "both").split() == ["both"] * 2


def test_a_killed_lead_is_replaced_and_its_followers_come_back(miniclusters: MiniClusters, cluster: Cluster) -> None:
    miniclusters.apply("lead", size=2, **STAYS)
    miniclusters.phase("lead", "Running")
    lead, follower = miniclusters.running("lead"), miniclusters.running("lead", 1)
    faults.kill_container(cluster, miniclusters.namespace, lead, "lead")
    until(lambda: miniclusters.status("lead")["ready"] != "2/2")
    until(lambda: miniclusters.running("lead") != lead)
    miniclusters.wait("lead", "ready", "2/2")
    miniclusters.phase("lead", "Running")
    assert miniclusters.running("lead", 1) == follower, "its broker was started again in place"
    assert miniclusters.flux("lead", "run", "-N2", "echo", "both").split() == ["both"] * 2


def test_a_deleted_lead_is_replaced_and_runs_the_command_again_with_its_followers(
    miniclusters: MiniClusters, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    miniclusters.apply("deleted", size=2, containers=[container])
    miniclusters.phase("deleted", "Running")
    lead, follower = miniclusters.running("deleted"), miniclusters.running("deleted", 1)
    miniclusters.kubectl("delete", "pod", lead, "--wait=false")
    until(lambda: miniclusters.running("deleted") != lead)
    miniclusters.wait("deleted", "ready", "2/2")
    assert miniclusters.running("deleted", 1) == follower
    (folder / "go").touch()
    assert miniclusters.phase("deleted", "Finished")["exitCode"] == 0


def test_a_deleted_lead_of_a_drained_node_finds_its_followers(
    miniclusters: MiniClusters, cluster: Cluster, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    miniclusters.apply("drained", size=2, backoffLimit=0, containers=[container])
    miniclusters.phase("drained", "Running")
    lead = miniclusters.running("drained")
    with faults.drained(cluster, miniclusters.get("pod", lead)["spec"]["nodeName"]):
        until(lambda: miniclusters.running("drained") != lead)
        miniclusters.wait("drained", "ready", "2/2")
        (folder / "go").touch()
        assert miniclusters.phase("drained", "Finished")["exitCode"] == 0


def hang_up(miniclusters: MiniClusters, name: str, rank: int, signal: str = "STOP") -> None:
    """Stop the process of a broker, or let it go on."""
    miniclusters.inside(name, "sh", "-c", f"kill -{signal} $(pidof flux-broker-{rank})", index=rank)


def test_followers_that_hang_are_named_and_come_back_or_are_replaced(miniclusters: MiniClusters) -> None:
    miniclusters.apply("hangs", size=3, **STAYS)
    miniclusters.phase("hangs", "Running")
    job = miniclusters.flux("hangs", "submit", "-N3", "-n3", "sleep", "inf").strip()
    miniclusters.flux("hangs", "job", "wait-event", job, "start")
    # Silence is told after this time, instead of half a minute.
    miniclusters.flux("hangs", "setattr", "tbon.torpid_max", "12s")
    for rank in (1, 2):
        hang_up(miniclusters, "hangs", rank)
    reason = "1 of 3 brokers up, the brokers of hangs-[1-2] do not answer"
    miniclusters.reason("hangs", lambda text: text == reason)
    assert miniclusters.status("hangs")["phase"] == "Running"
    assert "Unresponsive" in miniclusters.events("hangs")
    assert miniclusters.flux("hangs", "jobs", "-no", "{id} {state}").strip() == f"{job} RUN"
    assert miniclusters.flux("hangs", "run", "-n1", "hostname").strip() == "hangs-0"

    hang_up(miniclusters, "hangs", 1, "CONT")
    miniclusters.reason("hangs", lambda text: text == "2 of 3 brokers up, the broker of hangs-2 does not answer")
    assert miniclusters.flux("hangs", "jobs", "-no", "{id} {state}").strip() == f"{job} RUN"
    assert miniclusters.flux("hangs", "run", "-N2", "-n2", "echo", "both").split() == ["both"] * 2
    miniclusters.kubectl("delete", "pod", miniclusters.running("hangs", 2), "--wait=false")
    failure = miniclusters.flux("hangs", "job", "wait-event", job, "exception")
    assert "type=node-failure" in failure or "lost" in failure, failure
    miniclusters.wait("hangs", "ready", "3/3")
    assert miniclusters.flux("hangs", "run", "-N3", "echo", "all").split() == ["all"] * 3
    miniclusters.reason("hangs", lambda text: not text)


def test_a_lead_that_hangs_is_named_and_replaced_when_its_pod_is_deleted(
    miniclusters: MiniClusters, operator: RunningOperator
) -> None:
    miniclusters.apply("stuck", size=2, **STAYS)
    miniclusters.phase("stuck", "Running")
    lead, follower = miniclusters.running("stuck"), miniclusters.running("stuck", 1)
    hang_up(miniclusters, "stuck", 0)
    miniclusters.reason("stuck", lambda text: text == "1 of 2 brokers up, the broker of stuck-0 does not answer")
    assert miniclusters.status("stuck")["phase"] == "Running"
    assert "Unresponsive" in miniclusters.events("stuck")
    miniclusters.kubectl("delete", "pod", lead, "--wait=false")
    until(lambda: miniclusters.running("stuck") != lead)
    miniclusters.wait("stuck", "ready", "2/2")
    assert miniclusters.running("stuck", 1) == follower
    assert miniclusters.flux("stuck", "run", "-N2", "echo", "both").split() == ["both"] * 2
    miniclusters.reason("stuck", lambda text: not text)


def test_a_lead_that_is_lost_too_often_fails_the_minicluster(miniclusters: MiniClusters, cluster: Cluster) -> None:
    """Its followers end with it, so that all pods are made anew."""
    miniclusters.apply("often", size=2, backoffLimit=1, flux={"completeWorkers": True}, **STAYS)
    miniclusters.phase("often", "Running")
    first = miniclusters.get("job", "often")
    faults.kill_container(cluster, miniclusters.namespace, miniclusters.running("often"), "often")
    until(lambda: "LeadReplaced" in miniclusters.events("often"))
    miniclusters.wait("often", "podFailures", "1")
    miniclusters.phase("often", "Running")
    again = miniclusters.get("job", "often")
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert (first["spec"]["backoffLimit"], again["spec"]["backoffLimit"]) == (1, 0)
    faults.kill_container(cluster, miniclusters.namespace, miniclusters.running("often"), "often")
    status = miniclusters.phase("often", "Failed")
    assert status["reason"] == "pods have failed more often than spec.backoffLimit allows"
    assert failure_of(status) == "BackoffLimitExceeded"
    # A follower that has not ended yet when Kubernetes ends its pod with the Job counts, too.
    until(lambda: miniclusters.status("often").get("podFailures") in (2, 3))


def test_pods_of_a_drained_node_move_and_are_not_counted_as_failures(
    miniclusters: MiniClusters, cluster: Cluster
) -> None:
    miniclusters.apply("moves", size=2, backoffLimit=0, **STAYS)
    miniclusters.phase("moves", "Running")
    node = next(pod["spec"]["nodeName"] for pod in miniclusters.pods("moves") if index_of(pod) == 1)
    other = {"node-0": "node-1", "node-1": "node-0"}[node]
    with faults.drained(cluster, node):

        def nodes() -> list[str]:
            pods = miniclusters.pods("moves")
            return [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]

        until(lambda: nodes() == [other, other])
        miniclusters.wait("moves", "ready", "2/2")
        miniclusters.phase("moves", "Running")


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_that_does_not_answer_is_named_until_it_is_back(
    miniclusters: MiniClusters, cluster: Cluster, index: int
) -> None:
    """The Kubernetes of the tests takes 20 s to notice, and would delete the pods five minutes later."""
    miniclusters.apply("dead", size=2, **STAYS)
    miniclusters.phase("dead", "Running")
    miniclusters.kubectl("wait", "--for=condition=Ready", "pod", "-l", "job-name=dead", TIMEOUT)
    pod = next(pod for pod in miniclusters.pods("dead") if index_of(pod) == index)
    node = pod["spec"]["nodeName"]
    number = int(node.removeprefix("node-"))
    its, others = cluster.addresses.pods_of(number), (cluster.addresses.pods, f"{cluster.addresses.machine}/32")
    with contextlib.ExitStack() as silent:
        silent.enter_context(faults.hung(cluster, f"kubelet-{number}"))
        for other in others:
            silent.enter_context(faults.parted(cluster, its, other))
        # The lead's last word counts until its connection has timed out, which takes the operator as long.
        named = f"of 2 brokers up, node {node} does not answer"
        miniclusters.reason("dead", lambda text: text.partition(" ")[2].startswith(named))
        assert miniclusters.status("dead")["phase"] == "Running"
        until(lambda: "Degraded" in miniclusters.events("dead"))
        miniclusters.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
        miniclusters.reason("dead", lambda text: "on a node that does not answer: it is recreated once" in text)
    miniclusters.wait("dead", "ready", "2/2")
    miniclusters.phase("dead", "Running")


def test_an_outage_of_the_api_server_delays_the_news_and_nothing_else(
    miniclusters: MiniClusters, cluster: Cluster, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    miniclusters.apply("outage", size=2, containers=[container])
    miniclusters.phase("outage", "Running")
    with faults.stopped(cluster, "kube-apiserver"):
        (folder / "go").touch()
        until((folder / "over").exists)
    status = miniclusters.phase("outage", "Finished")
    assert status["exitCode"] == 0
    miniclusters.apply("after", size=1)
    miniclusters.phase("after", "Finished")


def test_an_operator_that_is_killed_midway_is_followed_by_one_that_finds_out(
    miniclusters: MiniClusters, operator: RunningOperator, held: tuple[Path, dict[str, Any]]
) -> None:
    folder, container = held
    miniclusters.apply("midway", size=2, containers=[container])
    miniclusters.phase("midway", "Running")
    before = {kind: miniclusters.get(kind)["items"] for kind in ("job", "service", "configmap", "secret")}
    operator.stop(signal.SIGKILL)
    miniclusters.apply("meanwhile", size=1)
    operator.start()
    miniclusters.phase("meanwhile", "Finished")
    (folder / "go").touch()
    status = miniclusters.phase("midway", "Finished")
    assert status["exitCode"] == 0
    for kind, items in before.items():
        for item in items:
            now = miniclusters.get(kind, item["metadata"]["name"])
            assert now["metadata"]["uid"] == item["metadata"]["uid"]
            assert now.get("spec", now.get("data")) == item.get("spec", item.get("data"))
    events = miniclusters.events("midway")
    assert len(events) == len(set(events)), "nothing is told twice"


def test_a_lost_secret_costs_no_jobs_and_keeps_no_pod_from_the_others(miniclusters: MiniClusters) -> None:
    """Three at a time, since each waits for Kubernetes: nobody has the keys, the lead and a follower have them, only a
    follower has them."""
    everyone = ("nobody", "instance", "follower")
    for name in everyone:
        miniclusters.apply(name, size=2, suspend=name == "nobody", **STAYS)
    for name in everyone:
        miniclusters.phase(name, "Suspended" if name == "nobody" else "Running")
    job = miniclusters.flux("instance", "submit", "sleep", "inf").strip()
    miniclusters.kubectl("delete", "secret", *(f"{name}-curve" for name in everyone))
    miniclusters.kubectl("patch", "mc", "nobody", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    lost = miniclusters.running("instance", 1), miniclusters.running("follower", 0)
    miniclusters.kubectl("delete", "pod", *lost, "--wait=false")

    miniclusters.phase("nobody", "Running")
    assert miniclusters.flux("nobody", "run", "-N2", "echo", "both").split() == ["both"] * 2

    reason = miniclusters.reason("instance", lambda text: "Secret" in text)
    assert reason.startswith("1 of 2 brokers up") and "Secret instance-curve was deleted" in reason
    assert miniclusters.flux("instance", "jobs", "-no", "{id} {state}").strip() == f"{job} RUN"

    until(lambda: "KeysLost" in miniclusters.events("follower"))
    miniclusters.phase("follower", "Running")
    assert miniclusters.flux("follower", "run", "-N2", "echo", "both").split() == ["both"] * 2

    # As the reason says.
    miniclusters.kubectl("delete", "job", "instance")
    until(lambda: not miniclusters.status("instance")["reason"])
    miniclusters.wait("instance", "ready", "2/2")
    assert miniclusters.flux("instance", "run", "-N2", "echo", "both").split() == ["both"] * 2


def test_nothing_is_made_in_a_namespace_that_is_being_deleted(
    miniclusters: MiniClusters, cluster: Cluster, operator: RunningOperator
) -> None:
    name = f"{miniclusters.namespace}-goes"
    cluster.kubectl("create", "namespace", name)
    until(lambda: cluster.api.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
    going = MiniClusters(cluster, name)
    going.apply("goes", size=2, **STAYS)
    going.phase("goes", "Running")
    cluster.kubectl("delete", "namespace", name, TIMEOUT)
    lines = [json.loads(line) for line in operator.log.read_text().splitlines() if f'"{name}"' in line]
    # Whether the operator looks once more before the MiniCluster is gone is chance; it may then have nothing to say.
    assert not [line for line in lines if line["level"] in ("warning", "error")], lines


def test_an_operator_that_is_told_to_stop_gives_its_lease_back(
    miniclusters: MiniClusters, operator: RunningOperator
) -> None:
    assert operator.stop() == 0
    lease = miniclusters.cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/headrace-operator")
    assert not lease["spec"].get("holderIdentity")
    operator.start()
    miniclusters.apply("next", size=1)
    miniclusters.phase("next", "Finished")


def test_services_that_cannot_start_are_told_while_the_rest_runs(miniclusters: MiniClusters) -> None:
    services = [{"name": "db", "image": "local/nosuch:1", "imagePullPolicy": "Never"}]
    miniclusters.apply("alone", size=1, services=services, **STAYS)
    reason = miniclusters.reason("alone", lambda text: "services: " in text)
    assert "image local/nosuch:1 of container db" in reason or "container db cannot be started" in reason
    assert miniclusters.phase("alone", "Running")["ready"] == "1/1"
    assert "ServicesDown" in miniclusters.events("alone")
