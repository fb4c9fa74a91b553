"""Fields of Kubernetes' own objects that no node of the tests can show are passed on as they are."""

from __future__ import annotations

from typing import Any

from clusters import built, minicluster, pod_of, runner_of

_WINDOWS: dict[str, Any] = {
    "gmsaCredentialSpec": "text",
    "gmsaCredentialSpecName": "named",
    "hostProcess": False,
    "runAsUserName": "ContainerUser",
}
_SE_LINUX = {"level": "s0:c1,c2", "role": "object_r", "type": "container_t", "user": "system_u"}
_SECCOMP = {"type": "Localhost", "localhostProfile": "profiles/one.json"}


def test_security_contexts() -> None:
    shared = {"seLinuxOptions": _SE_LINUX, "seccompProfile": _SECCOMP, "windowsOptions": _WINDOWS}
    container = {**shared, "procMount": "Default"}
    cluster = minicluster(
        {"securityContext": container},
        pod={"securityContext": shared},
        flux={"container": {"securityContext": container}},
    )
    assert runner_of(cluster)["securityContext"] == container
    pod = pod_of(cluster)
    assert pod["securityContext"] == shared
    assert pod["initContainers"][0]["securityContext"] == container


def test_volumes_of_a_driver() -> None:
    attributes = {"bucketName": "b", "mountOptions": "implicit-dirs"}
    volume = {"csiDriver": "some.csi.driver", "csiDriverAttributes": attributes, "path": "/data"}
    volumes = pod_of(minicluster({"volumes": {"data": volume}}))["volumes"]
    (found,) = [one for one in volumes if one["name"] == "data"]
    assert found == {"name": "data", "csi": {"driver": "some.csi.driver", "volumeAttributes": attributes}}


def test_images_that_are_pulled_each_time() -> None:
    cluster = minicluster({"pullAlways": True}, flux={"container": {"pullAlways": True}})
    pod = pod_of(cluster)
    assert pod["initContainers"][0]["imagePullPolicy"] == runner_of(cluster)["imagePullPolicy"] == "Always"


def test_services_have_what_other_containers_have() -> None:
    service = {
        "name": "db",
        "image": "db:1",
        "environment": {"A": "b"},
        "secrets": {"PASSWORD": {"name": "db", "key": "pw"}},
        "volumes": {"data": {"emptyDir": True, "path": "/data"}},
        "workingDir": "/data",
        "resources": {"limits": {"cpu": "1"}},
    }
    pod = built(minicluster(services=[service]))["Pod/sample-services"]["spec"]
    (found,) = pod["containers"]
    assert found["env"] == [
        {"name": "A", "value": "b"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}},
    ]
    assert (found["workingDir"], found["resources"]) == ("/data", {"limits": {"cpu": "1"}})
    assert found["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert pod["volumes"] == [{"name": "data", "emptyDir": {}}]
