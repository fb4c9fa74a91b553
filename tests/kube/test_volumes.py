"""Volumes of every kind that this Kubernetes has, and secrets, reach the job of a MiniCluster."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from running_operator import MiniClusters

# Where a volume is, what shows that it is the right one, and that it can be written or not.
SCRIPT = """
cat /settings/deep/file
cat /passwords/word
echo $PASSWORD $PLAIN
ls -d /host/bin /claimed/bin
grep -c ' /dev/shm tmpfs' /proc/mounts
touch /dev/shm/a /scratch/a && echo written
touch /host/a || echo not written
"""


@pytest.fixture
def claim(miniclusters: MiniClusters) -> Iterator[str]:
    """A PersistentVolumeClaim of the folder /usr of the nodes."""
    name = f"usr-{miniclusters.namespace}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "hostPath": {"path": "/usr", "type": "Directory"},
            "claimRef": {"namespace": miniclusters.namespace, "name": "usr"},
        },
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "usr"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": name,
        },
    }
    for one in (volume, wanted):
        miniclusters.kubectl("apply", "-f", "-", input=json.dumps(one))
    yield "usr"
    miniclusters.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_a_job_has_the_volumes_and_secrets_of_its_container(miniclusters: MiniClusters, claim: str) -> None:
    miniclusters.kubectl("create", "configmap", "settings", "--from-literal=key=from a config map\n")
    miniclusters.kubectl("create", "secret", "generic", "passwords", "--from-literal=word=from a secret\n")
    volumes = {
        # Not the name of its ConfigMap.
        "of-a-config-map": {"configMapName": "settings", "items": {"key": "deep/file"}, "path": "/settings"},
        "of-a-secret": {"secretName": "passwords", "path": "/passwords", "readOnly": True},
        "of-the-node": {"hostPath": "/usr", "path": "/host", "readOnly": True},
        "of-a-claim": {"claimName": claim, "path": "/claimed", "readOnly": True},
        "shared-memory": {"emptyDir": True, "emptyDirMedium": "memory", "emptyDirSizeLimit": "8Mi"},
        "scratch": {"emptyDir": True, "path": "/scratch"},
    }
    container = {
        "image": "local/busybox:1",
        "commands": {"script": "#!/bin/sh\n" + SCRIPT.replace("$", "\\$")},
        "environment": {"PLAIN": "two words"},
        "secrets": {"PASSWORD": {"name": "passwords", "key": "word"}},
        "volumes": volumes,
    }
    miniclusters.apply("volumes", size=1, containers=[container], logging={"quiet": True})
    status = miniclusters.phase("volumes", "Finished")
    assert status["exitCode"] == 0
    out = [line for line in miniclusters.log("volumes").splitlines() if not line.startswith("touch: ")]
    assert out == [
        "from a config map",
        "from a secret",
        "from a secret two words",
        "/claimed/bin",
        "/host/bin",
        "1",
        "written",
        "not written",
    ]


def test_each_container_has_its_own_volumes_only(miniclusters: MiniClusters) -> None:
    """Also where two give one key to different volumes."""
    for name in ("one", "two"):
        miniclusters.kubectl("create", "configmap", name, f"--from-literal=key=for container {name}\n")

    def volume(name: str) -> dict[str, object]:
        return {"data": {"configMapName": name, "items": {"key": "file"}, "path": "/data"}}

    containers = [
        {
            "name": "two",
            "image": "local/busybox:1",
            "command": "cat /data/file /only-one/x; touch /mnt/flux/seen",
            "volumes": volume("two"),
        },
        {
            "image": "local/busybox:1",
            # The pod, with its other containers, ends with this one.
            "command": "sh -c 'until [ -e /mnt/flux/seen ]; do sleep .1; done; cat /data/file'",
            "runFlux": True,
            "volumes": {**volume("one"), "only-one": {"emptyDir": True, "path": "/only-one"}},
        },
    ]
    miniclusters.apply("own", size=1, containers=containers, logging={"quiet": True})
    miniclusters.phase("own", "Finished")
    assert miniclusters.log("own") == "for container one\n"
    beside = miniclusters.log("own", "two")
    assert "for container two\n" in beside.replace("\r\n", "\n") and "/only-one/x" in beside
