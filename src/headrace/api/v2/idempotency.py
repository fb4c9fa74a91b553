"""Submissions that must happen once, however often their request is sent: those with a header `Idempotency-Key`.

The job of a key is remembered for a day by the service. Each such job has a mark in its jobspec, by which it is found
where a response of the broker was lost: whoever sends the request once more gets this job.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from headrace.api import jobs
from headrace.api.broker_link import BrokerLink, BrokerUnreachable
from headrace.query.listing import Query

HEADER = "Idempotency-Key"
_SECONDS = 24 * 3600.0
_MOST_OF_USER = 10_000
LONGEST = 255
_MARK = "idempotency-key"
# Seconds that the clocks of service and broker may differ.
_CLOCKS = 60.0


class BadKey(ValueError):
    """The header cannot be a key; the text is for users."""


class OtherBody(ValueError):
    """A key that was used for another request; the text is for users."""


def key_of(headers: Headers) -> str | None:
    """The key of a request, None without one. Raises BadKey."""
    given = headers.getlist(HEADER)
    if len(given) > 1:
        raise BadKey(f"{HEADER} was sent {len(given)} times: a request has one key")
    if given and not (0 < len(given[0]) <= LONGEST and given[0].isprintable()):
        raise BadKey(f"{HEADER} must be 1 to {LONGEST} printable characters, not {len(given[0])}: {given[0][:40]!r}")
    return given[0] if given else None


@dataclass
class _Entry:
    # Of the request; "" while there is no job of it.
    digest: str
    since: float
    lock: asyncio.Lock
    id: int | None = None
    # Whether the broker may have a job whose id was not received.
    unknown: bool = False


class Keys:
    """The keys of each user, with the job of each."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[int, dict[str, _Entry]] = {}

    async def submit(
        self, link: BrokerLink, key: str, body: bytes, jobspec: dict[str, Any], send: Callable[[], Awaitable[int]]
    ) -> int:
        """The job of this key and body: that of a request before, or what `send` submits, whose `jobspec` gets the mark
        of the key. Raises OtherBody, and what `send` raises.
        """
        userid = link.identity.userid if link.identity is not None else -1
        digest = hashlib.sha256(body).hexdigest()
        entry = self._entry(userid, key)
        mark = hashlib.sha256(f"{userid}:{key}".encode()).hexdigest()
        # A request that comes while the first is under way waits for its job.
        async with entry.lock:
            # What was refused can be sent once more, with another body, too.
            entry.digest = entry.digest or digest
            if entry.digest != digest:
                raise OtherBody(f"{HEADER} '{key}' was used for another request: each job needs a key of its own")
            if entry.id is None and entry.unknown:
                entry.id = await _find(link, mark, entry.since - _CLOCKS)
            if entry.id is not None:
                return entry.id
            attributes = jobspec.get("attributes")
            if isinstance(attributes, dict) and isinstance(attributes.setdefault("user", {}), dict):
                attributes["user"][_MARK] = mark
            try:
                entry.id = await send()
            except (BrokerUnreachable, asyncio.CancelledError):
                entry.unknown = True
                raise
            except BaseException:
                entry.digest = ""
                raise
            return entry.id

    def _entry(self, userid: int, key: str) -> _Entry:
        now = self._clock()
        own = self._entries.setdefault(userid, {})
        while own and (next(iter(own.values())).since < now - _SECONDS or len(own) > _MOST_OF_USER):
            del own[next(iter(own))]
        entry = own.get(key)
        if entry is None:
            entry = own[key] = _Entry("", now, asyncio.Lock())
        return entry


async def _find(link: BrokerLink, mark: str, since: float) -> int | None:
    """The job with this mark, among those that were submitted from a time on."""
    query = Query(count=0)
    query.add("t_submit", [f">={max(0.0, since)!r}"])
    if link.identity is not None:
        query.add("userid", [link.identity.userid])
    for job in await jobs.listing(link, query, []):
        jobspec = json.loads(await jobs.kept(link, job["id"], "jobspec"))
        if (jobspec["attributes"].get("user") or {}).get(_MARK) == mark:
            return int(job["id"])
    return None
