"""Leader election among operators: the leader holds a Lease and renews it (coordination.k8s.io/v1).

`decide` is pure: it chooses the step for a Lease as it was read. A holder that cannot renew stops acting before the
Lease's duration is over; after that, another operator may take it. Clocks of two machines are not compared: an operator
takes over a Lease only after the Lease was unchanged for its duration by the operator's own clock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from ..objects.kinds import LEASES, PROGRAM_LABEL
from .api import Api, ApiError, Unreachable
from .credentials import CredentialsError

Object = dict[str, Any]

log = logging.getLogger("headrace.k8s.lease")

DURATION = 15.0
# Seconds after the last renewal within which a holder may begin another. This plus REQUEST_TIMEOUT is less than
# DURATION, so a holder has stopped before another operator may take the Lease.
RENEW_DEADLINE = 10.0
RETRY = 2.0
# Seconds for each request of an election.
REQUEST_TIMEOUT = 4.0


class Step(enum.Enum):
    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def decide(lease: Object | None, me: str, unchanged_for: float) -> Step:
    """The step of `me` for `lease`, which has been unchanged for `unchanged_for` seconds.

    None stands for a missing Lease.
    """
    if lease is None:
        return Step.CREATE
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == me:
        return Step.RENEW
    if not holder or unchanged_for > float(spec.get("leaseDurationSeconds") or DURATION):
        return Step.TAKE
    return Step.WAIT


def seconds_fresh(lease: Object, now: datetime) -> float:
    """The seconds from `now` until the Lease expires; 0 or less if it has expired or has no holder."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return 0.0
    renewed = datetime.fromisoformat(spec["renewTime"].replace("Z", "+00:00"))
    return float(spec.get("leaseDurationSeconds") or DURATION) - (now - renewed).total_seconds()


def spec_of(me: str, now: datetime, before: Object | None) -> Object:
    """The Lease's spec after `me` has renewed or taken it."""
    old = (before or {}).get("spec") or {}
    text = now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    ours = old.get("holderIdentity") == me
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": int(DURATION),
        "acquireTime": old.get("acquireTime", text) if ours else text,
        "renewTime": text,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if ours or before is None else 1),
    }


class Election:
    """Holds a Lease. `wait` returns when this operator is the leader; `lost` is set when it no longer is.

    The Lease is labelled with the name of the program, `component`. `api` must have the timeout REQUEST_TIMEOUT: an API
    server that receives requests without responding must not keep a holder acting.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, me: str, clock: Callable[[], float], component: str = ""
    ) -> None:
        self.lost = asyncio.Event()
        self._api = api
        self._place = (namespace, name)
        self._labels = {PROGRAM_LABEL: component} if component else {}
        self._me = me
        self._clock = clock
        self._lease: Object | None = None
        self._seen_at = clock()
        self._problem = ""
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        began = self._clock()
        while not await self._try():
            await asyncio.sleep(RETRY)
            began = self._clock()
        self._task = asyncio.create_task(self._keep(began), name="lease")

    async def release(self) -> None:
        """Stop renewing and release the Lease, so that the next operator need not wait until it expires."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        # While this operator waits for the Lease, `_lease` is another operator's.
        if self._lease is None or self._lease["spec"].get("holderIdentity") != self._me or self.lost.is_set():
            return
        body = {**self._lease, "spec": {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await self._api.replace(LEASES, *self._place, body)
        except (ApiError, Unreachable, CredentialsError) as exc:
            log.debug("lease not released: %s", exc)

    async def _keep(self, renewed: float) -> None:
        """Renew the Lease, whose last renewal was sent at `renewed`, until it is lost."""
        while True:
            await asyncio.sleep(RETRY)
            began = self._clock()
            if began - renewed >= RENEW_DEADLINE:
                break
            if await self._try():
                renewed = began
            elif (self._lease or {}).get("spec", {}).get("holderIdentity", self._me) != self._me:
                break
        log.error("the lease %s/%s is lost", *self._place)
        self.lost.set()

    async def _try(self) -> bool:
        """Try once to create, renew or take the Lease; returns True if this operator holds it."""
        try:
            lease = await self._read()
            step = decide(lease, self._me, self._clock() - self._seen_at)
            if step is Step.WAIT:
                return False
            place = {"namespace": self._place[0], "name": self._place[1], "labels": self._labels}
            meta = {**place, **((lease or {}).get("metadata") or {})}
            body = {
                "apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta,
                "spec": spec_of(self._me, datetime.now(timezone.utc), lease),
            }  # fmt: skip
            if step is Step.CREATE:
                self._keep_read(await self._api.create(LEASES, self._place[0], body))
            else:
                self._keep_read(await self._api.replace(LEASES, *self._place, body))
            return True
        except (ApiError, Unreachable, CredentialsError) as exc:
            # A repeated problem, such as a missing namespace or right, is reported once.
            is_repeated, self._problem = str(exc) == self._problem, str(exc)
            is_usual = is_repeated or (isinstance(exc, ApiError) and exc.status == 409)
            log.log(logging.DEBUG if is_usual else logging.WARNING, "lease %s/%s: %s", *self._place, exc)
            # The Lease was deleted, or has changed since it was read.
            if isinstance(exc, ApiError) and exc.status in (404, 409):
                self._lease = None
            return False

    async def _read(self) -> Object | None:
        ours = (self._lease or {}).get("spec", {}).get("holderIdentity") == self._me
        if ours:
            # A renewal needs no read: if another operator took the Lease, its version differs, and the write fails.
            return self._lease
        try:
            self._keep_read(await self._api.get(LEASES, *self._place))
        except ApiError as exc:
            if exc.status != 404:
                raise
            self._lease = None
        return self._lease

    def _keep_read(self, lease: Object) -> None:
        before = (self._lease or {}).get("metadata", {}).get("resourceVersion")
        if lease["metadata"].get("resourceVersion") != before:
            self._seen_at = self._clock()
        self._lease = lease
