"""The form by which a browser submits a job: from its fields to a jobspec, with a sentence for each field that is
wrong, and back from the jobspec of a job to the fields.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.api.pages.job_view import script as script_of
from headrace.api.v1.submission import environment
from headrace.spec import duration, jobspec_build
from headrace.spec.rset import ResourceSet

# The fields with their values in an empty form; `exclusive` is "on" or "".
EMPTY = {
    **{"kind": "command", "command": "", "script": "", "name": "", "nodes": "", "tasks": "1", "cores": "1"},
    **{"gpus": "0", "exclusive": "", "duration": "", "queue": "", "directory": "", "environment": ""},
}
# The least and the most that a number may be.
_NUMBERS = {"nodes": (1, 1 << 20), "tasks": (1, 1 << 24), "cores": (1, 1 << 16), "gpus": (0, 1 << 16)}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SCRIPT = "{{tmpdir}}/script"


class Read(NamedTuple):
    """A form that was read: its jobspec, None if something is wrong, and what is wrong by field ("": the whole)."""

    jobspec: dict[str, Any] | None
    problems: dict[str, str]


class _Wrong(ValueError):
    """A field's value is wrong."""


def read(given: Mapping[str, str], directory: str) -> Read:
    """The jobspec of a form; `directory` is where jobs run that do not say where."""
    problems: dict[str, str] = {}
    numbers: dict[str, int | None] = {}
    for name in _NUMBERS:
        try:
            numbers[name] = _number(name, given.get(name, "").strip())
        except _Wrong as exc:
            problems[name] = str(exc)
    values: dict[str, Any] = {}
    for name, what in (("command", _command), ("environment", _environment), ("duration", _duration)):
        field = "script" if name == "command" and given.get("kind") == "script" else name
        try:
            values[name] = what(given)
        except _Wrong as exc:
            problems[field] = str(exc)
    cwd = given.get("directory", "").strip() or directory
    if not cwd.startswith("/"):
        problems["directory"] = f"The directory must begin with /, '{cwd}' does not."
    if numbers.get("nodes") and numbers.get("tasks") and numbers["nodes"] > numbers["tasks"]:  # type: ignore[operator]
        problems["tasks"] = f"There must be a task for each of the {numbers['nodes']} nodes."
    if problems:
        return Read(None, problems)
    nodes, tasks = numbers["nodes"], numbers["tasks"]
    try:
        jobspec: dict[str, Any] = jobspec_build.from_command(
            values["command"],
            num_tasks=tasks or nodes or 1,
            cores_per_task=numbers["cores"] or 1,
            gpus_per_task=numbers["gpus"] or None,
            num_nodes=nodes,
            # As with `flux submit`: nodes without a number of tasks are the job's alone.
            exclusive=bool(given.get("exclusive")) or bool(nodes and not tasks),
            duration=values["duration"],
            environment=environment(values["environment"]),
            cwd=cwd,
            name=given.get("name", "").strip() or None,
            queue=given.get("queue", "").strip() or None,
        )
        if given.get("kind") == "script":
            jobspec_build.add_file(jobspec, "script", _lines(given.get("script", "")), perms=0o700)
            jobspec["attributes"]["system"].setdefault("job", {}).setdefault("name", "script")
    except ValueError as exc:
        return Read(None, {"": str(exc)})
    return Read(jobspec, {})


def too_large(given: Mapping[str, str], all: ResourceSet) -> dict[str, str]:
    """The fields that ask for more than the instance has at all."""
    cores = max((len(node.cores) for node in all.nodes()), default=0)
    gpus = max((len(node.gpus) for node in all.nodes()), default=0)
    problems = {}
    most = {"nodes": (all.nnodes, "nodes"), "cores": (cores, "cores on a node"), "gpus": (gpus, "GPUs on a node")}
    for name, (number, what) in most.items():
        asked = _number(name, given.get(name, "").strip()) or 0
        if asked > number:
            problems[name] = f"{asked} are asked for, there are at most {number} {what}."
    return problems


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    least, most = _NUMBERS[name]
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) <= most):
        raise _Wrong(f"This must be a number from {least} to {most}, '{text}' is not.")
    return int(text)


