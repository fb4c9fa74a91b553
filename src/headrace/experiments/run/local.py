"""Target `local`: brokers on this machine.

Each place is an instance of its own, `flux start --test-size=SIZE`, rather than a sub-instance of one large instance:
the brokers of one machine share its cores anyway, and half as many of them are started. Places stay open while no more
than `_BROKERS` brokers run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.experiments.values import Cell, Experiment
from headrace.formats.spec.os_error import text_of
from headrace.minicluster.run import local, remains
from headrace.wire.client.handle import Handle

from .instance_place import InstancePlace
from .jobs import Jobspec, Lost
from .places import Opening, Place, PlaceError

# Brokers that may stay running without a run.
_BROKERS = 16
# Seconds to wait for the end of an instance before it is killed, and between two looks at one that starts.
_STOP_TIMEOUT, _PAUSE = 10.0, 0.01


class LocalTarget:
    """Local instances in the folder `workspace`, for cells of at most `largest` nodes."""

    is_one_for_each_shape = False

    def __init__(
        self,
        experiment: Experiment,
        largest: int,
        workspace: str,
        environment: dict[str, str],
        jobspecs: Callable[[Cell], Jobspec],
    ) -> None:
        self.nodes = max(largest, _BROKERS)
        # Runs that share cores disturb each other's times.
        self.jobs = 1
        self._workspace = workspace
        self._environment = {**environment, remains.WORKSPACE: workspace}
        self._environment.setdefault("TMPDIR", os.path.dirname(workspace))
        self._experiment = experiment
        self._jobspecs = jobspecs
        self.facts: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def open(self, opening: Opening) -> Place:
        refused = local.refusal(opening.size)
        if refused:
            raise PlaceError(refused)
        work = Path(self._workspace, str(opening.number))
        try:
            (work / "run").mkdir(parents=True, mode=0o700)
            (work / "config.json").write_text(json.dumps({"resource": _resources(opening)}))
            process = self._start(opening.size, work)
        except OSError as exc:
            raise PlaceError(f"cannot start {opening.size} brokers: {text_of(exc)}") from None
        uri = f"local://{work}/run/local-0"
        try:
            self._wait(process, uri)
            return InstancePlace(uri, self._experiment, self._jobspecs, lambda: self._end(process, work))
        except OSError as exc:
            message = self._last_line(work)
            self._end(process, work)
            raise Lost(f"the local instance did not start: {message or text_of(exc)}") from None

    def close(self) -> None:
        """Does nothing: all that there is belongs to places."""

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            processes = list(self._processes)
        for process in processes:
            process.terminate()

    def _start(self, size: int, work: Path) -> subprocess.Popen[bytes]:
        flux = shutil.which("flux", path=self._environment["PATH"]) or "flux"
        command = [flux, "start", f"--test-size={size}", f"--test-hosts={_hosts(size)}", f"--test-rundir={work}/run"]
        # rc2_none: it runs until it gets a signal. As on a cluster, a failed follower does not end the others.
        command += ["--test-exit-mode=leader", f"--config-path={work}/config.json", "-Sbroker.rc2_none=1"]
        with open(work / "log", "wb") as log, self._lock:
            if self._stopped:
                raise Lost("the experiment was stopped")
            # A session of its own: only this process gets Ctrl-C of the terminal.
            process = subprocess.Popen(
                command,
                cwd=work,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._processes.append(process)
        return process

    def _wait(self, process: subprocess.Popen[bytes], uri: str) -> None:
        """Wait until all brokers are up. Raises OSError."""
        while True:
            try:
                with Handle(uri) as handle:
                    handle.rpc("state-machine.wait").get()
                return
            except OSError as exc:
                # The socket is made before the broker listens on it.
                if exc.errno not in (errno.ENOENT, errno.ECONNREFUSED):
                    raise
            if process.poll() is not None:
                raise OSError(errno.ECHILD, f"flux start exited with status {process.returncode}")
            time.sleep(_PAUSE)

    def _last_line(self, work: Path) -> str:
        with contextlib.suppress(OSError):
            return next(reversed((work / "log").read_text(errors="replace").splitlines()), "")
        return ""

    def _end(self, process: subprocess.Popen[bytes], work: Path) -> None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with self._lock, contextlib.suppress(ValueError):
            self._processes.remove(process)
        shutil.rmtree(work, ignore_errors=True)


def _hosts(size: int) -> str:
    return f"node[0-{size - 1}]" if size > 1 else "node0"


def _resources(opening: Opening) -> dict[str, object]:
    """The `resource` table: nodes with the cores that the cells of the place need, if the machine has fewer.

    A file that is written for larger machines can so be tried here. If nodes share the machine's cores, their cores get
    numbers that the machine does not have, so that tasks are not bound (as in `minicluster.run.local`).
    """
    count = len(os.sched_getaffinity(0))
    cores = max(count, *map(_cores_per_node, opening.cells))
    first = 0 if opening.size == 1 and cores == count else (os.cpu_count() or count)
    return {"noverify": True, "config": [{"hosts": _hosts(opening.size), "cores": f"{first}-{first + cores - 1}"}]}


def _cores_per_node(cell: Cell) -> int:
    return math.ceil(cell.job.tasks / (cell.job.nodes or cell.size)) * (cell.job.cores or 1)
