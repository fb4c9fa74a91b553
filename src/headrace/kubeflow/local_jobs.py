"""Jobs on this machine, each with its own brokers and its own folder."""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any

from msgspec import json

from headrace.flux_jobs.read import running
from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.k8s.objects.problems import LABEL
from headrace.minicluster.api.shell_text import Mode
from headrace.minicluster.run import local

from .folder import ENVIRONMENT, JOBSPEC, LOG, PLAN, Folder, end

_log = logging.getLogger(__name__)


class LocalJobs:
    """The jobs in the folder `statedir`. They outlive this process; if `statedir` is "", they end with it."""

    local = True

    def __init__(self, statedir: str) -> None:
        self._base = os.path.abspath(statedir) if statedir else ""
        self._making = threading.Lock()
        # Child processes whose exit statuses this process must collect.
        self._children: list[subprocess.Popen[bytes]] = []

    def variables(self) -> Mapping[str, str]:
        try:
            return local.job_environment(_log.warning)
        except local.StartError as exc:
            raise RuntimeError(str(exc)) from None

    def environment(self, name: str) -> str:
        return self._folder(name) / ENVIRONMENT

    def start(self, name: str, cluster: ForeignCluster, jobspec: Any) -> None:
        refused = local.refusal(cluster.size)
        if refused:
            raise ValueError(f"num_nodes: {refused}")
        folder = self._folder(name)
        try:
            os.makedirs(self._base, 0o700, exist_ok=True)
            if folder.exists:
                raise RuntimeError(f"TrainJob {name} already exists")
            os.mkdir(folder.path, 0o700)
        except OSError as exc:
            raise RuntimeError(f"TrainJob {name}: cannot make {folder.path}: {exc.strerror}") from None
        try:
            self._start(folder, cluster, jobspec)
        except BaseException:
            end([folder])
            folder.remove()
            raise

    def _start(self, folder: Folder, cluster: ForeignCluster, jobspec: Any) -> None:
        recorder = shlex.join(_process("recorder", folder.path))
        plan = running.brokers(cluster, "", Mode.LAUNCHER, f"{recorder}\n")
        lock = folder.lock()
        try:
            for name, content in ((PLAN, plan), (JOBSPEC, jobspec)):
                with open(folder / f"{name}.new", "xb") as file:
                    file.write(json.encode(content))
                os.rename(file.name, folder / name)
            with open(folder / LOG, "ab") as log:
                runner = _process("runner", folder.path, str(lock))
                self._children.append(_spawn(runner, folder.path, log, (lock,)))
        finally:
            os.close(lock)

    def find(self, name: str) -> LocalJob | None:
        folder = self._folder(name) if LABEL.match(name) and self._base else None
        try:
            return LocalJob(folder) if folder is not None and folder.exists else None
        except FileNotFoundError:
            # Another process has deleted it meanwhile.
            return None

    def all(self) -> list[LocalJob]:
        names = sorted(os.listdir(self._base)) if self._base and os.path.isdir(self._base) else []
        return [job for job in map(self.find, names) if job is not None]

    def _folder(self, name: str) -> Folder:
        # Collects the exit statuses of ended runners, so that no zombies remain.
        self._children = [child for child in self._children if child.poll() is None]
        with self._making:
            if not self._base:
                base = tempfile.mkdtemp(prefix="headrace-train-")
                guard = _spawn(_process("guard", base, str(os.getpid())), base)
                atexit.register(self._end_all, os.getpid(), guard)
                self._base = base
        return Folder(os.path.join(self._base, name))

    def _end_all(self, owner: int, guard: subprocess.Popen[bytes]) -> None:
        """End the jobs of this process when it exits. A forked copy of the process owns no jobs."""
        if os.getpid() != owner:
            return
        jobs = self.all()
        for name in [job.name for job in jobs if not job.folder.has_ended()]:
            advice = "wait_for_job_status waits for it, and with a statedir it would continue"
            _log.warning("TrainJob %s is stopped, as this Python process ends: %s", name, advice)
        end(job.folder for job in jobs)
        shutil.rmtree(self._base, ignore_errors=True)
        guard.kill()
        guard.wait()


class LocalJob:
    """One job, with its folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.name = os.path.basename(folder.path)
        self.jobspec = folder.jobspec
        self.read = folder.read
        self.lost = folder.lost

    def delete(self) -> None:
        end([self.folder])
        self.folder.remove()


def _process(name: str, *words: str) -> list[str]:
    """The command for a process of module `processes`."""
    return [sys.executable, "-m", "headrace.kubeflow.processes", name, *words]


def _spawn(
    command: list[str], cwd: str, output: IO[bytes] | int = subprocess.DEVNULL, descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that no terminal ends it."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        start_new_session=True,
    )
