"""The operations between a broker and its exec agent (docs/dev/interfaces.md), by the field `op`.

They are dictionaries, as in msgpack and JSON, because most are only passed on by brokers that read one or two fields.
Types are checked statically: a message is created with one of the types below, and a check of `op["op"]` determines its
other fields. Data from other nodes are validated where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired

# -- from the broker to the agent: jobs


class Environment(TypedDict):
    """The environment of a job: the file that has most of it (`base`), and variables in which it differs."""

    base: str
    own: dict[str, Any]


class Start(TypedDict):
    """Start the tasks of a job on this node. `ranks` and `hosts` are those of all its nodes, by nodeid."""

    op: Literal["start"]
    id: int
    userid: int
    jobspec: dict[str, Any]
    R: dict[str, Any]
    # None if the jobspec has the environment.
    environment: NotRequired[Environment | None]
    nodeid: int
    nnodes: int
    rank: int
    ranks: list[int]
    hosts: list[str]
    uri: str
    rundir: str
    # The job path of the job, and the level of the instance that runs it.
    idpath: str
    instance_level: int
    # Seconds since the epoch, 0 for never.
    expiration: float
    # The service name of the job's lead shell.
    service: str
    # The attribute `tbon.interface-hint` if it is not the default.
    interface_hint: NotRequired[str]
    # True if the shell runs as a process of the job's user.
    as_user: NotRequired[bool]
    # The PAM service that opens a session for that process, "" for none.
    pam_service: NotRequired[str]
    # The most bytes of each stream in the output eventlog, regardless of the job's options. Absent for the owner's
    # jobs.
    most_output: NotRequired[int]


class Kill(TypedDict):
    """Signal the tasks of a job on this node; with `all` also processes that left their process groups."""

    op: Literal["kill"]
    id: int
    signum: int | None
    all: NotRequired[bool]


class SetExpiration(TypedDict):
    """Change the end of a job's time limit, in seconds since the epoch; 0 for never."""

    op: Literal["expiration"]
    id: int
    expiration: float


# `data` is from the shell of node `from` of the same job.
FromPeer = TypedDict("FromPeer", {"op": Literal["peer"], "id": int, "from": int, "data": dict[str, Any]})


class Barrier(TypedDict):
    """A barrier with number `seq`.

    To the agent: the barrier is complete, with the pairs of all nodes. From the agent: the barrier was entered, with
    this node's pairs.
    """

    op: Literal["barrier"]
    id: int
    seq: int
    kvs: dict[str, Any]


class Rpc(TypedDict):
    """A request to the service of a job's lead shell. `sender` is the UUID of the client."""

    op: Literal["rpc"]
    id: int
    token: int
    method: str
    payload: dict[str, Any]
    userid: int
    streaming: bool
    sender: NotRequired[str]


class RpcDrained(TypedDict):
    """The response to `rpc-drain`.

    The client of request `token` has read its responses or has disconnected.
    """

    op: Literal["rpc-drained"]
    id: int
    token: int


# -- from the broker to the agent: subprocesses (RFC 42), by handle


class Exec(TypedDict):
    """Start a subprocess. It belongs to the job `job` on this node unless that is 0."""

    op: Literal["exec"]
    handle: int
    cmd: dict[str, Any]
    job: int


class ExecWrite(TypedDict):
    op: Literal["exec-write"]
    handle: int
    stream: str
    data: bytes
    eof: bool


class ExecHold(TypedDict):
    """Pause or resume reading a subprocess's output."""

    op: Literal["exec-hold"]
    handle: int
    on: bool


class ExecKill(TypedDict):
    op: Literal["exec-kill"]
    handle: int
    signum: int


# -- from the broker to the agent: itself


class Program(TypedDict):
    """The process of the broker's initial program, 0 for none.

    Before its pid is known, a program is identified by its `uri` (FLUX_URI) and the tick `since` at which it is started
    (`engine/process/linux.py`).
    """

    op: Literal["program"]
    pid: int
    uri: NotRequired[str]
    since: NotRequired[int]


class Shutdown(TypedDict):
    op: Literal["shutdown"]


JobOperation = Union[Kill, SetExpiration, FromPeer, Barrier, RpcDrained]
ToAgent = Union[Start, JobOperation, Rpc, Exec, ExecWrite, ExecHold, ExecKill, Program, Shutdown]

# -- from the agent to the broker


class Hello(TypedDict):
    op: Literal["hello"]
    pid: int


class ShellEvent(TypedDict):
    """An event for the job's exec eventlog (RFC 50) at the time `t`."""

    op: Literal["event"]
    id: int
    t: float
    name: str
    context: dict[str, Any] | None


class Output(TypedDict):
    """Entries for the log of the job's output or input (RFC 24): [time, name, context]."""

    op: Literal["output", "input"]
    id: int
    entries: list[Any]


class ToPeer(TypedDict):
    """Send `data` to the shell of node `to` of the same job."""

    op: Literal["peer"]
    id: int
    to: int
    data: dict[str, Any]


class RaisedException(TypedDict):
    """An exception of a job (RFC 21).

    `status` is the wait status of a shell that could not start its tasks.
    """

    op: Literal["exception"]
    id: int
    severity: int
    type: str
    note: str
    wait_status: NotRequired[int]
    status: NotRequired[int]


class RpcReply(TypedDict):
    """A response to a request. A response with `errnum` is the last one."""

    op: Literal["rpc-reply"]
    token: int
    errnum: int
    payload: dict[str, Any] | None
    text: str


class RpcDrain(TypedDict):
    """Request `rpc-drained` once the client of the request `token` has read its responses."""

    op: Literal["rpc-drain"]
    id: int
    token: int


class Started(TypedDict):
    """All tasks of a job run on this node, or, between brokers, on all nodes below."""

    op: Literal["started"]
    id: int


class Finish(TypedDict):
    """The largest wait status of a job on this node.

    Between brokers, `bad` has [rank, status] of each nonzero status.
    """

    op: Literal["finish"]
    id: int
    status: int
    bad: NotRequired[list[list[int]]]


class ExecStarted(TypedDict):
    op: Literal["exec-started"]
    handle: int
    pid: int


class ExecOutput(TypedDict):
    op: Literal["exec-output"]
    handle: int
    stream: str
    data: bytes
    eof: bool


class ExecFinished(TypedDict):
    """A subprocess has ended with this wait status."""

    op: Literal["exec-finished"]
    handle: int
    status: int


class ExecError(TypedDict):
    """A subprocess could not be started."""

    op: Literal["exec-error"]
    handle: int
    errnum: int
    text: str


class Gone(TypedDict):
    """The agent has ended. Created by the broker's end of the socket."""

    op: Literal["gone"]


# -- between brokers only


class Lost(TypedDict):
    """The nodes `ranks` (an idset) of a job are lost."""

    op: Literal["lost"]
    id: int
    ranks: str


# Reports about a job, from agents and between brokers.
Report = Union[ShellEvent, Output, Started, Finish, Barrier, RaisedException, Lost]
SubprocessReport = Union[ExecStarted, ExecOutput, ExecFinished, ExecError]
FromShell = Union[ShellEvent, Output, ToPeer, Started, Finish, Barrier, RaisedException, RpcReply, RpcDrain]
FromAgent = Union[Hello, FromShell, SubprocessReport, Gone]
