"""The jobspec that a request describes, by fields or as it is, and everything that is wrong with it.

Scripts of `/v1` and `/v2` and the form of the page are all read here: `/v2` has these fields as they are, and the other
two say what their own mean in terms of these.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.formats.spec import dependency, duration, jobspec_build
from headrace.formats.spec.jobspec_validate import MAX_NAME, MAX_PATH, fits
from headrace.service.fields import BadFields, Field, checked_text, pick
from headrace.service.settings import Settings
from headrace.wire.query.submission import URGENCIES

_VARIABLE = re.compile(r"[^=\0]+")
# Where the shell puts a file of the jobspec (RFC 37).
SCRIPT = "{{tmpdir}}/script"
# Directories of programs where the owner's environment names none.
_PATH = "/usr/local/bin:/usr/bin:/bin"
_LARGEST = (1 << 31) - 1
_LIMIT_TEXT = "must be a length of time such as 90s, 30m or 1.5h, not"


class Submission(NamedTuple):
    """A job as it is to be submitted."""

    jobspec: dict[str, Any]
    urgency: int


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of what users start: what they say, and what every program expects, but nothing else of this
    process, whose environment has secrets.
    """
    user = pwd.getpwuid(os.getuid())
    own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PATH": os.environ.get("PATH", _PATH)}
    return {**own, **variables}


def whole(least: int, most: int = _LARGEST) -> Callable[[Any], int]:
    """What reads a whole number of a JSON object."""

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def named(value: Any) -> str:
    """A text that is not empty."""
    if not checked_text(value):
        raise ValueError("must not be empty")
    return str(value)


def _name(value: Any) -> str:
    """A text that is not empty, of as many bytes as a jobspec's name may have."""
    return _bounded(named(value), MAX_NAME)


def _bounded(text: str, most: int) -> str:
    if not fits(text, most):
        raise ValueError(f"must have {most} bytes at most, not {len(text.encode())}")
    return text


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("must be an object of names and values")
    return value


def limit(value: Any) -> float:
    """A time limit in seconds, 0 for none."""
    try:
        seconds = duration.parse(value) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{_LIMIT_TEXT} {value!r:.60}") from None
    if isinstance(value, bool) or not seconds >= 0 or (seconds == math.inf and not isinstance(value, str)):
        raise ValueError(f"{_LIMIT_TEXT} {value!r:.60}")
    # RFC 14 has no infinite duration, which RFC 23 writes as inf or infinity; 0 means no limit.
    return 0.0 if seconds == math.inf else seconds


def urgency(value: Any) -> int:
    """An urgency (RFC 30) by number or name."""
    found = URGENCIES.get(value.lower()) if isinstance(value, str) else value
    if type(found) is not int or not 0 <= found <= 31:
        raise ValueError("must be a number from 0 to 31, hold, default or expedite")
    return found


def command(value: Any) -> list[str]:
    """The words of a command: a list, or a text as a shell splits it."""
    if isinstance(value, list):
        words = [checked_text(word) for word in value]
    else:
        text = checked_text(value)
        try:
            words = shlex.split(text)
        except ValueError as exc:
            raise ValueError(f"cannot be split into words: {exc}") from None
    if not words or not words[0]:
        raise ValueError("is required")
    return words


def _script(value: Any) -> str:
    if not checked_text(value).startswith("#!"):
        raise ValueError("must begin with the line of its program, such as #!/bin/sh")
    return str(value)


def _directory(value: Any) -> str:
    if not checked_text(value).startswith("/"):
        raise ValueError("must begin with /")
    return _bounded(value, MAX_PATH)


def variables(value: Any) -> dict[str, str]:
    """Variables of an environment by name."""
    for name, one in mapping(value).items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"has {name!r:.60}, which is no name of a variable")
        try:
            checked_text(name)
            checked_text(one)
        except ValueError as exc:
            raise ValueError(f"has {name!r:.60}, whose name and value {exc}") from None
    return dict(value)


