"""The interface to jobs that the back end uses wherever they run, and the error for an unknown name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.formats.spec.eventlog import Event


class NotFoundError(RuntimeError, ValueError):
    """A job, step, runtime or instance does not exist.

    `TrainerClient` documents RuntimeError, which its Kubernetes back end raises; its local ones raise ValueError.
    """


# The keys of a job's eventlogs (RFC 21, 50, 24).
EVENTLOG, EXEC_LOG, OUTPUT = "eventlog", "guest.exec.eventlog", "guest.output"


class Job(Protocol):
    """One job."""

    @property
    def jobspec(self) -> Any: ...

    def read(self, path: str, follow: bool = False) -> Iterator[Event]:
        """The events of a log so far or, with `follow`, until the job has ended."""

    def lost(self) -> str:
        """The reason why a job's log has no event `clean`; "" if it has one, or may still get one."""

    def delete(self) -> None:
        """End the job if it is running, and delete its record. Raises TimeoutError, RuntimeError."""


class Jobs(Protocol):
    """The jobs of one place, and how to start a job there."""

    @property
    def local(self) -> bool:
        """True if brokers of this machine run the jobs."""

    def variables(self) -> Mapping[str, str]:
        """The environment variables of this process that jobs inherit. Raises RuntimeError."""

    def environment(self, name: str) -> str:
        """The folder of a job's Python environment for additional packages; "" if each node makes its own."""

    def start(self, name: str, cluster: ForeignCluster, jobspec: Any) -> None:
        """Start a job. Raises ValueError for too many nodes, and RuntimeError."""

    def find(self, name: str) -> Job | None: ...

    def all(self) -> Sequence[Job]: ...
