"""`flux job taskmap`: the map of a job's tasks to nodes, in the forms of RFC 34."""

from __future__ import annotations

import errno

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.formats.spec import jobid
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.taskmap import TaskMap
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

_COMMAND = Command(
    "flux-job taskmap",
    "[OPTIONS] JOBID|TASKMAP",
    "Show which tasks of a job run on which node (RFC 34)",
    (
        ("", "taskids", "NODEID", "Print which tasks run on this node of the job"),
        ("", "ntasks", "NODEID", "Print how many tasks run on this node of the job"),
        ("", "nodeid", "TASKID", "Print the index of the node that this task runs on"),
        ("", "hostname", "TASKID", "Print the host that this task runs on"),
        ("", "to", "FORMAT", "Print the map in another form: raw, pmi, multiline, hosts"),
    ),
)


def taskmap(argv: List[str]) -> int:
    options = _COMMAND.parse(argv)
    (text,) = options.need(1, 1)
    job, mapped = _load(text)
    if options.has("taskids"):
        print(mapped.node_tasks(_node(mapped, options.get_int("taskids", 0), "No taskids for node")))
    elif options.has("ntasks"):
        node = _node(mapped, options.get_int("ntasks", 0), "failed to get task count for node")
        print(len(mapped.node_tasks(node)))
    elif options.has("nodeid") or options.has("hostname"):
        node = _node_of(mapped, options.get_int("nodeid" if options.has("nodeid") else "hostname", 0))
        print(node if options.has("nodeid") else _hosts(job)[node])
    else:
        _convert(job, mapped, options.get("to"))
    return 0


def _load(text: str) -> Tuple[int, TaskMap]:
    """The job id (-1 if `text` is a task map) and the task map. Raises CommandError."""
    try:
        job = jobid.parse(text)
    except ValueError:
        try:
            return -1, TaskMap.decode(text)
        except ValueError as exc:
            raise CommandError(f"error decoding taskmap: {exc}") from None
    call = Handle().stream("job-info.eventlog-watch", {"id": job, "path": "guest.exec.eventlog", "flags": 0})
    try:
        for answer in call:
            event: Any = decode_line(answer["event"])
            if event.name == "shell.start":
                call.cancel()
                return job, TaskMap.decode(event.context["taskmap"])
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
    raise CommandError(f"failed to get shell.start event for {text}")


def _node(mapped: TaskMap, node: int, trouble: str) -> int:
    if not 0 <= node < mapped.nnodes:
        raise CommandError(f"{trouble} {node}: the job has nodes 0 to {mapped.nnodes - 1}")
    return node


def _node_of(mapped: TaskMap, task: int) -> int:
    for node in range(mapped.nnodes):
        if task in mapped.node_tasks(node):
            return node
    raise CommandError(f"failed to get nodeid for task {task}: the job has tasks 0 to {mapped.ntasks - 1}")


def _hosts(job: int) -> List[str]:
    if job < 0:
        raise CommandError("unable to get hosts without a jobid")
    import json

    from headrace.formats.spec.hostlist import Hostlist

    R: Any = json.loads(Handle().rpc("job-info.lookup", {"id": job, "keys": ["R"], "flags": 0}).get()["R"])
    return [host for part in R["execution"]["nodelist"] for host in Hostlist.parse(part)]


def _convert(job: int, mapped: TaskMap, form: str) -> None:
    if form == "hosts":
        for node, host in enumerate(_hosts(job)):
            print(f"{host}: {mapped.node_tasks(node)}")
    elif form == "multiline":
        for task in range(mapped.ntasks):
            print(f"{task}: {_node_of(mapped, task)}")
    elif form == "pmi":
        print(mapped.pmi_mapping())
    elif form == "raw":
        print(";".join(str(mapped.node_tasks(node)) for node in range(mapped.nnodes)))
    elif form:
        raise CommandError(f"invalid value for --to={form}: use raw, pmi, multiline or hosts")
    else:
        print(mapped.encode())
