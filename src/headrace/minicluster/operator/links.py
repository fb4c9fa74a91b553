"""Connections to the leads of running clusters: their state, and requests to them.

Each cluster has one ZeroMQ connection while its lead runs. A lead's messages and responses update its `Lead` record
and queue a reconcile of the cluster; nothing is polled. A lead handles one resize at a time, so the resizes of
different groups are sent one after another.

A lead runs in a user's container and may send anything. If a lead breaks the channel's rules, the operator closes its
channel for a time, which grows with each breach. However often a lead's state changes, its cluster is reconciled at
most twice a second because of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq
import zmq.asyncio
from msgspec import Struct
from msgspec.structs import asdict, replace

from headrace.formats.spec.curve_certificate import key_pair
from headrace.k8s.objects.timestamps import text_of

from ..api.channel_messages import MessageError, parse_resized, parse_state
from ..api.pod_plan import CHANNEL_PORT
from . import keys
from .channel import ChannelClient, ChannelError
from .core.observed import Lead

Object = dict[str, Any]

log = logging.getLogger("headrace.minicluster.operator.links")

# A connection needs three sockets; libzmq's default limit would allow only 341 clusters.
_MOST_SOCKETS = 65_000
# Seconds until a save of the queue times out, and seconds before a failed request is repeated.
_SAVE_TIMEOUT = 600.0
_RETRY = 5.0
# Seconds for which the channel of a lead that has broken the rules is closed: doubled with each breach, up to the
# longest. Breaches are forgotten when the lead has kept the rules for _LONGEST_CLOSED.
_CLOSED, _LONGEST_CLOSED = 30.0, 900.0
# Least number of seconds between two reconciles that a lead causes.
_TURN = 0.5


class Keys(Struct, frozen=True):
    """The lead's public key, and the operator's public and secret key (Z85)."""

    server: bytes
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Keys(...)"


def link_keys(secret: Object) -> Keys | None:
    """The keys of the channel in a cluster's Secret; None if they are unreadable."""
    try:
        found = keys.keys_of(secret)
        return Keys(key_pair(found.channel)[0], *key_pair(found.channel_client))
    except ValueError as exc:
        log.warning("%s", exc)
        return None


def address_of(lead: Object) -> str:
    """The address of the channel of the pod `lead` (tcp://HOST:PORT); "" before the pod has an IP address."""
    host = (lead.get("status") or {}).get("podIP") or ""
    return f"tcp://{f'[{host}]' if ':' in host else host}:{CHANNEL_PORT}" if host else ""


class _Breach(Struct):
    """A closed channel: until when (`time.monotonic`), the breaches in a row, and the reason for users."""

    until: float
    times: int
    text: str


class Links:
    """The connections by uid of the cluster.

    `changed` is called with the uid when its `Lead` record has changed.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._links: dict[str, _Link] = {}
        self._breaches: dict[str, _Breach] = {}
        self._context: zmq.asyncio.Context | None = None

    def __len__(self) -> int:
        return len(self._links)

    def connected(self) -> int:
        return sum(1 for one in self._links.values() if one.lead is not None)

    def lead(self, uid: str) -> Lead | None:
        """The lead's record; None without a connection."""
        link = self._links.get(uid)
        return link.lead if link else None

    def connect(self, uid: str, address: str, keys: Keys) -> None:
        """Connect to the lead at `address` (tcp://HOST:PORT), and keep the connection."""
        link = self._links.get(uid)
        if self.closed(uid) or (link is not None and link.address == address):
            return
        if link is not None:
            link.close()
        if self._context is None:
            self._context = zmq.asyncio.Context()
            self._context.set(zmq.MAX_SOCKETS, _MOST_SOCKETS)
        broken = partial(self._close, uid)
        client = ChannelClient(address, keys.server, (keys.public, keys.secret), self._context, broken)
        self._links[uid] = _Link(address, client, lambda: self._changed(uid), broken)

    def closed(self, uid: str) -> str:
        """Why the lead's channel is closed at present, for users; "" if it is open."""
        breach = self._breaches.get(uid)
        return breach.text if breach and time.monotonic() < breach.until else ""

    def _close(self, uid: str, why: str) -> None:
        now = time.monotonic()
        # Forget old breaches, including those of clusters that were deleted.
        self._breaches = {key: one for key, one in self._breaches.items() if now < one.until + _LONGEST_CLOSED}
        times = self._breaches[uid].times + 1 if uid in self._breaches else 1
        pause = min(_CLOSED * 2.0 ** (times - 1), _LONGEST_CLOSED)
        until = text_of(time.time() + pause)
        text = f"{why}: the operator ignores it until {until}, and uses only the state of its pods in Kubernetes"
        self._breaches[uid] = _Breach(now + pause, times, text)
        self.drop(uid)
        asyncio.get_running_loop().call_later(pause, self._changed, uid)
        self._changed(uid)

    def address(self, uid: str) -> str:
        """The address of the lead's connection; "" without one."""
        link = self._links.get(uid)
        return link.address if link else ""

    def drop(self, uid: str) -> None:
        link = self._links.pop(uid, None)
        if link is not None:
            link.close()

    def ask(self, uid: str, request: Object) -> None:
        """Send a request to the lead, unless the same request is under way."""
        link = self._links.get(uid)
        if link is not None:
            link.ask(request)

    def close(self) -> None:
        for uid in list(self._links):
            self.drop(uid)
        if self._context is not None:
            self._context.term()
            self._context = None


