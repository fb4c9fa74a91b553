"""The audit: lines of JSON for each requested change, and for each refused request.

A line has the user, address, path and status. It has nothing from the query, headers or body, which may have passwords,
tokens and environments. A change has two lines with the same `request`. The first, with a `status` of null, is on disk
before the change begins; the second has the result. If the first line cannot be written, the change is refused. Anyone
who can reach the service can cause refusals, so the lines of refusals are short and limited in number.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import secrets
import shlex
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.service.middleware import SAFE_METHODS
from headrace.service.settings import SettingsError
from headrace.service.users.access import TooManyFailures
from headrace.service.users.credential import Identity

# The statuses that are logged as refusals for requests that change nothing.
_REFUSALS = (401, 403, 404, 421, 429)
# The maximum length of a login name and of a path in a line, in characters.
_LONGEST = 200
# The maximum number of refusals with a line in _WINDOW seconds: of a user; of unknown users, for each address and in
# all.
_WINDOW, _MOST_OF_USER, _MOST_OF_ADDRESS, _MOST_UNKNOWN = 60.0, 1000, 60, 300
# Bytes of the file that are read in one piece, and at most for one request.
_PIECE = 1 << 18
_MOST_READ = 1 << 24


def open_file(path: str) -> int:
    """Open the audit's file, or create it for its owner alone. Raises OSError, SettingsError."""
    # Each line is one write with O_APPEND, so that lines of several processes do not mix. O_NOFOLLOW: the owner of a
    # symbolic link could choose the file. O_NONBLOCK: opening a pipe would wait for a reader.
    flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
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
    """The reason why this file cannot be the audit, "" if it can."""
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


class NotAudited(RuntimeError):
    """The change is refused because it cannot be audited. The text is for users."""


async def before_change(request: Request) -> None:
    """Write the first line of a change, once its user is known. Raises NotAudited, TooManyFailures."""
    begin = getattr(request.state, "begin_change", None)
    if begin is not None:
        await begin()


