"""Nodes with real containers: containerd with its CNI network, kubelet; one kube-proxy and CoreDNS a cluster.

Two nodes fit in one set of namespaces: each has its containerd, its kubelet, its own address and its own range of pods.
Pods are joined by routes, not by a bridge: so all their traffic passes the firewall, which kube-proxy needs (a reply
that a bridge carried past it would keep the wrong sender's address), and which tests of partitions use.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import build, images
from .box import Box, wait_for
from .control_plane import START_PATIENCE, Api
from .errors import KubeError
from .places import Addresses

_PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
}
_CNI = Path("/usr/lib/cni")
_NAMESPACE = "k8s.io"


def missing() -> list[str]:
    """Debian packages that a node needs and this machine lacks."""
    lacking = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if not (_CNI / "ptp").exists():
        lacking.add("containernetworking-plugins")
    if not Path("/bin/busybox").exists():
        lacking.add("busybox-static")
    return sorted(lacking)


def name(index: int) -> str:
    return f"node-{index}"


def cgroup(state: Path) -> str:
    """The cgroup, in each hierarchy, below which all pods of a cluster run."""
    return f"headrace-kube-{state.name}"


def _storage(state: Path) -> Path:
    """Where images and pods' files lie: in the state folder, or in memory where overlays cannot be laid over it."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, its_kind = line.split()[:3]
        if (state.as_posix() + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, its_kind
    return state / "fast" if kind == "overlay" else state


def kubelet_folder(state: Path, index: int) -> Path:
    """Where a kubelet keeps what pods use, and looks for the sockets of plugins."""
    return _storage(state) / f"kubelet-{index}"


def _containerd(state: Path, index: int, addresses: Addresses) -> list[str]:
    """Write the configuration of containerd and of the pods' network; the command."""
    mine = state / f"node-{index}"
    mine.mkdir()
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": addresses.pods_of(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": f"{state}/fast/addresses-{index}",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    (mine / "cni").mkdir()
    (mine / "cni/10-pods.conflist").write_text(json.dumps(network))
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    # Without the capability CAP_SYS_RESOURCE runc dies of a lowered oom_score_adj, unless containerd restricts it.
    (mine / "containerd.toml").write_text(
        f"""version = 2
root = "{_storage(state)}/images-{index}"
state = "/run/containerd-{index}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "/run/containerd-{index}.sock"
{cri}]
sandbox_image = "local/pause:1"
restrict_oom_score_adj = true
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
{cri}.containerd]
snapshotter = "overlayfs"
{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{cri}.cni]
bin_dir = "{_CNI}"
conf_dir = "{mine}/cni"
"""
    )
    return ["containerd", "--config", str(mine / "containerd.toml"), "--log-level", "warn"]


def _kubelet(state: Path, index: int, addresses: Addresses) -> list[str]:
    """Write the configuration of a kubelet; the command."""
    mine = state / f"node-{index}"
    (mine / "resolv.conf").write_text(f"nameserver {addresses.control_plane}\n")
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.node(index),
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup(state)}/{name(index)}",
        "clusterDNS": [addresses.control_plane],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix:///run/containerd-{index}.sock",
        "eventRecordQPS": 0,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        # A container that has failed starts again after 1 s, where users' clusters wait 10 s.
        "featureGates": {"ReduceDefaultCrashLoopBackOffDecay": True},
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "kubeAPIBurst": 400,
        "kubeAPIQPS": 200,
        "maxPods": 250,
        "nodeLeaseDurationSeconds": 16,
        "podLogsDir": f"/var/log/pods-{index}",
        "readOnlyPort": 0,
        "resolvConf": str(mine / "resolv.conf"),
        # How often a pod is looked at to which nothing happens: a Secret in its volume may be another, or there now.
        "syncFrequency": "5s",
    }
    (mine / "kubelet.json").write_text(json.dumps(configuration, indent=1))
    return [
        build.program("kubernetes", "kubelet"),
        f"--config={mine}/kubelet.json",
        f"--kubeconfig={state}/kubeconfig",
        f"--root-dir={kubelet_folder(state, index)}",
        f"--cert-dir={mine}/certificates",
        f"--hostname-override={name(index)}",
        f"--node-ip={addresses.node(index)}",
    ]