class _Link:
    """One connection. `changed` is called after changes of `lead`, at most once in `_TURN` seconds.

    `broken` is called with a description when the lead breaks the channel's rules.
    """

    def __init__(
        self, address: str, client: ChannelClient, changed: Callable[[], None], broken: Callable[[str], None]
    ) -> None:
        self.address = address
        self.lead: Lead | None = None
        self._client = client
        self._changed = changed
        self._broken = broken
        self._notified_at = -_TURN
        self._notifying: asyncio.TimerHandle | None = None
        # By operation and group: requests that wait, and requests that were sent, with their tasks.
        self._waiting: dict[tuple[str, str], Object] = {}
        self._asked: dict[tuple[str, str], tuple[Object, asyncio.Task[None]]] = {}
        self._watching = asyncio.create_task(self._watch(), name=f"lead {address}")

    def ask(self, request: Object) -> None:
        about = (request["op"], request.get("group", ""))
        asked = self._asked.get(about)
        if asked is not None:
            if asked[0] == request:
                return
            asked[1].cancel()
            del self._asked[about]
        elif request["op"] == "resize" and any(op == "resize" for op, _ in self._asked):
            self._waiting[about] = request
            return
        if request["op"] == "resize" and self.lead is not None:
            # Forget the size that was completed before, so that it is requested again if it is wanted again.
            group = request.get("group", "")
            sizes = {name: size for name, size in self.lead.resized.items() if name != group}
            self.lead = replace(self.lead, resized=sizes)
        self._asked[about] = (request, asyncio.create_task(self._ask(about, request)))

    def close(self) -> None:
        self._watching.cancel()
        for _, task in self._asked.values():
            task.cancel()
        if self._notifying is not None:
            self._notifying.cancel()
        self._client.close()

    async def _watch(self) -> None:
        try:
            async for state in self._client.watch():
                self._take(state)
        except ChannelError as exc:
            log.warning("lead at %s: %s", self.address, exc)
        except MessageError as exc:
            self._broken(f"the lead sent an invalid state: {exc}")

    def _take(self, state: Object) -> None:
        before = self.lead
        if state.get("state") == "lost":
            self.lead = None
        else:
            self.lead = replace(before or Lead(), **asdict(parse_state(state)))
        if self.lead != before:
            self._notify_later()

    def _notify_later(self) -> None:
        if self._notifying is None:
            loop = asyncio.get_running_loop()
            self._notifying = loop.call_later(max(self._notified_at + _TURN - loop.time(), 0.0), self._notify)

    def _notify(self) -> None:
        self._notifying, self._notified_at = None, asyncio.get_running_loop().time()
        self._changed()

    async def _ask(self, about: tuple[str, str], request: Object) -> None:
        op = request["op"]
        fields = {key: value for key, value in request.items() if key != "op"}
        try:
            answer = await self._client.request(op, timeout=_SAVE_TIMEOUT if op == "save" else None, **fields)
            self._answered(request, "", parse_resized(answer).jobs if op == "resize" else ())
        except (ChannelError, MessageError) as exc:
            log.warning("lead at %s: %s: %s", self.address, op, exc)
            self._answered(request, str(exc))
            if op != "save":
                await asyncio.sleep(_RETRY)
        if self._asked.get(about, (None, None))[0] is request:
            del self._asked[about]
        for other in list(self._waiting):
            self.ask(self._waiting.pop(other))
        self._notify_later()

    def _answered(self, request: Object, error: str, jobs: tuple[str, ...] = ()) -> None:
        if self.lead is None:
            return
        if request["op"] == "save":
            now = time.time()
            fresh = {"save_failed": now} if error else {"saved_at": now}
            self.lead = replace(self.lead, save_error=error, **fresh)
        elif request["op"] == "resize" and not error:
            sizes = {**self.lead.resized, request.get("group", ""): int(request["size"])}
            self.lead = replace(self.lead, resized=sizes, left=jobs)
        elif request["op"] == "reload" and not error:
            self.lead = replace(self.lead, config=request["config"])
