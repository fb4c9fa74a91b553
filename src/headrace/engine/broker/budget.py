"""Limits for guests at one broker: connections, bytes, streams, subscriptions, and bytes of the log.

Every broker counts by userid, so a guest's request over the tree is charged at the broker where it comes in and at each
broker on the way (RFC 12 puts the credential in each message). The owner of the instance is not counted. An `Account`
holds the charges of the guests behind one link: one connection of the local socket, or one child in the tree. A charge
is credited with the last response, the end of a stream or a disconnect request. All are credited when the link ends.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Bytes of memory for a request or a subscription besides its payload, and for an element of a decoded JSON payload.
ENTRY = 2 << 10
_ELEMENT = 64
# A message that requests no response is not counted. It may have at most this fraction (1/16) of the limit in bytes.
_UNCOUNTED = 16
# `on_freed` is called when at least this many bytes are credited at once.
_MUCH = 1 << 20
# Seconds between two log lines about the same user and limit.
_QUIET = 60.0
_WHAT = {
    "connections": "connections",
    "bytes": "bytes that were not yet delivered or answered",
    "streams": "open streams",
    "subscriptions": "subscriptions",
    "log-bytes": "bytes for the log within a minute",
    "all-bytes": "bytes that were not yet delivered or answered",
}
_ERRNO = {"subscriptions": errno.ENOSPC, "log-bytes": errno.ENOSPC}
# The limits of each user, and `all-bytes` for all guests together. The table [access.limits] may change them.
DEFAULTS = {
    "connections": 64,
    "bytes": 40 << 20,
    "streams": 256,
    "subscriptions": 256,
    "log-bytes": 64 << 10,
    "all-bytes": 128 << 20,
}
_EACH = tuple(name for name in DEFAULTS if name != "all-bytes")


def is_guest(msg: Message) -> bool:
    """True if a message has the credential of a user other than the instance's owner."""
    return not msg.rolemask & m.ROLE_OWNER


def cost(msg: Message) -> int:
    """The most memory in bytes that a message and its decoded payload need, known before decoding."""
    payload = msg.payload
    if payload is None:
        return ENTRY
    elements = payload.count(b",") + payload.count(b"[") + payload.count(b"{") + payload.count(b":")
    return ENTRY + 2 * len(payload) + _ELEMENT * elements


