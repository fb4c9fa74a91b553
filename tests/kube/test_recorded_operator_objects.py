"""Objects that the Flux Operator made, with its scripts byte for byte, run our engine: its view image is ours.

Changed are the images, which no registry serves here, and the keys, which the recording does not have; what the API
server had added (uids, addresses, labels and selectors of the Job) is left to it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diagnosis
import pytest
import zmq
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import TIMEOUT, until

from headrace.images import oci
from headrace.images.compat_image import compat_image

Object = dict[str, Any]

RECORDED = {
    case["name"]: case
    for case in map(
        json.loads, (Path(__file__).parents[1] / "data/minicluster/objects_with_scripts.jsonl").read_text().splitlines()
    )
}
COMPAT = "local/headrace-view-compat:1"
_ADDED = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


@pytest.fixture(scope="module")
def compat_view(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    archive = tmp_path_factory.mktemp("images") / "compat.tar"
    archive.write_bytes(oci.archive(f"docker.io/{COMPAT}", compat_image()))
    cluster.load(archive)
    return COMPAT


def certificate() -> str:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return f'curve\n    public-key = "{public}"\n    secret-key = "{secret}"\n'


def as_before_creation(recorded: Object, view: str, user: str) -> Object:
    """A recorded object as its creator sent it, but for images and keys."""
    made: Object = json.loads(json.dumps(recorded))
    made["metadata"].pop("ownerReferences", None)
    if made["kind"] == "ConfigMap":
        made["data"]["curve.cert"] = certificate()
    elif made["kind"] == "Service":
        for field in ("clusterIPs", "ipFamilies"):
            made["spec"].pop(field, None)
    elif made["kind"] == "Job":
        del made["spec"]["selector"]
        for labels in (made["metadata"].get("labels", {}), made["spec"]["template"]["metadata"]["labels"]):
            for added in _ADDED:
                labels.pop(added, None)
        pod = made["spec"]["template"]["spec"]
        for container, image in ((pod["initContainers"][0], view), (pod["containers"][0], user)):
            container.update(image=image, imagePullPolicy="IfNotPresent")
    return made


@pytest.fixture
def place(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The namespace in which a case was recorded: its scripts have it in host names."""
    name = RECORDED[request.param]["namespace"]
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    until(lambda: cluster.api.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
    yield request.param
    cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("hello-world", ["hello world"]),
        ("flux-resource-list", ["STATE", "free", "flux-sample-[0-3]"]),
        ("variant-batch-raw", ["one"]),
        ("variant-commands-all-quiet", ["sample-0", "post"]),
    ],
    indirect=["place"],
)
def test_a_recorded_minicluster_runs_to_its_end(
    cluster: Cluster, compat_view: str, image: Callable[[str], str], place: str, says: list[str]
) -> None:
    case = RECORDED[place]
    objects = [as_before_creation(one, compat_view, image("debian")) for one in case["objects"]]
    for one, recorded in zip(objects, case["objects"]):
        if one["kind"] == "ConfigMap":
            scripts = {name: text for name, text in recorded["data"].items() if name != "curve.cert"}
            assert scripts.items() <= one["data"].items()
    (job,) = (one["metadata"]["name"] for one in objects if one["kind"] == "Job")
    where = ("-n", case["namespace"])
    cluster.kubectl(
        *where, "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    try:
        cluster.kubectl(*where, "wait", "--for=condition=Complete", f"job/{job}", TIMEOUT)
    except KubeError as exc:
        raise AssertionError(f"{exc}\n{diagnosis.of_namespace(cluster, case['namespace'])}") from None
    pods = cluster.kubectl(*where, "get", "pods", "-o", "name").split()
    logs = {pod: cluster.kubectl(*where, "logs", pod) for pod in pods}
    (lead,) = (text for pod, text in logs.items() if pod.startswith(f"pod/{job}-0-"))
    assert [word for word in says if word not in lead] == []
    for pod, text in logs.items():
        if not pod.startswith(f"pod/{job}-0-"):
            assert "The follower worker exited cleanly" in text, pod
