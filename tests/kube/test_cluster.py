"""The Kubernetes of the tests itself: it runs pods, resolves names, and leaves nothing behind."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubecluster import node, places
from kubecluster.cluster import Cluster, sweep, unmet
from kubecluster.errors import KubeError
from patience import TIMEOUT, until

_WEB = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: local/busybox:1
    command: [sh, -c, "mkdir /tmp/w && echo served > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"]
"""
_JOB = """
apiVersion: v1
kind: Service
metadata: {name: hosts}
spec: {clusterIP: None, selector: {job-name: four}, publishNotReadyAddresses: true}
---
apiVersion: batch/v1
kind: Job
metadata: {name: four}
spec:
  completions: 4
  parallelism: 4
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      subdomain: hosts
      containers:
      - name: main
        image: local/busybox:1
        command: [sh, -c, 'until nslookup four-$JOB_COMPLETION_INDEX.hosts.$0.svc.cluster.local; do sleep .1; done;
          until wget -qO- http://web.$0.svc.cluster.local; do sleep .1; done;
          echo pod $JOB_COMPLETION_INDEX', NAMESPACE]
"""


def _remains(name: str) -> list[str]:
    """What of a cluster is on the machine: processes, mounts, cgroups, files."""
    found = [str(path) for path in Path("/sys/fs/cgroup").rglob(f"headrace-kube-{name}*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if f"/{name}/" in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        found += [words] if f"/{name}/" in words else []
    if places.state(name).exists():
        found.append(str(places.state(name)))
    return found


def _links() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link"], check=True, capture_output=True, text=True).stdout
    return {link["ifname"] for link in json.loads(shown)}


def test_an_indexed_job_runs_and_finds_pods_and_services_by_name(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=_WEB)
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=_JOB.replace("NAMESPACE", namespace))
    cluster.kubectl("-n", namespace, "wait", "--for=condition=complete", "job/four", TIMEOUT)
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", "job-name=four", "-o", "json"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-0", "node-1"}
    for pod in pods:
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        printed = cluster.kubectl("-n", namespace, "logs", pod["metadata"]["name"]).splitlines()
        assert printed[-2:] == ["served", f"pod {index}"]


def test_pods_are_reached_from_this_machine_and_entered(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=_WEB)
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/web", TIMEOUT)
    assert cluster.kubectl("-n", namespace, "exec", "web", "--", "hostname") == "web\n"
    address = cluster.kubectl("-n", namespace, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    asking = ["/bin/busybox", "wget", "-qO-", f"http://{address}:8080"]

    def answer() -> str:
        return subprocess.run(asking, capture_output=True, text=True, check=False).stdout

    until(lambda: answer() == "served\n")
    assert cluster.exec_in_netns(asking) == "served\n"


def test_an_address_without_a_service_refuses_from_without_and_from_within(cluster: Cluster) -> None:
    """So does a Service in its first moments, and who asks it tries again."""
    last = list(ipaddress.ip_network(cluster.addresses.services).hosts())[-1]
    asking = ["/bin/busybox", "wget", "-qO-", f"http://{last}:9"]
    assert "Connection refused" in subprocess.run(asking, capture_output=True, text=True, check=False).stderr
    with pytest.raises(KubeError, match="Connection refused"):
        cluster.exec_in_netns(asking)


def test_errors_of_kubectl_are_raised(control_plane: Cluster, namespace: str) -> None:
    with pytest.raises(KubeError, match='pods "none" not found'):
        control_plane.kubectl("-n", namespace, "get", "pod", "none")


def test_controllers_act_as_themselves_and_not_as_the_administrator(control_plane: Cluster, namespace: str) -> None:
    """A policy lets nobody but the controller of Jobs make pods."""
    only = "request.userInfo.username == 'system:serviceaccount:kube-system:job-controller'"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    made = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
            "validations": [{"expression": only, "message": "for controllers alone"}],
        },
        "ValidatingAdmissionPolicyBinding": {"policyName": namespace, "validationActions": ["Deny"]},
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    items = [{**head, "kind": kind, "spec": spec} for kind, spec in made.items()]
    control_plane.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:

        def is_refused() -> bool:
            probe = ("run", "probe", "--image=local/busybox:1", "--dry-run=server")
            try:
                control_plane.kubectl("-n", namespace, *probe)
            except KubeError as exc:
                return "for controllers alone" in str(exc)
            return False

        until(is_refused)
        control_plane.kubectl("-n", namespace, "create", "job", "made", "--image=local/busybox:1")
        until(lambda: control_plane.kubectl("-n", namespace, "get", "pods", "-l", "job-name=made", "-o", "name"))
    finally:
        for kind in made:
            control_plane.kubectl("delete", kind, namespace)


def test_a_control_plane_leaves_nothing_behind() -> None:
    if unmet(0):
        pytest.skip(unmet(0))
    links = _links()
    name = f"gone-{os.getpid()}"
    plane = Cluster.up(name, nodes=0)
    assert _remains(name)
    assert _links() - links == {plane.addresses.cable}
    plane.down()
    assert _remains(name) == []
    assert _links() == links


def test_a_node_with_running_pods_leaves_nothing_behind_when_its_starter_is_killed() -> None:
    """The pod's process, shim, mounts and cgroups go with the lifeline; the next start removes the files."""
    if unmet():
        pytest.skip(unmet())
    name = f"killed-{os.getpid()}"
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, name],
        env={**os.environ, "PYTHONPATH": str(Path(node.__file__).parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    try:
        assert starter.stdout.readline() == "running\n"
        assert any("containerd-shim" in one for one in _processes_of(name))
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    until(lambda: not _processes_of(name))
    sweep()
    assert _remains(name) == []


_STARTER = f"""
import os, signal, sys
from kubecluster.cluster import Cluster
lifeline, mine = os.pipe()
cluster = Cluster.up(sys.argv[1], lifeline=lifeline)
cluster.kubectl("apply", "-f", "-", input='''{_WEB}''')
cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "{TIMEOUT}")
print("running", flush=True)
signal.pause()
"""


def _processes_of(name: str) -> list[str]:
    """The command lines of the processes in a cluster's process namespace, which its first process names."""
    record = places.state(name) / "init.json"
    inside = f"/proc/{json.loads(record.read_text())['pid']}/ns/pid"
    try:
        space = os.readlink(inside)
    except OSError:
        return []
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/pid") == space:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