def _dependencies(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    found = []
    for one in value:
        parsed = dependency.parse(checked_text(one)) if isinstance(one, str) else one
        dependency.validate(parsed)
        found.append(parsed)
    return found


_TEXT = {"type": "string"}
_NAMED = {**_TEXT, "minLength": 1, "maxLength": MAX_NAME}
_OBJECT = {"type": "object"}
_TIME = {"type": ["number", "string"]}
_COUNT = {"type": "integer", "minimum": 1, "maximum": _LARGEST}
_ENV = {"type": "object", "additionalProperties": _TEXT}
_URGENCY = {"type": ["integer", "string"], "default": 16}

_NAME = Field("name", _name, _NAMED, "The job's name (default: that of the command)")
_DURATION = Field("duration", limit, _TIME, "Time limit: seconds, or such as 30m; 0: none (default)")
_QUEUE = Field("queue", _name, _NAMED, "The queue (default: the instance's)")
_BANK = Field("bank", _name, _NAMED, "The bank")
_PROJECT = Field("project", _name, _NAMED, "The project")
_CWD = Field("cwd", _directory, {**_TEXT, "maxLength": MAX_PATH}, "Working directory (default: the service's)")
_ATTRIBUTES = Field("attributes", mapping, _OBJECT, "Attributes by key, as --setattr has them")
URGENCY = Field("urgency", urgency, _URGENCY, "How soon: 0 to 31, hold, default (16) or expedite")
FIELDS = (
    Field(
        "command",
        command,
        {"oneOf": [{"type": "array", "items": _TEXT, "minItems": 1}, _TEXT]},
        "The command and its arguments: a list, or a text that is split as a shell does",
    ),
    Field("script", _script, _TEXT, "A script in the place of a command: its text, from #! on"),
    _NAME,
    Field("nodes", whole(1), _COUNT, "Nodes that the tasks are spread over"),
    Field("tasks", whole(1), _COUNT, "Tasks (default: 1, or one on each node)"),
    Field("cores_per_task", whole(1), _COUNT, "Cores of each task (default: 1)"),
    Field("gpus_per_task", whole(0), {**_COUNT, "minimum": 0}, "GPUs of each task"),
    Field("exclusive", truth, {"type": "boolean"}, "Whole nodes"),
    *(_DURATION, _QUEUE, _BANK, _PROJECT, URGENCY, _CWD),
    Field("env", variables, _ENV, "Variables of the environment, besides HOME, USER, LOGNAME and PATH"),
    Field("options", mapping, _OBJECT, "Shell options by name, as -o has them"),
    _ATTRIBUTES,
    Field(
        "dependencies",
        _dependencies,
        {"type": "array", "items": {"type": ["string", "object"]}},
        "What the job waits for: SCHEME:VALUE, or objects of RFC 26",
    ),
)
WHOLE_FIELDS = (Field("jobspec", mapping, _OBJECT, "The whole jobspec (RFC 14), as it is"), URGENCY)
# What a job that is submitted once more may have otherwise.
RESUBMIT_FIELDS = (_NAME, _DURATION, _QUEUE, _BANK, _PROJECT, URGENCY, _CWD, _ATTRIBUTES)


def read(given: Mapping[str, Any], settings: Settings) -> Submission:
    """The job that a request's object describes. Raises BadFields."""
    if "jobspec" in given:
        values = pick(given, WHOLE_FIELDS)
        return Submission(values["jobspec"], values.get("urgency", URGENCIES["default"]))
    values = pick(given, FIELDS)
    nodes, tasks = values.get("nodes"), values.get("tasks")
    # As with `flux submit`: nodes without a number of tasks are the job's alone.
    exclusive = values.get("exclusive", False) or bool(nodes and not tasks)
    problems = []
    if ("command" in values) == ("script" in values):
        problems.append(("command", "is required, or script in its place"))
    if nodes and tasks and nodes > tasks:
        problems.append(("tasks", f"must be at least {nodes}, one for each node"))
    if exclusive and not nodes:
        problems.append(("exclusive", "needs nodes: how many there are to be"))
    if settings.nodes is not None and (nodes or 0) > settings.nodes:
        problems.append(("nodes", f"must be at most {settings.nodes}, as many as there are"))
    if settings.gpus is False and values.get("gpus_per_task"):
        problems.append(("gpus_per_task", "must be 0, as there are no GPUs"))
    if problems:
        raise BadFields(problems)
    jobspec = jobspec_build.from_command(
        values.get("command", [SCRIPT]),
        num_tasks=tasks or nodes or 1,
        cores_per_task=values.get("cores_per_task", 1),
        gpus_per_task=values.get("gpus_per_task") or None,
        num_nodes=nodes,
        exclusive=exclusive,
        environment=environment(values.get("env", {})),
    )
    if "script" in values:
        jobspec_build.add_file(jobspec, "script", values["script"], perms=0o700)
        values.setdefault("name", "script")
    if settings.directory:
        values.setdefault("cwd", settings.directory)
    _set(jobspec, "options", {**settings.shell_options, **values.get("options", {})}, jobspec_build.set_shell_option)
    _change(jobspec, values)
    return Submission(jobspec, values.get("urgency", URGENCIES["default"]))


def again(jobspec: dict[str, Any], given: Mapping[str, Any]) -> Submission:
    """A job once more, with what a request's object has otherwise. Raises BadFields."""
    values = pick(given, RESUBMIT_FIELDS)
    _change(jobspec, values)
    return Submission(jobspec, values.get("urgency", URGENCIES["default"]))


def _change(jobspec: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set what is an attribute of the jobspec."""
    system = jobspec["attributes"]["system"]
    system.update({name: values[name] for name in ("duration", "queue", "bank", "project", "cwd") if name in values})
    if "name" in values:
        system["job"] = {**system.get("job", {}), "name": values["name"]}
    if values.get("dependencies"):
        system["dependencies"] = values["dependencies"]
    _set(jobspec, "attributes", values.get("attributes", {}), jobspec_build.set_attribute)


def _set(
    jobspec: dict[str, Any], field: str, values: Mapping[str, Any], put: Callable[[dict[str, Any], str, Any], None]
) -> None:
    try:
        for name, value in values.items():
            put(jobspec, name, value)
    except ValueError as exc:
        raise BadFields([(field, f"cannot be set: {exc}")]) from None
