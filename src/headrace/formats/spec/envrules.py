"""The rules of ``--env``, ``--env-remove`` and ``--env-file``, which determine a job's environment.

A job starts from a copy of the submitter's environment. Rules change it in the order given:

* ``-PATTERN`` removes matching variables (a shell glob, or a regular expression after ``/``).
* ``^FILE`` applies the rules in a file, one on each line.
* ``NAME=VALUE`` sets a variable. ``$VAR`` and ``${VAR}`` are expanded from the job's environment so far, or else from
  the submitter's.
* ``PATTERN`` copies matching variables that the job does not have from the submitter's environment.

A value with ``{{`` is stored for the job shell, which expands ``{{tmpdir}}`` and similar names.
"""

from __future__ import annotations

import os.path
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence

# flux-proxy sets this variable for itself; a job that inherits it would connect to the wrong side of the proxy.
_NEVER = ("FLUX_PROXY_REMOTE",)

_MAX_FILES = 100


class EnvRuleError(ValueError):
    """A rule that cannot be applied; the message names it."""


class Environment(NamedTuple):
    """The result of the rules: variables for the job, and variables whose value the job shell expands."""

    variables: Dict[str, str]
    expand: Dict[str, str]


def apply(rules: Sequence[str], current: Mapping[str, str]) -> Environment:
    """Apply rules to the submitter's environment.

    Raises EnvRuleError, or OSError if a rules file cannot be read.
    """
    variables = {name: value for name, value in current.items() if name not in _NEVER}
    expand: Dict[str, str] = {}
    todo: List[str] = list(reversed(rules))
    files = 0
    while todo:
        rule = todo.pop()
        if rule.startswith("-"):
            matches = _matcher(rule[1:], rule)
            variables = {name: value for name, value in variables.items() if not matches(name)}
            expand = {name: value for name, value in expand.items() if not matches(name)}
        elif rule.startswith("^"):
            files += 1
            if files > _MAX_FILES:
                raise EnvRuleError(f"--env: {rule}: more than {_MAX_FILES} rules files; does one include itself?")
            todo.extend(reversed(_read(rule[1:])))
        elif "=" in rule:
            name, _, value = rule.partition("=")
            if not name:
                raise EnvRuleError(f"--env: '{rule}' has no name before '='")
            if "{{" in value:
                expand[name] = value
                variables.pop(name, None)
            else:
                variables[name] = _substitute(value, rule, variables, current)
                expand.pop(name, None)
        elif rule:
            matches = _matcher(rule, rule)
            for name, value in current.items():
                if name not in variables and name not in expand and matches(name):
                    variables[name] = value
    return Environment(variables, expand)


def _matcher(pattern: str, rule: str) -> Callable[[str], object]:
    # Imported here, since every submission imports this module, but few submissions have rules.
    import fnmatch
    import re

    if not pattern.startswith("/"):
        return re.compile(fnmatch.translate(pattern)).match
    text = pattern[1:]
    if text.endswith("/"):
        text = text[:-1]
    try:
        return re.compile(text).search
    except (re.error, RecursionError, OverflowError) as exc:
        raise EnvRuleError(f"--env: '{rule}' is not a regular expression: {exc}") from None


def _read(path: str) -> List[str]:
    with open(os.path.expanduser(path), encoding="utf-8") as file:
        try:
            lines = [line.strip() for line in file]
        except ValueError as exc:
            raise EnvRuleError(f"--env-file: {path}: {exc}") from None
    return [line for line in lines if line and not line.startswith("#")]


def _substitute(value: str, rule: str, variables: Mapping[str, str], current: Mapping[str, str]) -> str:
    from string import Template

    try:
        return Template(value).substitute({**current, **variables})
    except KeyError as exc:
        raise EnvRuleError(
            f"--env: Variable {exc.args[0]} not found in the environment; it is used in '{rule}'"
        ) from None
    except ValueError as exc:
        raise EnvRuleError(f"--env: Unable to substitute {rule}: {exc}") from None
