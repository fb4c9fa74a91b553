"""Placement of a job's tasks on its nodes (RFC 14 counts, RFC 34 task maps). Only host files are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from io import StringIO
from typing import Any, NamedTuple

import msgspec

from headrace.formats.spec.hostlist import MAX_HOSTS, Hostlist
from headrace.formats.spec.idset import MAX_ID, Idset
from headrace.formats.spec.jobspec import counts as request_counts
from headrace.formats.spec.jobspec import cwd, shell_option, walk
from headrace.formats.spec.os_error import text_of
from headrace.formats.spec.taskmap import TaskMap


class LayoutError(ValueError):
    """The job's tasks cannot be placed on its nodes. The text is the reason."""


class Layout(NamedTuple):
    """The tasks of a job: `counts` by node, and the data for starting the tasks of one node."""

    counts: list[int]
    size: int
    ranks: list[int]
    """The ranks of the tasks on this node."""
    mine: NodeResources
    """The resources of the job on this node that these tasks may use."""
    adjusted: list[str]
    """Messages about resources that these tasks may not use."""
    map: Any
    """The task map as an array (RFC 34), for the event `shell.start`."""
    pmi: dict[str, str]
    """The task map in the formats for PMI clients."""


class NodeResources(NamedTuple):
    """The resources of a job on one node, from R (RFC 20)."""

    rank: int
    cores: Idset
    gpus: Idset


# A cache of layouts by their inputs. Similar jobs mostly have the same layout, and computing one costs as much as
# creating the pipes of a small job.
_known: dict[bytes, Layout] = {}
_MOST = 512
# The largest size of a host file, in bytes.
_HOSTFILE_SIZE = 16 << 20
# The most tasks on a node. Each needs a descriptor of the agent, whose number is limited (process/spawn.py).
_NODE_TASKS = 1 << 20
_encode = msgspec.msgpack.Encoder().encode


def lay_out(jobspec: dict[str, Any], r: dict[str, Any], hosts: Sequence[str], nodeid: int) -> Layout:
    """The layout of a job for node `nodeid`. Raises LayoutError.

    Layouts are shared between jobs, so callers must not change them.
    """
    scheme = shell_option(jobspec, "taskmap") or "block"
    if isinstance(scheme, dict):
        if "scheme" not in scheme or set(scheme) - {"scheme", "value"}:
            raise LayoutError(f"invalid taskmap option {scheme}: write SCHEME or SCHEME:VALUE")
        scheme = f"{scheme['scheme']}:{scheme.get('value', '')}".rstrip(":")
    task = jobspec["tasks"][0]
    key = _encode(
        (
            r["execution"]["R_lite"],
            jobspec["resources"],
            task["count"],
            shell_option(jobspec, "per-resource"),
            scheme,
            hosts,
            nodeid,
        )
    )
    known = _known.get(key)
    if known is not None:
        return known
    nodes = node_resources(r)
    counts = task_counts(jobspec, nodes)
    tasks = task_map(counts, str(scheme), hosts, cwd(jobspec) or "")
    # Checked again, because a user's task map may move tasks to other nodes.
    _check_node(tasks.node_ntasks(nodeid))
    mine = list(tasks.node_tasks(nodeid))
    pmi = {"PMI_process_mapping": tasks.pmi_mapping(), "flux.taskmap": tasks.encode()}
    usable, adjusted = used_slots(jobspec, nodes[nodeid], len(mine))
    layout = Layout(counts, sum(counts), mine, usable, adjusted, tasks.to_obj(), pmi)
    if not str(scheme).startswith("hostfile"):
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = layout
    return layout


def node_resources(r: dict[str, Any]) -> list[NodeResources]:
    """The job's nodes in rank order."""
    nodes: list[NodeResources] = []
    for group in r["execution"]["R_lite"]:
        children = group["children"]
        cores = Idset.parse(children.get("core", ""))
        gpus = Idset.parse(children.get("gpu", ""))
        nodes.extend(NodeResources(rank, cores, gpus) for rank in Idset.parse(str(group["rank"])))
    nodes.sort()
    return nodes


