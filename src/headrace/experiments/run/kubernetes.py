"""Target `kubernetes`: a MiniCluster for each place, in which runs are jobs.

The MiniCluster is interactive: its brokers wait for jobs. This process reaches the lead's broker through the API server
(`exec` of `flux relay`), with the rights of its user. Pods do not share this machine's files: inputs travel in the
jobspec (RFC 37), and outputs come back as an archive from the lead's pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from headrace.experiments import values
from headrace.experiments.store.folder import RECORDS
from headrace.experiments.values import PHASES, Cell, Experiment
from headrace.flux_jobs.client import containers
from headrace.formats.spec import jobspec_build
from headrace.k8s.client import pod_exec, pod_relay
from headrace.k8s.objects import conditions
from headrace.k8s.objects.kinds import MINICLUSTERS, PODS, Kind
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime import credentials
from headrace.k8s.runtime.api import Api, ApiError, Unreachable
from headrace.minicluster.client import clusters
from headrace.minicluster.operator import names
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import greeted

from . import files, jobs
from .jobs import Ended, Jobspec, Lost
from .manifests import NO_IMAGE, Objects
from .places import Opening, Place, PlaceError, TargetError

Object = dict[str, Any]
_T = TypeVar("_T")

FIELD_MANAGER = "headrace-experiment"
# The label with the token of a session, by which its MiniClusters are found.
LABEL = "flux-framework.org/headrace-experiment"
# Seconds for a kubelet to report that pods run, and between two looks.
_KUBELET, _LOOK = 5.0, 0.2
_MACHINE = "node.kubernetes.io/instance-type"
_NODES = Kind("", "v1", "nodes", "Node")
# Bytes of all inputs of a run: the jobspec that holds them is kept by the brokers.
_MOST_INPUT = 16 << 20

# Enters the folder of a run ($1), with links to its inputs, and becomes the program. Of several tasks on a node, the
# first makes the links.
_ENTER = """
mkdir -p "$1" && cd "$1" || exit 1
shift
for path in "$FLUX_JOB_TMPDIR"/inputs/* "$FLUX_JOB_TMPDIR"/inputs/.[!.]*; do
  [ ! -e "$path" ] || [ -e "${path##*/}" ] || ln -s "$path" . 2>/dev/null
done
exec "$@"
"""
# Python: writes an archive of the outputs below a folder, and deletes the folder if it is the run's own. A program that
# did not start has no folder.
_COLLECT = """
import glob, os, shutil, sys, tarfile
home, own, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
names = []
if os.path.isdir(home):
    os.chdir(home)
    names = sorted({name for pattern in patterns for name in glob.glob(pattern, recursive=True)})
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", dereference=True) as archive:
    for name in names:
        if os.path.exists(name):
            archive.add(name)
sys.stdout.buffer.flush()
if own:
    os.chdir("/")
    shutil.rmtree(home, ignore_errors=True)
