"""Numbers of reports: who has used how much in a span of time, against their shares, and how long jobs waited.

Two reports: the node-seconds of `flux account view-usage-report`, whose text scripts of sites read, and the values of
`headrace account report`, which a page shows as tables and charts. Pure: jobs are rows of the table `jobs`, and times
are seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from msgspec import Struct

from headrace.formats.plots.spread import by_size
from headrace.sched.accounting.tree import Node
from headrace.sched.accounting.usage import ResourceWeights, job_usage

REPORT_TYPES = ("bybank", "byuser", "byassociation")
# Seconds in each unit of time.
TIME_UNITS = {"hour": 3600, "min": 60, "sec": 1}
# The smallest jobs of each group, where sizes are asked for but not given.
_SIZES = (0, 2, 8, 32, 128, 512, 2048, 8192)


class EndedJob(Struct, frozen=True):
    """A job that ran: what it held, over all nodes, and when it was submitted, started and ended."""

    username: str
    bank: str
    nodes: int
    cores: int
    gpus: int
    submit: float
    start: float
    end: float


# The report of node-seconds


class UsageLine(NamedTuple):
    """Node-seconds of a bank, user or association, or of all jobs, for each group of sizes."""

    name: str
    usage: list[float]


def size_bins(text: str) -> list[int]:
    """The smallest job of each group from `1,4,16`; for any other word a default. Raises ValueError."""
    if not text:
        return [0]
    if not text[0].isdigit():
        return list(_SIZES)
    try:
        return [int(size) for size in text.split(",")]
    except ValueError:
        raise ValueError(f"job size bins: must be numbers separated by commas, not {text!r}") from None


def node_seconds(
    jobs: Iterable[EndedJob], start: float, end: float, report_type: str = "byassociation", bins: Sequence[int] = (0,)
) -> list[UsageLine]:
    """The node-seconds of jobs that ended in [start, end], most first, and the line TOTAL at the end.

    A job is in the group of the largest number in `bins` that is not more than its nodes, or in none. Raises
    ValueError for an unknown type.
    """
    if report_type not in REPORT_TYPES:
        raise ValueError(f"report type: must be one of {', '.join(REPORT_TYPES)}, not {report_type!r}")
    totals: defaultdict[str, float] = defaultdict(float)
    groups: defaultdict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(bins, 0.0))
    everything = groups["TOTAL"]
    for job in jobs:
        if not start <= job.end <= end:
            continue
        name = {"bybank": job.bank, "byuser": job.username}.get(report_type, f"{job.bank}:{job.username}")
        usage = job.nodes * (job.end - job.start)
        totals[name] += usage
        own = groups[name]
        size = max((size for size in bins if size <= job.nodes), default=None)
        if size is not None:
            own[size] += usage
            everything[size] += usage
    names = sorted(totals, key=lambda name: totals[name], reverse=True)
    return [UsageLine(name, [groups[name][size] for size in bins]) for name in [*names, "TOTAL"]]


def as_text(
    lines: Iterable[UsageLine], report_type: str = "byassociation", unit: str = "sec", bins: Sequence[int] = (0,)
) -> str:
    """The report in the columns of flux-accounting. Raises ValueError for an unknown unit."""
    if unit not in TIME_UNITS:
        raise ValueError(f"time unit: must be one of {', '.join(TIME_UNITS)}, not {unit!r}")
    what = f"{report_type[2:]}(node{unit})"
    if len(bins) < 2:
        text = [f"{what:<26s}        total"]
    else:
        text = [f"{what:<24s}" + "".join(f" {size:>13d}+" for size in bins)]
    text += (
        f"{line.name:<24s}" + "".join(f" {usage / TIME_UNITS[unit]:>14.2f}" for usage in line.usage) for line in lines
    )
    return "\n".join([*text, ""])


# The report of shares and waits


class BankUsage(NamedTuple):
    """A bank in a report: its part of the whole by shares (0 to 1), what it used, and its part of all usage.

    `depth` is 0 for the root. A bank that is no longer in the tree has no part by shares.
    """

    bank: str
    depth: int
    entitled: float
    usage: float
    part: float
    jobs: int


class UserUsage(NamedTuple):
    """A user in a report, over all banks."""

    username: str
    usage: float
    part: float
    jobs: int


class Report(NamedTuple):
    """The values of a report of the span from `start` to `end`.

    `banks` are in the order of the tree, each before the banks below it, with everything below it. `over_time` has,
    for each bank with users, its usage in each of equal parts of the span, whose bounds are `edges`. `users` have used
    most. Waits are in seconds: by bank, and by the nodes of jobs.
    """

    start: float
    end: float
    usage: float
    banks: list[BankUsage]
    edges: list[float]
    over_time: list[tuple[str, list[float]]]
    users: list[UserUsage]
    waits_by_bank: list[tuple[str, list[float]]]
    waits_by_size: list[tuple[str, list[float]]]


def report(
    root: Node,
    jobs: Iterable[EndedJob],
    start: float,
    end: float,
    weights: ResourceWeights,
    parts: int = 60,
    users: int = 20,
) -> Report:
    """The values for jobs that ran in [start, end]. A job that ran longer counts for the time within.

    Waits are those of jobs that started within. Raises ValueError for a span that is empty.
    """
    if not start < end:
        raise ValueError(f"report: the end {end} must be after the start {start}")
    within = [job for job in jobs if job.end > start and job.start < end]
    used = [_usage_within(job, start, end, weights) for job in within]
    whole = fsum(used)
    started = [job for job in within if job.start >= start]
    edges = [start + (end - start) * i / parts for i in range(parts + 1)]
    return Report(
        start=start,
        end=end,
        usage=whole,
        banks=_banks(root, within, used, whole),
        edges=edges,
        over_time=_over_time(within, edges, weights),
        users=_users(within, used, whole)[:users],
        waits_by_bank=_waits_by_bank(started),
        waits_by_size=by_size((max(1, job.nodes), job.start - job.submit) for job in started),
    )


def _usage_within(job: EndedJob, start: float, end: float, weights: ResourceWeights) -> float:
    return job_usage(job.nodes, job.cores, job.gpus, min(job.end, end) - max(job.start, start), weights)


def _banks(root: Node, jobs: Sequence[EndedJob], used: Sequence[float], whole: float) -> list[BankUsage]:
    own: defaultdict[str, list[float]] = defaultdict(list)
    for job, usage in zip(jobs, used, strict=True):
        own[job.bank].append(usage)
    ordered: list[tuple[Node, int, float]] = []
    waiting = [(root, 0, 1.0)]
    while waiting:
        bank, depth, entitled = waiting.pop()
        ordered.append((bank, depth, entitled))
        shares = fsum(child.shares for child in bank.children)
        below = [child for child in bank.children if not child.is_user]
        waiting += ((child, depth + 1, entitled * child.shares / shares if shares else 0.0) for child in below[::-1])
    totals: dict[str, tuple[float, int]] = {}
    for bank, _, _ in reversed(ordered):
        below_it = [totals[child.name] for child in bank.children if not child.is_user]
        usages = own.pop(bank.name, [])
        total = fsum([*usages, *(usage for usage, _ in below_it)])
        totals[bank.name] = total, len(usages) + sum(count for _, count in below_it)
    places = [(bank.name, depth, entitled) for bank, depth, entitled in ordered]
    places += [(name, 0, 0.0) for name in sorted(own)]
    totals |= {name: (fsum(usages), len(usages)) for name, usages in own.items()}
    return [
        BankUsage(name, depth, entitled, totals[name][0], _part(totals[name][0], whole), totals[name][1])
        for name, depth, entitled in places
    ]


def _users(jobs: Sequence[EndedJob], used: Sequence[float], whole: float) -> list[UserUsage]:
    own: defaultdict[str, list[float]] = defaultdict(list)
    for job, usage in zip(jobs, used, strict=True):
        own[job.username].append(usage)
    totals = {name: fsum(usages) for name, usages in own.items()}
    found = [UserUsage(name, total, _part(total, whole), len(own[name])) for name, total in totals.items()]
    return sorted(found, key=lambda user: (-user.usage, user.username))


def _part(usage: float, whole: float) -> float:
    return usage / whole if whole else 0.0


def _over_time(
    jobs: Iterable[EndedJob], edges: Sequence[float], weights: ResourceWeights
) -> list[tuple[str, list[float]]]:
    found: dict[str, list[float]] = {}
    width = edges[1] - edges[0]
    for job in jobs:
        series = found.setdefault(job.bank, [0.0] * (len(edges) - 1))
        first = max(0, int((job.start - edges[0]) / width) - 1)
        for i in range(first, len(series)):
            if edges[i] >= job.end:
                break
            series[i] += _usage_within(job, edges[i], edges[i + 1], weights)
    return sorted(found.items())


def _waits_by_bank(jobs: Iterable[EndedJob]) -> list[tuple[str, list[float]]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        found[job.bank].append(job.start - job.submit)
    return sorted(found.items())
