"""Job specifications (RFC 14, RFC 25): reading a job's request.

Job list, scheduler, exec and shell read jobspecs through these functions, so that a default (the name of a job, its
number of tasks) is defined once. All functions expect a valid jobspec (see jobspec_validate) and do not change it.
jobspec_build makes jobspecs.
"""

from __future__ import annotations

import posixpath
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple, Union

from headrace.formats.spec import ranges
from headrace.formats.spec.jobspec_validate import MAX_NAME, JobspecError, fits, validate

__all__ = [
    "Bare",
    "Counts",
    "JobspecError",
    "SlotRequest",
    "command",
    "constraints",
    "counts",
    "cwd",
    "dependencies",
    "duration",
    "environment",
    "name",
    "queue",
    "shell_option",
    "shell_options",
    "slot_request",
    "smallest_count",
    "system",
    "task_count",
    "validate",
    "walk",
    "without_environment",
]

# The note of a job's last exception if it has been requeued (`attributes.system.requeue`) as often as allowed.
REQUEUED_ENOUGH = "it was queued again as often as headrace.most-requeues allows"

_EMPTY: Dict[str, Any] = {}


class Counts(NamedTuple):
    """The totals that a jobspec requests. 0 nodes or None tasks: unknown before resources are allocated.

    For a range of counts (RFC 14), the smallest is used. ``slot_cores`` and ``slot_gpus`` are the counts in one slot.
    """

    nnodes: int
    nslots: int
    ntasks: Optional[int]
    ncores: int
    ngpus: int
    slot_cores: int
    slot_gpus: int
    exclusive: bool


class SlotRequest(NamedTuple):
    """A request for ``nslots`` slots of cores and gpus, on exactly ``nnodes`` nodes (0: any number)."""

    nnodes: int
    nslots: int
    cores: int
    gpus: int
    exclusive: bool


def walk(jobspec: Dict[str, Any]) -> Iterator[Tuple[Dict[str, Any], int, int]]:
    """Yield (vertex, its smallest count, its total number) for every resource, parents first."""
    return _walk(jobspec["resources"], 1)


def _walk(vertices: List[Dict[str, Any]], parents: int) -> Iterator[Tuple[Dict[str, Any], int, int]]:
    for vertex in vertices:
        count = smallest_count(vertex["count"])
        total = parents * count
        yield vertex, count, total
        yield from _walk(vertex.get("with") or [], total)


def smallest_count(count: Union[int, str, Dict[str, int]]) -> int:
    """Return the smallest number that a resource count in any form of RFC 14 allows."""
    if isinstance(count, int):
        return count
    if isinstance(count, dict):
        return count["min"]
    return ranges.parse(count).min


def counts(jobspec: Dict[str, Any]) -> Counts:
    """Return the totals that a jobspec requests, as shown by ``flux jobs`` before the allocation."""
    nnodes = nslots = ncores = ngpus = slot_cores = slot_gpus = 0
    exclusive = False
    in_slot = 0
    for vertex, _, total in walk(jobspec):
        kind = vertex["type"]
        if kind == "node":
            nnodes += total
            exclusive = exclusive or bool(vertex.get("exclusive"))
        elif kind == "slot":
            nslots += total
            in_slot = total
        elif kind == "core":
            ncores += total
            slot_cores = total // in_slot if in_slot else 0
        elif kind == "gpu":
            ngpus += total
            slot_gpus = total // in_slot if in_slot else 0
    return Counts(
        nnodes, nslots, task_count(jobspec, nnodes, nslots, ncores), ncores, ngpus, slot_cores, slot_gpus, exclusive
    )


def task_count(jobspec: Dict[str, Any], nnodes: int, nslots: int, ncores: int) -> Optional[int]:
    """Return the number of tasks on the given nodes, slots and cores.

    None if it depends on the number of nodes, which is unknown (0). The shell option ``per-resource`` ({type:
    node|core, count}) overrides the counts of the tasks.
    """
    per_resource = shell_option(jobspec, "per-resource")
    if isinstance(per_resource, dict):
        number = per_resource.get("count", 1)
        if isinstance(number, int):
            if per_resource.get("type") == "node":
                return nnodes * number or None
            if per_resource.get("type") == "core":
                return ncores * number
    ntasks = 0
    for task in jobspec["tasks"]:
        ((key, value),) = task["count"].items()
        if key == "total":
            ntasks += value
        elif key == "per_slot":
            ntasks += nslots * value
        else:
            ntasks += _in_slots(jobspec, task["slot"], value["type"]) * value["count"]
    return ntasks


def _in_slots(jobspec: Dict[str, Any], label: str, kind: str) -> int:
    for vertex, _, total in walk(jobspec):
        if vertex["type"] == "slot" and vertex["label"] == label:
            inner = {"resources": [{**child, "count": child["count"]} for child in vertex["with"]]}
            return total * sum(number for child, _, number in walk(inner) if child["type"] == kind)
    return 0


