"""`sched.reasons`: why jobs wait and when they will start (an extension of RFC 27).

Reasons are computed for each request. Nothing is updated when jobs are submitted or end, so scheduling costs the same
with thousands of pending jobs as with ten. A response for thousands of jobs is computed in slices of a few
milliseconds, between which the scheduler works. Start times are estimated in the order of the queues, up to the last
requested job, and cached for half a second, because a long listing sends several requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec.message import Message
from headrace.sched.queueing.forecast import Place

# Seconds per slice of work, and seconds for which estimates are valid.
_SLICE = 0.002
_FRESH = 0.5

# (job id, its place if known) -> annotations such as `reason_pending`; None for a job that is not pending.
Explain = Callable[[int, "Place | None"], "dict[str, Any] | None"]
Forecast = Callable[[], Iterator["tuple[int, Place] | None"]]


class _Ask:
    """A request in progress. `restarted` is True once the estimates were restarted for a job without one."""

    def __init__(self, msg: Message, ids: list[int]) -> None:
        self.msg = msg
        self.ids = deque(ids)
        self.found: list[list[Any]] = []
        self.restarted = False


class Reasons:
    """The requests in progress, and the last estimates."""

    def __init__(self, ctx: ModuleContext, explain: Explain, forecast: Forecast) -> None:
        self._ctx = ctx
        self._explain = explain
        self._forecast = forecast
        self._asks: deque[_Ask] = deque()
        self._working = False
        self._places: dict[int, Place] = {}
        self._rest: Iterator[tuple[int, Place] | None] | None = None
        self._begun = -inf

    def ask(self, msg: Message) -> None:
        """`sched.reasons {ids}`: {reasons: [[id, {reason_pending, jobs_ahead, t_estimate}]]}.

        Unknown estimates are omitted, and so are jobs that are not pending here.
        """
        self._asks.append(_Ask(msg, msg.obj["ids"]))
        if not self._working:
            self._working = True
            self._ctx.call_soon(self._work)

    def _work(self) -> None:
        """Work for one slice."""
        now = self._ctx.monotonic
        until = now() + _SLICE
        while self._asks and now() < until:
            ask = self._asks[0]
            if not ask.ids:
                self._asks.popleft()
                self._ctx.respond(ask.msg, {"reasons": ask.found})
            elif self._placed(ask, until):
                self._answer(ask, ask.ids.popleft())
        if self._asks:
            self._ctx.call_soon(self._work)
            return
        self._working = False
        self._ctx.call_later(_FRESH, self._forget)

    def _answer(self, ask: _Ask, id: int) -> None:
        place = self._places.get(id)
        notes = self._explain(id, place)
        if notes is None:
            return
        if place is not None and place.start < inf:
            notes.setdefault("t_estimate", place.start)
        ask.found.append([id, notes])

    def _placed(self, ask: _Ask, until: float) -> bool:
        """Continue the estimates up to the first job of a request, until the time `until`.

        True if the job has a place, or will not get one.
        """
        now = self._ctx.monotonic
        if now() - self._begun > _FRESH:
            self._begin()
        id = ask.ids[0]
        while id not in self._places:
            if self._rest is None:
                if ask.restarted or self._explain(id, None) is None:
                    return True
                # The job was submitted after the estimates were begun.
                ask.restarted = True
                self._begin()
                continue
            try:
                step = next(self._rest)
            except StopIteration:
                self._rest = None
                continue
            if step is not None:
                self._places[step[0]] = step[1]
            if now() > until:
                return False
        return True

    def _begin(self) -> None:
        self._places = {}
        self._rest = self._forecast()
        self._begun = self._ctx.monotonic()

    def _forget(self) -> None:
        if not self._working:
            self._places, self._rest, self._begun = {}, None, -inf
