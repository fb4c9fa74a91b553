"""The cycle of the cluster queue: `Cycle.step` takes what has changed and the time, and returns what to write.

A job's nodes are written into the status of its FluxJob before anything else happens, and all effects follow from that
status as it is observed: the object is unsuspended, its pods are pinned, or ungated and, when that is observed, bound.
So a cycle that begins anew from the objects of the cluster goes on where the one before has ended, at whichever write
that was.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..model.snapshot import Change
from . import actions
from .admit import Admit
from .assign import Assign
from .binding import Binding
from .chronicle import Chronicle, Record
from .context import Context
from .external import Externals
from .observe import Observe
from .order import Order
from .report import Report
from .schedule import Schedule
from .usage import Usage

# How far (seconds) the clock may fall behind the last step without the queues beginning anew: it is held meanwhile.
_CLOCK_SLACK = 1.0
# How many times one step has a queue start what the starts before have put in front of it.
_ROUNDS = 8


class Steps(Struct, frozen=True):
    """The writes by the uid of their workload (or the name of their FluxQueue), each in order, and the time of the next
    step if nothing changes (seconds since the epoch). `records` are what has happened, for the store; `defects` what
    went wrong, with the uid of the workload of which nothing else was done in this step, or the name of a node that is
    not used.
    """

    writes: dict[str, tuple[actions.Action, ...]]
    wake_at: float
    records: tuple[Record, ...] = ()
    defects: tuple[tuple[str, Exception], ...] = ()


class Cycle:
    """All queues of a cluster; `namespace` is the queue's own."""

    def __init__(self, namespace: str) -> None:
        self.context = Context(namespace)
        self.chronicle = Chronicle()
        self.externals = Externals(self.context, namespace)
        self._begin(0)

    def _begin(self, now: float) -> None:
        """Know of no queue and no job, as a process does that has not seen the cluster yet."""
        context = self.context
        context.begin()
        self._stepped_at = now
        self._order = Order(context)
        self._schedule = Schedule(context, self._order)
        self._assign = Assign(context, self._order)
        binding = Binding(context.snapshot)
        self._observe = Observe(context, self._order, self._assign, self.externals, self.chronicle)
        self._admit = Admit(context, self._order, self._assign, binding, self.chronicle)
        self._usage = Usage(context, self.externals)
        self._report = Report(context, self._order, self._assign, binding, self.externals, now)

    def step(self, changes: Iterable[Change], now: float) -> Steps:
        """What to do after some changes. Writes that are asked for and not seen done are asked for again when what they
        are about changes, or is named by `Context.touch`.
        """
        context = self.context
        touched = self._observe.changes(list(changes), now)
        if now < self._stepped_at - _CLOCK_SLACK:
            # The clock was set back. What is planned for the time from which it came would be kept until then.
            self._begin(now)
            touched = context.snapshot.everything()
        self._stepped_at = now = max(now, self._stepped_at)
        writes = self._observe.begin(touched, {**self._assign.stranded, **self._report.due(now)}, int(now))
        self._admit.review(now)
        self._usage.count(int(now), self._report.unmanaged)
        self._assign.leave_all_lost_nodes(int(now))
        self._order.account_all()
        goes_on = [self._serve(name, now) for name in context.queues]
        writes.update(self._report.writes(now))
        wake_at = now if any(goes_on) or context.asked_again else self._report.wake_at(now)
        defects, context.defects = tuple(context.defects), []
        return Steps(writes, wake_at, self.chronicle.take(), defects)

    def _serve(self, name: str, now: float) -> bool:
        """Have a queue start what can start, which makes room in quotas or takes it; returns whether there is more."""
        for _ in range(_ROUNDS):
            self._order.keep_quotas(name)
            goes_on = self._assign.start(name, self._schedule.decide(name, int(now)), now)
            if not goes_on and self._order.are_quotas_kept(name):
                return False
        return True