"""


class _Loop:
    """An event loop in a thread of its own, for the API client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True).start()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine from another thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine whose result nobody waits for."""

        def start() -> None:
            task = self._loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._done)

        self._loop.call_soon_threadsafe(start)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # An exception of a task that was not cancelled has been reported by the end of its socket.
        if not task.cancelled():
            task.exception()


class KubernetesTarget:
    """MiniClusters in a namespace, whose names begin with `token`. Raises TargetError if there is no access."""

    # A MiniCluster takes long to start, and its nodes may cost money.
    is_one_for_each_shape = True

    def __init__(
        self, experiment: Experiment, target: values.Target, token: str, jobspecs: Callable[[Cell], Jobspec]
    ) -> None:
        self._experiment = experiment
        self._token = token
        self._jobspecs = jobspecs
        self._loop = _Loop()
        self._api, self._namespace = _access(target)
        cells = [cell for cell in experiment.cells if cell.target == target.name]
        # A cluster whose runs are all objects of manifests needs no operator.
        self._kind = PODS if all(cell.job.manifest for cell in cells) else MINICLUSTERS
        machines = {cell.machine for cell in cells}
        # One machine needs no selection: nodes of small clusters often lack the label.
        self._selects_machine = len(machines) > 1
        self.facts: dict[str, Any] = {"objects": [], "images": {}}
        try:
            self.nodes = max(*(cell.size for cell in cells), self._ask(self._learn()))
        except (TargetError, PlaceError):
            self.close()
            raise
        self.jobs = self.nodes
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._stopped = False

    def open(self, opening: Opening) -> Place:
        name = f"{self._token}-{opening.number}"
        if opening.cells[0].job.manifest:
            return ManifestPlace(self, name)
        with self._lock:
            if self._stopped:
                raise Lost("the experiment was stopped")
            self._names.add(name)
        try:
            cluster = self._ask(self._start(name, opening))
            return MiniClusterPlace(self, cluster)
        except (PlaceError, TargetError, Lost):
            self.delete(name)
            raise

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            names_now = list(self._names)
        for name in names_now:
            with contextlib.suppress(TargetError, PlaceError):
                self._ask(self._api.delete(MINICLUSTERS, self._namespace, name))
        with contextlib.suppress(TargetError, PlaceError):
            self._ask(_delete_manifests(self._api, self._namespace, self._experiment, self._token))

    def close(self) -> None:
        """End the connection to the API server."""
        self._loop.do(self._api.close())

    def _ask(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine.

        Raises TargetError if the API server refuses or is gone, PlaceError if it finds an object invalid.
        """
        try:
            return self._loop.do(work)
        except Unreachable as exc:
            raise TargetError(f"{exc}: check that the cluster runs, and the context of the target") from None
        except ApiError as exc:
            text = exc.message or exc.reason or str(exc.status)
            raise (PlaceError(text) if exc.status in (400, 422) else TargetError(text)) from None

    async def _learn(self) -> int:
        """Collect facts about the cluster; returns how many nodes take pods, 0 if the user may not list nodes."""
        self.facts["version"] = await self._api.version()
        # A user without access is refused here.
        await _made(self._api, self._kind, self._namespace, self._token)
        try:
            nodes = (await self._api.list_objects(_NODES)).items
        except ApiError as exc:
            if exc.status != 403:
                raise
            return 0
        self.facts["nodes"] = [
            {
                "name": node["metadata"]["name"],
                "labels": node["metadata"].get("labels") or {},
                "system": (node.get("status") or {}).get("nodeInfo") or {},
                "capacity": (node.get("status") or {}).get("capacity") or {},
            }
            for node in nodes
        ]
        return sum(not (node.get("spec") or {}).get("unschedulable") for node in nodes)

    async def _start(self, name: str, opening: Opening) -> Object:
        """Create the MiniCluster, wait until its brokers are up, and return it. Raises PlaceError, Lost."""
        body = minicluster(opening.cells[0], name, self._token, opening.size, self._selects_machine)
        self.facts["objects"].append(body)
        await self._api.create(MINICLUSTERS, self._namespace, body)
        async for found in clusters.follow(self._api, self._namespace, name):
            if found is None:
                raise Lost(f"MiniCluster {name} was deleted")
            phase = clusters.status_of(found).get("phase")
            if phase == "Running":
                return found
            if phase in clusters.OVER:
                raise PlaceError(f"MiniCluster {name}: {clusters.progress(found)}")
            if any(f"({why})" in clusters.progress(found) for why in NO_IMAGE):
                raise Lost(f"MiniCluster {name}: {clusters.progress(found)}")
        raise Lost(f"MiniCluster {name} was deleted")

    def delete(self, name: str) -> None:
        """Delete a MiniCluster and wait until its pods have ended."""
        with self._lock:
            self._names.discard(name)
        with contextlib.suppress(TargetError, PlaceError, clusters.NotFoundError):
            self._ask(self._delete(name))

    async def _delete(self, name: str) -> None:
        deleted = await clusters.delete(self._api, self._namespace, name, lambda _line: None)
        await clusters.wait_until_deleted(self._api, deleted, lambda _line: None)

    # -- for its places

    def connect(self, cluster: Object) -> tuple[Handle, dict[str, str], str]:
        """A connection to the lead's broker, the environment of its container, and its pod's name.

        Raises Lost, TargetError.
        """
        name = cluster["metadata"]["name"]
        program, _, uri = clusters.connect_command(cluster, [])
        try:
            pod = str(self._ask(self._lead(name, cluster))["metadata"]["name"])
            ours, theirs = socket.socketpair()
            command = [program, "relay", uri]
            self._loop.spawn(pod_relay.relay(self._api, self._namespace, pod, name, command, theirs))
            handle = Handle(uri, greeted(ours))
            environment = self._environment(pod, name, program)
        except (OSError, pod_exec.BrokenExecError, containers.NotRunningError, clusters.NotFoundError) as exc:
            raise Lost(f"MiniCluster {name}: {exc}") from None
        return handle, environment, pod

    async def _lead(self, name: str, cluster: Object) -> Object:
        return await containers.running_pod(self._api, containers.Chosen(self._namespace, name), cluster)

    def _environment(self, pod: str, container: str, program: str) -> dict[str, str]:
        """The environment that the container started with, which its image and its file define."""
        # Its first process keeps it.
        read = "import sys; sys.stdout.buffer.write(open('/proc/1/environ', 'rb').read())"
        _, text = self.execute(pod, container, [program, "python", "-c", read])
        pairs = (item.decode(errors="replace").partition("=") for item in text.split(b"\0"))
        return {key: value for key, _, value in pairs if key and not key.startswith(("FLUX_", "PMI_"))}

    def execute(self, pod: str, container: str, command: list[str]) -> tuple[int, bytes]:
        return self._ask(pod_exec.output(self._api, self._namespace, pod, container, command))

    def phases(self, cluster: Object) -> dict[str, float]:
        """The times at which the MiniCluster's phases began, by the objects' own timestamps.

        Its images' digests become facts.
        """
        name = cluster["metadata"]["name"]
        times = self._ask(self._times(name))
        pods = self._ask(self._api.list_objects(PODS, self._namespace, f"{names.CLUSTER}={name}")).items
        for pod in pods:
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                self.facts["images"][str(status.get("image"))] = str(status.get("imageID"))
        scheduled = [conditions.condition(pod.get("status"), "PodScheduled").get("lastTransitionTime") for pod in pods]
        found = {
            "created": times.get("requested"),
            "scheduled": max((one for one in scheduled if one), default=None),
            "pulled": times.get("podsRunning"),
            "ready": times.get("brokersUp"),
        }
        return {phase: seconds_of(text) for phase, text in found.items() if text}

    async def _times(self, name: str) -> dict[str, str]:
        """When a MiniCluster's phases began. The kubelet may report that pods run after the brokers are up."""
        end = time.monotonic() + _KUBELET
        while True:
            found = await clusters.find(self._api, self._namespace, name)
            times: dict[str, str] = clusters.status_of(found).get("times") or {}
            if "podsRunning" in times or time.monotonic() > end:
                return times
            await asyncio.sleep(_LOOK)

    def run_manifest(self, cell: Cell, name: str, record: Path) -> Ended:
        """Raises Lost, PlaceError, TargetError, OSError."""
        objects = Objects(self._api, self._namespace, {LABEL: self._token})
        return self._ask(objects.run(cell, name, record))

    def jobspec(self, cell: Cell) -> Jobspec:
        return self._jobspecs(cell)

    @property
    def experiment(self) -> Experiment:
        return self._experiment


