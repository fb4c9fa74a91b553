"""The jobspec that a request of `/v1` describes, and everything that is wrong with it."""

from __future__ import annotations

import ast
import json
import os
import pwd
import shlex
from collections.abc import Mapping
from typing import Any

from headrace.api.jobs import Refused
from headrace.api.settings import Settings
from headrace.api.v1.fields import Field, anything, integer, switch, text
from headrace.spec import jobspec_build, plain_json

FIELDS = (
    Field("command", anything, "string", "The command and its arguments, as a shell reads them (required)"),
    Field("num_tasks", integer, "integer", "Tasks (default: 1, or one on each node)"),
    Field("cores_per_task", integer, "integer", "Cores of each task (default: 1)"),
    Field("gpus_per_task", integer, "integer", "GPUs of each task"),
    Field("num_nodes", integer, "integer", "Nodes that the tasks are spread over"),
    Field("exclusive", switch, "boolean", "Whole nodes"),
    Field("option_flags", anything, "string", "Shell options: NAME=VALUE,..."),
    Field("workdir", text, "string", "Working directory (default: the service's)"),
    Field("runtime", integer, "integer", "Time limit in minutes (default, and 0: none)"),
    Field("is_launcher", switch, "boolean", "Run the command beside the service: it submits jobs itself"),
    Field("envars", anything, "object", "Variables of the job's environment"),
)
_LAUNCHERS = ("snakemake", "nextflow")
# Directories of programs where the owner's environment names none.
_PATH = "/usr/local/bin:/usr/bin:/bin"


class _Problems(list[str]):
    """What is wrong, collected: a value that cannot be read counts as not given."""

    def attempt(self, read: Any, value: Any) -> Any:
        try:
            return read(value)
        except ValueError as exc:
            self.append(str(exc))
            return None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of what users start: what they say, and what every program expects, but nothing else of this
    process, whose environment has secrets.
    """
    user = pwd.getpwuid(os.getuid())
    own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "PATH": os.environ.get("PATH", _PATH)}
    return {**own, **variables}


def launcher(values: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command of a workflow tool and its environment. Raises Refused."""
    problems = _Problems()
    command = problems.attempt(_command, values.get("command"))
    if command and os.path.basename(command[0]) not in _LAUNCHERS:
        problems.append(f"'{command[0]}' is not a known launcher: those are {' and '.join(_LAUNCHERS)}")
    variables = problems.attempt(_variables, values.get("envars"))
    if problems:
        raise Refused(problems)
    return command, environment(variables)


def jobspec(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The jobspec of a request. Raises Refused."""
    problems = _Problems()
    command = problems.attempt(_command, values.get("command"))
    options = problems.attempt(_shell_options, values.get("option_flags"))
    variables = problems.attempt(_variables, values.get("envars"))
    problems += _out_of_range(values, settings)
    if problems:
        raise Refused(problems)
    nodes, tasks = values.get("num_nodes"), values.get("num_tasks")
    try:
        made: dict[str, Any] = jobspec_build.from_command(
            command,
            num_tasks=tasks or nodes or 1,
            cores_per_task=values.get("cores_per_task") or 1,
            gpus_per_task=values.get("gpus_per_task") or None,
            num_nodes=nodes,
            # As with `flux submit`: nodes without a number of tasks are the job's alone.
            exclusive=values.get("exclusive", False) or bool(nodes and not tasks),
            duration=values.get("runtime", 0) * 60.0,
            environment=environment(variables),
            cwd=values.get("workdir") or settings.directory,
        )
        for name, value in {**settings.shell_options, **options}.items():
            jobspec_build.set_shell_option(made, name, value)
    except ValueError as exc:
        raise Refused([str(exc)]) from None
    return made


def _out_of_range(values: Mapping[str, Any], settings: Settings) -> list[str]:
    least = {"num_tasks": 1, "cores_per_task": 1, "num_nodes": 1, "gpus_per_task": 0, "runtime": 0}
    problems = [
        f"{name} must be at least {smallest}, {values[name]} is not"
        for name, smallest in least.items()
        if name in values and values[name] < smallest
    ]
    if settings.nodes is not None and values.get("num_nodes", 0) > settings.nodes:
        problems.append(f"num_nodes is {values['num_nodes']}, there are {settings.nodes}")
    if settings.gpus is False and values.get("gpus_per_task", 0) > 0:
        problems.append("gpus_per_task cannot be asked for: there are no GPUs")
    return problems


def _command(value: Any) -> list[str]:
    """A command as text, or as a list of words."""
    try:
        words = [text(word) for word in value] if isinstance(value, list) else shlex.split(text(value or ""))
    except ValueError as exc:
        raise ValueError(f"command: {exc}") from None
    if not words or not words[0]:
        raise ValueError("a command is required")
    return words


def _shell_options(value: Any) -> dict[str, Any]:
    """`NAME=VALUE,...`, or an object of names and values."""
    if not value:
        return {}
    given: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        given = list(value.items())
    elif not isinstance(value, str):
        raise ValueError("option_flags must be NAME=VALUE,... or an object of names and values")
    else:
        for word in value.split(","):
            name, equals, chosen = word.partition("=")
            if not equals:
                raise ValueError(f"option_flags: '{word}' is not NAME=VALUE")
            given.append((name.strip(), _json_or_text(chosen)))
    for name, _ in given:
        if name.startswith("-o"):
            raise ValueError(f"option_flags: give keys without -o, '{name}' has it")
        if not name:
            raise ValueError("option_flags: a name is missing before '='")
    return dict(given)


def _json_or_text(value: str) -> Any:
    """The value of a shell option, as `flux submit -o` reads it; but files of this machine cannot be named."""
    try:
        return plain_json.loads(value, constants=False)
    except (ValueError, RecursionError):
        return value


def _variables(value: Any) -> dict[str, str]:
    """An object of names and values, which may be text where a query or a form has it."""
    if not value:
        return {}
    if isinstance(value, str):
        value = _object(value)
    if not isinstance(value, dict):
        raise ValueError("envars must be an object of names and values")
    found = {}
    for name, one in value.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise ValueError(f"envars: {name!r} is no name of a variable")
        try:
            found[text(name)] = text(one)
        except ValueError as exc:
            raise ValueError(f"envars: {name!r} and its value {exc}") from None
    return found


def _object(value: str) -> Any:
    """An object as text: JSON, or as Python shows a dictionary, which clients of flux-restful-api put into queries."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
