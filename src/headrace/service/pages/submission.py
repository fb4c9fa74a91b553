"""The form by which a browser submits a job: from its texts to the fields of a submission, and back from the jobspec of
a job to the form.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.formats.spec import dependency, duration
from headrace.formats.spec.rset import ResourceSet
from headrace.service import submission
from headrace.service.fields import BadFields
from headrace.service.pages.job_view import script as script_of
from headrace.service.settings import Settings

NUMBERS = ("nodes", "tasks", "cores_per_task", "gpus_per_task")
# The fields with their values in an empty form, by the names that they have in `/v2`; of command and script `kind` says
# which is meant, `exclusive` is "on" or "".
EMPTY = {
    **{"kind": "command", "command": "", "script": "", "name": "", "nodes": "", "tasks": "1", "cores_per_task": "1"},
    **{
        "gpus_per_task": "0",
        "exclusive": "",
        "duration": "",
        "queue": "",
        "urgency": "",
        "dependencies": "",
        "cwd": "",
        "env": "",
    },
}
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[0-9.]+", re.ASCII)


class Read(NamedTuple):
    """A form that was read: the job, None if something is wrong, and what is wrong by field."""

    job: submission.Submission | None
    problems: dict[str, str]


def read(form: Mapping[str, str], settings: Settings) -> Read:
    """The job of a form."""
    given: dict[str, Any] = {}
    what = "script" if form.get("kind") == "script" else "command"
    given[what] = _lines(form.get(what, ""))
    for name in ("name", "queue", "cwd"):
        if text := form.get(name, "").strip():
            given[name] = text
    for name in (*NUMBERS, "urgency"):
        if text := form.get(name, "").strip():
            given[name] = int(text) if _DIGITS.fullmatch(text) else text
    if text := form.get("duration", "").strip():
        # A number alone counts minutes, as for `flux submit --time-limit`.
        given["duration"] = f"{text}m" if _PLAIN_NUMBER.fullmatch(text) else text
    if form.get("exclusive"):
        given["exclusive"] = True
    if lines := _lines(form.get("dependencies", "")).split():
        given["dependencies"] = lines
    problems = {}
    try:
        given["env"] = _environment(form.get("env", ""))
    except ValueError as exc:
        problems["env"] = str(exc)
    try:
        job = submission.read(given, settings)
    except BadFields as exc:
        problems.update(exc.problems)
    return Read(None, problems) if problems else Read(job, {})


def too_large(form: Mapping[str, str], all: ResourceSet) -> dict[str, str]:
    """The fields that ask for more than the instance has at all."""
    cores = max((len(node.cores) for node in all.nodes()), default=0)
    gpus = max((len(node.gpus) for node in all.nodes()), default=0)
    most = {
        "nodes": (all.nnodes, "there are"),
        "cores_per_task": (cores, "there are cores on a node"),
        "gpus_per_task": (gpus, "there are GPUs on a node"),
    }
    return {
        name: f"must be at most {number}, as many as {what}"
        for name, (number, what) in most.items()
        if int(form.get(name, "").strip() or 0) > number
    }


def _environment(text: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(_lines(text).split("\n"), 1):
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"must have NAME=VALUE in each line, line {number} is '{line[:60]}'")
            found[name.strip()] = value
    return found


def _lines(text: str) -> str:
    """What a browser sends of a text area, with line ends as programs here expect them."""
    return text.replace("\r\n", "\n")


# -- back from a job to the form


def of_job(jobspec: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The fields of a job as it was submitted, and what the form has no field for."""
    system = jobspec.get("attributes", {}).get("system", {})
    task = (jobspec.get("tasks") or [{}])[0]
    own = submission.environment({})
    variables = {name: str(value) for name, value in (system.get("environment") or {}).items()}
    plain = {name: value for name, value in variables.items() if name == name.strip() and "\n" not in value}
    lost = sorted({*system} - {"cwd", "dependencies", "duration", "environment", "job", "queue", "shell", "files"})
    if len(plain) < len(variables):
        lost.append("variables of several lines")
    values = {
        **EMPTY,
        "name": str((system.get("job") or {}).get("name", "")),
        "queue": str(system.get("queue", "")),
        "cwd": str(system.get("cwd", "")),
        "dependencies": "".join(f"{dependency.encode(one)}\n" for one in system.get("dependencies") or []),
        "duration": duration.encode(system["duration"]) if system.get("duration") else "",
        "env": "".join(f"{name}={value}\n" for name, value in sorted(plain.items()) if own.get(name) != value),
    }
    command = task.get("command") or []
    if command == [submission.SCRIPT]:
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
    return {
        **found,
        "tasks": str(tasks),
        "cores_per_task": str(parts["core"]),
        "gpus_per_task": str(parts.get("gpu", 0)),
    }