class Budget:
    """The limits, and the counters of each user with charges. Refusals are logged with `log(level, text)`."""

    def __init__(self, log: Callable[[int, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = dict(DEFAULTS)
        # Called when much memory becomes free at once.
        self.on_freed: Callable[[], object] = lambda: None
        self._log = log
        self._clock = clock
        self._used: dict[int, dict[str, int]] = {}
        # The sum of `bytes` over all users.
        self.all_bytes = 0
        # A leaky bucket for each user: bytes appended to the log that have not expired yet, and when that was computed.
        self._logged: dict[int, tuple[float, float]] = {}
        self._refused: dict[int, int] = {}
        self._quiet_until: dict[tuple[int, str], float] = {}

    def configure(self, config: dict[str, Any]) -> None:
        """Set the limits from the table [access.limits] of a validated configuration."""
        self.limits = {**DEFAULTS, **config.get("access", {}).get("limits", {})}

    def used(self, userid: int, name: str) -> int:
        return self._used.get(userid, {}).get(name, 0)

    def charge(self, userid: int, name: str, amount: int = 1) -> None:
        """Count `amount` more against limit `name`. Raises RpcError(EAGAIN, ENOSPC, E2BIG) if that exceeds it."""
        if amount > 0 and self.used(userid, name) + amount > self.limits[name]:
            raise self._refuse(userid, name, amount)
        if name == "bytes" and amount > 0 and self.all_bytes + amount > self.limits["all-bytes"]:
            raise self._refuse(userid, "all-bytes", amount)
        self.add(userid, name, amount)

    def add(self, userid: int, name: str, amount: int) -> None:
        """Count `amount` without a check of the limit. A negative amount is credited."""
        used = self._used.setdefault(userid, {})
        used[name] = used.get(name, 0) + amount
        if not used[name]:
            del used[name]
        if not used:
            del self._used[userid]
        if name == "bytes":
            self.all_bytes += amount
            if -amount >= _MUCH:
                self.on_freed()

    def credit(self, userid: int, name: str, amount: int = 1) -> None:
        """Undo a charge."""
        self.add(userid, name, -amount)

    def charge_log(self, userid: int, size: int) -> None:
        """Count `size` bytes for the log. They expire within a minute. Raises RpcError(ENOSPC, E2BIG)."""
        limit, now = self.limits["log-bytes"], self._clock()
        logged, since = self._logged.get(userid, (0.0, now))
        logged = max(0.0, logged - (now - since) * limit / 60)
        self._logged[userid] = (logged, now)
        if logged + size > limit:
            raise self._refuse(userid, "log-bytes", size)
        self._logged[userid] = (logged + size, now)

    def check_uncounted(self, msg: Message) -> None:
        """Raise RpcError(E2BIG) if a message without a response is too large to remain uncounted."""
        if cost(msg) > self.limits["bytes"] // _UNCOUNTED:
            raise self._refuse(msg.userid, "bytes", self.limits["bytes"] + 1)

    def _refuse(self, userid: int, name: str, amount: int) -> RpcError:
        self._refused[userid] = self._refused.get(userid, 0) + 1
        limit = self.limits[name]
        who = "all guests together" if name == "all-bytes" else f"user {userid}"
        text = f"{who} may have {limit} {_WHAT[name]} (access.limits.{name})"
        now = self._clock()
        if now >= self._quiet_until.get((userid, name), 0.0):
            self._quiet_until[userid, name] = now + _QUIET
            self._log(logging.WARNING, f"refused: {text}")
        return RpcError(errno.E2BIG if amount > limit else _ERRNO.get(name, errno.EAGAIN), text)

    def stats(self) -> dict[str, Any]:
        """The limits, the use of `all-bytes`, and each user's use of the other limits and refusals."""
        now = self._clock()
        fresh = {
            user: size - (now - since) * self.limits["log-bytes"] / 60 for user, (size, since) in self._logged.items()
        }
        users: dict[str, dict[str, int]] = {}
        for userid in sorted({*self._used, *self._refused, *(user for user, size in fresh.items() if size >= 1)}):
            users[str(userid)] = {
                **{name: self.used(userid, name) for name in _EACH},
                "log-bytes": max(0, int(fresh.get(userid, 0))),
                "refused": self._refused.get(userid, 0),
            }
        return {"limits": dict(self.limits), "all-bytes": self.all_bytes, "users": users}


class _Request(NamedTuple):
    """An open request: its user, its service and rank, and the charges for it."""

    userid: int
    service: tuple[str, int]
    size: int
    streams: int


def _service_of(msg: Message) -> tuple[str, int]:
    return msg.topic.rpartition(".")[0], msg.nodeid


class Account:
    """The charges of the guests behind one link."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        # By sender and matchtag: matchtags are unique per sender only. Several requests of one sender may have matchtag
        # 0 (FLUX_MATCHTAG_NONE), which is not used to match responses.
        self._requests: dict[tuple[str, int], list[_Request]] = {}
        self._subscriptions: dict[str, int] = {}
        # The bytes charged to this link, by userid and purpose.
        self._charged: dict[tuple[int, str], int] = {}

    def open(self, msg: Message) -> None:
        """Charge for a guest's request.

        Raises RpcError if that exceeds a limit, and RpcError(EPROTO) for a matchtag in use.
        """
        if msg.flags & m.FLAG_NORESPONSE:
            if msg.topic.endswith(".disconnect"):
                self._end_streams(msg.sender, _service_of(msg))
            self.budget.check_uncounted(msg)
            return
        key = (msg.sender, msg.matchtag)
        if msg.matchtag != m.MATCHTAG_NONE and key in self._requests:
            raise RpcError(errno.EPROTO, f"{msg.topic}: matchtag {msg.matchtag} is in use")
        size, streams = cost(msg), int(msg.streaming)
        self.budget.charge(msg.userid, "bytes", size)
        try:
            self.budget.charge(msg.userid, "streams", streams)
        except RpcError:
            self.budget.credit(msg.userid, "bytes", size)
            raise
        self._requests.setdefault(key, []).append(_Request(msg.userid, _service_of(msg), size, streams))

    def answered(self, msg: Message) -> None:
        """Credit the charge of a request with its response, or with the end of its stream."""
        if msg.aux1 or not msg.flags & m.FLAG_STREAMING:
            key = (msg.sender, msg.matchtag)
            # Several requests may have matchtag 0: the oldest is assumed to be answered.
            for request in self._requests.get(key, ())[:1]:
                self._credit_request(key, request)

    def _end_streams(self, sender: str, service: tuple[str, int]) -> None:
        for key, request in self._open_requests():
            if key[0] == sender and request.service == service:
                self._credit_request(key, request)

    def _open_requests(self) -> list[tuple[tuple[str, int], _Request]]:
        return [(key, request) for key, requests in self._requests.items() for request in requests]

    def _credit_request(self, key: tuple[str, int], request: _Request) -> None:
        self._requests[key].remove(request)
        if not self._requests[key]:
            del self._requests[key]
        self.budget.add(request.userid, "bytes", -request.size)
        self.budget.add(request.userid, "streams", -request.streams)

    def subscribe(self, userid: int, prefix: str) -> None:
        """Charge for the first subscription of this link to `prefix`. Raises RpcError(ENOSPC, EAGAIN, E2BIG)."""
        if prefix in self._subscriptions:
            return
        size = ENTRY + len(prefix)
        self.budget.charge(userid, "bytes", size)
        try:
            self.budget.charge(userid, "subscriptions")
        except RpcError:
            self.budget.credit(userid, "bytes", size)
            raise
        self._subscriptions[prefix] = userid

    def unsubscribe(self, prefix: str) -> None:
        userid = self._subscriptions.pop(prefix, None)
        if userid is not None:
            self.budget.credit(userid, "subscriptions")
            self.budget.credit(userid, "bytes", ENTRY + len(prefix))

    def charge(self, userid: int, what: str, size: int, checked: bool = True) -> None:
        """Charge `size` bytes for the purpose `what`, in place of the earlier charge for it.

        Raises RpcError if that exceeds the limit, unless `checked` is false because the bytes are in memory already.
        """
        more = size - self._charged.get((userid, what), 0)
        if checked:
            self.budget.charge(userid, "bytes", more)
        else:
            self.budget.add(userid, "bytes", more)
        self._charged[userid, what] = size

    def close(self) -> None:
        """Credit all charges at the end of the link."""
        for key, request in self._open_requests():
            self._credit_request(key, request)
        for prefix in list(self._subscriptions):
            self.unsubscribe(prefix)
        for (userid, _what), size in self._charged.items():
            self.budget.credit(userid, "bytes", size)
        self._charged.clear()

    def __len__(self) -> int:
        return len(self._open_requests())
