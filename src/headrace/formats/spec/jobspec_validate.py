"""Validation of job specifications: RFC 14, and RFC 25 for version 1.

Ingest checks every submitted job here, so the common shape (one slot with cores, one task) has a fast path of exact
type tests. All other jobspecs are checked against the general grammar of RFC 14. Both raise JobspecError with the path
of the field and what it must be.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from headrace.formats.spec import constraint, ranges
from headrace.formats.spec.plain_json import kind_of

_INF = float("inf")
_KEYS = ("attributes", "resources", "tasks", "version")
# Clients and shells in C read counts into an `int`.
MAX_COUNT = (1 << 31) - 1
# Limits in bytes of UTF-8: of names (job, queue, bank, project), as for file names, and of paths (PATH_MAX without its
# NUL). Job lists and pages show these texts for every job.
MAX_NAME = 255
MAX_PATH = 4095
_VERTEX_KEYS = frozenset({"type", "count", "unit", "exclusive", "with", "label", "id"})
_TASK_KEYS = frozenset({"command", "slot", "count", "attributes", "distribution"})

# Used if no valid jobspec is known: its parts are not identical to a part of any jobspec.
_NOTHING_KNOWN: Dict[str, Any] = dict.fromkeys(_KEYS, object())
# Real resource trees have half a dozen levels; the limit keeps the recursion within Python's stack.
_MAX_DEPTH = 64


class JobspecError(ValueError):
    """An invalid jobspec; the message names the field, such as ``resources[0].with[1].count``."""


def validate(obj: Any, version: Optional[int] = None, known: Optional[Dict[str, Any]] = None) -> None:
    """Check a decoded jobspec: version 1 against RFC 25, others against RFC 14; raises JobspecError.

    With ``version``, a jobspec of another version is rejected. ``known`` is a valid jobspec: the parts of a version 1
    jobspec that are the same objects as in ``known`` are not checked again.
    """
    got = _version(obj)
    if version is not None and got != version:
        raise JobspecError(f"version: expected version {version}, got {got}")
    if got == 1:
        # The parts of a version 1 jobspec are independent, so a part of a valid jobspec is valid in any other.
        valid = known if known is not None and known.get("version") == 1 else _NOTHING_KNOWN
        if obj["resources"] is not valid["resources"]:
            _validate_v1_resources(obj["resources"])
        if obj["tasks"] is not valid["tasks"]:
            _validate_v1_tasks(obj["tasks"])
        if obj["attributes"] is valid["attributes"]:
            return
    else:
        slots = _validate_resources(obj["resources"])
        _validate_tasks(obj["tasks"], slots)
    _validate_attributes(obj["attributes"], got)


def validate_canonical(obj: Any) -> None:
    """Check a decoded jobspec of any version against RFC 14 alone.

    The Python bindings use this check, since their jobspecs need not be submitted. The command of a task may be a
    string instead of an array. Raises JobspecError.
    """
    version = _version(obj)
    slots = _validate_resources(obj["resources"])
    tasks = obj["tasks"]
    if type(tasks) is list:
        tasks = [_with_command_array(task) for task in tasks]
    _validate_tasks(tasks, slots)
    _validate_attributes(obj["attributes"], version)


def _with_command_array(task: Any) -> Any:
    if type(task) is dict and type(task.get("command")) is str:
        return {**task, "command": [task["command"]]}
    return task


def _version(obj: Any) -> int:
    """The version of an object that has exactly the keys of a jobspec. Raises JobspecError."""
    if not isinstance(obj, dict):
        raise JobspecError(f"jobspec: must be an object, not {kind_of(obj)}")
    for key in _KEYS:
        if key not in obj:
            raise JobspecError(f"Missing key ({key})")
    if len(obj) > len(_KEYS):
        extra = next(key for key in obj if key not in _KEYS)
        raise JobspecError(f"{extra}: unknown key; a jobspec has {', '.join(_KEYS)}")
    got = obj["version"]
    if type(got) is not int or got < 1:
        raise JobspecError(f"version: must be a positive integer, not {got!r}")
    return got


def _validate_v1_resources(resources: Any) -> None:
    if type(resources) is not list or len(resources) != 1:
        raise JobspecError("resources: must be an array of one node or slot in version 1")
    vertex = resources[0]
    path = "resources[0]"
    kind = _v1_vertex(vertex, path)
    if kind == "node":
        children = vertex.get("with")
        if type(children) is not list or len(children) != 1:
            raise JobspecError(f"{path}.with: must be an array of one slot below a node in version 1")
        vertex = children[0]
        path += ".with[0]"
        kind = _v1_vertex(vertex, path)
    if kind != "slot":
        raise JobspecError(
            f"{path}.type: must be {'slot' if '.' in path else 'node or slot'} in version 1, not {kind!r}"
        )
    if type(vertex.get("label")) is not str:
        raise JobspecError(f"{path}.label: a slot must have a label, which tasks[0].slot names")
    children = vertex.get("with")
    if type(children) is not list or not children:
        raise JobspecError(
            f"{path}.with: must be an array with a core, and optionally a gpu, below a slot in version 1"
        )
    seen = []
    for index, child in enumerate(children):
        where = f"{path}.with[{index}]"
        kind = _v1_vertex(child, where)
        if kind not in {"core", "gpu"} or kind in seen:
            raise JobspecError(f"{where}.type: a version 1 slot has one core and at most one gpu entry, not {kind!r}")
        if "with" in child:
            raise JobspecError(f"{where}.with: a {kind} has nothing below it in version 1")
        seen.append(kind)
    if "core" not in seen:
        raise JobspecError(f"{path}.with: has no core; in version 1 a slot must have one")


def _v1_vertex(vertex: Any, path: str) -> str:
    if type(vertex) is not dict:
        raise JobspecError(f"{path}: must be an object with type and count, not {kind_of(vertex)}")
    count: Any = vertex.get("count")
    if (type(count) is not int or count < 1) and not _is_no_gpu(vertex):
        raise JobspecError(f"{path}.count: must be an integer of 1 or more in version 1, not {count!r}")
    if count > MAX_COUNT:
        raise JobspecError(f"{path}.count: must be {MAX_COUNT} at most, not {count}")
    kind = vertex.get("type")
    if type(kind) is not str:
        raise JobspecError(f"{path}.type: must be node, slot, core or gpu in version 1, not {kind!r}")
    if len(vertex) > 2:
        _vertex_options(vertex, path)
    return kind


def _is_no_gpu(vertex: Dict[str, Any]) -> bool:
    """Whether a vertex is a GPU entry with count 0, as written by programs that always list GPUs."""
    count = vertex.get("count")
    return vertex.get("type") == "gpu" and type(count) is int and not count


def _vertex_options(vertex: Dict[str, Any], path: str) -> None:
    for key, value in vertex.items():
        if key in {"unit", "label", "id"}:
            if type(value) is not str:
                raise JobspecError(f"{path}.{key}: must be a string, not {kind_of(value)}")
        elif key == "exclusive":
            if type(value) is not bool:
                raise JobspecError(f"{path}.exclusive: must be true or false, not {value!r}")
        elif key not in _VERTEX_KEYS:
            raise JobspecError(f"{path}.{key}: unknown key; a resource has {', '.join(sorted(_VERTEX_KEYS))}")


def _validate_v1_tasks(tasks: Any) -> None:
    # The task's slot is not compared with the slot's label: there is only one slot, and in real jobspecs they differ.
    if type(tasks) is not list or len(tasks) != 1:
        raise JobspecError("tasks: must be an array of one task in version 1")
    task = tasks[0]
    _validate_task(task, "tasks[0]")
    count = task["count"]
    if "per_resource" in count:
        raise JobspecError("tasks[0].count.per_resource: not in version 1; use per_slot or total")
    if count.get("per_slot", 1) != 1:
        raise JobspecError(f"tasks[0].count.per_slot: must be 1 in version 1, not {count['per_slot']!r}")


def _validate_task(task: Any, path: str) -> None:
    if type(task) is not dict:
        raise JobspecError(f"{path}: must be an object with command, slot and count, not {kind_of(task)}")
    command = task.get("command")
    if type(command) is not list or not command:
        raise JobspecError(f"{path}.command: must be an array of a program and its arguments, not {command!r}")
    for index, word in enumerate(command):
        if type(word) is not str:
            raise JobspecError(f"{path}.command[{index}]: must be a string, not {kind_of(word)}")
    if type(task.get("slot")) is not str:
        raise JobspecError(f"{path}.slot: must be the label of a slot, not {task.get('slot')!r}")
    _validate_task_count(task.get("count"), path)
    if len(task) > 3:
        for key in task:
            if key not in _TASK_KEYS:
                raise JobspecError(f"{path}.{key}: unknown key; a task has {', '.join(sorted(_TASK_KEYS))}")
        if type(task.get("distribution", "")) is not str:
            raise JobspecError(f"{path}.distribution: must be a string, not {kind_of(task['distribution'])}")
        attributes = task.get("attributes", {})
        if type(attributes) is not dict:
            raise JobspecError(f"{path}.attributes: must be an object, not {kind_of(attributes)}")
        if "environment" in attributes:
            _check_environment(attributes["environment"], f"{path}.attributes.environment")


def _validate_task_count(count: Any, path: str) -> None:
    if type(count) is not dict or len(count) != 1:
        raise JobspecError(f"{path}.count: must be an object with one of per_slot, per_resource, total, not {count!r}")
    ((key, value),) = count.items()
    if key == "per_slot" or key == "total":  # noqa: PLR1714 - builds no set for each jobspec
        if type(value) is not int or value < 1:
            raise JobspecError(f"{path}.count.{key}: must be an integer of 1 or more, not {value!r}")
        if value > MAX_COUNT:
            raise JobspecError(f"{path}.count.{key}: must be {MAX_COUNT} at most, not {value}")
    elif key == "per_resource":
        number = value.get("count") if type(value) is dict else None
        if type(value) is not dict or type(value.get("type")) is not str or type(number) is not int or number < 1:
            raise JobspecError(f"{path}.count.per_resource: must be an object {{type, count}}, not {value!r}")
    else:
        raise JobspecError(f"{path}.count.{key}: unknown key; use per_slot, per_resource or total")


def _validate_resources(resources: Any) -> Dict[str, List[str]]:
    """Check resources against RFC 14; return the types in each slot by the slot's label."""
    if type(resources) is not list or not resources:
        raise JobspecError("resources: must be an array of at least one resource")
    labels: Dict[str, str] = {}
    slots: Dict[str, List[str]] = {}
    for index, vertex in enumerate(resources):
        _validate_vertex(vertex, f"resources[{index}]", labels, slots, (), 0)
    return slots