class Lines:
    """The audit's file, to which only complete lines are added."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open_file(path)
        # Lines that did not fit on the disk. They are written before any other.
        self._unwritten: list[bytes] = []
        self._failing = False
        if self._is_torn():
            self.add_eventually()

    def add(self, *lines: bytes) -> None:
        """Write lines now. Raises OSError if that fails; the lines are then dropped."""
        try:
            while self._unwritten:
                self._write(self._unwritten[0])
                del self._unwritten[0]
            self._write(b"".join(lines))
        except OSError as exc:
            if not self._failing:
                self._failing = True
                text = f"the audit {self._path} cannot be written: {exc.strerror}: changes are refused until it can be"
                print(f"headrace-api: {text}", file=sys.stderr, flush=True)
            raise
        self._failing = False

    def add_eventually(self, *lines: bytes) -> None:
        """Write lines now; if that fails, write them before the next lines."""
        try:
            self.add(*lines)
        except OSError:
            self._unwritten += lines

    async def sync(self) -> None:
        """Return once all lines are on the disk. Raises OSError."""
        await asyncio.to_thread(os.fdatasync, self._file)

    def _write(self, line: bytes) -> None:
        # If the disk was full, the file may end with a partial line. The next line must not be joined to it.
        data = b"\n" + line if self._is_torn() else line
        if data and os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _is_torn(self) -> bool:
        size = os.fstat(self._file).st_size
        return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"


class Audit:
    """Middleware that writes the changes and refusals of an application to the file `path`."""

    def __init__(self, app: ASGIApp, path: str, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._lines = Lines(path)
        self._clock = clock
        # When the current window ends, and the refusals in it by userid or address; "" counts all unknown users.
        self._window_ends = 0.0
        self._refusals: Counter[int | str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # `request.state` writes to this dictionary.
        state = scope.setdefault("state", {})
        status = 0
        # The `request` of both lines of a change, "" before the first line is written.
        request_id = ""

        async def begin() -> None:
            nonlocal request_id
            line = self._line(scope, state, None)
            self._check_refusals(line)
            request = secrets.token_hex(4)
            try:
                self._lines.add(_encode({**line, "request": request}))
                request_id = request
                await self._lines.sync()
            except OSError as exc:
                text = f"the change is refused, as the audit of this service cannot be written: {exc.strerror}"
                raise NotAudited(text) from None

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["method"] not in SAFE_METHODS or status in _REFUSALS:
                    self._end(scope, state, status, request_id)
            await send(message)

        state["begin_change"] = begin
        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            if not status and scope["method"] not in SAFE_METHODS:
                self._end(scope, state, 500, request_id)
            raise

    def _end(self, scope: Scope, state: dict[str, Any], status: int, request: str) -> None:
        line = self._line(scope, state, status)
        # The id of a new job or token, or the name of a new user.
        line.update({name: state[name] for name in ("job", "token", "account") if name in state})
        if request:
            line["request"] = request
        if status >= 400:
            self._renew_window(line["time"])
            bounds = _bounds(line)
            if not request and not self._has_room(bounds):
                return
            self._refusals.update(bounds.keys())
            if not self._has_room(bounds):
                line["silent_until"] = self._window_ends
        if request or status < 400:
            self._lines.add_eventually(_encode(line))
        else:
            with contextlib.suppress(OSError):
                self._lines.add(_encode(line))

    def _line(self, scope: Scope, state: Mapping[str, Any], status: int | None) -> dict[str, Any]:
        identity: Identity | None = state.get("identity")
        client = scope.get("client")
        login = state.get("login")
        return {
            "time": self._clock(),
            "user": login[:_LONGEST] if login else identity.name if identity else None,
            "userid": identity.userid if identity else None,
            "address": client[0] if client else "unix",
            "method": scope["method"],
            "path": scope["path"][:_LONGEST],
            "status": status,
        }

    def _check_refusals(self, line: Mapping[str, Any]) -> None:
        """Raise TooManyFailures for a user whose refusals have reached the limit.

        Each further change would add a line, even if it is refused.
        """
        self._renew_window(line["time"])
        if line["userid"] is not None and not self._has_room(_bounds(line)):
            raise TooManyFailures(math.ceil(self._window_ends - line["time"]))

    def _renew_window(self, now: float) -> None:
        # If the clock was set back, a new window begins.
        if not self._window_ends - _WINDOW <= now < self._window_ends:
            self._window_ends = now + _WINDOW
            self._refusals.clear()

    def _has_room(self, bounds: Mapping[int | str, int]) -> bool:
        return all(self._refusals[whose] < most for whose, most in bounds.items())


def _bounds(line: Mapping[str, Any]) -> dict[int | str, int]:
    """The limits that apply to a refusal: by userid; for an unknown user by address, and by "" for all."""
    if line["userid"] is not None:
        return {line["userid"]: _MOST_OF_USER}
    return {line["address"]: _MOST_OF_ADDRESS, "": _MOST_UNKNOWN}


def _encode(line: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


class Part(NamedTuple):
    """Lines of an audit, the newest first. Older lines end at byte `end` of the file; 0 if there are none."""

    lines: list[dict[str, Any]]
    end: int


def read(path: str, count: int, end: int | None = None, userid: int | None = None) -> Part:
    """Read `count` lines before the byte `end` of the file (None: the last lines). Raises OSError.

    With `userid`, only lines of this user. At most _MOST_READ bytes are searched, so there may be fewer lines than
    `count` although there are older ones. A change gives one line: the second, or the first if there is no second.
    """
    found: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size if end is None else min(end, size)
        file.seek(end)
        # Changes with a second line shortly after `end`. The caller has read that line before.
        ended = {
            entry["request"] for entry in map(_decode, file.read(_PIECE).splitlines()) if entry and "request" in entry
        }
        lowest = max(0, end - _MOST_READ)
        while end > lowest and len(found) < count:
            begin = max(0, end - _PIECE)
            file.seek(begin)
            lines = file.read(end - begin).splitlines(keepends=True)
            if begin and len(lines) > 1:
                # The first line of the piece may be incomplete, so the next piece reads it to its end. A line longer
                # than a piece is skipped: none of its parts can be decoded.
                begin += len(lines.pop(0))
            for line in reversed(lines):
                end -= len(line)
                entry = _decode(line)
                if entry is None or userid not in (None, entry.get("userid")):
                    continue
                request = entry.pop("request", None)
                if request is not None:
                    if entry.get("status") is None and request in ended:
                        continue
                    ended.add(request)
                found.append(entry)
                if len(found) == count:
                    break
            else:
                end = begin
    return Part(found, end)


def _decode(line: bytes) -> dict[str, Any] | None:
    """Decode a line; None for a partial line from a full disk."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
