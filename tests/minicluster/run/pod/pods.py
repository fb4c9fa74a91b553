"""Pods without Kubernetes: runners as process 1 of namespaces of their own (pid, mount, host name, network).

They see what a pod sees: the plan and keys as mounted folders, a shared folder at /mnt/flux, an address on a bridge,
and the names of the other pods when `name_pods` has been called. Needs root and `ip` of iproute2.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.formats.spec.hostlist import Hostlist
from headrace.minicluster.api.pod_plan import CHANNEL_PORT, FOREIGN_FOLDER, PodPlan, encode, make_pod_plan
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.keys import fresh_keys
from waiting import until

# Of the addresses of pods, what stands before the number.
_NET, _NET6 = "10.213.78.", "fd10:213:78::"
NAMESPACE = "ns"
_INSIDE = Path(__file__).with_name("inside.py")
_NAMES = Path(__file__).with_name("name_server.py")
_ASK = Path(__file__).with_name("ask_channel.py")


def told(container: dict[str, Any], size: int = 2, **fields: Any) -> PodPlan:
    """The plan of a quiet MiniCluster `c`."""
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    fields = {"logging": {"quiet": True}, **fields}
    return make_pod_plan(check({**head, "spec": {"size": size, "containers": [container], **fields}}))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Pod:
    """One pod that was started; `process` is what holds its namespaces."""

    def __init__(self, host: str, folder: Path, process: subprocess.Popen[str], netns: str, address: str) -> None:
        self.host = host
        self.folder = folder
        self.process = process
        self.netns = netns
        self.address = address

    @property
    def mount(self) -> Path:
        return self.folder / "mnt"

    def first_process(self) -> int:
        """The pid, seen from here, of process 1. Raises ProcessLookupError when the pod has ended."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        until(lambda: self.process.poll() is not None or path.read_text().split())
        children = [] if self.process.poll() is not None else path.read_text().split()
        if not children:
            raise ProcessLookupError(f"{self.host} has ended")
        return int(children[0])

    def signal(self, number: int) -> None:
        os.kill(self.first_process(), number)

    def wait(self, limit: float = 60.0) -> int:
        """The exit status of the container."""
        return self.process.wait(limit)

    def output(self) -> tuple[str, str]:
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()

    def message(self) -> dict[str, Any]:
        """The termination message."""
        found: dict[str, Any] = json.loads((self.folder / "log").read_text())
        return found

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespaces of this pod."""
        enter = ("nsenter", "-t", str(self.first_process()), "-a", "-r", "-w", "--")
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        full = {"PATH": path, "FLUX_URI": "local:///mnt/flux/config/run/flux/local", **env}
        return subprocess.run([*enter, *argv], env=full, capture_output=True, text=True, check=False, timeout=60)


class Operator:
    """Asks over a channel; each call waits for its answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, op: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.begin(op, **fields)
        return self.answer()


