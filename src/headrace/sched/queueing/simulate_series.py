"""What a chart of a simulation shows: the use of the machine over time, and how long jobs of each size waited."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sched.graph.request import total_needs
from headrace.sched.queueing.simulate import Run, Simulation


def cores_of(run: Run, cores_per_node: int) -> int:
    """The cores that a job asks for; of a job that names none, those of its nodes."""
    needs = total_needs(run.job.request.resources)
    return needs.get("core") or needs.get("node", 1) * cores_per_node


def used_over_time(simulation: Simulation, cores_per_node: int, bins: int = 240) -> list[tuple[float, float]]:
    """The mean number of cores that running jobs asked for, in `bins` equal parts of the time: (middle, seconds since
    the first submission; cores).
    """
    span = simulation.last - simulation.first
    if span <= 0:
        return []
    changes: list[tuple[float, int]] = []
    for run in simulation.runs:
        cores = cores_of(run, cores_per_node)
        changes += [(run.start, cores), (run.end, -cores)]
    changes.sort()
    found = []
    now, cores, at = float(simulation.first), 0, 0
    for number in range(bins):
        end = simulation.first + span * (number + 1) / bins
        begin, area = now, 0.0
        while at < len(changes) and changes[at][0] <= end:
            when, change = changes[at]
            area += cores * (when - now)
            now, cores, at = when, cores + change, at + 1
        area += cores * (end - now)
        now = end
        found.append(((begin + end) / 2 - simulation.first, area / (end - begin)))
    return found


def waits_by_size(runs: Sequence[Run], cores_per_node: int) -> list[tuple[str, list[float]]]:
    """Seconds from submission to start, by the cores that jobs asked for: 1, 2 to 3, 4 to 7, and so on."""
    by_power: dict[int, list[float]] = {}
    for run in runs:
        power = cores_of(run, cores_per_node).bit_length() - 1
        by_power.setdefault(power, []).append(float(run.start - run.job.submit))
    names = {power: f"{1 << power}-{(2 << power) - 1}" if power else "1" for power in by_power}
    return [(names[power], by_power[power]) for power in sorted(by_power)]
