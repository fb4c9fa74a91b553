"""A cluster by its name: up, down, and what is asked of it while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, control_plane, images, network, node, places
from .box import Box, forget, is_alive, this_process
from .control_plane import Api
from .errors import KubeError
from .places import Addresses


def unmet(nodes: int = 1) -> str:
    """What keeps this machine from running a cluster, in words for a skipped test; "" where nothing does."""
    if os.geteuid() != 0:
        return "needs root to make namespaces"
    for program, package in {"ip": "iproute2", "nsenter": "util-linux"}.items():
        if shutil.which(program) is None:
            return f"needs {program} of {package}: `make packages` installs it"
    if nodes and node.missing():
        return f"needs {', '.join(node.missing())}: `make packages` installs them"
    try:
        lacking = [module for module in build.NEEDED[: 2 if nodes else 1] if not build.is_built(module)]
    except KubeError as exc:
        return str(exc)
    return f"needs {' and '.join(lacking)}: `make kube-tools` builds them" if lacking else ""


@contextlib.contextmanager
def _slots() -> Iterator[None]:
    """Only one process at a time looks for a free slot."""
    with open(places.states() / ".slots", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _claim(state: Path) -> Addresses:
    """Take a free slot for a cluster, and make its state folder."""
    with _slots():
        claimed = {json.loads(path.read_text())["slot"] for path in places.states().glob("*/cluster.json")}
        for slot in range(places.SLOTS):
            addresses = Addresses(slot)
            if slot not in claimed and not network.taken(addresses):
                state.mkdir(mode=0o700)
                (state / "cluster.json").write_text(json.dumps({"slot": slot, **this_process()}))
                return addresses
    raise KubeError(f"{places.SLOTS} clusters run already: `kube status` lists them, `kube down NAME` ends one")


class Cluster:
    """A running cluster. `kubeconfig`, `server` and `token` are for clients, from this machine and from pods alike."""

    def __init__(self, name: str, box: Box, addresses: Addresses, nodes: int) -> None:
        self.name, self.box, self.addresses, self.nodes = name, box, addresses, nodes
        self.kubeconfig = box.state / "kubeconfig"
        self.server = addresses.server
        self.token = (box.state / "token").read_text()
        self.api = Api(self.server, self.token)

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int = 1,
        archives: Sequence[Path] = (),
        lifeline: int | None = None,
        options: Mapping[str, Sequence[str]] = {},
    ) -> Cluster:
        """Start a cluster with so many nodes (0 to 2), these images and further options of parts of the control plane,
        by program, and wait until it is ready.

        What is left of an earlier one whose start or machine broke off is removed first. Raises KubeError where one
        of this name runs, or the start fails; then nothing is left but the logs that the message quotes.
        """
        reason = unmet(nodes)
        if reason:
            raise KubeError(reason)
        if not 0 <= nodes <= places.NODES:
            raise KubeError(f"{nodes} nodes: 0 to {places.NODES} are possible")
        sweep()
        state = places.state(name)
        if state.exists():
            raise KubeError(f"cluster {name} runs already: `kube down {name}` ends it")
        addresses = _claim(state)
        try:
            box = Box.make(state, lifeline)
            network.connect(box, addresses)
            _start(box, addresses, nodes, archives, options)
        except BaseException:
            down(name)
            raise
        (state / "cluster.json").write_text(json.dumps({"slot": addresses.slot, "nodes": nodes}))
        return cls(name, box, addresses, nodes)

    @classmethod
    def named(cls, name: str) -> Cluster:
        """A cluster that runs. Raises KubeError where it does not."""
        state = places.state(name)
        box = Box.of(state)
        if box is None or not box.alive:
            raise KubeError(f"cluster {name} does not run: `kube up {name}` starts it")
        record = json.loads((state / "cluster.json").read_text())
        if "nodes" not in record:
            raise KubeError(f"cluster {name} is just starting")
        return cls(name, box, Addresses(record["slot"]), record["nodes"])

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl and give its output. Raises KubeError with what it wrote to its standard error."""
        done = subprocess.run(
            self.kubectl_command(*arguments), input=input, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KubeError(done.stderr.strip() or f"kubectl ended with {done.returncode}")
        return done.stdout

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command that runs kubectl against this cluster."""
        return [build.program("kubernetes", "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]

    def load(self, archive: Path | str) -> list[str]:
        """Import an OCI archive into all nodes; the names for `image:` in pods."""
        for index in range(self.nodes):
            node.load(self.box, index, [Path(archive)])
        return [name.removeprefix("docker.io/") for name in images.names(Path(archive))]

    def down(self) -> None:
        """End it; returns when nothing is left of it."""
        down(self.name)

    def exec_in_netns(self, argv: Sequence[str], input: str | None = None) -> str:
        """Run a command of this machine in the cluster's network, where Services and pods have their addresses."""
        return self.box.run(argv, ["net"], input=input)


def _start(
    box: Box, addresses: Addresses, nodes: int, archives: Sequence[Path], options: Mapping[str, Sequence[str]]
) -> None:
    """Start all parts. Images are loaded while the control plane comes up."""
    control_plane.prepare(box.state)
    for index in range(nodes):
        node.start_containers(box, addresses, index)
    with places.making_images():
        loaded = [images.pause(), images.busybox(), *archives] if nodes else []

    def fill(index: int) -> None:
        node.await_containers(box, index)
        node.load(box, index, loaded)

    with ThreadPoolExecutor(2) as pool:
        filled = [pool.submit(fill, index) for index in range(nodes)]
        api = control_plane.start(box, addresses, options)
        if nodes:
            node.start_services(box, addresses)
        for index in range(nodes):
            node.start_kubelet(box, addresses, index)
        for one in filled:
            one.result()
    node.await_nodes(box, api, nodes)


def down(name: str) -> None:
    """End a cluster, or remove what is left of one. Returns when nothing is left."""
    state = places.state(name)
    box = Box.of(state)
    if box is not None:
        box.remove()
    with contextlib.suppress(OSError, ValueError):
        network.disconnect(Addresses(json.loads((state / "cluster.json").read_text())["slot"]))
    forget(state, node.cgroup(state))


def is_up(name: str) -> bool:
    """Whether a cluster of this name runs and is ready."""
    try:
        return Cluster.named(name).api.ready()
    except (KubeError, OSError, ValueError):
        return False


def sweep() -> None:
    """Remove what is left of clusters whose namespaces have gone, or whose starter was killed before they were up."""
    for state in [one for one in places.states().iterdir() if one.is_dir()]:
        try:
            record = json.loads((state / "cluster.json").read_text())
        except (OSError, ValueError):
            continue  # Another process is just making it, or removing it.
        box = Box.of(state)
        broken_off = "nodes" not in record and not is_alive(record["pid"], record["birth"])
        if broken_off or (box is not None and not box.alive):
            down(state.name)


def listed() -> list[tuple[str, str]]:
    """Each cluster's name and what is to say of it."""
    found = []
    for state in sorted(one for one in places.states().iterdir() if one.is_dir()):
        try:
            cluster = Cluster.named(state.name)
            running, ended = cluster.box.processes()
        except (KubeError, OSError, ValueError) as exc:
            found.append((state.name, str(exc)))
            continue
        said = f"{cluster.server}, {cluster.nodes} nodes, {len(running)} processes"
        if ended:
            said += "; ended: " + ", ".join(f"{one} with {code}" for one, code in ended.items())
        found.append((state.name, said))
    return found