def task_counts(jobspec: dict[str, Any], nodes: Sequence[NodeResources]) -> list[int]:
    """The number of tasks on each node. Raises LayoutError, also if a number exceeds a limit."""
    counts = _asked_counts(jobspec, nodes)
    if sum(counts) > MAX_ID + 1:
        raise LayoutError(f"the job has {sum(counts)} tasks, no more than {MAX_ID + 1} are possible")
    _check_node(max(counts))
    return counts


def _check_node(ntasks: int) -> None:
    """Raise LayoutError if a node has too many tasks."""
    if ntasks > _NODE_TASKS:
        raise LayoutError(f"a node has {ntasks} tasks of the job, no more than {_NODE_TASKS} are possible")


def _asked_counts(jobspec: dict[str, Any], nodes: Sequence[NodeResources]) -> list[int]:
    """The requested number of tasks on each node, without limits. Raises LayoutError."""
    per_resource = shell_option(jobspec, "per-resource")
    if per_resource is not None:
        kind, count = _per_resource(per_resource)
        return [count * (1 if kind == "node" else len(node.cores)) for node in nodes]
    slots = _slots(jobspec, nodes)
    ((kind, value),) = jobspec["tasks"][0]["count"].items()
    if kind == "per_slot":
        return [value * number for number in slots]
    if kind == "total":
        return _spread(value, slots)
    raise LayoutError(f"tasks[0].count.{kind}: tasks are counted per_slot or total")


def _per_resource(option: Any) -> tuple[str, int]:
    """The resource type of the option `per-resource`, and the tasks per resource. Raises LayoutError."""
    if not isinstance(option, dict) or set(option) - {"type", "count"} or option.get("type") not in ("node", "core"):
        raise LayoutError(f"invalid per-resource option {option}: write type=node or type=core, and count=N")
    count = option.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise LayoutError(f"invalid per-resource.count={count}: must be 1 or more")
    return option["type"], count


def used_slots(jobspec: dict[str, Any], node: NodeResources, ntasks: int) -> tuple[NodeResources, list[str]]:
    """`node` without slots that have no task, and messages about the resources that were removed.

    For example, `-N2 -n3` gives each node two slots. On the node with one task, that task may use only one slot. As in
    Flux, this applies only if the request has a number of slots on nodes that are not exclusive.
    """
    asked = request_counts(jobspec)
    top = jobspec["resources"][0]
    if top["type"] != "node" or asked.exclusive or shell_option(jobspec, "per-resource"):
        return node, []
    if ntasks >= asked.nslots // max(1, asked.nnodes):
        return node, []
    adjusted = []
    cores, gpus = _first(node.cores, ntasks * asked.slot_cores), _first(node.gpus, ntasks * asked.slot_gpus)
    if cores != node.cores:
        adjusted.append(f"adjusted cores from {node.cores} to {cores}")
    if gpus != node.gpus:
        adjusted.append(f"adjusted gpus from {node.gpus} to {gpus}")
    return NodeResources(node.rank, cores, gpus), adjusted


def _first(ids: Idset, number: int) -> Idset:
    """The first `number` of `ids`. All ids if `number` is 0, which means that slots do not have any."""
    return Idset(list(ids)[:number]) if 0 < number < len(ids) else ids