class Pods:
    """The pods of one plan, by host name."""

    def __init__(self, folder: Path, bridge: str, net: str) -> None:
        self._folder = folder
        self._net = net
        # A view to run instead of this installation.
        self.view: Path | None = None
        self._bridge = bridge
        self._made: list[str] = []
        self.running: dict[str, Pod] = {}
        self.keys = keys = fresh_keys()
        self._certificates = {"curve.cert": keys.curve}
        # What the operator has of the channel; pods get it when they are to serve one.
        self._channel = {"channel.cert": keys.channel, "channel-client.pub": keys.channel_client_public}
        (folder / "operator").mkdir()
        (folder / "operator" / "channel.cert").write_text(keys.channel)
        (folder / "operator" / "client.cert").write_text(keys.channel_client)
        self.hosts = folder / "hosts"
        self.hosts.write_text("")
        search = f"search {NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local"
        (folder / "resolv.conf").write_text(f"nameserver {net}1\n{search}\noptions ndots:5\n")
        self._names: subprocess.Popen[str] | None = None

    def address(self, plan: PodPlan, host: str) -> str:
        return f"{self._net}{10 + list(Hostlist.parse(plan.hosts)).index(host)}"

    def with_channel(self) -> None:
        """Pods that are started from now on have the keys of a channel to an operator."""
        self._certificates |= self._channel

    @contextlib.contextmanager
    def operator(self, lead: Pod) -> Iterator[Operator]:
        """An operator that is connected to the channel of a lead."""
        where = ("ip", "netns", "exec", self._bridge, sys.executable, str(_ASK))
        address = f"[{lead.address}]" if ":" in lead.address else lead.address
        with subprocess.Popen(
            [*where, f"{address}:{CHANNEL_PORT}", str(self._folder / "operator")],
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Operator(process)
            finally:
                process.kill()

    def name_pods(self, plan: PodPlan) -> None:
        """What the DNS of a cluster does: from now on names of pods have addresses."""
        lines = [
            f"{self.address(plan, host)} {host}.{plan.service}.{NAMESPACE}.svc.{plan.domain}"
            for host in Hostlist.parse(plan.hosts)
        ]
        with open(self.hosts, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def start(
        self, plan: PodPlan, host: str, *words: str, given: PodPlan | None = None, node: str = "", **env: str
    ) -> Pod:
        """Start the pod of `host`; `words` are arguments of headrace-pod, `given` is the plan that it has instead, and
        `node` the node whose network, and so whose name, it has.

        The plan and the keys are where MiniClusters have them, and where the pods of others do.
        """
        index = list(Hostlist.parse(plan.hosts)).index(host)
        folder = self._folder / host
        folder.mkdir(exist_ok=True)
        for name in ("plan", "keys", "both", "mnt", "root"):
            (folder / name).mkdir(exist_ok=True)
        # As an emptyDir is.
        (folder / "mnt").chmod(0o777)
        for place in ("plan", "both"):
            (folder / place / "plan.json").write_text(encode(given or plan))
        for name, text in self._certificates.items():
            for place in ("keys", "both"):
                (folder / place / name).write_text(text)
        (folder / "log").write_text("")
        # As the kubelet writes it.
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{self.address(plan, host)} {host}\n")
        netns = f"{self._bridge}p{index}"
        if netns not in self._made:
            self._wire(netns, index, self.address(plan, host))
        mounts = [
            f"/flux_operator={folder}/plan",
            f"/flux_operator_keys={folder}/keys",
            f"{FOREIGN_FOLDER}={folder}/both",
            f"{plan.mount_path}={folder}/mnt",
            f"/dev/termination-log={folder}/log",
            f"/etc/hosts={folder}/hosts",
            f"/etc/resolv.conf={self._folder}/resolv.conf",
        ]
        program = (str(Path(sys.executable).with_name("headrace-pod")), *words)
        if self.view is not None:
            mounts.append(f"/mnt/flux/view={self.view}")
            program = ("/mnt/flux/view/bin/headrace-pod", *words)
        unshare = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child")
        inside = (sys.executable, str(_INSIDE), f"{folder}/root", node or host, *mounts, "--")
        full = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HEADRACE_POD_NAMESPACE": NAMESPACE, **env}
        suffix = f".{words[1]}" if words[:1] == ("sidecar",) else ""
        with open(folder / f"out{suffix}", "a") as out, open(folder / f"err{suffix}", "a") as err:
            process = subprocess.Popen(
                ["ip", "netns", "exec", netns, *unshare, *inside, *program],
                env=full,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
            )
        pod = Pod(host, folder, process, netns, self.address(plan, host))
        self.running[host + suffix] = pod
        return pod

    def start_all(self, plan: PodPlan, *words: str, **env: str) -> list[Pod]:
        """Start the pods that the cluster begins with, whose names are known."""
        self.name_pods(plan)
        return [
            self.start(plan, f"{plan.name}-{index}", *words, **{"JOB_COMPLETION_INDEX": str(index), **env})
            for index in range(plan.size)
        ]

    def _wire(self, netns: str, index: int, address: str) -> None:
        _ip("netns", "add", netns)
        self._made.append(netns)
        _ip("-n", self._bridge, "link", "add", f"p{index}", "type", "veth", "peer", "name", "eth0", "netns", netns)
        _ip("-n", self._bridge, "link", "set", f"p{index}", "master", "bridge", "up")
        _ip("-n", netns, "addr", "add", *_on_link(address), "dev", "eth0")
        _ip("-n", netns, "link", "set", "eth0", "up")
        _ip("-n", netns, "link", "set", "lo", "up")
        _ip("-n", netns, "route", "add", "default", "via", f"{self._net}1")

    def serve_names(self) -> None:
        """Start the cluster's DNS, which knows no pod yet."""
        where = ("ip", "netns", "exec", self._bridge, sys.executable, str(_NAMES))
        self._names = subprocess.Popen([*where, f"{self._net}1", str(self.hosts)], stdout=subprocess.PIPE, text=True)
        assert self._names.stdout is not None
        assert self._names.stdout.readline() == "ready\n"

    def close(self) -> None:
        if self._names is not None:
            self._names.kill()
            self._names.communicate()
        for pod in self.running.values():
            if pod.process.poll() is None:
                # Its only child is process 1 of the pod, with which all of the pod ends.
                pod.process.send_signal(signal.SIGKILL)
                pod.process.wait()
        for netns in self._made:
            _ip("netns", "del", netns)


def _on_link(address: str) -> list[str]:
    """An address with its network, usable at once."""
    return [f"{address}/64", "nodad"] if ":" in address else [f"{address}/24"]


@contextlib.contextmanager
def pods(folder: Path, *, ipv6: bool = False) -> Iterator[Pods]:
    """A bridge for pods, and none of them yet; with `ipv6` they have no IPv4. Skips the test where namespaces cannot be
    made."""
    if os.getuid() != 0:
        pytest.skip("needs root to make the namespaces of pods")
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: `make packages` installs it")
    bridge = f"hp{os.getpid()}"
    try:
        _ip("netns", "add", bridge)
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"this machine makes no network namespaces: {exc.stderr.strip()}")
    net = _NET6 if ipv6 else _NET
    made = Pods(folder, bridge, net)
    try:
        _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", bridge, "addr", "add", *_on_link(f"{net}1"), "dev", "bridge")
        _ip("-n", bridge, "link", "set", "bridge", "up")
        made.serve_names()
        yield made
    finally:
        made.close()
        _ip("netns", "del", bridge)
