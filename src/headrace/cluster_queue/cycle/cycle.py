"""The cycle of the cluster queue: `Cycle.step` takes changes and the time, and returns writes.

A job's nodes are written to the status of its FluxJob before anything else happens. All effects follow from that status
as observed: the object is unsuspended, and its pods are pinned, or ungated and then bound. So a new process continues
from the objects of the cluster, whichever write was the last one of its predecessor.
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

# Seconds that the clock may fall behind the last step. Up to here time stands still; beyond, the queues are rebuilt.
_CLOCK_SLACK = 1.0
# Rounds per step in which a queue starts what earlier starts have made pending.
_ROUNDS = 8


class Steps(Struct, frozen=True):
    """The result of a step.

    `writes` are in order, by the uid of their workload or the name of their FluxQueue. `wake_at` is the time of the
    next step if nothing changes (seconds since the epoch). `records` are for the store. `defects` are errors, with the
    uid of a workload for which the step did nothing else, or the name of a node that is not used.
    """

    writes: dict[str, tuple[actions.Action, ...]]
    wake_at: float
    records: tuple[Record, ...] = ()
    defects: tuple[tuple[str, Exception], ...] = ()


class Cycle:
    """All queues of a cluster. `namespace` is the namespace of the queue itself."""

    def __init__(self, namespace: str) -> None:
        self.context = Context(namespace)
        self.chronicle = Chronicle()
        self.externals = Externals(self.context, namespace)
        self._begin(0)

    def _begin(self, now: float) -> None:
        """Forget all queues and jobs, as in a process that has not seen the cluster yet."""
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
        """The writes to make after some changes.

        A write that is not observed as done is repeated when its object changes or `Context.touch` names it.
        """
        context = self.context
        touched = self._observe.changes(list(changes), now)
        if now < self._stepped_at - _CLOCK_SLACK:
            # The clock was set back. Plans made for the later times would otherwise stand until then.
            self._begin(now)
            touched = context.snapshot.everything()
        self._stepped_at = now = max(now, self._stepped_at)
        writes = self._observe.begin(touched, {**self._assign.stranded, **self._report.due(now)}, int(now))
        self._admit.review(now)
        self._usage.count(int(now), self._report.unmanaged)
        self._assign.leave_all_lost_nodes(int(now))
        self._order.account_all()
        unfinished = [self._serve(name, now) for name in context.queues]
        writes.update(self._report.writes(now))
        wake_at = now if any(unfinished) or context.asked_again else self._report.wake_at(now)
        defects, context.defects = tuple(context.defects), []
        return Steps(writes, wake_at, self.chronicle.take(), defects)

    def _serve(self, name: str, now: float) -> bool:
        """Start jobs of a queue, in rounds because starts free or use quota. Returns whether more remains."""
        for _ in range(_ROUNDS):
            self._order.keep_quotas(name)
            has_more = self._assign.start(name, self._schedule.decide(name, int(now)), now)
            if not has_more and self._order.are_quotas_kept(name):
                return False
        return True