def _slots(jobspec: dict[str, Any], nodes: Sequence[NodeResources]) -> list[int]:
    """The number of slots on each node: as many as fit into its cores and GPUs, as requested."""
    cores = gpus = 0
    per_node = total = 0
    in_slot = False
    for vertex, _depth, _count in walk(jobspec):
        kind = vertex["type"]
        if kind == "slot":
            in_slot = True
            # For a range of slots, there are as many slots as fit into the resources.
            count = vertex["count"] if isinstance(vertex["count"], int) else 0
            if jobspec["resources"][0]["type"] == "slot":
                total = count
            else:
                per_node = count
        elif in_slot and kind == "core":
            cores = vertex["count"] if isinstance(vertex["count"], int) else 1
        elif in_slot and kind == "gpu":
            gpus = vertex["count"] if isinstance(vertex["count"], int) else 1
        elif in_slot and kind == "node":
            # A slot contains whole nodes, so there is one slot per node.
            return [1] * len(nodes)
    fits = []
    for node in nodes:
        room = [len(node.cores) // cores] if cores else []
        room += [len(node.gpus) // gpus] if gpus else []
        fits.append(min(room) if room else 1)
    if per_node:
        # If cores are shared (a test instance on one machine), a node may have fewer resources than requested.
        return [per_node] * len(nodes)
    if total and sum(fits) > total:
        return _spread(total, fits)
    return fits


def _spread(total: int, room: Sequence[int]) -> list[int]:
    """Distribute `total` tasks: fill the `room` of nodes in order, then add the rest evenly."""
    counts = []
    remaining = total
    for number in room:
        here = min(number, remaining)
        counts.append(here)
        remaining -= here
    each, extra = divmod(remaining, len(counts))
    return [count + each + (index < extra) for index, count in enumerate(counts)]


def task_map(counts: Sequence[int], scheme: str, hosts: Sequence[str], folder: str = "") -> TaskMap:
    """The task map of `-o taskmap=SCHEME` (block, cyclic[:N], manual:MAP, hostfile:FILE).

    FILE is relative to the job's working directory, `folder`. Raises LayoutError.
    """
    name, _, value = scheme.partition(":")
    try:
        if name in ("", "block"):
            if value:
                raise ValueError("block takes no value")
            return TaskMap.block(counts)
        if name == "cyclic":
            return TaskMap.cyclic(counts, int(value) if value else 1)
        if name == "manual":
            return TaskMap.manual(value, counts)
        if name == "hostfile":
            return _from_hostfile(value, counts, hosts, folder)
    except (ValueError, OSError) as exc:
        raise LayoutError(f"taskmap={scheme}: {text_of(exc)}") from None
    raise LayoutError(f"taskmap={scheme}: known schemes are block, cyclic, manual and hostfile")


def _from_hostfile(path: str, counts: Sequence[int], hosts: Sequence[str], folder: str) -> TaskMap:
    """The task map of a host file. Raises LayoutError, OSError, ValueError."""
    names: list[str] = []
    for line in StringIO(_text_of_file(os.path.join(folder, path))):
        names += Hostlist.parse(line.strip()) if line.strip() else ()
        if len(names) > MAX_HOSTS:
            raise LayoutError(f"taskmap=hostfile:{path}: more than {MAX_HOSTS} hosts in it")
    if not names:
        raise LayoutError(f"taskmap=hostfile:{path}: no hosts in it")
    if sum(counts) > MAX_HOSTS:
        raise LayoutError(f"taskmap=hostfile:{path}: the job has {sum(counts)} tasks, at most {MAX_HOSTS} are possible")
    nodes: dict[str, list[int]] = {host: [] for host in hosts}
    for task in range(sum(counts)):
        name = names[task % len(names)]
        if name not in nodes:
            raise LayoutError(f"taskmap=hostfile:{path}: {name} is not a host of this job")
        nodes[name].append(task)
    return TaskMap.from_nodes([Idset(tasks) for tasks in nodes.values()])


def _text_of_file(path: str) -> str:
    """The text of a regular file of limited size. Raises OSError, ValueError.

    Reading a FIFO or an endless device would block all jobs of the node.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(_HOSTFILE_SIZE + 1)
    finally:
        os.close(fd)
    if len(data) > _HOSTFILE_SIZE:
        raise ValueError(f"it has more than {_HOSTFILE_SIZE >> 20} MiB")
    return data.decode("utf-8")