def _validate_vertex(
    vertex: Any,
    path: str,
    labels: Dict[str, str],
    slots: Dict[str, List[str]],
    inside: Tuple[str, ...],
    depth: int,
) -> None:
    if type(vertex) is not dict:
        raise JobspecError(f"{path}: must be an object with type and count, not {kind_of(vertex)}")
    if depth > _MAX_DEPTH:
        raise JobspecError(f"{path}: resources are nested deeper than {_MAX_DEPTH}")
    kind = vertex.get("type")
    if type(kind) is not str or not kind:
        raise JobspecError(f"{path}.type: must be the name of a resource type, not {kind!r}")
    if "count" not in vertex:
        raise JobspecError(f"{path}.count: missing; it must be an integer, a range string or a range object")
    if not _is_no_gpu(vertex):
        _validate_count(vertex["count"], f"{path}.count")
    _vertex_options(vertex, path)
    label = vertex.get("label")
    if label is not None:
        if label in labels:
            raise JobspecError(
                f"{path}.label: {label!r} is already the label of {labels[label]}; labels must be unique"
            )
        labels[label] = path
    children = vertex.get("with", [])
    if type(children) is not list:
        raise JobspecError(f"{path}.with: must be an array of resources, not {kind_of(children)}")
    for slot in inside:
        slots[slot].append(kind)
    if kind == "slot":
        if label is None:
            raise JobspecError(f"{path}.label: a slot must have a label, which the slot of a task names")
        if not children:
            raise JobspecError(f"{path}.with: a slot must have at least one resource")
        slots[label] = []
        inside = (*inside, label)
    for index, child in enumerate(children):
        _validate_vertex(child, f"{path}.with[{index}]", labels, slots, inside, depth + 1)


