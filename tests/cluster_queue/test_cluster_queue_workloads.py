"""What objects of each kind want of the cluster queue."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cluster_queue.admission import judge
from headrace.cluster_queue.crd import definitions
from headrace.cluster_queue.model.demand import Demand
from headrace.cluster_queue.names import EXTERNAL
from headrace.cluster_queue.workloads import KINDS, group, maker_of, ordinal_of, others
from headrace.cluster_queue.workloads.workload import with_value
from headrace.k8s.runtime.admission.reviews import Review

Object = dict[str, Any]


class _Known:
    """No queue binds, and nothing is known of owners (`admission.Known`)."""

    def binds(self, namespace: str) -> bool:
        return False

    def above(self, item: Object) -> tuple[Object, ...]:
        return ()


_KNOWN = _Known()


def template(cpu: str, **labels: str) -> Object:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}


def job(name: str, pods: int, cpu: str = "1", done: int = 0, **labels: str) -> Object:
    spec = {"parallelism": pods, "completions": pods, "template": template(cpu), "suspend": True}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"succeeded": done}}


def demand(kind: str, item: Object, **made: list[Object]) -> Demand:
    return KINDS[kind].demand({"metadata": {"name": "a", **item.pop("metadata", {})}, **item}, made)


def cpus(wanted: Demand) -> list[str]:
    return [one["containers"][0]["resources"]["requests"]["cpu"] for one in wanted.templates]


def test_a_jobset_wants_the_pods_of_all_its_jobs_also_of_those_that_come_later():
    replicated = [
        {"name": "driver", "template": {"spec": job("", 1, "2")["spec"]}},
        {"name": "worker", "replicas": 3, "template": {"spec": job("", 4)["spec"]}},
    ]
    spec = {"replicatedJobs": replicated}
    found = demand("JobSet", {"spec": spec})
    assert (found.pods, found.together, set(cpus(found))) == (13, True, {"1", "2"})
    assert [(one.name, one.pods, one.per_job) for one in found.sets] == [("driver", 1, 1), ("worker", 12, 4)]
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "2"}
    pod = {"metadata": {"labels": {**labels, "batch.kubernetes.io/job-completion-index": "3"}}}
    own = found.set_of(pod)
    assert own is not None
    assert (own.name, ordinal_of(pod, own.per_job)) == ("worker", 11)
    # Where a Job may have more pods at a time than it has completions, it has as many as these.
    replicated[1]["template"]["spec"]["completions"] = 2
    (_, own) = demand("JobSet", {"spec": spec}).sets
    pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = "1"
    assert (own.pods, own.per_job, ordinal_of(pod, own.per_job)) == (6, 2, 5)
    replicated[1]["template"]["spec"]["completions"] = 4
    # The first Job of the workers has two pods left.
    label = {"jobset.sigs.k8s.io/replicatedjob-name": "worker"}
    made = [job("a-worker-0", 4, done=2, **label)]
    assert demand("JobSet", {"spec": spec}, Job=made).pods == 11
    for condition, end in (("Completed", "Finished"), ("Failed", "Failed")):
        status = {"conditions": [{"type": condition, "status": "True"}]}
        ended = demand("JobSet", {"spec": spec, "status": status}, Job=made)
        assert (ended.pods, ended.end) == (0, end)


def test_a_job_wants_no_pod_for_an_index_that_has_failed_for_good():
    item = job("a", 6, done=1)
    item["status"]["failedIndexes"] = "1,3-4"
    assert demand("Job", item).pods == 2


def test_a_trainjob_wants_what_its_jobset_does():
    assert demand("TrainJob", {"spec": {}}).missing == "Kubeflow Trainer has not created its JobSet yet"
    jobset = {
        "metadata": {"name": "a"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job("", 2)["spec"]}}]},
    }
    assert demand("TrainJob", {"spec": {}}, JobSet=[jobset]).pods == 2
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert demand("TrainJob", {"spec": {}, "status": status}, JobSet=[jobset]).end == "Finished"


def test_an_mpijob_wants_its_launcher_and_its_workers():
    roles = {"Launcher": {"template": template("1")}, "Worker": {"replicas": 4, "template": template("2")}}
    found = demand("MPIJob", {"spec": {"mpiReplicaSpecs": roles, "runPolicy": {"activeDeadlineSeconds": 60}}})
    assert (found.pods, found.limit, cpus(found)) == (5, 60, ["1", "2"])
    # It ends with its launcher.
    roles["Launcher"]["template"]["spec"]["activeDeadlineSeconds"] = 30
    assert demand("MPIJob", {"spec": {"mpiReplicaSpecs": roles}}).limit == 30
    assert (
        demand("MPIJob", {"spec": {"mpiReplicaSpecs": roles, "runPolicy": {"activeDeadlineSeconds": 60}}}).limit == 60
    )
    labels = {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": "2"}
    worker = {"metadata": {"labels": labels}}
    assert (found.set_of(worker), ordinal_of(worker)) == (found.sets[1], 2)
    status = {"conditions": [{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]}
    assert demand("MPIJob", {"spec": {"mpiReplicaSpecs": roles}, "status": status}).end == "Finished"


def test_a_minicluster_wants_the_pods_of_its_jobs_and_that_of_its_services():
    assert demand("MiniCluster", {"spec": {}}).missing == "the operator has not created its Job yet"
    services = [{"resources": {"requests": {"cpu": "3"}}}]
    found = demand("MiniCluster", {"spec": {"services": services}}, Job=[job("a", 4), job("a-gpu", 2, "2")])
    assert (found.pods, cpus(found), found.missing) == (7, ["1", "2", "3"], "")
    of_job = {"metadata": {"name": "x", "labels": {"batch.kubernetes.io/job-name": "a-gpu"}}}
    assert [found.set_of(one) for one in (of_job, {"metadata": {"name": "a-services"}})] == list(found.sets[1:])
    ended = demand("MiniCluster", {"spec": {}, "status": {"phase": "Failed"}}, Job=[job("a", 4)])
    assert (ended.pods, ended.end) == (0, "Failed")


def test_a_deployment_in_a_rollout_wants_the_pods_of_both_its_replicasets():
    item = {"spec": {"replicas": 4, "template": template("2", app="web")}}
    old, new, before = ({"metadata": {"name": name}, "spec": {"replicas": count, "template": template(cpu)}}
                        for name, count, cpu in (("a-1", 3, "1"), ("a-2", 2, "2"), ("a-0", 0, "8")))  # fmt: skip
    found = demand("Deployment", item, ReplicaSet=[before, old, new])
    assert (found.pods, cpus(found), found.sets[0].labels, found.together) == (5, ["1", "2"], {"app": "web"}, False)


@pytest.mark.parametrize("kind", [name for name, one in KINDS.items() if one.controller])
def test_what_others_manage_is_left_alone(kind):
    assert KINDS[kind].is_unmanaged(with_value({}, KINDS[kind].managed_by, "kueue.x-k8s.io/multikueue"))
    assert not KINDS[kind].is_unmanaged({"spec": {}})


@pytest.mark.parametrize("kind", [name for name, one in KINDS.items() if one.suspend and name != "Job"])
def test_the_outermost_object_alone_is_suspended(kind):
    workload = KINDS[kind]
    item = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {}}
    review = Review("", "CREATE", workload.kind.plural, "", "ns", "a", item, None)
    changed = judge(review, _KNOWN).changed
    assert changed is not None
    assert workload.is_suspended(changed)
    owner = {"apiVersion": workload.kind.api_version, "kind": kind, "name": "a", "uid": "1", "controller": True}
    inner = {"metadata": {"name": "b", "namespace": "ns", "ownerReferences": [owner]}, "spec": {}}
    assert judge(Review("", "CREATE", "jobs", "", "ns", "b", inner, None), _KNOWN).changed is None


@pytest.mark.parametrize("kind", [one.kind.kind for one in others() if not one.suspend])
def test_of_objects_that_cannot_be_suspended_the_pods_alone_are_held(kind):
    item = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {}}
    review = Review("", "CREATE", KINDS[kind].kind.plural, "", "ns", "a", item, None)
    assert judge(review, _KNOWN).changed is None


def test_each_kind_has_a_number_of_its_own_which_the_definition_of_fluxjobs_names():
    # The files in `deploy/` have the definition, so no number changes without notice.
    numbers = [one.number for one in (*KINDS.values(), group.WORKLOAD_KIND)] + [EXTERNAL]
    assert len(set(numbers)) == len(numbers)
    fields = definitions()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    named = fields["type"]["description"].removeprefix("Kind of the object: ").split(", ")
    assert {f"{one.number} {kind}" for kind, one in KINDS.items()} <= {*named}
    assert fields["type"]["maximum"] == max(numbers)


def test_pods_belong_to_what_made_them_and_have_its_ordinals():
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}}
    assert maker_of(pod) == "p"
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "uid": "s", "controller": True}
    assert maker_of({"metadata": {**pod["metadata"], "ownerReferences": [owner]}}) == "s"
    # A kind of the same name in another group is another kind.
    other = {**owner, "apiVersion": "apps.example.org/v1"}
    assert maker_of({"metadata": {**pod["metadata"], "ownerReferences": [other]}}) == "p"
    labels = {"apps.kubernetes.io/pod-index": "3"}
    assert ordinal_of({"metadata": {"labels": labels}}) == 3
    assert ordinal_of(pod) is None


@pytest.mark.parametrize("text", ["9" * 20, "1" * 5000, "-1", "1_0", " 1", "\u0663", "", None])
def test_an_ordinal_that_a_user_has_written_is_as_large_as_those_of_kubernetes_or_none(text: Any):
    labels = {"batch.kubernetes.io/job-completion-index": text}
    assert ordinal_of({"metadata": {"labels": labels}}) is None
    labels = {"batch.kubernetes.io/job-completion-index": "1", "jobset.sigs.k8s.io/job-index": text}
    assert ordinal_of({"metadata": {"labels": labels}}, per_job=4) == 1


@pytest.mark.parametrize("kind", ["Job", "JobSet", "MPIJob"])
def test_less_than_none_is_none(kind: str):
    spec: Object = {"parallelism": -5, "template": template("1")}
    if kind == "JobSet":
        spec = {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": spec}}]}
    elif kind == "MPIJob":
        spec = {"mpiReplicaSpecs": {"Worker": {"replicas": -5, "template": template("1")}}}
    assert KINDS[kind].demand({"metadata": {"name": "a"}, "spec": spec}, {}).pods == 0


OOM_TOLD = "container c ended with exit code 137 (OOMKilled)"
OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("kind", "item", "failure"),
    [
        (
            "Pod",
            {"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}},
            "Evicted: low on memory",
        ),
        ("Pod", {"status": {"phase": "Failed", "containerStatuses": [{"name": "c", "state": OOM}]}}, OOM_TOLD),
        ("Pod", {"status": {"phase": "Failed"}}, ""),
        ("Pod", {"status": {"phase": "Succeeded", "reason": "Completed"}}, ""),
        ("MiniCluster", {"status": {"phase": "Failed", "exitCode": 3}}, "ended with exit code 3"),
        ("MiniCluster", {"status": {"phase": "Failed", "reason": "no image"}}, "no image"),
        ("MiniCluster", {"status": {"phase": "Finished", "exitCode": 0}}, ""),
    ],
)
def test_why_a_workload_has_failed_is_what_kubernetes_tells(kind: str, item: Object, failure: str):
    assert demand(kind, {"spec": {"containers": []}, **item}).failure == failure


@pytest.mark.parametrize("kind", ["Job", "JobSet", "MPIJob", "TrainJob"])
def test_why_a_workload_has_failed_is_in_the_condition_that_says_so(kind: str):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    others = [{"type": "Suspended", "status": "True", "message": "no"}, {**failed, "status": "False", "message": "no"}]
    spec = job("a", 1)["spec"] if kind == "Job" else {}
    found = demand(kind, {"spec": spec, "status": {"conditions": [*others, failed]}})
    assert (found.end, found.failure) == ("Failed", "BackoffLimitExceeded: too often")
    found = demand(kind, {"spec": spec, "status": {"conditions": [others[0], {"type": "Failed", "status": "True"}]}})
    assert (found.end, found.failure) == ("Failed", "")


def test_a_group_tells_which_of_its_pods_has_failed():
    pods = [
        {"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": []}, "status": {"phase": phase}}
        for name, phase in (("a", "Succeeded"), ("b", "Failed"), ("c", "Failed"))
    ]
    assert group.demand({"pods": pods}).failure == "b: Failed"
    pods[1]["status"]["reason"] = "Evicted"
    found = group.demand({"pods": pods})
    assert (found.end, found.failure) == ("Failed", "b: Evicted")