class MiniClusterPlace:
    """A MiniCluster whose brokers are up. Raises Lost, TargetError."""

    def __init__(self, target: KubernetesTarget, cluster: Object) -> None:
        self._target = target
        self._cluster = cluster
        self._name = str(cluster["metadata"]["name"])
        self._program = clusters.connect_command(cluster, [])[0]
        self._handle, self._environment, self._pod = target.connect(cluster)
        self._runs = 0

    def run(self, cell: Cell, record: Path, work: Path) -> Ended:
        problem = files.copy_inputs(self._target.experiment, cell, work)
        if problem:
            return Ended(state="failed", reason=problem)
        self._runs += 1
        home = cell.job.working_dir or f"/tmp/{self._name}-{self._runs}"
        try:
            found = in_pod(self._target.jobspec(cell), self._environment, home, work)
        except ValueError as exc:
            return Ended(state="failed", reason=str(exc))
        ended = jobs.follow(self._handle, jobs.in_folder(found, "/"), record)
        try:
            problem = self._collect(cell, home, record)
        except (TargetError, pod_exec.BrokenExecError) as exc:
            problem = f"outputs: {exc}"
        if problem and ended.state == "completed":
            ended.state, ended.reason = "failed", problem
        times = dict(ended.phases)
        if self._runs == 1:
            # The first run tells what the MiniCluster took to start.
            with contextlib.suppress(TargetError, PlaceError, clusters.NotFoundError):
                times |= self._target.phases(self._cluster)
        ended.phases = {name: times[name] for name in PHASES if name in times}
        return ended

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._handle.close()
        self._target.delete(self._name)

    def _collect(self, cell: Cell, home: str, record: Path) -> str:
        """Fetch the outputs, and delete the run's folder in the lead's pod. Returns why an output cannot be kept."""
        own = "" if cell.job.working_dir else "own"
        command = [self._program, "python", "-c", _COLLECT, home, own, *cell.job.outputs]
        status, data = self._target.execute(self._pod, self._name, command)
        if status:
            return f"outputs: the archive of {home} failed with status {status}" if cell.job.outputs else ""
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                if member.name in RECORDS:
                    return (
                        f"output {member.name}: has the name of a file that each run has; write it under another name"
                    )
                archive.extract(member, record, filter="data")
        return ""


