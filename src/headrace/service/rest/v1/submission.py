"""The jobspec of a `/v1` request: its fields are translated to those of `service.submission`."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from typing import Any

from headrace.service import submission
from headrace.service.fields import BadFields, read_json
from headrace.service.jobs import Refused
from headrace.service.rest.v1.fields import Field, anything, integer, switch, text
from headrace.service.settings import Settings


def _described(name: str) -> str:
    """Return the description of a field of `service.submission`."""
    return next(field.description for field in submission.FIELDS if field.name == name)


FIELDS = (
    Field("command", anything, "string", "The command and its arguments, as a shell reads them (required)"),
    Field("num_tasks", integer, "integer", _described("tasks")),
    Field("cores_per_task", integer, "integer", _described("cores_per_task")),
    Field("gpus_per_task", integer, "integer", _described("gpus_per_task")),
    Field("num_nodes", integer, "integer", _described("nodes")),
    Field("exclusive", switch, "boolean", _described("exclusive")),
    Field("option_flags", anything, "string", "Shell options: NAME=VALUE,..."),
    Field("workdir", text, "string", _described("cwd")),
    Field("runtime", integer, "integer", "Time limit in minutes (default, and 0: none)"),
    Field("is_launcher", switch, "boolean", "Run the command beside the service, as the owner: it submits jobs itself"),
    Field("envars", anything, "object", "Variables of the job's environment"),
)
_LAUNCHERS = ("snakemake", "nextflow")


def launcher(values: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a workflow tool and its environment. Raises Refused."""
    given, problems = _given(values)
    command: list[str] = []
    variables: dict[str, str] = {}
    try:
        command = submission.command(given.get("command", ""))
        if os.path.basename(command[0]) not in _LAUNCHERS:
            problems.append(f"'{command[0]}' is not a known launcher: those are {' and '.join(_LAUNCHERS)}")
    except ValueError as exc:
        problems.append(f"command {exc}")
    try:
        variables = submission.variables(given.get("env", {}))
    except ValueError as exc:
        problems.append(f"envars {exc}")
    if problems:
        raise Refused(problems)
    return command, submission.environment(variables)


def jobspec(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The jobspec of a request. Raises Refused."""
    given, problems = _given(values)
    given.setdefault("command", "")
    if "cwd" in given:
        given["cwd"] = os.path.join(settings.directory, given["cwd"])
    try:
        made = submission.read(given, settings).jobspec
    except BadFields as exc:
        names = {theirs: ours for ours, (theirs, _) in _READERS.items()}
        raise Refused(problems + [f"{names[name]} {text}" for name, text in exc.problems]) from None
    if problems:
        raise Refused(problems)
    return made


def may_be_too_large(values: Mapping[str, Any]) -> bool:
    """True if a request asks for more than one node, task or core, or for a GPU.

    The instance may not have as much.
    """
    return any(values.get(name, 0) > 1 for name in ("num_nodes", "num_tasks", "cores_per_task")) or bool(
        values.get("gpus_per_task")
    )


def _given(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Translate the fields of a request to fields of a submission. Returns these and the errors."""
    given, problems = {}, []
    for name, (theirs, read) in _READERS.items():
        if values.get(name) is not None:
            try:
                given[theirs] = read(values[name])
            except ValueError as exc:
                problems.append(f"{name} {exc}")
    return given, problems


def _as_it_is(value: Any) -> Any:
    return value


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) in (int, float) else value


def _command(value: Any) -> Any:
    return [_number_as_text(word) for word in value] if isinstance(value, list) else _number_as_text(value)


def _minutes(value: int) -> float:
    return value * 60.0


def _shell_options(value: Any) -> dict[str, Any]:
    """`NAME=VALUE,...`, or an object of names and values."""
    if not value:
        return {}
    given: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        given = list(value.items())
    elif not isinstance(value, str):
        raise ValueError("must be NAME=VALUE,... or an object of names and values")
    else:
        for word in value.split(","):
            name, equals, chosen = word.partition("=")
            if not equals:
                raise ValueError(f"has '{word}', which is not NAME=VALUE")
            given.append((name.strip(), _json_or_text(chosen)))
    for name, _ in given:
        if name.startswith("-o"):
            raise ValueError(f"must have keys without -o, '{name}' has it")
        if not name:
            raise ValueError("must have a name before '='")
    return dict(given)


def _json_or_text(value: str) -> Any:
    """The value of a shell option as for `flux submit -o`, except that it cannot name a local file."""
    try:
        return read_json(value)
    except (ValueError, RecursionError):
        return value


def _variables(value: Any) -> Any:
    """An object of names and values. In a query or a form the object is text."""
    if not value:
        return {}
    found = _object(value) if isinstance(value, str) else value
    return {name: _number_as_text(one) for name, one in found.items()} if isinstance(found, dict) else found


def _object(value: str) -> Any:
    """Parse an object that is JSON or a Python literal; None for any other text.

    Clients of flux-restful-api put Python dictionaries into queries.
    """
    for read in (read_json, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


# For each field of /v1: the field of a submission that it stands for, and the function that converts its value.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "command": ("command", _command),
    "num_tasks": ("tasks", _as_it_is),
    "cores_per_task": ("cores_per_task", _as_it_is),
    "gpus_per_task": ("gpus_per_task", _as_it_is),
    "num_nodes": ("nodes", _as_it_is),
    "exclusive": ("exclusive", _as_it_is),
    "option_flags": ("options", _shell_options),
    "workdir": ("cwd", _as_it_is),
    "runtime": ("duration", _minutes),
    "envars": ("env", _variables),
}
