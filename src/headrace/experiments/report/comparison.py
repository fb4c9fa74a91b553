"""Two experiments compared, cell by cell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from headrace.experiments.report.summary import CellSummary, Sample, Summary
from headrace.experiments.stats.comparison import holm, mann_whitney, ratio_of_medians

# A difference counts if its p-value, corrected for the number of tests, is less.
LEVEL = 0.05
Verdict = Literal["better", "worse", "mixed", "cannot say"]


class Pair(Struct, frozen=True, kw_only=True):
    """A metric of a cell in both experiments.

    `ratio` is the median in the second by that in the first, with its 95 % interval; None where values are not
    positive, the interval also for fewer than five runs on either side. `p` is that of a Mann-Whitney test with Holm's
    correction for all pairs, None for fewer than five runs.
    """

    cell: str
    metric: str
    unit: str
    better: str
    runs: tuple[int, int]
    medians: tuple[float, float]
    ratio: float | None
    interval: tuple[float, float] | None
    p: float | None
    verdict: Verdict


class MetricVerdict(Struct, frozen=True, kw_only=True):
    """What the second experiment is for a metric, and that in a sentence."""

    metric: str
    verdict: Verdict
    sentence: str


class Comparison(Struct, frozen=True, kw_only=True):
    """The pairs of two experiments, and what has no partner: names of cells, and of metrics."""

    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    verdicts: tuple[MetricVerdict, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    no_partner: tuple[str, ...]


def compare(first: Summary, second: Summary, metric: str = "") -> Comparison:
    """Compare the cells that both experiments have, in all metrics or in one.

    Cells are the same if they agree in job, size and parameters; if that is ambiguous, in machine and target, too.
    Raises MissingExtra, and ValueError if there is nothing to compare.
    """
    matched, only_first, only_second = _match(first.cells, second.cells)
    if not matched:
        raise ValueError("the experiments have no cell in common: none agrees in job, size and parameters")
    both = [name for name in first.metrics if name in second.metrics]
    if metric and metric not in both:
        raise ValueError(
            f'no runs of both experiments have the metric "{metric}"; both have: {", ".join(both) or "none"}'
        )
    chosen = [metric] if metric else both
    samples = [
        (one.id, one.samples[name], other.samples[name])
        for name in chosen
        for one, other in matched
        if name in one.samples and name in other.samples
    ]
    tests = [mann_whitney(one.values, other.values) for _, one, other in samples]
    corrected = iter(holm([p for p in tests if p is not None]))
    pairs = tuple(
        _pair(cell, one, other, None if p is None else next(corrected)) for (cell, one, other), p in zip(samples, tests)
    )
    alone = dict.fromkeys([*first.metrics, *second.metrics])
    return Comparison(
        names=(first.name, second.name),
        pairs=pairs,
        verdicts=tuple(_verdict(name, [pair for pair in pairs if pair.metric == name]) for name in chosen),
        only_first=tuple(only_first),
        only_second=tuple(only_second),
        no_partner=() if metric else tuple(name for name in alone if name not in both),
    )


_Key = Callable[[CellSummary], "tuple[object, ...]"]


def _by_parameters(cell: CellSummary) -> tuple[object, ...]:
    return cell.job, cell.size, *sorted((name, str(value)) for name, value in cell.parameters.items())


_KEYS: tuple[_Key, ...] = (
    _by_parameters,
    lambda cell: (cell.machine, *_by_parameters(cell)),
    lambda cell: (cell.machine, cell.target, *_by_parameters(cell)),
    lambda cell: (cell.id,),
)


def _match(
    first: Sequence[CellSummary], second: Sequence[CellSummary]
) -> tuple[list[tuple[CellSummary, CellSummary]], list[str], list[str]]:
    """Pairs of cells by the shortest key that is unique in both, and the ids of cells without a partner."""
    key = next(key for key in _KEYS if _is_unique(key, first) and _is_unique(key, second))
    ones, others = {key(cell): cell for cell in first}, {key(cell): cell for cell in second}
    return (
        [(cell, others[name]) for name, cell in ones.items() if name in others],
        [cell.id for name, cell in ones.items() if name not in others],
        [cell.id for name, cell in others.items() if name not in ones],
    )


def _is_unique(key: _Key, cells: Iterable[CellSummary]) -> bool:
    names = [key(cell) for cell in cells]
    return len(set(names)) == len(names)


def _pair(cell: str, one: Sample, other: Sample, p: float | None) -> Pair:
    found = ratio_of_medians(other.values, one.values)
    verdict: Verdict = "cannot say"
    if p is not None and p < LEVEL and one.median != other.median:
        verdict = "better" if (other.median > one.median) == (one.better == "higher") else "worse"
    return Pair(
        cell=cell,
        metric=one.metric,
        unit=one.unit if one.unit == other.unit else "",
        better=one.better,
        runs=(len(one.values), len(other.values)),
        medians=(one.median, other.median),
        ratio=found and found.ratio,
        interval=found and found.interval,
        p=p,
        verdict=verdict,
    )


def _verdict(metric: str, pairs: Sequence[Pair]) -> MetricVerdict:
    better = [pair for pair in pairs if pair.verdict == "better"]
    worse = [pair for pair in pairs if pair.verdict == "worse"]
    verdict: Verdict = "cannot say"
    if better or worse:
        verdict = "mixed" if better and worse else "better" if better else "worse"
    count = f"{len(pairs)} cell{'' if len(pairs) == 1 else 's'}"
    few = sum(pair.p is None for pair in pairs)
    same = len(pairs) - len(better) - len(worse) - few
    parts = [f"{word} in {len(some)}{_by(some)}" for word, some in (("better", better), ("worse", worse)) if some]
    rest = [f"{same} without a significant difference"] if same else []
    rest += [f"{few} with fewer than five runs on a side"] if few else []
    text = (
        f"Of {count}, the second experiment is {' and '.join(parts)}"
        if parts
        else f"Of {count}, none shows which is better"
    )
    text += f" ({', '.join(rest)})" if rest else ""
    return MetricVerdict(metric=metric, verdict=verdict, sentence=f"{metric}: {verdict}. {text}.")


def _by(pairs: Sequence[Pair]) -> str:
    """By how much the medians differ: ` (medians -12.1 % to -10.3 %)`."""
    changes = sorted(100 * (pair.ratio - 1) for pair in pairs if pair.ratio is not None)
    if not changes:
        return ""
    least, most = changes[0], changes[-1]
    if f"{least:+.1f}" == f"{most:+.1f}":
        return f" (median {least:+.1f} %)"
    return f" (medians {least:+.1f} % to {most:+.1f} %)"
