"""Labelled Jobs as clusters: what is added, what stays as it is, and that the way back finds the same cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec import structs

from flux_jobs.read.samples import container, job
from headrace.flux_jobs.operator.policy import flux_job, id_of, original, refusals
from headrace.flux_jobs.read.job import read
from headrace.minicluster.operator.builders import Images

Document = dict[str, Any]

ID = "0123456789"
ID_LABEL = "flux-framework.org/headrace-cluster"
IMAGES = Images("local/view:1")


def made(document: Document, images: Images = IMAGES) -> Document:
    before = copy.deepcopy(document)
    found = flux_job(document, images, ID)
    assert document == before, "what was reviewed is not changed"
    return found


def pod_of(document: Document) -> Document:
    return dict(document["spec"]["template"]["spec"])


def pod(**fields: Any) -> Document:
    return pod_of(made(job(pod=fields or None)))


def broker(**fields: Any) -> Document:
    return dict(pod(containers=[container(**fields)])["containers"][0])


def names(listed: list[Document]) -> list[str]:
    return [one["name"] for one in listed]


def test_the_users_words_are_arguments_of_the_runner() -> None:
    words = ["sh", "-c", "echo 'a b' \"$1\"\n", "", "two  blanks", "$(VAR)", "$HOME", "*"]
    found = broker(command=words[:3], args=words[3:])
    assert found["command"] == ["/mnt/flux/view/bin/headrace-pod", "cluster"]
    assert found["args"] == words
    assert "readinessProbe" not in found


def test_an_interactive_cluster_keeps_the_words_that_nothing_runs() -> None:
    bare = {"containers": [{"name": "main", "image": "debian:12", "args": ["x"]}]}
    found = made(job("{interactive: true}", pod=bare))
    assert pod_of(found)["containers"][0]["args"] == ["x"]
    del bare["containers"][0]["args"]
    assert "args" not in pod_of(made(job("{interactive: true}", pod=bare)))["containers"][0]


def test_the_job_is_indexed_and_ends_as_its_lead() -> None:
    document = job(size=3, completionMode="NonIndexed", podReplacementPolicy="TerminatingOrFailed", backoffLimit=6)
    document["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    spec = made(document)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["podReplacementPolicy"], spec["backoffLimit"]) == ("Failed", 6)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    ignored, failed = spec["podFailurePolicy"]["rules"]
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = {"containerName": "main", "operator": "NotIn", "values": [0, 137, 143]}
    assert failed == {"action": "FailJob", "onExitCodes": codes}


def test_given_policies_stay() -> None:
    given = {"successPolicy": {"rules": [{"succeededIndexes": "0-1"}]}, "podFailurePolicy": {"rules": []}}
    spec = made(job(**given))["spec"]
    assert {key: spec[key] for key in given} == given


def test_exit_keep_leaves_what_the_job_says_of_ends() -> None:
    document = job("{exit: keep}", podReplacementPolicy="TerminatingOrFailed")
    document["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    spec = made(document)["spec"]
    assert (spec["podReplacementPolicy"], spec["template"]["spec"]["restartPolicy"]) == (
        "TerminatingOrFailed",
        "OnFailure",
    )
    assert not spec.keys() & {"successPolicy", "podFailurePolicy"}


def test_job_and_pods_have_the_id() -> None:
    document = job()
    document["metadata"]["labels"] = {"a": "b"}
    document["spec"]["template"]["metadata"] = {"labels": {"c": "d"}, "annotations": {"e": "f"}}
    found = made(document)
    assert found["metadata"]["labels"] == {"a": "b", ID_LABEL: ID}
    assert found["spec"]["template"]["metadata"] == {"labels": {"c": "d", ID_LABEL: ID}, "annotations": {"e": "f"}}
    assert id_of(found) == ID and not id_of(document)


def test_a_second_review_changes_nothing() -> None:
    once = made(job())
    assert flux_job(once, Images("other"), "f" * 10) == once
    assert refusals(once) == []


@pytest.mark.parametrize("label", ["", "x", "0123456789a", "ABCDEF0123", "012345678\n"])
def test_a_label_that_no_admission_has_written_is_replaced(label: str) -> None:
    document = job()
    document["spec"]["template"]["metadata"] = {"labels": {ID_LABEL: label}}
    assert id_of(made(document)) == ID


def test_the_view_is_copied_before_others_start() -> None:
    first = {"name": "setup", "image": "x", "restartPolicy": "Always"}
    found = pod(initContainers=[first], containers=[container()])
    assert names(found["initContainers"]) == ["headrace-view", "setup"]
    copy_ = found["initContainers"][0]
    assert (copy_["image"], copy_["command"]) == ("local/view:1", ["/headrace-copy", "/mnt/flux/view"])
    assert copy_["volumeMounts"] == [{"name": "headrace-view", "mountPath": "/mnt/flux"}]


def test_the_view_may_be_an_image_that_is_mounted() -> None:
    found = pod_of(made(job(), Images("local/view:1", as_volume=True)))
    assert "initContainers" not in found
    image = {"name": "headrace-image", "image": {"reference": "local/view:1", "pullPolicy": "IfNotPresent"}}
    assert image in found["volumes"]
    mount = {"name": "headrace-image", "mountPath": "/mnt/flux/view", "subPath": "view", "readOnly": True}
    assert mount in found["containers"][0]["volumeMounts"]


def test_the_secret_is_mounted_without_the_operators_own_key() -> None:
    found = pod()
    (volume,) = [one for one in found["volumes"] if one["name"] == "headrace-cluster"]
    assert volume["secret"]["secretName"] == f"headrace-{ID}"
    assert "optional" not in volume["secret"], "pods wait for it"
    keys = [item["key"] for item in volume["secret"]["items"]]
    assert keys == ["plan.json", "curve.cert", "channel.cert", "channel-client.pub"]
    mount = {"name": "headrace-cluster", "mountPath": "/mnt/headrace", "readOnly": True}
    assert mount in found["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("resources", "guaranteed"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}, True),
        ({"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}, True),
        ({"requests": {"cpu": "1"}}, False),
        ({}, False),
    ],
)
def test_the_view_has_cpu_and_memory_of_the_broker(resources: Document, guaranteed: bool) -> None:
    found = pod(containers=[container(resources=resources)])
    view = found["initContainers"][0].get("resources", {})
    kept = {kind: {key: value for key, value in given.items() if "/" not in key} for kind, given in resources.items()}
    assert view == kept
    assert (set(view.get("limits", {})) == {"cpu", "memory"}) is guaranteed


def view_context(pod_context: Document, container_context: Document) -> Document:
    found = pod(securityContext=pod_context, containers=[container(securityContext=container_context)])
    assert found["containers"][0]["securityContext"] == container_context
    return dict(found["initContainers"][0]["securityContext"])


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.parametrize(
    ("of_pod", "of_container", "expected"),
    [
        ({}, {}, {}),
        ({}, {"runAsUser": 1000, "runAsGroup": 100}, {"runAsUser": 1000, "runAsGroup": 100}),
        ({"runAsUser": 1000}, {}, {"runAsUser": 1000}),
        ({"runAsUser": 1000}, {"runAsUser": 0}, {"runAsUser": 65532}),
        ({"runAsUser": 0}, {"privileged": True}, {"runAsUser": 65532}),
        ({}, {"seccompProfile": {"type": "Unconfined"}}, {}),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}, {}, "pod"),
    ],
)
def test_the_view_is_copied_with_few_rights(of_pod: Document, of_container: Document, expected: Any) -> None:
    more = {"seccompProfile": of_pod["seccompProfile"]} if expected == "pod" else expected
    assert view_context(of_pod, of_container) == {**RESTRICTED, **more}


def test_a_given_subdomain_stays() -> None:
    assert pod(subdomain="mine", containers=[container()])["subdomain"] == "mine"
    assert pod()["subdomain"] == f"headrace-{ID}"


@pytest.mark.parametrize(
    ("options", "limits", "expected"),
    [
        ("", {"memory": "1Gi"}, {"medium": "Memory", "sizeLimit": "512Mi"}),
        ("", {"memory": "3Gi"}, {"medium": "Memory", "sizeLimit": "1536Mi"}),
        ("", {"memory": "1G"}, {"medium": "Memory", "sizeLimit": "500000000"}),
        ("", {}, {"medium": "Memory"}),
        ("{sharedMemory: 64Mi}", {"memory": "1Gi"}, {"medium": "Memory", "sizeLimit": "64Mi"}),
        ("{sharedMemory: none}", {"memory": "1Gi"}, None),
    ],
)
def test_shared_memory(options: str, limits: Document, expected: Document | None) -> None:
    found = pod_of(made(job(options, pod={"containers": [container(resources={"limits": limits})]})))
    volumes = [one["emptyDir"] for one in found["volumes"] if one["name"] == "headrace-shm"]
    mounts = [one for one in found["containers"][0]["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    assert volumes == ([] if expected is None else [expected])
    assert mounts == ([] if expected is None else [{"name": "headrace-shm", "mountPath": "/dev/shm"}])


def test_the_limit_of_the_whole_pod_counts_where_the_container_has_none() -> None:
    found = pod(resources={"limits": {"memory": "2Gi"}}, containers=[container()])
    (volume,) = [one for one in found["volumes"] if one["name"] == "headrace-shm"]
    assert volume["emptyDir"]["sizeLimit"] == "1Gi"


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "//dev//shm", "/dev/../dev/shm"])
def test_a_mount_of_the_container_at_dev_shm_stays_alone(path: str) -> None:
    mine = {"name": "mine", "mountPath": path}
    found = pod(volumes=[{"name": "mine", "emptyDir": {}}], containers=[container(volumeMounts=[mine])])
    assert names(found["volumes"]) == ["mine", "headrace-view", "headrace-cluster"]


def test_pods_are_spread_over_nodes() -> None:
    term = {"labelSelector": {"matchLabels": {ID_LABEL: ID}}, "topologyKey": "kubernetes.io/hostname"}
    mine = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    given = {
        "nodeAffinity": {"a": 1},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [mine]},
    }
    found = pod(affinity=given, containers=[container()])["affinity"]
    ours = {"weight": 100, "podAffinityTerm": term}
    assert found["podAntiAffinity"] == {"preferredDuringSchedulingIgnoredDuringExecution": [mine, ours]}
    assert found["nodeAffinity"] == {"a": 1}
    required = pod_of(made(job("{spread: required}")))["affinity"]
    assert required == {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert "affinity" not in pod_of(made(job("{spread: none}")))


def test_the_namespace_is_a_variable_after_the_users() -> None:
    env = [{"name": "A", "value": "1"}]
    namespace = {"name": "HEADRACE_POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    assert broker(env=env)["env"] == [*env, namespace]


def test_other_containers_stay_as_they_are() -> None:
    other = container(name="logs", command=None, args=["-f"], env=[{"name": "A"}], resources={"limits": {"cpu": 1}})
    found = pod(containers=[other, container(name="node")])
    assert found["containers"][0] == other
    assert found["containers"][1]["command"][1] == "cluster"


def test_refusals_name_field_and_rule() -> None:
    broken = job("{runn: node, spread: far}", size=2, pod={"containers": [{"name": "main"}]})
    broken["spec"]["completions"] = 3
    found = {one.path: one.rule for one in refusals(broken)}
    options = "metadata.annotations.flux-framework.org/headrace-options"
    assert found.keys() == {
        f"{options}.runn",
        f"{options}.spread",
        "spec.completions",
        "spec.template.spec.containers[0].command",
    }
    assert all(found.values())


@pytest.mark.parametrize(
    ("pod_fields", "path"),
    [
        ({"affinity": []}, "spec.template.spec.affinity"),
        ({"subdomain": 5}, "spec.template.spec.subdomain"),
        ({"securityContext": {"runAsUser": "root"}}, "spec.template.spec.securityContext.runAsUser"),
        (
            {"containers": [container(resources={"limits": {"memory": "much"}})]},
            "spec.template.spec.containers[0].resources.limits.memory",
        ),
        (
            {"containers": [container(env=[{"name": "HEADRACE_POD_NAMESPACE", "value": "x"}])]},
            "spec.template.spec.containers[0].env[0].name",
        ),
        (
            {"containers": [container(env=[{"name": "JOB_COMPLETION_INDEX", "value": "0"}])]},
            "spec.template.spec.containers[0].env[0].name",
        ),
    ],
)
def test_fields_that_only_admission_reads_are_checked(pod_fields: Document, path: str) -> None:
    fields = {"containers": [container()], **pod_fields}
    assert [one.path for one in refusals(job(pod=fields))] == [path]


@pytest.mark.parametrize("images", [IMAGES, Images("local/view:1", as_volume=True)])
@pytest.mark.parametrize("options", ["", "{spread: required, sharedMemory: 1Gi}", "{spread: none, exit: keep}"])
def test_the_original_reads_the_same(options: str, images: Images) -> None:
    shared = {"name": "data", "emptyDir": {}}
    main = container(
        args=["a", ""],
        env=[{"name": "A", "value": "$(B)"}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        resources={"limits": {"memory": "1Gi"}},
    )
    document = job(options, pod={"containers": [main], "volumes": [shared], "subdomain": "mine"})
    back = original(made(document, images))
    assert structs.replace(read(back), job={}) == structs.replace(read(document), job={})
    main["command"] += main.pop("args")
    assert pod_of(back) == pod_of(document)
    assert original(document) is document
