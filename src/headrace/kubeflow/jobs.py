"""What the back end needs of the jobs that it shows, wherever they run, and its error for an unknown name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.formats.spec.eventlog import Event


class NotFoundError(RuntimeError, ValueError):
    """A job, step, runtime or instance does not exist.

    `TrainerClient` documents RuntimeError, which its Kubernetes back end raises; its local ones raise ValueError.
    """


# The eventlogs of a job (RFC 21, 50, 24), by their keys in it.
EVENTLOG, EXEC_LOG, OUTPUT = "eventlog", "guest.exec.eventlog", "guest.output"


class Job(Protocol):
    """One job."""

    @property
    def jobspec(self) -> Any: ...

    def read(self, path: str, follow: bool = False) -> Iterator[Event]:
        """The events of a log so far, or as they come until the job has ended."""

    def lost(self) -> str:
        """Why a job whose log has no end has none, "" while it may still end."""

    def delete(self) -> None:
        """End the job if it runs, and forget it. Raises TimeoutError, RuntimeError."""


class Jobs(Protocol):
    """The jobs of a place, and the way to start one there."""

    @property
    def local(self) -> bool:
        """Whether brokers of this machine run them."""

    def variables(self) -> Mapping[str, str]:
        """The variables of this process that jobs get. Raises RuntimeError."""

    def environment(self, name: str) -> str:
        """The folder of a job's Python environment for further packages; "" for one on each node."""

    def start(self, name: str, cluster: ForeignCluster, jobspec: Any) -> None:
        """Start a job. Raises ValueError for more nodes than there can be, RuntimeError."""

    def find(self, name: str) -> Job | None: ...

    def all(self) -> Sequence[Job]: ...
