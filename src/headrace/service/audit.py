"""The audit: lines of JSON for each requested change, and for each request that was refused.

A line has user, address, path and status, but nothing of query, headers or body, which may have passwords, tokens and
environments. A change has two lines with the same `request`: the first, with a `status` of null, is on disk before
anything happens, and the second has the result. A change whose first line cannot be written is refused. Anybody who
reaches the service can cause refusals, so their lines are short and bounded in number.
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

# Refusals of requests that would change nothing.
_REFUSALS = (401, 403, 404, 421, 429)
# The most characters of a name, with which somebody tried to log in, and of a path in a line.
_LONGEST = 200
# Refusals that have a line within _WINDOW seconds: of a user; without a known user, of an address and of all.
_WINDOW, _MOST_OF_USER, _MOST_OF_ADDRESS, _MOST_UNKNOWN = 60.0, 1000, 60, 300
# Bytes of the file that are read in one piece, and for one request.
_PIECE = 1 << 18
_MOST_READ = 1 << 24


def open_file(path: str) -> int:
    """The descriptor of the file, its owner's alone and made if it is not there. Raises OSError, SettingsError."""
    # Each line is one write with O_APPEND, so that lines of several processes do not mix. O_NOFOLLOW: the owner of a
    # link could choose the file. O_NONBLOCK: opening a pipe would wait for a reader.
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


class NotAudited(RuntimeError):
    """A change is refused because it cannot be audited; the text is for users."""


async def before_change(request: Request) -> None:
    """Write the first line of a change, whose user is known by now. Raises NotAudited, TooManyFailures."""
    begin = getattr(request.state, "begin_change", None)
    if begin is not None:
        await begin()


class Lines:
    """The file of the audit, to which complete lines are added."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open_file(path)
        # Lines for which the disk had no room. They are written before any other.
        self._unwritten: list[bytes] = []
        self._failing = False
        if self._is_torn():
            self.add_eventually()

    def add(self, *lines: bytes) -> None:
        """Write lines now. Raises OSError if that fails; they are not written later."""
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
        """Write lines now, or before the next ones once the disk has room."""
        try:
            self.add(*lines)
        except OSError:
            self._unwritten += lines

    async def sync(self) -> None:
        """Return once all lines are on the disk. Raises OSError."""
        await asyncio.to_thread(os.fdatasync, self._file)

    def _write(self, line: bytes) -> None:
        # A full disk takes a part of a line, and the next one must not be joined to it.
        data = b"\n" + line if self._is_torn() else line
        if data and os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _is_torn(self) -> bool:
        size = os.fstat(self._file).st_size
        return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"


class Audit:
    """The application; its changes and refusals have lines in the file `path`."""

    def __init__(self, app: ASGIApp, path: str, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._lines = Lines(path)
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
        # What both lines of a change have, "" before the first is written.
        begun = ""

        async def begin() -> None:
            nonlocal begun
            line = self._line(scope, state, None)
            self._check_refusals(line)
            request = secrets.token_hex(4)
            try:
                self._lines.add(_encode({**line, "request": request}))
                begun = request
                await self._lines.sync()
            except OSError as exc:
                text = f"the change is refused, as the audit of this service cannot be written: {exc.strerror}"
                raise NotAudited(text) from None

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["method"] not in SAFE_METHODS or status in _REFUSALS:
                    self._end(scope, state, status, begun)
            await send(message)

        state["begin_change"] = begin
        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            if not status and scope["method"] not in SAFE_METHODS:
                self._end(scope, state, 500, begun)
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
        """Raises TooManyFailures for a user with as many refusals as have lines: each change of theirs has one, too."""
        self._renew_window(line["time"])
        if line["userid"] is not None and not self._has_room(_bounds(line)):
            raise TooManyFailures(math.ceil(self._window_ends - line["time"]))

    def _renew_window(self, now: float) -> None:
        # The clock of the machine may be set back.
        if not self._window_ends - _WINDOW <= now < self._window_ends:
            self._window_ends = now + _WINDOW
            self._refusals.clear()

    def _has_room(self, bounds: Mapping[int | str, int]) -> bool:
        return all(self._refusals[whose] < most for whose, most in bounds.items())


def _bounds(line: Mapping[str, Any]) -> dict[int | str, int]:
    """How many refusals like this one have a line within a window, by whose they are."""
    if line["userid"] is not None:
        return {line["userid"]: _MOST_OF_USER}
    return {line["address"]: _MOST_OF_ADDRESS, "": _MOST_UNKNOWN}


def _encode(line: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


class Part(NamedTuple):
    """Lines of an audit, the newest first, and where in the file the older ones end: 0 where there are none."""

    lines: list[dict[str, Any]]
    end: int


def read(path: str, count: int, end: int | None = None, userid: int | None = None) -> Part:
    """`count` lines before the byte `end` of the file (None: its last lines), with `userid` those of this user alone.
    There may be fewer though there are older ones, as no more than _MOST_READ bytes are gone through. A change has one
    line here: the second, or the first where there is no second. Raises OSError.
    """
    found: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size if end is None else min(end, size)
        file.seek(end)
        # Changes whose second lines are not far behind `end`: they were read before.
        ended = {
            entry["request"] for entry in map(_decode, file.read(_PIECE).splitlines()) if entry and "request" in entry
        }
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
    """None for a line that a full disk has cut."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