def _make_cgroup(path: str) -> None:
    """Make the kubelet's root cgroup in each hierarchy; a cpuset (cgroup v1) takes no process until it has cores."""
    top = Path("/sys/fs/cgroup")
    hierarchies = [top] if (top / "cgroup.controllers").exists() else [one for one in top.iterdir() if one.is_dir()]
    for hierarchy in hierarchies:
        here = hierarchy
        for part in path.strip("/").split("/"):
            above, here = here, here / part
            here.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (here / setting).exists() and "cpuset" in hierarchy.name:
                    (here / setting).write_text((above / setting).read_text())


def start_containers(box: Box, addresses: Addresses, index: int) -> None:
    """Start a node's containerd: it can load images while the control plane comes up."""
    box.start(f"containerd-{index}", _containerd(box.state, index, addresses))


def _ctr(index: int) -> list[str]:
    return ["ctr", f"--address=/run/containerd-{index}.sock", f"--namespace={_NAMESPACE}"]


def kill(box: Box, index: int, container: str) -> None:
    """Kill the first process of a container."""
    box.run([*_ctr(index), "tasks", "kill", "--signal", "SIGKILL", container], ["mount"])


def load(box: Box, index: int, archives: Sequence[Path]) -> None:
    """Import OCI archives into a node."""
    for path in archives:
        bases = {one.rpartition(":")[0] for one in images.names(path)}
        with open(path, "rb") as data:
            box.run(
                [*_ctr(index), "images", "import", *(f"--base-name={base}" for base in bases), "-"],
                ["mount"],
                stdin=data,
            )


def await_containers(box: Box, index: int) -> None:
    """Wait until a node's containerd answers."""

    def answers() -> bool:
        if f"containerd-{index}" in box.processes()[1]:
            raise KubeError(f"containerd-{index} ended:\n{box.log(f'containerd-{index}')}")
        try:
            box.run([*_ctr(index), "version"], ["mount"])
        except KubeError:
            return False
        return True

    wait_for(answers, f"containerd-{index}", START_PATIENCE, 0.05)


def start_kubelet(box: Box, addresses: Addresses, index: int) -> None:
    """Start a node's kubelet, which registers the node."""
    _make_cgroup(f"{cgroup(box.state)}/{name(index)}")
    box.start(f"kubelet-{index}", _kubelet(box.state, index, addresses))


def start_services(box: Box, addresses: Addresses) -> None:
    """Start kube-proxy (cluster addresses of Services) and CoreDNS (their names), one for all nodes."""
    state = box.state
    # A Service whose rules kube-proxy has still to make refuses. Were its first packet lost, conntrack would remember
    # the connection as one to nowhere, and whoever made it would try until TCP gives up, after two minutes.
    for chain in ("FORWARD", "OUTPUT"):
        rule = (chain, "-p", "tcp", "-d", addresses.services, "-j", "REJECT", "--reject-with", "tcp-reset")
        box.run(["iptables", "--wait", "-A", *rule], ["net"])
    box.start(
        "kube-proxy",
        [
            build.program("kubernetes", "kube-proxy"),
            f"--kubeconfig={state}/kubeconfig",
            "--proxy-mode=iptables",
            f"--cluster-cidr={addresses.pods}",
            f"--hostname-override={name(0)}",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
            "--iptables-min-sync-period=100ms",
            "--healthz-bind-address=127.0.0.1:10256",
        ],
    )
    # Names outside the cluster do not exist: a refusal would make resolvers try again.
    (state / "Corefile").write_text(
        f""".:53 {{
    bind {addresses.control_plane}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {state}/kubeconfig
        ttl 1
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    box.start("coredns", [build.program("coredns", "coredns"), "-conf", str(state / "Corefile")])


def ready(api: Api, count: int) -> bool:
    """Whether so many nodes are ready for pods."""
    found = 0
    for node in api.get("/api/v1/nodes")["items"]:
        conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", [])}
        tainted = [one["key"] for one in node["spec"].get("taints", [])]
        found += conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in tainted
    return found >= count


def await_nodes(box: Box, api: Api, count: int) -> None:
    """Wait until the nodes are ready for pods, and `default` has its service account, without which none is made."""

    def met() -> bool:
        _, ended = box.processes()
        for one in ended:
            raise KubeError(f"{one} ended with {ended[one]}:\n{box.log(one)}")
        return ready(api, count)

    wait_for(met, f"{count} ready nodes", START_PATIENCE, 0.1)