def _validate_count(count: Any, path: str) -> None:
    if type(count) is int:
        if count < 1:
            raise JobspecError(f"{path}: must be 1 or more, not {count}")
    elif type(count) is str:
        try:
            smallest = ranges.parse(count).min
        except ValueError as exc:
            raise JobspecError(f"{path}: {exc}") from None
        if smallest < 1:
            raise JobspecError(f"{path}: must be 1 or more, not {count!r}")
    elif type(count) is dict:
        _validate_range(count, path)
    else:
        raise JobspecError(f"{path}: must be an integer, a range string or a range object, not {count!r}")


def _validate_range(count: Dict[str, Any], path: str) -> None:
    for key, value in count.items():
        if key == "operator":
            if value not in ("+", "*", "^"):
                raise JobspecError(f"{path}.operator: must be +, * or ^, not {value!r}")
        elif key not in {"min", "max", "operand"}:
            raise JobspecError(f"{path}.{key}: unknown key; a range has min, max, operator, operand")
        elif type(value) is not int or value < 1:
            raise JobspecError(f"{path}.{key}: must be an integer of 1 or more, not {value!r}")
    if "min" not in count:
        raise JobspecError(f"{path}.min: missing; a range must have it")
    if count.get("max", count["min"]) < count["min"]:
        raise JobspecError(f"{path}.max: must not be less than min ({count['min']}), got {count['max']}")


