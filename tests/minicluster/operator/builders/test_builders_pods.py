"""Pods as they are built: containers, volumes, security, labels, groups and services."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from clusters import built, minicluster, pod_of, runner_of

from headrace.minicluster.operator.builders import Images

BESIDE = {"image": "debian:12", "command": "sleep 9", "name": "side"}
RUNNER = {"image": "debian:12", "command": "hostname", "runFlux": True}


def beside_of(cluster: Any, name: str = "side") -> dict[str, Any]:
    return next(one for one in pod_of(cluster)["initContainers"] if one["name"] == name)


def test_environment_has_the_files_variables_then_secrets() -> None:
    given = {"environment": {"B": "1", "A": "2"}, "secrets": {"PASSWORD": {"name": "db", "key": "pw"}}}
    env = runner_of(minicluster(given))["env"]
    assert [one["name"] for one in env] == ["B", "A", "PASSWORD", "HEADRACE_POD_NAMESPACE"]
    assert env[2]["valueFrom"] == {"secretKeyRef": {"name": "db", "key": "pw"}}


def test_a_variable_is_there_once_and_an_empty_value_is_left_out() -> None:
    """The items of `env` are told apart by their names in server-side apply, which refuses one that is there twice."""
    given = {"environment": {"A": "2", "B": ""}, "secrets": {"A": {"name": "db", "key": "pw"}}}
    env = runner_of(minicluster(given))["env"]
    assert [one["name"] for one in env] == ["A", "B", "HEADRACE_POD_NAMESPACE"]
    assert "valueFrom" in env[0] and env[1] == {"name": "B"}


def test_a_config_map_without_items_is_there_whole_and_a_view_at_the_path_of_the_file() -> None:
    cluster = minicluster(
        {"volumes": {"m": {"configMapName": "settings", "path": "/m"}}}, flux={"container": {"mountPath": "/opt/flux/"}}
    )
    assert {"name": "m", "configMap": {"name": "settings"}} in pod_of(cluster)["volumes"]
    assert "/opt/flux/" in [one["mountPath"] for one in runner_of(cluster)["volumeMounts"]]


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, "IfNotPresent"),
        ({"imagePullPolicy": "Never"}, "Never"),
        ({"imagePullPolicy": "Never", "pullAlways": True}, "Always"),
    ],
)
def test_an_image_is_pulled_as_asked(given: dict[str, Any], policy: str) -> None:
    assert runner_of(minicluster(given))["imagePullPolicy"] == policy


def test_hooks_are_words_not_one_word() -> None:
    hooks = {"lifeCycle": {"postStartExec": "sh -c 'echo it runs'", "preStopExec": "sync"}}
    assert runner_of(minicluster(hooks))["lifecycle"] == {
        "postStart": {"exec": {"command": ["sh", "-c", "echo it runs"]}},
        "preStop": {"exec": {"command": ["sync"]}},
    }


@pytest.mark.parametrize(
    ("spec", "terminal"),
    [({}, False), ({"interactive": True}, True), ({"containers": [{"image": "debian:12"}]}, True)],
)
def test_only_an_interactive_cluster_has_a_terminal(spec: dict[str, Any], terminal: bool) -> None:
    one = runner_of(minicluster(**spec))
    assert (one.get("tty", False), one.get("stdin", False)) == (terminal, terminal)


def test_each_container_has_its_own_volumes_only_and_the_keys_are_for_the_brokers() -> None:
    claim = {"claimName": "c", "path": "/c"}
    runner = {**RUNNER, "volumes": {"data": {"hostPath": "/one", "path": "/data"}, "both": claim}}
    side = {**BESIDE, "volumes": {"data": {"hostPath": "/two", "path": "/data"}, "both": {**claim, "path": "/d"}}}
    cluster = minicluster(containers=[runner, side])
    mounts = [
        {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
        for one in (runner_of(cluster), beside_of(cluster))
    ]
    assert mounts[0]["/data"] != mounts[1]["/data"]
    assert mounts[0]["/c"] == mounts[1]["/d"] == "both"
    assert ("/flux_operator_keys/" in mounts[0], "/flux_operator_keys/" in mounts[1]) == (True, False)
    sources = {one["name"]: one for one in pod_of(cluster)["volumes"]}
    assert sources[mounts[0]["/data"]]["hostPath"]["path"] == "/one"
    assert sources[mounts[1]["/data"]]["hostPath"]["path"] == "/two"


def test_another_mount_path_leaves_the_view_where_its_programs_know_it() -> None:
    cluster = minicluster(flux={"container": {"mountPath": "/opt/flux"}})
    for one in (runner_of(cluster), pod_of(cluster)["initContainers"][0]):
        assert {"/opt/flux", "/mnt/flux"} <= {mount["mountPath"] for mount in one["volumeMounts"]}


def test_a_long_name_leaves_volumes_names_that_fit() -> None:
    name = "n" * 61
    job = built(msgspec.structs.replace(minicluster(), name=name))[f"Job/{name}"]
    names = [one["name"] for one in job["spec"]["template"]["spec"]["volumes"]]
    assert len(set(names)) == len(names) and all(len(one) <= 63 for one in names)


def test_the_views_copy_runs_as_the_user_of_the_brokers_without_privileges() -> None:
    context = {"runAsUser": 7, "runAsNonRoot": True, "privileged": False, "seccompProfile": {"type": "RuntimeDefault"}}
    (copy,) = pod_of(minicluster({"securityContext": context}))["initContainers"]
    assert copy["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    own = {"container": {"securityContext": {"runAsUser": 0}}}
    (copy,) = pod_of(minicluster({"securityContext": context}, flux=own))["initContainers"]
    assert copy["securityContext"] == {"runAsUser": 0}


def test_a_false_or_a_zero_that_the_file_gives_is_given() -> None:
    context = {"runAsUser": 0, "readOnlyRootFilesystem": False}
    assert runner_of(minicluster({"securityContext": context}))["securityContext"] == context


def test_an_image_volume_stands_in_for_the_copy() -> None:
    pod = pod_of(minicluster(), images=Images(view="view:1", as_volume=True))
    assert "initContainers" not in pod
    volume = next(one for one in pod["volumes"] if "image" in one)
    assert volume["image"] == {"reference": "view:1", "pullPolicy": "IfNotPresent"}
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert mount == {"name": volume["name"], "mountPath": "/mnt/flux/view", "subPath": "view", "readOnly": True}


def test_pull_secrets_are_those_of_the_pods_containers_each_once() -> None:
    runner, side = {**RUNNER, "imagePullSecret": "a"}, {**BESIDE, "imagePullSecret": "a"}
    service = {"name": "db", "image": "x", "imagePullSecret": "c"}
    view = {"container": {"imagePullSecret": "b"}}
    objects = built(minicluster(containers=[runner, side], services=[service], flux=view))
    job = objects["Job/sample"]["spec"]["template"]["spec"]
    assert job["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert objects["Pod/sample-services"]["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "c"}]


def test_containers_beside_flux_go_on_without_keeping_the_pod() -> None:
    plain = {"image": "nginx", "name": "web", "noWrapEntrypoint": True, "ports": [80]}
    cluster = minicluster(containers=[BESIDE, RUNNER, plain])
    assert [one["name"] for one in pod_of(cluster)["containers"]] == ["sample"]
    assert [one["name"] for one in pod_of(cluster)["initContainers"]] == ["flux-view", "side", "web"]
    side, web = beside_of(cluster), beside_of(cluster, "web")
    assert side["restartPolicy"] == web["restartPolicy"] == "Always"
    assert side["command"] == ["/mnt/flux/view/bin/headrace-pod", "sidecar", "0"]
    assert "command" not in web


def test_the_services_pod_is_found_by_name_and_not_counted() -> None:
    pod = {"labels": {"team": "x"}, "annotations": {"note": "y"}, "tolerations": [{"operator": "Exists"}]}
    services = [{"name": "db", "image": "postgres:16", "volumes": {"v": {"emptyDir": True, "path": "/v"}}}]
    one = built(minicluster(services=services, pod=pod))["Pod/sample-services"]
    assert (one["spec"]["hostname"], one["spec"]["subdomain"]) == ("sample-services", "sample")
    labels = one["metadata"]["labels"]
    assert labels["job-name"] == "sample" and labels["team"] == "x"
    assert "hpa-selector" not in labels
    assert one["metadata"]["annotations"] == {"note": "y"}
    assert one["spec"]["tolerations"] == [{"operator": "Exists"}]
    (container,) = one["spec"]["containers"]
    assert "command" not in container and container["volumeMounts"] == [{"name": "v", "mountPath": "/v"}]


GROUPS = [
    {
        "name": "gpu",
        "size": 3,
        "image": "cuda",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "environment": {"A": "2", "B": "3"},
        "volumes": {"fast": {"hostPath": "/fast", "path": "/fast"}},
        "pod": {"nodeSelector": {"gpu": "yes"}},
    },
    {"name": "plain"},
]


def test_a_group_is_a_job_of_its_own_template() -> None:
    runner = {**RUNNER, "environment": {"A": "1"}, "ports": [80], "volumes": {"data": {"claimName": "d", "path": "/d"}}}
    objects = built(minicluster(containers=[runner, BESIDE], groups=GROUPS, pod={"nodeSelector": {"disk": "ssd"}}))
    gpu, plain = (objects[f"Job/sample-{name}"]["spec"] for name in ("gpu", "plain"))
    assert (gpu["completions"], gpu["parallelism"], plain["completions"]) == (3, 3, 1)
    assert "successPolicy" not in gpu
    pod = gpu["template"]["spec"]
    (one,) = pod["containers"]
    assert (one["name"], one["image"]) == ("sample", "cuda")
    assert one["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert {item["name"]: item.get("value") for item in one["env"]} == {
        **{"A": "2", "B": "3", "HEADRACE_POD_GROUP": "gpu"},
        "HEADRACE_POD_NAMESPACE": None,
    }
    assert {"/d", "/fast", "/flux_operator_keys/"} <= {mount["mountPath"] for mount in one["volumeMounts"]}
    assert "ports" not in one and pod["subdomain"] == "sample"
    assert pod["nodeSelector"] == {"gpu": "yes"}
    assert [item["name"] for item in pod["initContainers"]] == ["flux-view"]
    assert plain["template"]["spec"]["containers"][0]["image"] == "debian:12"
    assert plain["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert "hpa-selector" not in gpu["template"]["metadata"]["labels"]
