"""A MiniCluster of two pods in a plain busybox image says hello and finishes; what it tells is true."""

from __future__ import annotations

from patience import TIMEOUT
from running_operator import MiniClusters, RunningOperator, index_of


def test_two_pods_say_hello_and_finish(miniclusters: MiniClusters) -> None:
    miniclusters.apply("hello", size=2, tasks=2)
    status = miniclusters.phase("hello", "Finished")
    assert status["exitCode"] == 0
    assert status["size"] == 2
    assert [line for line in miniclusters.log("hello").splitlines() if line == "hello"] == ["hello", "hello"]
    times = status["times"]
    order = ["requested", "created", "podsRunning", "brokersUp", "jobStarted", "finished"]
    assert sorted(times, key=order.index) == order
    assert times["podsRunning"] <= times["finished"]
    # An instance that has run between two looks of the operator is told once as running, with its end.
    miniclusters.kubectl("wait", "--for=condition=JobRunning=false", "mc/hello", TIMEOUT)
    conditions = {one["type"]: one["status"] for one in miniclusters.status("hello")["conditions"]}
    assert conditions["JobRequested"] == conditions["JobFinished"] == "True"
    assert conditions["JobRunning"] == conditions["JobWaitingForResources"] == "False"
    assert miniclusters.events("hello")[-1] == "Finished"


def test_a_command_that_fails_fails_the_minicluster_with_its_status(miniclusters: MiniClusters) -> None:
    miniclusters.apply("fails", size=2, command="sh -c 'exit 7'")
    status = miniclusters.phase("fails", "Failed")
    assert status["exitCode"] == 7
    assert status["reason"] == "the job ended with exit code 7"
    miniclusters.kubectl("wait", "--for=condition=Failed", "job/fails", TIMEOUT)
    assert [index_of(pod) for pod in miniclusters.pods("fails")].count(0) == 1, "it is not tried again"


def test_few_requests_from_create_to_finish(miniclusters: MiniClusters, operator: RunningOperator) -> None:
    before = operator.requests()
    miniclusters.apply("counted", size=4)
    miniclusters.phase("counted", "Finished")
    after = operator.requests()
    made = {what: number - before.get(what, 0) for what, number in after.items() if number > before.get(what, 0)}
    assert sum(made.values()) <= 25, made


def test_nothing_is_left_after_deletion(miniclusters: MiniClusters) -> None:
    miniclusters.apply("gone", size=1)
    miniclusters.phase("gone", "Finished")
    miniclusters.kubectl("delete", "mc", "gone", "--cascade=foreground", TIMEOUT)
    left = miniclusters.kubectl("get", "job,pod,svc,secret,configmap", "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt"]
