"""Who has not a MiniCluster's Secret gets nowhere, and its keys are seen nowhere else."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from patience import TIMEOUT, until
from running_operator import MiniClusters, RunningOperator

from headrace.formats.spec.curve_certificate import key_pair
from headrace.minicluster.operator.keys import Keys, fresh_keys, keys_of
from waiting import stays

_KNOCK = """
import sys, zmq
public, secret = zmq.curve_keypair()
sock = zmq.Context().socket(zmq.DEALER)
sock.curve_publickey, sock.curve_secretkey, sock.curve_serverkey = public, secret, sys.argv[2].encode()
events = sock.get_monitor_socket()
sock.connect(sys.argv[1])
sock.send(b'{"id": 1, "op": "watch"}')
while True:
    if not events.poll(120000):
        sys.exit("nothing happens")
    event = int.from_bytes(events.recv_multipart()[0][:2], "little")
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        sys.exit("refused")
    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
        sys.exit("let in")
"""


@pytest.fixture
def lead(miniclusters: MiniClusters) -> str:
    """The lead of a MiniCluster `safe` that runs, of one pod of two that may be."""
    containers = [{"image": "local/busybox:1"}]
    miniclusters.apply("safe", size=1, maxSize=2, interactive=True, containers=containers)
    miniclusters.phase("safe", "Running")
    return miniclusters.running("safe")


def keys(miniclusters: MiniClusters) -> Keys:
    return keys_of(miniclusters.get("secret", "safe-curve"))


def start_stranger(miniclusters: MiniClusters) -> None:
    """Start a pod as the MiniCluster's second one would be, but that its Secret has other keys."""
    made = fresh_keys()
    texts = {
        "curve.cert": made.curve,
        "channel.cert": made.channel,
        "channel-client.pub": made.channel_client_public,
    }
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "stolen-not"}, "data": data}
    spec = miniclusters.get("job", "safe")["spec"]["template"]["spec"]
    for volume in spec["volumes"]:
        if volume.get("secret", {}).get("secretName") == "safe-curve":
            volume["secret"]["secretName"] = "stolen-not"
    spec["hostname"] = "safe-1"
    metadata = {"name": "stranger", "labels": {"job-name": "safe"}}
    for body in (secret, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}):
        miniclusters.kubectl("apply", "-f", "-", input=json.dumps(body))


def test_a_pod_without_the_secret_joins_no_tree_and_no_channel(miniclusters: MiniClusters, lead: str) -> None:
    start_stranger(miniclusters)
    miniclusters.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/stranger", TIMEOUT)
    told = "no broker with the certificate of /mnt/flux/config/curve/curve.cert answers there"
    until(lambda: told in miniclusters.kubectl("logs", "stranger", "-c", "safe"))
    stays(lambda: miniclusters.status("safe")["brokersUp"] == 1, 1.0)
    # Nor does it help to know the public keys of those that listen.
    secret = keys(miniclusters)
    address = miniclusters.get("pod", lead)["status"]["podIP"]
    for port, certificate in ((8050, secret.curve), (8051, secret.channel)):
        public = key_pair(certificate)[0].decode()
        knock = ("/mnt/flux/view/libexec/python3", "-IS", "-c", _KNOCK, f"tcp://{address}:{port}", public)
        shell = ("sh", "-c", '"$@" 2>&1 || true', "-")
        assert miniclusters.kubectl("exec", "stranger", "-c", "safe", "--", *shell, *knock) == "refused\n"


def test_keys_stand_in_the_secret_alone(miniclusters: MiniClusters, operator: RunningOperator, lead: str) -> None:
    secret = keys(miniclusters)
    seen = miniclusters.kubectl("get", "configmaps,events,miniclusters,jobs,pods,services", "-o", "yaml")
    seen += miniclusters.kubectl("logs", lead, "--all-containers") + operator.log.read_text()
    for text in (secret.curve, secret.channel, secret.channel_client):
        private = re.findall(r'secret-key = "(.{40})"', text)
        assert len(private) == 1
        assert private[0] not in seen
    # The operator's own key for the channel is in no pod.
    listed = miniclusters.kubectl("exec", lead, "-c", "safe", "--", "ls", "/flux_operator_keys").split()
    assert sorted(listed) == ["channel-client.pub", "channel.cert", "curve.cert"]


def test_each_minicluster_has_keys_of_its_own(miniclusters: MiniClusters, lead: str) -> None:
    first = keys(miniclusters)
    miniclusters.apply("safe2", size=1)
    miniclusters.phase("safe2", "Finished")
    second = keys_of(miniclusters.get("secret", "safe2-curve"))
    assert not {*first} & {*second}
