"""The audit: a line of JSON for each change that was asked for, and for each request that was refused.

It has who, from where, which path, and how it ended, but nothing of query, headers or body, in which passwords, tokens
and environments come. Since every request passes here, no route can forget it. Whoever reaches the service may be
refused without end, so refusals have a bound: their lines are short, and few in a minute.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.guard import SAFE_METHODS
from headrace.api.identity.credential import Identity
from headrace.api.settings import SettingsError

# Refusals of requests that would change nothing.
_REFUSALS = (401, 403, 404, 421, 429)
# The most characters of a name, with which somebody tried to log in, and of a path in a line.
_LONGEST = 200
# Seconds, and how many refusals have a line within them: of a user; where no user is known, of an address and of all.
_WINDOW, _MOST_OF_USER, _MOST_OF_ADDRESS, _MOST_UNKNOWN = 60.0, 1000, 60, 300
# Bytes of the file that are read at a time, and for one request.
_PIECE = 1 << 18
_MOST_READ = 1 << 24


def open_file(path: str) -> int:
    """The descriptor of the file, its owner's alone and made if it is not there. Raises OSError, SettingsError."""
    # Each line is one write to the end of the file, so that lines of several processes stay whole. The owner of a
    # link that is followed would choose the file. Without O_NONBLOCK the opening of a pipe waits for a reader.
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o600)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        raise SettingsError(f"{path} is a symbolic link: name the file of the audit itself") from None
    wrong = _wrong(path, os.fstat(file))
    if wrong:
        os.close(file)
        raise SettingsError(f"{path}: {wrong}")
    return file


def _wrong(path: str, found: os.stat_result) -> str:
    """Why this cannot be the file of the audit, "" if it can."""
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        return "the audit must be a regular file"
    if found.st_uid != os.geteuid():
        return f"the audit must be a file of yours, not of user {found.st_uid}"
    if mode & 0o077:
        return (
            f"others have rights to this file, which tells who did what (mode {mode:o}): chmod 600 {shlex.quote(path)}"
        )
    return ""


class Audit:
    """The application, whose requests are told of in the file `path`."""

    def __init__(self, app: ASGIApp, path: str, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._file = open_file(path)
        self._clock = clock
        # When the refusals are counted anew, and how many had a line until now by userid or address; "" are all without
        # a user.
        self._window_ends = 0.0
        self._refusals: Counter[int | str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The dictionary that `request.state` writes to.
        state = scope.setdefault("state", {})
        status = 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["method"] not in SAFE_METHODS or status in _REFUSALS:
                    self._write(scope, state, status)
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            if not status and scope["method"] not in SAFE_METHODS:
                self._write(scope, state, 500)
            raise

    def _write(self, scope: Scope, state: dict[str, Any], status: int) -> None:
        identity: Identity | None = state.get("identity")
        client = scope.get("client")
        login = state.get("login")
        line: dict[str, Any] = {
            "time": self._clock(),
            "user": login[:_LONGEST] if login else identity.name if identity else None,
            "userid": identity.userid if identity else None,
            "address": client[0] if client else "unix",
            "method": scope["method"],
            "path": scope["path"][:_LONGEST],
            "status": status,
        }
        # The id of a new job or token, or the name of a new user.
        line.update({name: state[name] for name in ("job", "token", "account") if name in state})
        if status >= 400:
            if not self._window_ends - _WINDOW <= line["time"] < self._window_ends:
                self._window_ends = line["time"] + _WINDOW
                self._refusals.clear()
            address = {line["address"]: _MOST_OF_ADDRESS, "": _MOST_UNKNOWN}
            bounds: dict[int | str, int] = {identity.userid: _MOST_OF_USER} if identity else address
            if not self._has_room(bounds):
                return
            self._refusals.update(bounds.keys())
            if not self._has_room(bounds):
                line["silent_until"] = self._window_ends
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def _has_room(self, bounds: Mapping[int | str, int]) -> bool:
        return all(self._refusals[whose] < most for whose, most in bounds.items())


class Part(NamedTuple):
    """Lines of an audit, the newest first, and where in the file the older ones end: 0 where there are none."""

    lines: list[dict[str, Any]]
    end: int


def read(path: str, count: int, end: int | None = None, userid: int | None = None) -> Part:
    """`count` lines before the byte `end` of the file (None: its last lines), with `userid` those of this user alone.
    There may be fewer though there are older ones, as no more than _MOST_READ bytes are gone through. Raises OSError.
    """
    found: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size if end is None else min(end, size)
        last = max(0, end - _MOST_READ)
        while end > last and len(found) < count:
            begin = max(0, end - _PIECE)
            file.seek(begin)
            lines = file.read(end - begin).splitlines(keepends=True)
            if begin and len(lines) > 1:
                # A line that is not whole, which the next piece has to its end. One longer than a piece is passed over
                # in pieces, none of which can be decoded.
                begin += len(lines.pop(0))
            for line in reversed(lines):
                end -= len(line)
                entry = _decode(line)
                if entry is not None and userid in (None, entry.get("userid")):
                    found.append(entry)
                    if len(found) == count:
                        break
            else:
                end = begin
    return Part(found, end)


def _decode(line: bytes) -> dict[str, Any] | None:
    """None for a line that a full disk has cut."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
