"""Environments that many jobs share: a start refers to a file instead of including the environment.

The environment is most of a start (some kilobytes), and thousands of jobs from one shell share it. When the broker sees
an environment again, it writes it into a file of its run directory. A start then has the path of that file and the
variables in which the job differs. The file exists before the first start that refers to it is sent. Both sides are
here: `Named` for the broker, `Read` for the agent (docs/dev/interfaces.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from headrace.engine.process.operations import Environment

# Environments with fewer variables are sent in full: a file would save nothing.
_FEW = 16
# The most variables in which a job may differ from the environment that it refers to.
_OWN = 8
# The number of environments that the next one is compared with, and the number that an agent caches: users take turns
# in submitting jobs.
_COMPARED = 4
_REMEMBERED = 64
# The most files in one broker's life. After that, environments are sent in full.
_FILES = 256
_PREFIX = "environment."

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class _Known:
    __slots__ = ("environment", "path")

    def __init__(self, environment: Mapping[str, Any]) -> None:
        self.environment = environment
        # "" until a second job has this environment.
        self.path = ""


class Named:
    """The broker's side: writes shared environments to files in `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: list[_Known] = []
        self._paths: list[str] = []

    def name(self, environment: Mapping[str, Any]) -> Environment | None:
        """A reference to a job's environment, or None if it must be sent in full.

        The reference is `{base: path of a file, own: {variable: value}}`. `environment` must not change afterwards.
        """
        if len(environment) < _FEW:
            return None
        for index, known in enumerate(self._known):
            own = _differences(environment, known.environment)
            if own is None:
                continue
            if index:
                self._known.insert(0, self._known.pop(index))
            known.path = known.path or self._write(known.environment)
            return {"base": known.path, "own": own} if known.path else None
        self._known.insert(0, _Known(environment))
        del self._known[_COMPARED:]
        return None

    def _write(self, environment: Mapping[str, Any]) -> str:
        """The path of a file with `environment`, or "" if it cannot be written."""
        if len(self._paths) >= _FILES:
            return ""
        # The name is random: agents cache contents by path, and a restarted broker must not reuse a path.
        path = os.path.join(self._folder, _PREFIX + os.urandom(8).hex())
        try:
            # The rename makes the complete file appear at once, so an agent never reads a part of it.
            fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(_encode(environment))
            os.rename(path + ".new", path)
        except OSError:
            with suppress(OSError):
                os.unlink(path + ".new")
            return ""
        self._paths.append(path)
        return path

    def clear(self) -> None:
        """Remove the files, once no more jobs are started."""
        for path in self._paths:
            with suppress(OSError):
                os.unlink(path)
        self._paths.clear()
        self._known.clear()


def _differences(environment: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any] | None:
    """The variables in which `environment` differs from `base`.

    None if it has other names, or if too many variables differ.
    """
    if environment is base:
        return {}
    if environment.keys() != base.keys():
        return None
    own = {name: value for name, value in environment.items() if base[name] is not value and base[name] != value}
    return own if len(own) <= _OWN else None


class Read:
    """The agent's side: reads the environments that starts refer to."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def environment(self, named: Environment) -> dict[str, Any]:
        """The environment that `named` (see Named.name) refers to. Raises OSError if its file cannot be read."""
        path = named["base"]
        base = self._known.get(path)
        if base is None:
            with open(path, "rb") as file:
                base = _decode(file.read())
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[path] = base
        return {**base, **named["own"]}