class ManifestPlace:
    """Runs cells whose job is an object of Kubernetes; it holds nothing between runs."""

    def __init__(self, target: KubernetesTarget, name: str) -> None:
        self._target = target
        self._name = name
        self._runs = 0

    def run(self, cell: Cell, record: Path, work: Path) -> Ended:
        if cell.job.inputs or cell.job.templates or cell.job.outputs:
            return Ended(state="failed", reason="files: a job with a manifest has none: use volumes of its pods")
        self._runs += 1
        return self._target.run_manifest(cell, f"{self._name}-{self._runs}", record)

    def close(self) -> None:
        """Does nothing: each run has deleted its object."""


def minicluster(cell: Cell, name: str, token: str, size: int, selects_machine: bool) -> Object:
    """The MiniCluster for cells of one shape, of which `cell` is one."""
    fields = cell.job.minicluster
    first, *others = fields.get("containers") or [{}]
    own = {**first, **({"image": cell.job.image} if cell.job.image else {}), "runFlux": True}
    own.pop("command", None)
    spec: Object = {**fields, "size": size, "interactive": True, "containers": [own, *others]}
    if selects_machine and cell.machine:
        pod = spec.get("pod") or {}
        spec["pod"] = {**pod, "nodeSelector": {**(pod.get("nodeSelector") or {}), _MACHINE: cell.machine}}
    return {
        "apiVersion": MINICLUSTERS.api_version,
        "kind": MINICLUSTERS.kind,
        "metadata": {"name": name, "labels": {LABEL: token}},
        "spec": spec,
    }


def in_pod(found: Jobspec, environment: dict[str, str], home: str, inputs: Path) -> Jobspec:
    """A jobspec for pods: with their environment, the files below `inputs`, and `home` as working directory.

    Raises ValueError if the inputs are too large.
    """
    attributes, (task, *others) = found["attributes"], found["tasks"]
    system = {**attributes["system"], "environment": {**environment, **attributes["system"].get("environment", {})}}
    # The limits of this machine say nothing about the pods'.
    shell = system.get("shell") or {}
    options = {key: value for key, value in (shell.get("options") or {}).items() if key != "rlimit"}
    system["shell"] = {**shell, "options": options}
    command = ["/bin/sh", "-c", _ENTER, "sh", home, *task["command"]]
    made = {**found, "attributes": {**attributes, "system": system}, "tasks": [{**task, "command": command}, *others]}
    total = 0
    for path in sorted(inputs.rglob("*")):
        if path.is_file():
            total += path.stat().st_size
            if total > _MOST_INPUT:
                raise ValueError(f"inputs are larger than {_MOST_INPUT >> 20} MiB: put them into the image or a volume")
            perms = path.stat().st_mode & 0o777
            jobspec_build.add_file(made, f"inputs/{path.relative_to(inputs)}", path.read_bytes(), perms)
    return made


async def _made(api: Api, kind: Kind, namespace: str, token: str) -> list[Object]:
    """The objects of this kind that a session has made. Raises ApiError, Unreachable."""
    try:
        return list((await api.list_objects(kind, namespace, f"{LABEL}={token}")).items)
    except ApiError as exc:
        if exc.status != 404 or kind is PODS:
            raise
        text = (
            "the cluster has no MiniClusters: install the operator (`headrace operator manifests | kubectl apply -f -`)"
        )
        raise ApiError(404, exc.reason, text) from None


def _access(target: values.Target) -> tuple[Api, str]:
    """The API client of a target's context, and its namespace. Raises TargetError."""
    try:
        cluster = credentials.find("", target.context)
    except credentials.CredentialsError as exc:
        raise TargetError(str(exc)) from None
    return Api(cluster, manager=FIELD_MANAGER), target.namespace or cluster.namespace


async def _delete_manifests(api: Api, namespace: str, experiment: Experiment, token: str) -> None:
    """Delete the objects of runs with a manifest. Raises PlaceError, ApiError, Unreachable."""
    manifests = [cell.job.manifest for cell in experiment.cells if cell.job.manifest]
    await Objects(api, namespace, {}).delete_all(manifests, f"{LABEL}={token}")


def end_leftovers(experiment: Experiment, target: values.Target, token: str) -> None:
    """Delete the MiniClusters and objects of a run that was killed. Raises TargetError, PlaceError."""
    api, namespace = _access(target)

    async def delete() -> None:
        async with api:
            if not all(cell.job.manifest for cell in experiment.cells if cell.target == target.name):
                for found in await _made(api, MINICLUSTERS, namespace, token):
                    await api.delete(MINICLUSTERS, namespace, found["metadata"]["name"])
            await _delete_manifests(api, namespace, experiment, token)

    try:
        asyncio.run(delete())
    except (ApiError, Unreachable) as exc:
        raise TargetError(str(exc)) from None
