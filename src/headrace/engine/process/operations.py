"""The operations that a broker and its exec agent send each other (docs/dev/interfaces.md), by the field `op`.

They are dictionaries, as msgpack and JSON have them, because most pass from one to the other through brokers that look
at one field or two. Types are checked statically: a message is made by one of the types below, and whoever asks for
`op["op"]` knows the other fields. What comes from other nodes is checked where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired

# -- from the broker to the agent: jobs


class Environment(TypedDict):
    """The environment of a job by the file that has most of it (`base`), and the variables of its own."""

    base: str
    own: dict[str, Any]


class Start(TypedDict):
    """Start the tasks of a job on this node. `ranks` and `hosts` are those of all its nodes, by nodeid."""

    op: Literal["start"]
    id: int
    userid: int
    jobspec: dict[str, Any]
    R: dict[str, Any]
    # None if the jobspec has it.
    environment: NotRequired[Environment | None]
    nodeid: int
    nnodes: int
    rank: int
    ranks: list[int]
    hosts: list[str]
    uri: str
    rundir: str
    # The job path of the job, and the level of the instance that it runs in.
    idpath: str
    instance_level: int
    # Seconds since the epoch, 0 for never.
    expiration: float
    # The name of the service of its lead shell.
    service: str
    # The attribute `tbon.interface-hint` where it is not the default.
    interface_hint: NotRequired[str]
    # The shell is a process of the job's user.
    as_user: NotRequired[bool]
    # The service of PAM that opens a session for that process, "" for none.
    pam_service: NotRequired[str]
    # The most bytes of each stream in the output eventlog, whatever the job asks for; absent for the owner's jobs.
    most_output: NotRequired[int]


class Kill(TypedDict):
    """Signal the tasks of a job on this node; with `all` also processes that left their process groups."""

    op: Literal["kill"]
    id: int
    signum: int | None
    all: NotRequired[bool]


class SetExpiration(TypedDict):
    """A job ends at another time, in seconds since the epoch; 0 for never."""

    op: Literal["expiration"]
    id: int
    expiration: float


# `data` is from the shell of node `from` of the same job.
FromPeer = TypedDict("FromPeer", {"op": Literal["peer"], "id": int, "from": int, "data": dict[str, Any]})


class Barrier(TypedDict):
    """Down: the barrier `seq` is complete, with the pairs of all nodes. Up: it was entered, with one's own pairs."""

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
    """The client of the request `token` has taken what it was sent before it was asked by `rpc-drain`, or is gone."""

    op: Literal["rpc-drained"]
    id: int
    token: int


# -- from the broker to the agent: subprocesses (RFC 42), by handle


class Exec(TypedDict):
    """Start a subprocess, as part of the job `job` on this node if that is not 0."""

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
    """Read no output of a subprocess, or read it again."""

    op: Literal["exec-hold"]
    handle: int
    on: bool


class ExecKill(TypedDict):
    op: Literal["exec-kill"]
    handle: int
    signum: int


# -- from the broker to the agent: itself


class Program(TypedDict):
    """The process of the broker's initial program, 0 for none. One that is about to start is known by its `uri`
    (FLUX_URI) and by the tick `since` at which it is started (`engine/process/linux.py`)."""

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
    """`data` is for the shell of node `to` of the same job."""

    op: Literal["peer"]
    id: int
    to: int
    data: dict[str, Any]


class RaisedException(TypedDict):
    """An exception of a job (RFC 21). `status` is the wait status of a shell that could not start its tasks."""

    op: Literal["exception"]
    id: int
    severity: int
    type: str
    note: str
    wait_status: NotRequired[int]
    status: NotRequired[int]


class RpcReply(TypedDict):
    """The answer to a request; with `errnum` its last one."""

    op: Literal["rpc-reply"]
    token: int
    errnum: int
    payload: dict[str, Any] | None
    text: str


class RpcDrain(TypedDict):
    """Say by `rpc-drained` when the client of the request `token` has taken what it was sent."""

    op: Literal["rpc-drain"]
    id: int
    token: int


class Started(TypedDict):
    """All tasks of a job run on this node, or, between brokers, on all nodes below."""

    op: Literal["started"]
    id: int


class Finish(TypedDict):
    """The largest wait status of a job on this node; between brokers `bad` has [rank, status] of each that is not 0."""

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
    """The agent has ended: made by the broker's end of the socket."""

    op: Literal["gone"]


# -- between brokers only


class Lost(TypedDict):
    """The nodes `ranks` (an idset) of a job are lost."""

    op: Literal["lost"]
    id: int
    ranks: str


# What is reported about a job, from agents and from broker to broker.
Report = Union[ShellEvent, Output, Started, Finish, Barrier, RaisedException, Lost]
SubprocessReport = Union[ExecStarted, ExecOutput, ExecFinished, ExecError]
FromShell = Union[ShellEvent, Output, ToPeer, Started, Finish, Barrier, RaisedException, RpcReply, RpcDrain]
FromAgent = Union[Hello, FromShell, SubprocessReport, Gone]