def _command(given: Mapping[str, str]) -> list[str]:
    if given.get("kind") == "script":
        if not _lines(given.get("script", "")).startswith("#!"):
            raise _Wrong("The first line of the script must name its program, such as #!/bin/sh.")
        return [_SCRIPT]
    try:
        words = shlex.split(_lines(given.get("command", "")))
    except ValueError as exc:
        raise _Wrong(f"The command cannot be read: {exc}.") from None
    if not words or not words[0]:
        raise _Wrong("A command is required.")
    return words


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for number, line in enumerate(_lines(given.get("environment", "")).split("\n"), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not _NAME.match(name.strip()):
            raise _Wrong(f"Line {number} must be NAME=VALUE, '{line[:60]}' is not.")
        found[name.strip()] = value
    return found


def _duration(given: Mapping[str, str]) -> float | None:
    text = given.get("duration", "").strip()
    if not text:
        return None
    try:
        # A number alone counts minutes, as for `flux submit --time-limit`.
        seconds = float(text) * 60 if re.fullmatch(r"[0-9.]+", text) else duration.parse(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise _Wrong(f"A time limit is minutes, or has a unit such as 90s, 30m, 2h or 1d: '{text}' has not.")
    return seconds


def _lines(text: str) -> str:
    """What a browser sends of a text area, with line ends as programs here expect them."""
    return text.replace("\r\n", "\n")


# -- back from a job to the form


def of_job(jobspec: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The fields of a job as it was submitted, and what the form has no field for."""
    system = jobspec.get("attributes", {}).get("system", {})
    task = (jobspec.get("tasks") or [{}])[0]
    own = environment({})
    variables = {name: str(value) for name, value in (system.get("environment") or {}).items()}
    plain = {name: value for name, value in variables.items() if _NAME.match(name) and "\n" not in value}
    lost = sorted({*system} - {"cwd", "duration", "environment", "job", "queue", "shell", "files"})
    if len(plain) < len(variables):
        lost.append("variables of several lines")
    values = {
        **EMPTY,
        "name": str((system.get("job") or {}).get("name", "")),
        "queue": str(system.get("queue", "")),
        "directory": str(system.get("cwd", "")),
        "duration": duration.encode(system["duration"]) if system.get("duration") else "",
        "environment": "".join(f"{name}={value}\n" for name, value in sorted(plain.items()) if own.get(name) != value),
    }
    command = task.get("command") or []
    if command == [_SCRIPT]:
        values.update(kind="script", script=script_of(system))
    else:
        values["command"] = shlex.join(command) if isinstance(command, list) else str(command)
    counts = _counts(jobspec.get("resources") or [], task.get("count") or {})
    if counts is None:
        lost.append("its resources")
    return {**values, **(counts or {})}, lost


def _counts(resources: list[Any], count: Mapping[str, Any]) -> dict[str, str] | None:
    """Nodes, tasks, cores and GPUs of `[node/]slot/{core,gpu}`; None for any other shape."""
    found = {}
    nodes = 1
    vertex = resources[0] if len(resources) == 1 else {}
    if vertex.get("type") == "node" and len(vertex.get("with") or []) == 1:
        nodes = vertex.get("count", 1)
        found["nodes"] = str(nodes)
        found["exclusive"] = "on" if vertex.get("exclusive") else ""
        vertex = vertex["with"][0]
    parts = {part.get("type"): part.get("count") for part in vertex.get("with") or []}
    if vertex.get("type") != "slot" or not {"core"} <= parts.keys() <= {"core", "gpu"}:
        return None
    slots = vertex.get("count", 1)
    if not all(isinstance(number, int) for number in (nodes, slots, *parts.values())):
        return None
    tasks = count.get("total", nodes * slots * count.get("per_slot", 1))
    return {**found, "tasks": str(tasks), "cores": str(parts["core"]), "gpus": str(parts.get("gpu", 0))}
