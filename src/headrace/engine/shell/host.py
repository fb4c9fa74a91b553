"""Interfaces: of the agent, as used by a job's shell, and of a job, as used by the parts of a shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headrace.engine.process.feed import Loop

if TYPE_CHECKING:
    from headrace.engine.process.operations import FromAgent, Start

    from .output import Output
    from .pmi import PmiServer
    from .reports import Reports


class StartError(Exception):
    """No task of the job can be started on this node. The text is the reason."""


class Ports(Protocol):
    """The TCP port for PMIx clients of all jobs (`pmix.port.Port`)."""

    def add(self, offer: Any) -> str: ...
    def remove(self, offer: Any) -> None: ...


class JobFolders(Protocol):
    """The temporary folders of jobs (`tmpdir.Folders`)."""

    def take(self, path: str) -> None: ...
    def give_back(self, path: str) -> None: ...


class Subprocesses(Protocol):
    """Processes of jobs that were not started by the shell but by the subprocess server (RFC 42)."""

    def kill_of(self, job: int, signum: int) -> None: ...
    def outlive(self, job: int, options: Mapping[str, Any], then: Callable[[], None]) -> bool: ...


class Host(Loop, Protocol):
    """The agent: its event loop, its connection to the broker, and objects shared by the jobs of a node."""

    # By pid: the function to call with the wait status of a child.
    children: dict[int, Callable[[int], None]]

    @property
    def folders(self) -> JobFolders: ...
    @property
    def pmix(self) -> Ports: ...
    @property
    def subprocesses(self) -> Subprocesses: ...

    def send(self, op: FromAgent) -> None:
        """Send an operation to the broker (docs/dev/interfaces.md)."""

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None: ...
    def unwatch(self, fd: int) -> None: ...

    def after(self, seconds: float, fn: Callable[[], None]) -> None:
        """Call `fn` once after `seconds`. The call cannot be canceled."""

    def job_over(self, id: int, status: int, tmpdir: str) -> None:
        """Report the end of a job on this node with its wait status, and remove its folder."""

    def kill_leftovers(self, path: str, signum: int, doomed: set[int]) -> None:
        """Signal the processes `doomed`, and all processes whose FLUX_JOB_ID_PATH is `path`."""


class Pmix(Protocol):
    """PMIx for the tasks of a job (`pmix.offer.Offer`)."""

    def environment(self, base: Mapping[str, str], rank: int) -> dict[str, str]: ...


class Pmi(Protocol):
    """PMI-1 and PMIx for the tasks of a job (`pmi_services.PmiServices`)."""

    @property
    def simple(self) -> PmiServer | None: ...
    @property
    def pmix(self) -> Pmix | None: ...

    def is_awaited(self, task: Any) -> bool: ...
    def block(self, reason: str) -> None: ...


class Terminated(Protocol):
    """The task of a terminal (`pty.Pty`)."""

    rank: int

    def maybe_close(self) -> None: ...
    def stream_ended(self) -> None: ...


class Job(Protocol):
    """A job on this node (`job.ShellJob`), as used by tasks, terminals, PMIx and services of the shell."""

    id: int
    op: Start
    nodeid: int
    nnodes: int
    size: int
    host: str
    lead: bool
    options: dict[str, Any]
    tmpdir: str

    @property
    def agent(self) -> Host: ...
    @property
    def are_brokers(self) -> bool: ...
    @property
    def output(self) -> Output | None: ...
    @property
    def pmi(self) -> Pmi: ...
    @property
    def reports(self) -> Reports: ...

    def abort(self, rank: int, code: int, text: str) -> None: ...
    def fail(self, note: str, code: int, component: str | None = None) -> None: ...
    def input_taken(self) -> None: ...
    def kill(self, signum: int | None) -> None: ...
    def task_closed(self, task: Any) -> None: ...
    def task_exited(self, task: Any, status: int) -> None: ...
