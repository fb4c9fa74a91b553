"""Which run begins next: the plan's order, enough repeats, the budget, and what has ended already. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from headrace.experiments.values import Cell, Experiment, Plan, Result, Run

# The 95 % interval of the median of some values; None if they are too few for one.
Interval = Callable[[Sequence[float]], "tuple[float, float] | None"]


class Schedule:
    """The runs of an experiment that are left."""

    def __init__(self, experiment: Experiment, plan: Plan, done: list[Result], interval: Interval) -> None:
        self._experiment = experiment
        self._interval = interval
        self.cells = {cell.id: cell for cell in experiment.cells}
        self._targets = {target.name: target for target in experiment.targets}
        self._results: dict[str, list[Result]] = defaultdict(list)
        self._running: dict[str, int] = defaultdict(int)
        self._target_running: dict[str, int] = defaultdict(int)
        # By target, the next run at the end; and their numbers by cell.
        self._pending: dict[str, list[Run]] = defaultdict(list)
        self._left: dict[str, int] = defaultdict(int)
        self._position = max((result.position for result in done), default=-1) + 1
        # Node-seconds and cost of runs that have ended, and the estimates of those that run.
        self._spent = [0.0, 0.0]
        self._committed: dict[Run, tuple[float, float]] = {}
        # Why no further run begins; "" if runs may begin.
        self.stopped = ""
        # Runs that the plan has and that were not needed, or not possible; the latter by their reason.
        self.needless = 0
        self.refused: dict[str, int] = defaultdict(int)
        for result in done:
            self._keep(result)
        ended = {(result.cell, result.number) for result in done}
        for run in reversed(plan.runs):
            if (run.cell, run.number) not in ended:
                self._pend(run)

    # -- what is left

    def is_finished(self, target: str) -> bool:
        """True if no run of `target` is running or can still begin."""
        return not self._target_running[target] and (bool(self.stopped) or not self._pending[target])

    def left(self) -> int:
        """The number of runs that are running or may still begin."""
        return sum(map(len, self._pending.values())) + self.running()

    def running(self) -> int:
        return sum(self._running.values())

    def seconds_left(self) -> float | None:
        """Estimated seconds of all runs that may still begin, one after the other; None if no run has ended."""
        means = {cell: _mean([one.ended - one.started for one in results]) for cell, results in self._results.items()}
        known = [value for value in means.values() if value is not None]
        if not known:
            return None
        other = sum(known) / len(known)
        return sum(means.get(run.cell) or other for runs in self._pending.values() for run in runs)

    def unfinished(self, target: str) -> list[str]:
        """The cells of a target of which a run may still begin."""
        if self.stopped:
            return []
        return [id for id, cell in self.cells.items() if cell.target == target and self._left[id]]

    # -- what happens

    def take(self, target: str) -> tuple[Run, int] | None:
        """The next run of `target`, which begins now, and its position; None if none may begin now.

        Without a run that may begin, and with none running, `is_finished` is true.
        """
        pending = self._pending[target]
        place = len(pending)
        while place and not self.stopped:
            place -= 1
            run = pending[place]
            wanted = self._is_wanted(run)
            if wanted is None:
                continue
            if not wanted:
                self._unpend(pending, place)
                self.needless += 1
                continue
            estimate = self._estimate(self.cells[run.cell])
            self.stopped = self.stopped or self._excess(estimate)
            if self.stopped:
                break
            self._unpend(pending, place)
            self._committed[run] = estimate
            self._running[run.cell] += 1
            self._target_running[target] += 1
            self._position += 1
            return run, self._position - 1
        return None

    def add(self, run: Run, result: Result) -> None:
        """A run has ended."""
        self._leave(run)
        self._keep(result)

    def give_back(self, run: Run) -> None:
        """A run was stopped and does not count."""
        self._leave(run)
        self._pend(run)

    def refuse(self, cells: Sequence[str], why: str) -> None:
        """Runs of these cells, and those that begin no more, are left out for a reason."""
        names = frozenset(cells)
        for runs in self._pending.values():
            self.refused[why] += sum(run.cell in names for run in runs)
            runs[:] = [run for run in runs if run.cell not in names]
        for cell in names:
            self._left[cell] = 0

    def _pend(self, run: Run) -> None:
        self._pending[self.cells[run.cell].target].append(run)
        self._left[run.cell] += 1

    def _unpend(self, pending: list[Run], place: int) -> None:
        self._left[pending.pop(place).cell] -= 1

    # -- repeats

    def _is_wanted(self, run: Run) -> bool | None:
        """Whether the run is needed; None if that depends on runs of its cell that have not ended."""
        cell = self.cells[run.cell]
        until = cell.repeats.until
        if until is None or run.warmup or run.number <= cell.repeats.warmup + cell.repeats.least:
            return True
        if self._running[run.cell]:
            return None
        values = [
            result.metrics[until.metric]
            for result in self._results[run.cell]
            if not result.warmup and result.state == "completed" and until.metric in result.metrics
        ]
        found = self._interval(values)
        return found is None or found[1] - found[0] > until.relative_ci * abs(median(values))

    # -- budget

    def cost(self, cell: Cell, node_seconds: float) -> float | None:
        """The cost of node-seconds of a cell; None without a price."""
        return self._targets[cell.target].cost(cell.machine, node_seconds)

    def _estimate(self, cell: Cell) -> tuple[float, float]:
        """Node-seconds and cost of a run: as the cell's runs so far, or as long as its time limit allows."""
        budget = self._experiment.budget
        if budget.cost is None and budget.node_hours is None:
            return 0.0, 0.0
        seconds = _mean([result.node_seconds for result in self._results[cell.id]])
        if seconds is None:
            seconds = cell.job.timeout * cell.size
        return seconds, self.cost(cell, seconds) or 0.0

    def _excess(self, estimate: tuple[float, float]) -> str:
        """Why the budget does not allow a run; "" if it does."""
        budget = self._experiment.budget
        limits = (
            (None if budget.node_hours is None else budget.node_hours * 3600, "node-hours", 3600),
            (budget.cost, "cost", 1),
        )
        for kind, (limit, name, unit) in enumerate(limits):
            if limit is None:
                continue
            used = self._spent[kind] + sum(committed[kind] for committed in self._committed.values())
            if used >= limit:
                return f"budget (line {budget.line}): {name} of {limit / unit:g} is used up: {used / unit:.4g}"
            if used + estimate[kind] > limit:
                return (
                    f"budget (line {budget.line}): {name} of {limit / unit:g} would be exceeded: "
                    f"{used / unit:.4g} used, the next run needs {estimate[kind] / unit:.4g}"
                )
        return ""

    def _leave(self, run: Run) -> None:
        self._committed.pop(run, None)
        self._running[run.cell] -= 1
        self._target_running[self.cells[run.cell].target] -= 1

    def _keep(self, result: Result) -> None:
        self._results[result.cell].append(result)
        self._spent[0] += result.node_seconds
        self._spent[1] += self.cost(self.cells[result.cell], result.node_seconds) or 0.0


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
