"""Environments that many jobs have in common: a start names one instead of carrying it.

The environment is most of what a start says (some kilobytes), and thousands of jobs from one shell have the same. The
broker writes one that it meets again into a file of its run directory, and a start has the path of that file and the
variables in which the job differs. The file is there before the first start that names it is sent. Both sides are
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

# Variables below which an environment is sent as it is: to name it would save nothing.
_FEW = 16
# In how many variables a job may differ from an environment that it names.
_OWN = 8
# Environments that the next one is compared with, and that an agent remembers: users submit in turns.
_COMPARED = 4
_REMEMBERED = 64
# Files in one broker's life. Those that would be more are sent as they are.
_FILES = 256
_PREFIX = "environment."

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class _Known:
    __slots__ = ("environment", "path")

    def __init__(self, environment: Mapping[str, Any]) -> None:
        self.environment = environment
        # "" until a second job has it.
        self.path = ""


class Named:
    """The broker's side: environments by name, in files below `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: list[_Known] = []
        self._paths: list[str] = []

    def name(self, environment: Mapping[str, Any]) -> Environment | None:
        """`{base: path of a file, own: {variable: value}}` for a job's environment; None if it is to be sent as it is.

        `environment` must not change afterwards.
        """
        if len(environment) < _FEW:
            return None
        for index, known in enumerate(self._known):
            own = _own(environment, known.environment)
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
        """The path of the file that has `environment`; "" if there can be none."""
        if len(self._paths) >= _FILES:
            return ""
        # The name is random: agents remember contents by path, and a broker that was restarted must not reuse one.
        path = os.path.join(self._folder, _PREFIX + os.urandom(8).hex())
        try:
            # The rename makes the file appear whole: an agent never reads the first half of one.
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
        """Remove the files, when no job is started any more."""
        for path in self._paths:
            with suppress(OSError):
                os.unlink(path)
        self._paths.clear()
        self._known.clear()


def _own(environment: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any] | None:
    """The variables in which `environment` differs from `base`; None if it has others or too many differ."""
    if environment is base:
        return {}
    if environment.keys() != base.keys():
        return None
    own = {name: value for name, value in environment.items() if base[name] is not value and base[name] != value}
    return own if len(own) <= _OWN else None


class Read:
    """The agent's side: the environments that starts name."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def environment(self, named: Environment) -> dict[str, Any]:
        """What `named` (see Named.name) stands for. Raises OSError if its file cannot be read."""
        path = named["base"]
        base = self._known.get(path)
        if base is None:
            with open(path, "rb") as file:
                base = _decode(file.read())
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[path] = base
        return {**base, **named["own"]}
