"""The history for users: a FluxHistory is a request, and the leader writes the answer to its status.

An answer covers the namespaces whose FluxJobs the requester may list, and the number of other jobs. So the identity of
the requester must be certain: `spec.user` names it, and a ValidatingAdmissionPolicy (`policies.history_policy`) makes
the API server reject an object created by another user. Without this policy, no request is answered. The object's name
protects the answer like a password: users may get FluxHistories, but not list them. Each one is deleted soon after its
answer.

Sources: authorization.k8s.io/v1 (SubjectAccessReview), authentication.k8s.io/v1 (SelfSubjectReview).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from headrace.formats.spec import duration
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime.api import Api, ApiError, Unreachable
from headrace.k8s.runtime.controller import Controller, Shared
from headrace.k8s.runtime.steps import Delete
from headrace.k8s.runtime.watches import Selection

from .names import (
    ACCESS_REVIEWS,
    FLUXHISTORIES,
    FLUXJOBS,
    HISTORY_POLICY,
    POLICIES,
    POLICY_BINDINGS,
    SELF_REVIEWS,
)
from .store.database import Address, DatabaseError, reading
from .store.history import Line, history, jobs_by_namespace
from .store.writer import in_thread

Object = dict[str, Any]

log = logging.getLogger("headrace.cluster_queue.history")

# Maximum number of rows in an answer: an object in the API is limited to about 1.5 MB.
LIMIT = 1000
# Seconds from an answer until it is deleted.
KEPT = 60.0
# Seconds to wait for an answer. The pause between two looks doubles from the first value to the last.
PATIENCE = 60.0
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0
# Seconds that the API servers of a cluster may take to apply a new policy.
_HEEDED = 10.0
# Maximum number of concurrent requests about the rights of one user.
_AT_A_TIME = 16
WORKERS = 4
_NOT_FOUND = 404


class NotAnswered(Exception):
    """There is no answer; the message says why."""


class Answer(Struct, frozen=True, kw_only=True):
    """The status of a FluxHistory.

    The span is in seconds since the epoch. `unread` jobs and `omitted` rows are missing from `rows`. With `problem`
    there is no answer.
    """

    since: float
    until: float
    rows: list[Line] = []
    unread: int = 0
    omitted: int = 0
    problem: str = ""


# --- the requester


async def ask(api: Api, namespace: str, since: str, by: str) -> Answer:
    """The answer to the user of `api` about the time since `since` ago (RFC 23).

    `by` is as in `store.history`. Raises NotAnswered, ApiError, Unreachable.
    """
    head = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    user = (await api.create(SELF_REVIEWS, "", head))["status"]["userInfo"]
    # Users may not list these objects, and cannot guess 128 bits.
    name = f"history-{secrets.token_hex(16)}"
    body = {
        **{"apiVersion": FLUXHISTORIES.api_version, "kind": FLUXHISTORIES.kind, "metadata": {"name": name}},
        "spec": {"user": user, "since": since, "by": by},
    }
    try:
        await api.create(FLUXHISTORIES, namespace, body)
    except ApiError as exc:
        if exc.status != _NOT_FOUND or exc.details.get("kind") == "namespaces":
            raise
        raise NotAnswered(
            "the cluster does not have the kind FluxHistory: is its queue older than this program?"
        ) from None
    try:
        return await _answer_to(api, namespace, name)
    finally:
        with contextlib.suppress(ApiError, Unreachable):
            await api.delete(FLUXHISTORIES, namespace, name)


async def _answer_to(api: Api, namespace: str, name: str) -> Answer:
    end, pause = time.monotonic() + PATIENCE, _FIRST_LOOK
    while time.monotonic() < end:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK)
        status = (await api.get(FLUXHISTORIES, namespace, name)).get("status")
        if status:
            answer = msgspec.convert(status, Answer)
            if answer.problem:
                raise NotAnswered(answer.problem)
            return answer
    raise NotAnswered(f"no answer for {PATIENCE:.0f} s: is the queue running in this cluster?")


# --- the leader


class HistoryRequests:
    """Answers FluxHistories from the store at `address` (None: there is no store)."""

    def __init__(self, shared: Shared, address: Address | None) -> None:
        self._api = shared.api
        self._address = address
        selection = Selection(FLUXHISTORIES)
        # If the installed definitions are older than the program, the queue still holds and releases.
        shared.watches.cache(selection, without="users cannot request the history through the API server")
        self.controller = Controller(
            *(shared, selection, (), _is_over),
            observe=lambda item, now: item,
            carry_out=self._carry_out,
            workers=WORKERS,
        )

    async def _carry_out(self, item: Object, is_over: bool, now: float) -> float | None:
        writes, meta = self.controller.writes, item["metadata"]
        if is_over:
            await writes.carry_out(item, Delete(FLUXHISTORIES, meta["name"], meta["uid"]))
            return None
        if not item.get("status"):
            answer = await self._answer(item, now)
            await writes.publish(item, msgspec.to_builtins(answer))
            return now + KEPT
        return float(item["status"]["until"]) + KEPT

    async def _answer(self, item: Object, now: float) -> Answer:
        """Compute the answer. Raises ApiError, Unreachable, CredentialsError."""
        spec = item["spec"]
        try:
            since = max(now - duration.parse(spec.get("since", "7d")), 0.0)
        except duration.DurationError as exc:
            return Answer(since=now, until=now, problem=f"spec.since: {exc}")
        if self._address is None:
            problem = "the queue records no history, because it runs without a store (--store, --statedir)"
            return Answer(since=since, until=now, problem=problem)
        if not await self._is_creator_known(item):
            problem = f"the user cannot be verified: there is no {POLICIES.kind} {HISTORY_POLICY} with a binding"
            return Answer(since=since, until=now, problem=f"{problem}, or one of them is only seconds old")
        try:
            jobs = await in_thread(_jobs, self._address, since, now)
            may_read = await self._readable(spec["user"], jobs)
            rows = await in_thread(_rows, self._address, since, now, spec.get("by", ""), may_read)
        except DatabaseError as exc:
            # The error may name the database server, which users should not see.
            log.warning("the store: %s", exc)
            return Answer(since=since, until=now, problem="the store of the queue cannot be read now: its log says why")
        unread = sum(count for namespace, count in jobs.items() if may_read is not None and namespace not in may_read)
        omitted = max(len(rows) - LIMIT, 0)
        return Answer(since=since, until=now, rows=rows[:LIMIT], unread=unread, omitted=omitted)

    async def _is_creator_known(self, item: Object) -> bool:
        """Whether the API server has checked the creator of an object: the policy must be older than it."""
        made = seconds_of(item["metadata"]["creationTimestamp"])
        for kind in (POLICIES, POLICY_BINDINGS):
            try:
                found = await self._api.get(kind, "", HISTORY_POLICY)
            except ApiError as exc:
                if exc.status != _NOT_FOUND:
                    raise
                return False
            if seconds_of(found["metadata"]["creationTimestamp"]) + _HEEDED >= made:
                return False
        return True

    async def _readable(self, user: Object, namespaces: Iterable[str]) -> set[str] | None:
        """The namespaces whose FluxJobs a user may list; None for all namespaces."""
        if await self._may_list(user, ""):
            return None
        found, left = set(), sorted(namespaces)
        while left:
            some, left = left[:_AT_A_TIME], left[_AT_A_TIME:]
            allowed = await asyncio.gather(*(self._may_list(user, one) for one in some))
            found |= {one for one, is_allowed in zip(some, allowed, strict=True) if is_allowed}
        return found

    async def _may_list(self, user: Object, namespace: str) -> bool:
        what: Object = {
            "group": FLUXJOBS.group,
            "version": FLUXJOBS.version,
            "resource": FLUXJOBS.plural,
            "verb": "list",
        }
        who: Object = {
            "user": user["username"],
            **{key: user[key] for key in ("uid", "groups", "extra") if key in user},
        }
        body = {
            **{"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind},
            "spec": {**who, "resourceAttributes": {**what, "namespace": namespace}},
        }
        review = await self._api.create(ACCESS_REVIEWS, "", body)
        return bool((review.get("status") or {}).get("allowed"))


def _is_over(item: Object, now: float) -> bool:
    """Whether a FluxHistory was answered long enough ago to be deleted."""
    status = item.get("status") or {}
    return "until" in status and now >= float(status["until"]) + KEPT


def _jobs(address: Address, since: float, now: float) -> dict[str, int]:
    with reading(address) as database:
        return jobs_by_namespace(database, since, now)


def _rows(address: Address, since: float, now: float, by: str, namespaces: set[str] | None) -> list[Line]:
    with reading(address) as database:
        return history(database, since, now, by, namespaces)
