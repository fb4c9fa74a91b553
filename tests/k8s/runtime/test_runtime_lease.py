"""Which operator acts: one at a time, whatever the Lease's holder does."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.k8s.objects.kinds import Kind
from headrace.k8s.runtime import lease as lease_module
from headrace.k8s.runtime.api import ApiError, Unreachable
from headrace.k8s.runtime.lease import Election, Step, decide, seconds_fresh, spec_of

Object = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def held(by: str, seconds: int = 15) -> Object:
    return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": by, "leaseDurationSeconds": seconds}}


@pytest.mark.parametrize(
    ("lease", "unchanged", "step"),
    [
        (None, 0, Step.CREATE),
        (held("me"), 0, Step.RENEW),
        (held("me"), 100, Step.RENEW),
        (held("you"), 14, Step.WAIT),
        (held("you"), 16, Step.TAKE),
        (held("you", 60), 16, Step.WAIT),
        (held(""), 0, Step.TAKE),
        ({"spec": None}, 0, Step.TAKE),
    ],
)
def test_what_to_do_about_a_lease(lease: Object | None, unchanged: float, step: Step) -> None:
    assert decide(lease, "me", unchanged) is step


def test_a_lease_is_fresh_for_its_duration() -> None:
    lease = {"spec": spec_of("go", NOW, None)}
    assert seconds_fresh(lease, NOW + timedelta(seconds=14)) == 1.0
    assert seconds_fresh(lease, NOW + timedelta(seconds=16)) <= 0.0
    assert seconds_fresh({"spec": {**lease["spec"], "holderIdentity": ""}}, NOW) <= 0.0
    assert seconds_fresh({}, NOW) <= 0.0


def test_a_renewal_keeps_when_it_was_taken_and_a_change_of_holder_is_counted() -> None:
    first = {"spec": spec_of("a", NOW, None)}
    later = NOW + timedelta(seconds=5)
    renewed = spec_of("a", later, first)
    assert renewed["acquireTime"] == first["spec"]["acquireTime"] != renewed["renewTime"]
    assert renewed["leaseTransitions"] == 0
    assert spec_of("b", later, first)["leaseTransitions"] == 1


class OneLease:
    """An API server with one Lease."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.away = False
        # Called when a request finds the server away: how long it waits for an answer.
        self.wait: Callable[[], None] = lambda: None

    async def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object:
        self._reach()
        if self.lease is None:
            raise ApiError(404, "NotFound", "")
        return copy.deepcopy(self.lease)

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object:
        self._reach()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "")
        return self._keep(body)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        self._reach()
        if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "")
        return self._keep(body)

    def _reach(self) -> None:
        if self.away:
            self.wait()
            raise Unreachable("away")

    def _keep(self, body: Object) -> Object:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Time:
    """Seconds that pass as they are slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        really = asyncio.sleep

        async def spend(seconds: float) -> None:
            self.now += seconds / 2
            await really(0)

        self.spend = spend
        monkeypatch.setattr(lease_module.asyncio, "sleep", spend)

    def __call__(self) -> float:
        return self.now


def test_one_leads_and_another_follows_when_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Time(monkeypatch), OneLease()

    async def run() -> None:
        first, second = (Election(server, "ns", "l", me, clock) for me in ("a", "b"))  # type: ignore[arg-type]
        await first.wait()
        waiting = asyncio.create_task(second.wait())
        for _ in range(200):
            await clock.spend(2)
        assert not waiting.done() and not first.lost.is_set()
        await first.release()
        await asyncio.wait_for(waiting, 5)
        assert server.lease is not None and server.lease["spec"]["holderIdentity"] == "b"
        await second.release()

    asyncio.run(run())


def test_one_that_is_killed_is_followed_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Time(monkeypatch), OneLease()

    async def run() -> None:
        first, second = (Election(server, "ns", "l", me, clock) for me in ("a", "b"))  # type: ignore[arg-type]
        await first.wait()
        assert first._task is not None
        first._task.cancel()
        await second.wait()
        assert server.lease is not None and server.lease["spec"]["leaseTransitions"] == 1
        await second.release()

    asyncio.run(run())
    assert clock.now >= 15


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("before", range(5))
def test_one_that_cannot_renew_stops_before_another_begins(
    monkeypatch: pytest.MonkeyPatch, answers: bool, before: int
) -> None:
    """Whether the server refuses or never answers, and however long before the last renewal was."""
    clock, server = Time(monkeypatch), OneLease()

    def wait() -> None:
        clock.now += lease_module.REQUEST_TIMEOUT

    if not answers:
        server.wait = wait

    async def run() -> float:
        first = Election(server, "ns", "l", "a", clock)  # type: ignore[arg-type]
        await first.wait()
        since = clock.now
        server.away = True
        clock.now += before
        await first.lost.wait()
        return clock.now - since

    assert lease_module.RENEW_DEADLINE <= asyncio.run(run()) < lease_module.DURATION


def test_one_whose_lease_was_taken_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Time(monkeypatch), OneLease()

    async def run() -> None:
        first = Election(server, "ns", "l", "a", clock)  # type: ignore[arg-type]
        await first.wait()
        assert server.lease is not None
        server.lease["spec"]["holderIdentity"] = "thief"
        server.lease["metadata"]["resourceVersion"] = "77"
        await asyncio.wait_for(first.lost.wait(), 5)
        await first.release()
        assert server.lease["spec"]["holderIdentity"] == "thief"

    asyncio.run(run())


def test_one_that_only_waits_gives_back_no_lease_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Time(monkeypatch), OneLease()

    async def run() -> None:
        first, second = (Election(server, "ns", "l", me, clock) for me in ("a", "b"))  # type: ignore[arg-type]
        await first.wait()
        assert not await second._try()
        await second.release()
        assert server.lease is not None and server.lease["spec"]["holderIdentity"] == "a"
        await first.release()

    asyncio.run(run())