def _validate_tasks(tasks: Any, slots: Dict[str, List[str]]) -> None:
    if type(tasks) is not list or not tasks:
        raise JobspecError("tasks: must be an array of at least one task")
    for index, task in enumerate(tasks):
        path = f"tasks[{index}]"
        _validate_task(task, path)
        slot = task["slot"]
        if slot not in slots:
            known = ", ".join(sorted(slots)) or "none"
            raise JobspecError(f"{path}.slot: {slot!r} is not the label of a slot; labels are: {known}")
        per_resource = task["count"].get("per_resource")
        if per_resource is not None and per_resource["type"] not in slots[slot]:
            raise JobspecError(f"{path}.count.per_resource.type: slot {slot!r} has no {per_resource['type']!r}")


def _validate_attributes(attributes: Any, version: int) -> None:
    if attributes is None and version != 1:
        return
    if type(attributes) is not dict:
        raise JobspecError(f"attributes: must be an object, not {kind_of(attributes)}")
    if type(attributes.get("user", _EMPTY)) is not dict:
        raise JobspecError(f"attributes.user: must be an object, not {kind_of(attributes['user'])}")
    system = attributes.get("system")
    if type(system) is not dict:
        if system is None and "system" not in attributes and version != 1:
            return
        raise JobspecError(f"attributes.system: must be an object, not {kind_of(system)}")
    if version == 1 and "duration" not in system:
        raise JobspecError("attributes.system.duration: missing; version 1 requires it (0 means no limit)")
    for key, value in system.items():
        check = _SYSTEM.get(key)
        if check is not None:
            check(value, f"attributes.system.{key}")


def _check_seconds(value: Any, path: str) -> None:
    if type(value) not in (int, float) or not 0 <= value < _INF:
        raise JobspecError(f"{path}: must be a number of seconds, 0 or more, not {value!r}")


def _check_string(value: Any, path: str) -> None:
    if type(value) is not str:
        raise JobspecError(f"{path}: must be a string, not {kind_of(value)}")


def fits(text: str, most: int) -> bool:
    """True if a text has at most this many bytes in UTF-8."""
    # A character has at most four bytes.
    return len(text) * 4 <= most or len(text.encode("utf-8", "replace")) <= most


def _check_name(value: Any, path: str) -> None:
    _check_text(value, path, MAX_NAME)


def _check_bank(value: Any, path: str) -> None:
    if type(value) is not str:
        # The words in parentheses are those of flux-accounting's plugin, which scripts match.
        raise JobspecError(f"{path}: must be a string, not {kind_of(value)} (unable to unpack bank arg)")
    _check_name(value, path)


def _check_path(value: Any, path: str) -> None:
    _check_text(value, path, MAX_PATH)


def _check_text(value: Any, path: str, most: int) -> None:
    _check_string(value, path)
    if not fits(value, most):
        raise JobspecError(f"{path}: must have {most} bytes at most, not {len(value.encode('utf-8', 'replace'))}")


def _check_object(value: Any, path: str) -> None:
    if type(value) is not dict:
        raise JobspecError(f"{path}: must be an object, not {kind_of(value)}")


def _check_environment(value: Any, path: str) -> None:
    if type(value) is not dict:
        raise JobspecError(f"{path}: must be an object of variables, not {kind_of(value)}")
    for name, text in value.items():
        if type(text) is not str and text is not None:
            raise JobspecError(f"{path}.{name}: must be a string, or null to unset the variable, not {kind_of(text)}")


def _check_dependencies(value: Any, path: str) -> None:
    if type(value) is not list:
        raise JobspecError(f"{path}: must be an array, not {kind_of(value)}")
    for index, item in enumerate(value):
        if type(item) is not dict or type(item.get("scheme")) is not str or type(item.get("value")) is not str:
            raise JobspecError(
                f"{path}[{index}]: missing scheme or value: must be an object with these strings, not {item!r}"
            )
        _check_name(item["scheme"], f"{path}[{index}].scheme")
        _check_path(item["value"], f"{path}[{index}].value")


def _check_constraints(value: Any, path: str) -> None:
    try:
        constraint.validate(value)
    except constraint.ConstraintError as exc:
        raise JobspecError(f"{path}: {exc}") from None


def _check_job(value: Any, path: str) -> None:
    _check_object(value, path)
    for name, text in value.items():
        _check_name(text, f"{path}.{name}")


def _check_shell(value: Any, path: str) -> None:
    _check_object(value, path)
    _check_object(value.get("options", _EMPTY), f"{path}.options")


_EMPTY: Dict[str, Any] = {}
_SYSTEM = {
    "duration": _check_seconds,
    "preemptible-after": _check_seconds,
    "environment": _check_environment,
    "cwd": _check_path,
    "queue": _check_name,
    "bank": _check_bank,
    "project": _check_name,
    "dependencies": _check_dependencies,
    "constraints": _check_constraints,
    "job": _check_job,
    "shell": _check_shell,
}
