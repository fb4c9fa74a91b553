"""Requests with the header `Idempotency-Key`: a repeated request returns the job of the first one.

The job of a key is remembered for a day. Its jobspec has a mark, made from the key and the request. By this mark the
service finds the job after it lost the broker's response, and after a restart of the service.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers

from headrace.service import jobs
from headrace.service.broker_link import BrokerLink, BrokerUnreachable
from headrace.wire.query.listing import Query

HEADER = "Idempotency-Key"
_SECONDS = 24 * 3600.0
# The maximum number of keys of a user, and of jobs that are searched for keys after a start.
_MOST = 10_000
# Jobspecs that are requested from the broker at a time.
_AT_A_TIME = 64
LONGEST = 255
# The attribute `user.idempotency-key` of a jobspec has the mark.
MARK = "idempotency-key"
# Seconds that the clocks of service and broker may differ.
_CLOCKS = 60.0


class BadKey(ValueError):
    """The header is not a valid key. The text is for users."""


class OtherBody(ValueError):
    """The key was used for another request. The text is for users."""


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
    # The hash of the request that uses the key, "" if there is none or it was refused.
    digest: str
    since: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    id: int | None = None
    # True while the broker may have a job whose id was not received.
    may_be_submitted: bool = False


@dataclass
class _Own:
    """The entries of a user by the marks of their keys, the oldest first."""

    entries: dict[str, _Entry] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # True once `entries` has the jobs that were submitted before this service started.
    complete: bool = False


class Keys:
    """The keys of each user, with the job of each."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._own: dict[int, _Own] = {}

    async def submit(
        self, link: BrokerLink, key: str, body: bytes, jobspec: dict[str, Any], send: Callable[[], Awaitable[int]]
    ) -> int:
        """Return the job of an earlier request with this key and body, or submit a new job with `send`.

        The `jobspec` of a new job gets the mark of the key. Raises OtherBody, and the errors of `send`.
        """
        userid = link.identity.userid if link.identity is not None else -1
        digest = hashlib.sha256(body).hexdigest()
        mark = hashlib.sha256(f"{userid}:{key}".encode()).hexdigest()
        entry = await self._entry(link, userid, mark)
        # A request that arrives while the first one is in progress waits for its job.
        async with entry.lock:
            # After a refusal the key can be used again, even with another body.
            entry.digest = entry.digest or digest
            if entry.digest != digest:
                raise OtherBody(f"{HEADER} '{key}' was used for another request: each job needs a key of its own")
            if entry.id is None and entry.may_be_submitted:
                entry.id = next(
                    (found.id for name, found in await _marked(link, entry.since - _CLOCKS) if name == mark), None
                )
            if entry.id is not None:
                return entry.id
            attributes = jobspec.get("attributes")
            if isinstance(attributes, dict) and isinstance(attributes.setdefault("user", {}), dict):
                attributes["user"][MARK] = f"{mark}:{digest}"
            try:
                entry.id = await send()
            except (BrokerUnreachable, asyncio.CancelledError):
                entry.may_be_submitted = True
                raise
            except BaseException:
                entry.digest = ""
                raise
            return entry.id

    async def _entry(self, link: BrokerLink, userid: int, mark: str) -> _Entry:
        now = self._clock()
        own = self._own.setdefault(userid, _Own())
        async with own.lock:
            if not own.complete:
                for name, found in await _marked(link, now - _SECONDS):
                    own.entries.setdefault(name, found)
                own.complete = True
        while own.entries and (next(iter(own.entries.values())).since < now - _SECONDS or len(own.entries) > _MOST):
            del own.entries[next(iter(own.entries))]
        return own.entries.setdefault(mark, _Entry("", now))


async def _marked(link: BrokerLink, since: float) -> list[tuple[str, _Entry]]:
    """The marks of the user's last jobs that were submitted since a time, the oldest first."""
    query = Query(count=0)
    query.add("t_submit", [f">={max(0.0, since)!r}"])
    if link.identity is not None:
        query.add("userid", [link.identity.userid])
    listed = sorted(await jobs.listing(link, query, ["t_submit"]), key=lambda job: job["t_submit"])[-_MOST:]
    found = []
    for begin in range(0, len(listed), _AT_A_TIME):
        some = listed[begin : begin + _AT_A_TIME]
        for job, mark in zip(some, await asyncio.gather(*[_mark(link, job["id"]) for job in some])):
            name, _, digest = mark.partition(":")
            if name:
                found.append((name, _Entry(digest, job["t_submit"], id=job["id"])))
    return found


async def _mark(link: BrokerLink, id: int) -> str:
    """The mark of a job, "" if it has none."""
    try:
        jobspec = json.loads(await jobs.kept(link, id, "jobspec"))
    except (jobs.NoSuchJob, jobs.NothingYet):
        # The job was purged meanwhile.
        return ""
    found = ((jobspec.get("attributes") or {}).get("user") or {}).get(MARK)
    return found if isinstance(found, str) else ""
