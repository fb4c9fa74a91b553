"""The form that submits a job: from its texts to a submission, and from a jobspec back to its texts.

Its fields are a command, a script, and the options of `wire.query.job_options` that have a label.
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
from headrace.service.submission import OPTIONS
from headrace.wire.query import job_options
from headrace.wire.query.job_options import Option, Web

# The kinds of options whose fields have several lines.
AREAS = (job_options.DEPENDENCIES, job_options.ENVIRONMENT)
# The order of the form's fields. Other options follow; fields with several lines are last.
_ORDER = (
    *("name", "nodes", "tasks", "cores_per_task", "gpus_per_task", "duration", "queue", "bank", "project"),
    *("urgency", "cwd", "exclusive", "dependencies", "env"),
)


def _place(option: Option, web: Web) -> tuple[bool, int]:
    return option.kind in AREAS, _ORDER.index(web.name) if web.name in _ORDER else len(_ORDER)


# The options that the form has a field for, in the form's order.
FIELDS = sorted(
    ((option, option.web) for option in OPTIONS.values() if option.web is not None and option.web.label),
    key=lambda field: _place(*field),
)
# The values of an empty form. `kind` says whether `command` or `script` is meant; a checked box is "on".
EMPTY = {"kind": "command", "command": "", "script": "", **{web.name: web.initial for _, web in FIELDS}}
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[0-9.]+", re.ASCII)


class Read(NamedTuple):
    """The result of reading a form: the job, None if there are errors, and the errors by field."""

    job: submission.Submission | None
    problems: dict[str, str]


def read(form: Mapping[str, str], settings: Settings) -> Read:
    """Read a form."""
    given: dict[str, Any] = {}
    program = "script" if form.get("kind") == "script" else "command"
    given[program] = _lines(form.get(program, ""))
    for option, web in FIELDS:
        text = form.get(web.name, "").strip()
        if text and option.kind != job_options.ENVIRONMENT:
            given[web.name] = _value(option.kind, text)
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


def _value(kind: str, text: str) -> Any:
    """Return the JSON value of a field's text. An invalid text is kept, and rejected later."""
    if kind in (job_options.COUNT, job_options.URGENCY):
        return int(text) if _DIGITS.fullmatch(text) else text
    if kind == job_options.LIMIT:
        # A plain number is in minutes, as for `flux submit --time-limit`.
        return f"{text}m" if _PLAIN_NUMBER.fullmatch(text) else text
    if kind == job_options.FLAG:
        return True
    return text.split() if kind == job_options.DEPENDENCIES else text


def too_large(form: Mapping[str, str], all: ResourceSet) -> dict[str, str]:
    """Error texts for the fields that request more than the instance has in all."""
    cores = max((len(node.cores) for node in all.nodes()), default=0)
    gpus = max((len(node.gpus) for node in all.nodes()), default=0)
    most = {
        "nodes": (all.nnodes, "there are"),
        "cores_per_task": (cores, "there are cores on a node"),
        "gpus_per_task": (gpus, "there are GPUs on a node"),
    }
    return {
        name: f"must be at most {number}, as many as {meaning}"
        for name, (number, meaning) in most.items()
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
    """The text of a text area with Unix line ends. Browsers send CRLF."""
    return text.replace("\r\n", "\n")


# -- from a job back to the form


def of_job(jobspec: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The form's texts for a job as it was submitted, and the parts of the job that the form lacks."""
    system = jobspec.get("attributes", {}).get("system", {})
    task = (jobspec.get("tasks") or [{}])[0]
    own = submission.environment({})
    variables = {name: str(value) for name, value in (system.get("environment") or {}).items()}
    plain = {name: value for name, value in variables.items() if name == name.strip() and "\n" not in value}
    shown = {option.sets.partition(".")[0] for option, _ in FIELDS} | {"environment", "shell", "files"}
    lost = sorted({*system} - shown)
    if len(plain) < len(variables):
        lost.append("variables of several lines")
    values = {
        **EMPTY,
        **{web.name: _text(option, system) for option, web in FIELDS if option.sets},
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


def _text(option: Option, system: Mapping[str, Any]) -> str:
    """Return the text of an option's field for a job's attributes, "" if they lack the option's key."""
    value: Any = system
    for part in option.sets.split("."):
        value = (value or {}).get(part)
    if not value:
        return ""
    if option.kind == job_options.DEPENDENCIES:
        return "".join(f"{dependency.encode(one)}\n" for one in value)
    if option.kind == job_options.LIMIT:
        return duration.encode(value)
    return "on" if option.kind == job_options.FLAG else str(value)


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
