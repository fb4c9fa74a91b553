"""The back end of the SDK's client: its configuration, and its methods with the SDK's types and errors."""

from __future__ import annotations

import logging
import os
import random
import string
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from kubeflow.common.utils import validate_wait_for_job_status
from kubeflow.trainer.backends.base import RuntimeBackend
from kubeflow.trainer.constants import constants
from kubeflow.trainer.types import types
from pydantic import BaseModel, ConfigDict, model_validator

from headrace.flux_jobs.read.runtimes import DISTRIBUTED
from headrace.wire.query.submission import Caller

from .build import Place, Record, build, read_record
from .catalog import Catalog, runtime_of
from .instance_jobs import InstanceJobs
from .jobs import EVENTLOG, EXEC_LOG, OUTPUT, Job, Jobs, NotFoundError
from .local_jobs import LocalJobs
from .refusals import check_request, name_of
from .standing import COMPLETE, CREATED, FAILED, RUNNING, NodeLines, Standing, notices, standing


class HeadraceBackendConfig(BaseModel):
    """The configuration of a `TrainerClient` whose jobs run on Headrace.

    uri: the instance that runs the jobs, in the syntax of `flux proxy`; None starts brokers here for each job.
    statedir: a folder that stores local jobs, so that other Python processes find them and they outlive this process.
        With None, jobs end with this process. An instance stores its jobs itself.
    runtimes: files of runtimes (ClusterTrainingRuntime, TrainingRuntime), or such documents, in addition to those that
        are part of Headrace.

    Raises ValueError for both a uri and a statedir.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str | None = None
    statedir: str | os.PathLike[str] | None = None
    runtimes: tuple[str | os.PathLike[str] | dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _check_place(self) -> HeadraceBackendConfig:
        if self.uri is not None and self.statedir is not None:
            raise ValueError("uri and statedir exclude each other: an instance keeps its jobs itself")
        return self


_log = logging.getLogger(__name__)
_STATUSES = {CREATED, RUNNING, COMPLETE, FAILED}


class HeadraceBackend(RuntimeBackend):
    """Runs the SDK's jobs on local brokers or in an instance. Raises ValueError for invalid runtimes.

    Methods raise NotFoundError for a job, step or runtime that does not exist.
    """

    def __init__(self, cfg: HeadraceBackendConfig) -> None:
        self.cfg = cfg
        self._catalog = Catalog(cfg.runtimes)
        self._jobs: Jobs = InstanceJobs(cfg.uri) if cfg.uri else LocalJobs(os.fspath(cfg.statedir or ""))

    # -- runtimes

    def list_runtimes(self) -> list[types.Runtime]:
        return [runtime_of(document) for document in self._catalog]

    def get_runtime(self, name: str) -> types.Runtime:
        return runtime_of(self._catalog.document(name))

    def get_runtime_packages(self, runtime: types.Runtime) -> None:
        """Print the Python version, the packages and the GPUs that a job finds on one node.

        They are the same with all runtimes.
        """
        self._catalog.document(runtime)
        name = self.train(DISTRIBUTED, trainer=types.CustomTrainer(func=_print_packages, num_nodes=1))
        try:
            self.wait_for_job_status(name, {COMPLETE})
            print("\n".join(self.get_job_logs(name)))
        finally:
            self.delete_job(name)

    # -- jobs

    def train(
        self,
        runtime: str | types.Runtime | None = None,
        initializer: types.Initializer | None = None,
        trainer: types.CustomTrainer | types.CustomTrainerContainer | types.BuiltinTrainer | None = None,
        options: list[Any] | None = None,
    ) -> str:
        document = self._catalog.document(runtime)
        custom = check_request(initializer, trainer)
        name = name_of(options, trainer, self) or random.choice(string.ascii_lowercase) + uuid.uuid4().hex[:11]
        place = Place(
            self._jobs.variables(), Caller(_log.warning).directory(), self._jobs.local, self._jobs.environment(name)
        )
        built = build(name, document, custom, place, time.time())
        if built.not_applied:
            _log.warning("TrainJob %s: not applied without Kubernetes: %s", name, ", ".join(built.not_applied))
        if built.unresolved:
            named = ", ".join(built.unresolved)
            _log.warning("TrainJob %s: names of pods that do not resolve without Kubernetes: %s", name, named)
        self._jobs.start(name, built.cluster, built.jobspec)
        return name

    def list_jobs(self, runtime: types.Runtime | None = None) -> list[types.TrainJob]:
        jobs = [self._show(job) for job in self._jobs.all()]
        found = [job for job in jobs if runtime is None or job.runtime.name == runtime.name]
        return sorted(found, key=lambda job: job.creation_timestamp)

    def get_job(self, name: str) -> types.TrainJob:
        return self._show(self._find(name))

    def get_job_logs(self, name: str, follow: bool | None = False, step: str = constants.NODE + "-0") -> Iterator[str]:
        job = self._find(name)
        record = _record(job)
        nodes = {f"{constants.NODE}-{node}": node for node in range(record.nodes)}
        if step not in nodes:
            raise NotFoundError(f"TrainJob {name} has no step {step!r}: there are {', '.join(nodes)}")
        lines = NodeLines(nodes[step], record.tasks)
        return _lines(job, lines, bool(follow))

    def get_job_events(self, name: str) -> list[types.Event]:
        job = self._find(name)
        record = _record(job)
        found = notices(job.read(EVENTLOG), job.read(EXEC_LOG), job.read(OUTPUT))
        return [
            types.Event(
                involved_object_kind=constants.TRAINJOB_KIND if one.node is None else "Pod",
                involved_object_name=name if one.node is None else f"{record.hosts}-{one.node}",
                message=one.message,
                reason=one.name,
                event_time=_time(one.timestamp),
            )
            for one in found
        ]

    def wait_for_job_status(
        self,
        name: str,
        status: set[str] = {COMPLETE},  # noqa: B006 (the SDK's signature)
        timeout: int = 600,
        polling_interval: int = 2,
        callbacks: list[Callable[[types.TrainJob], None]] | None = None,
    ) -> types.TrainJob:
        if not set(status) <= _STATUSES:
            raise ValueError(f"Expected status {status} must be a subset of {_STATUSES}")
        validate_wait_for_job_status(polling_interval, timeout)
        deadline = time.monotonic() + timeout
        while True:
            found = self.get_job(name)
            for callback in callbacks or ():
                callback(found)
            if found.status in status:
                return found
            if found.status == FAILED:
                raise RuntimeError(f"TrainJob {name} is Failed: {_standing(self._find(name)).reason}")
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"Timeout waiting for TrainJob {name} to reach status: {status}")
            time.sleep(min(polling_interval, remaining))

    def delete_job(self, name: str) -> None:
        self._find(name).delete()

    # -- one job

    def _find(self, name: str) -> Job:
        job = self._jobs.find(name) if isinstance(name, str) else None
        if job is None:
            raise NotFoundError(f"No TrainJob with name {name}")
        return job

    def _show(self, job: Job) -> types.TrainJob:
        record, stands = _record(job), _standing(job)
        steps = [
            types.Step(
                name=f"{constants.NODE}-{node}",
                status=phase,
                pod_name=f"{record.hosts}-{node}",
                device=record.device,
                device_count=str(record.procs),
            )
            for node, phase in enumerate(stands.phases)
        ]
        return types.TrainJob(
            name=record.name,
            runtime=runtime_of(record.runtime),
            steps=steps,
            num_nodes=record.nodes,
            creation_timestamp=_time(record.created),
            status=stands.status,
        )


def _record(job: Job) -> Record:
    record = read_record(job.jobspec)
    if record is None:
        raise RuntimeError("the record of the job's TrainJob is missing or was written by another version of Headrace")
    return record


def _standing(job: Job) -> Standing:
    # `lost` is called first: if it says that the log will not continue, the log that is then read is complete.
    lost = job.lost()
    return standing(list(job.read(EVENTLOG)), job.read(EXEC_LOG), _record(job).nodes, lost)


def _lines(job: Job, lines: NodeLines, follow: bool) -> Iterator[str]:
    yield from lines.feed(job.read(OUTPUT, follow))
    yield from lines.rest()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _print_packages() -> None:
    import shutil
    import subprocess
    import sys
    from importlib.metadata import distributions

    print(f"Python: {sys.version}")
    for line in sorted({f"{one.metadata['Name']} {one.version}" for one in distributions()}, key=str.lower):
        print(line)
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi"], check=False)