def slot_request(jobspec: Dict[str, Any]) -> SlotRequest:
    """Return a jobspec's request as slots of cores and gpus.

    Raises JobspecError for a request of another form. Every version 1 jobspec has this form; ``slot>node`` (whole
    nodes) has it as well. Others need a graph scheduler.
    """
    resources = jobspec["resources"]
    if len(resources) != 1:
        raise JobspecError(f"resources: only one is supported by this scheduler, got {len(resources)}")
    vertex = resources[0]
    nnodes, exclusive, path = 0, False, "resources[0]"
    if vertex["type"] == "node":
        nnodes = smallest_count(vertex["count"])
        exclusive = bool(vertex.get("exclusive"))
        children = vertex.get("with") or []
        if len(children) != 1:
            raise JobspecError(f"{path}.with: below a node only one slot is supported by this scheduler")
        vertex = children[0]
        path += ".with[0]"
    if vertex["type"] != "slot":
        _unsupported(vertex, path)
    nslots = smallest_count(vertex["count"]) * (nnodes or 1)
    cores = gpus = 0
    for index, child in enumerate(vertex["with"]):
        kind, count = child["type"], smallest_count(child["count"])
        if child.get("with"):
            _unsupported(child["with"][0], f"{path}.with[{index}].with[0]")
        if kind == "core":
            cores += count
        elif kind == "gpu":
            gpus += count
        elif kind == "node" and not nnodes and len(vertex["with"]) == 1:
            return SlotRequest(nslots * count, nslots * count, 1, 0, True)
        else:
            _unsupported(child, f"{path}.with[{index}]")
    if not cores:
        raise JobspecError(f"{path}.with: a slot must have a core")
    return SlotRequest(nnodes, nslots, cores, gpus, exclusive)


def _unsupported(vertex: Dict[str, Any], path: str) -> NoReturn:
    raise JobspecError(f"{path}.type: Unsupported resource type '{vertex['type']}'")


def system(jobspec: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``attributes.system``, empty if there is none."""
    found = (jobspec.get("attributes") or _EMPTY).get("system") or _EMPTY
    assert isinstance(found, dict)
    return found


def duration(jobspec: Dict[str, Any]) -> float:
    """Return the time limit in seconds, 0 for none."""
    return float(system(jobspec).get("duration") or 0.0)


def command(jobspec: Dict[str, Any]) -> List[str]:
    """Return the program and arguments of the first task."""
    words: List[str] = jobspec["tasks"][0]["command"]
    return words


def name(jobspec: Dict[str, Any]) -> str:
    """Return the job's name: ``attributes.system.job.name``, or the file name of the program, if any.

    A program's file cannot have a name of more than 255 bytes, so a longer component is cut.
    """
    given = (system(jobspec).get("job") or _EMPTY).get("name")
    if given is not None:
        return str(given)
    program = command(jobspec)[0]
    found = posixpath.basename(program) or program
    return found if fits(found, MAX_NAME) else found.encode("utf-8", "replace")[:MAX_NAME].decode("utf-8", "ignore")


def cwd(jobspec: Dict[str, Any]) -> Optional[str]:
    """Return the working directory, None if none is given."""
    return system(jobspec).get("cwd")


def environment(jobspec: Dict[str, Any]) -> Dict[str, Optional[str]]:
    """Return the job's environment; a value None unsets the variable."""
    return system(jobspec).get("environment") or {}


def without_environment(jobspec: Dict[str, Any]) -> Dict[str, Any]:
    """Return the jobspec without its environment, which is large and may contain secrets.

    Only the KVS key ``J`` contains the environment. The result shares all other objects with the jobspec; a jobspec
    without an environment is returned itself.
    """
    attributes = jobspec["attributes"]
    found = attributes.get("system", _EMPTY)
    if "environment" not in found:
        return jobspec
    rest = {key: value for key, value in found.items() if key != "environment"}
    return {**jobspec, "attributes": {**attributes, "system": rest}}


class Bare:
    """Removes the environments of several jobspecs, one after another.

    If consecutive jobspecs share the ``attributes`` object, so do the results.
    """

    def __init__(self) -> None:
        self._last: Dict[str, Any] = {}
        self._bare: Dict[str, Any] = {}

    def of(self, jobspec: Dict[str, Any]) -> Dict[str, Any]:
        """Return without_environment(jobspec); for the jobspec of the last call, return the same object again."""
        if jobspec is not self._last:
            if jobspec["attributes"] is self._last.get("attributes"):
                self._bare = {**jobspec, "attributes": self._bare["attributes"]}
            else:
                self._bare = without_environment(jobspec)
            self._last = jobspec
        return self._bare


def queue(jobspec: Dict[str, Any]) -> Optional[str]:
    """Return the name of the requested queue, None if none is named."""
    return system(jobspec).get("queue")


def constraints(jobspec: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the RFC 31 constraint, None if there is none."""
    return system(jobspec).get("constraints")


def dependencies(jobspec: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the RFC 26 dependencies."""
    return system(jobspec).get("dependencies") or []


def shell_options(jobspec: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``attributes.system.shell.options``, empty if there are none."""
    return (system(jobspec).get("shell") or _EMPTY).get("options") or {}


def shell_option(jobspec: Dict[str, Any], key: str) -> Any:
    """Return one shell option by its key, None if it is not set."""
    return shell_options(jobspec).get(key)
