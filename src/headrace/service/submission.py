"""The jobspec of a request, built from fields or given as a whole, and all errors in the request.

The fields are the job options (`wire.query.job_options`), a command and a script. `/v2` uses them directly; `/v1` and
the form of the page translate their own fields to them.
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
from headrace.wire.query import job_options
from headrace.wire.query.job_options import Option, Web
from headrace.wire.query.submission import URGENCIES

_VARIABLE = re.compile(r"[^=\0]+")
# Where the shell writes the file `script` of the jobspec (RFC 37).
SCRIPT = "{{tmpdir}}/script"
# The PATH of a job if the owner's environment has none.
_PATH = "/usr/local/bin:/usr/bin:/bin"
_LARGEST = (1 << 31) - 1
_LIMIT_TEXT = "must be a length of time such as 90s, 30m or 1.5h, not"


class Submission(NamedTuple):
    """A job that is ready to be submitted."""

    jobspec: dict[str, Any]
    urgency: int


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a user's program: the given variables and those every program expects.

    No other variable of this process is passed on, because its environment has secrets.
    """
    user = pwd.getpwuid(os.getuid())
    own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PATH": os.environ.get("PATH", _PATH)}
    return {**own, **variables}


def integer(least: int, most: int = _LARGEST) -> Callable[[Any], int]:
    """Return a reader of integers in a JSON object."""

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
    """A non-empty text."""
    if not checked_text(value):
        raise ValueError("must not be empty")
    return str(value)


def _name(value: Any) -> str:
    """A non-empty text that fits into a jobspec's name."""
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
    # RFC 23 allows inf and infinity. A jobspec cannot have an infinite duration (RFC 14), where 0 means no limit.
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
            raise ValueError(f"has {name!r:.60}, which is not a valid name of a variable")
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
        try:
            parsed = dependency.parse(checked_text(one)) if isinstance(one, str) else one
            dependency.validate(parsed)
        except dependency.DependencyError as exc:
            raise ValueError(f"must be dependencies: {exc}") from None
        found.append(parsed)
    return found


_TEXT = {"type": "string"}
_NAMED = {**_TEXT, "minLength": 1, "maxLength": MAX_NAME}
_OBJECT = {"type": "object"}


def _field(option: Option, web: Web) -> Field:
    read, schema = _COUNTS[option.least] if option.kind == job_options.COUNT else _KINDS[option.kind]
    return Field(web.name, read, schema, web.description)


_KINDS: dict[str, tuple[Callable[[Any], Any], Mapping[str, Any]]] = {
    job_options.TEXT: (named, {**_TEXT, "minLength": 1}),
    job_options.NAME: (_name, _NAMED),
    job_options.QUEUE: (_name, _NAMED),
    job_options.FLAG: (truth, {"type": "boolean"}),
    job_options.DIRECTORY: (_directory, {**_TEXT, "maxLength": MAX_PATH}),
    job_options.LIMIT: (limit, {"type": ["number", "string"]}),
    job_options.DURATION: (limit, {"type": ["number", "string"]}),
    job_options.URGENCY: (urgency, {"type": ["integer", "string"], "default": URGENCIES["default"]}),
    job_options.DEPENDENCIES: (_dependencies, {"type": "array", "items": {"type": ["string", "object"]}}),
    job_options.SETTINGS: (mapping, _OBJECT),
    job_options.ENVIRONMENT: (variables, {"type": "object", "additionalProperties": _TEXT}),
}
_COUNTS = {least: (integer(least), {"type": "integer", "minimum": least, "maximum": _LARGEST}) for least in (0, 1)}
# The job options that have a field, by the field's name.
OPTIONS = {option.web.name: option for option in job_options.OPTIONS if option.web is not None}
_OPTION_FIELDS = {name: _field(option, option.web) for name, option in OPTIONS.items() if option.web is not None}
URGENCY = _OPTION_FIELDS["urgency"]
FIELDS = (
    Field(
        "command",
        command,
        {"oneOf": [{"type": "array", "items": _TEXT, "minItems": 1}, _TEXT]},
        "The command and its arguments: a list, or a text that is split as a shell does",
    ),
    Field("script", _script, _TEXT, "The text of a script, beginning with #!, in place of a command"),
    *_OPTION_FIELDS.values(),
)
JOBSPEC_FIELDS = (Field("jobspec", mapping, _OBJECT, "The whole jobspec (RFC 14), as it is"), URGENCY)
RESUBMIT_FIELDS = tuple(
    _OPTION_FIELDS[name] for name, option in OPTIONS.items() if option.web is not None and option.web.resubmit
)


def read(given: Mapping[str, Any], settings: Settings) -> Submission:
    """Build the job that a request's JSON object describes. Raises BadFields."""
    if "jobspec" in given:
        values = pick(given, JOBSPEC_FIELDS)
        return Submission(values["jobspec"], values.get("urgency", URGENCIES["default"]))
    values = pick(given, FIELDS)
    nodes, tasks = values.get("nodes"), values.get("tasks")
    # As with `flux submit`, nodes without a number of tasks are allocated exclusively.
    exclusive = values.get("exclusive", False) or bool(nodes and not tasks)
    problems = []
    if ("command" in values) == ("script" in values):
        problems.append(("command", "is required, or script in its place"))
    if nodes and tasks and nodes > tasks:
        problems.append(("tasks", f"must be at least {nodes}, one for each node"))
    if exclusive and not nodes:
        problems.append(("exclusive", "needs the number of nodes"))
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


def resubmission(jobspec: dict[str, Any], given: Mapping[str, Any]) -> Submission:
    """Return a job to resubmit, changed by the fields of a request. Raises BadFields."""
    values = pick(given, RESUBMIT_FIELDS)
    _change(jobspec, values)
    return Submission(jobspec, values.get("urgency", URGENCIES["default"]))


def _change(jobspec: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Apply the options that set one jobspec key each, then the field `attributes`."""
    for name, option in OPTIONS.items():
        if option.sets and values.get(name, []) != []:
            jobspec_build.set_attribute(jobspec, f"attributes.system.{option.sets}", values[name])
    _set(jobspec, "attributes", values.get("attributes", {}), jobspec_build.set_attribute)


def _set(
    jobspec: dict[str, Any], field: str, values: Mapping[str, Any], put: Callable[[dict[str, Any], str, Any], None]
) -> None:
    try:
        for name, value in values.items():
            put(jobspec, name, value)
    except ValueError as exc:
        raise BadFields([(field, f"cannot be set: {exc}")]) from None
