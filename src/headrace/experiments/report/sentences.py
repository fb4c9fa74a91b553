"""The summary of an experiment in three sentences: what ran, what came out, and how far it can be trusted."""

from __future__ import annotations

from headrace.experiments.report.summary import CellSummary, Drifted, Sample, ScalingSeries, Summary, without_interval
from headrace.formats.plots import scale

# A drift is mentioned if chance alone would rarely make it (p-value), and if it is large enough to matter.
_DRIFT_P, _DRIFT_CHANGE = 0.01, 0.01


def sentences(summary: Summary) -> list[str]:
    """Three sentences."""
    return [_what_ran(summary), _what_came_out(summary), _how_far(summary)]


def amount(value: float, unit: str) -> str:
    """A number with its unit: `3.21 s`, `12.5`."""
    return f"{scale.measured(value)} {unit}".rstrip()


def between(interval: tuple[float, float] | None, unit: str = "") -> str:
    """An interval: `3.1 to 3.3 s`; "" for none."""
    if interval is None:
        return ""
    digits = scale.digits(*interval)
    return f"{scale.measured(interval[0], digits)} to {scale.measured(interval[1], digits)} {unit}".rstrip()


def counted(count: int, one: str) -> str:
    """A number of things: `1 run`, `3 runs`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def _what_ran(summary: Summary) -> str:
    where = sorted({cell.target for cell in summary.cells})
    text = f"{summary.name}: {summary.runs:,} of {counted(summary.planned, 'planned run')} in "
    text += f"{counted(len(summary.cells), 'cell')} on {', '.join(where)} "
    text += "have ended so far" if summary.is_running else "ended"
    if summary.runs:
        text += f" within {scale.length(max(0.0, summary.ended - summary.started))}"
    if summary.cost is not None:
        text += f", at a cost of {scale.figure(summary.cost)}"
    failed = f"{summary.failed:,} of them failed" if summary.failed else "none failed"
    return f"{text}; {failed}." if summary.runs else f"{text}."


def _what_came_out(summary: Summary) -> str:
    if not summary.metrics:
        return "No run has completed, so there is nothing to measure."
    metric = summary.metrics[0]
    series = [one for one in summary.scaling if one.metric == metric]
    if series:
        return _scaled(summary, max(series, key=lambda one: one.points[-1].speedup), len(series))
    measured = [(cell, cell.samples[metric]) for cell in summary.cells if metric in cell.samples]
    higher = measured[0][1].better == "higher"
    best, sample = (max if higher else min)(measured, key=lambda one: one[1].median)
    others = f", the best of {len(measured)} cells" if len(measured) > 1 else ""
    return f"The median of {metric} is {_median(sample)} in {best.id}{others}."


def _scaled(summary: Summary, best: ScalingSeries, count: int) -> str:
    first, last = best.points[0], best.points[-1]
    unit = _sample_of(summary, last.cell, best.metric).unit
    text = f"The median of {best.metric} of {best.name} goes from {amount(first.median, unit)} at size {first.size} to "
    text += f"{amount(last.median, unit)} at size {last.size}: a speed-up of {last.speedup:.3g}, "
    text += f"which is an efficiency of {100 * last.efficiency:.0f} %"
    return text + (f" (the highest speed-up of {count} series)." if count > 1 else ".")


def _sample_of(summary: Summary, cell: str, metric: str) -> Sample:
    return next(one for one in summary.cells if one.id == cell).samples[metric]


def _median(sample: Sample) -> str:
    if sample.interval is None:
        return amount(sample.median, sample.unit)
    return f"{amount(sample.median, sample.unit)} (95 % interval {between(sample.interval, sample.unit)})"


def _how_far(summary: Summary) -> str:
    few = without_interval(summary)
    parts = []
    if few == len(summary.cells):
        parts.append("No cell has five completed runs, so no medians have intervals")
    elif few:
        parts.append(
            f"{counted(few, 'cell')} of {len(summary.cells)} with fewer than five completed runs have no interval"
        )
    else:
        parts.append("All medians have 95 % intervals")
    tested = [one for one in summary.drifts if one.drift is not None]
    moved = [one for one in tested if drifts(one)]
    if moved:
        parts.append(f"values drifted while the experiment ran ({', '.join(map(_drift, moved))})")
    elif tested:
        parts.append("no drift was found while the experiment ran")
    else:
        parts.append("drift was not tested")
    return f"{'; '.join(parts)}."


def drifts(one: Drifted) -> bool:
    """True if a metric drifted by more than chance and 1 % explain."""
    if one.drift is None or one.drift.p >= _DRIFT_P:
        return False
    return one.drift.change is None or abs(one.drift.change) >= _DRIFT_CHANGE


def _drift(one: Drifted) -> str:
    change = one.drift.change if one.drift else None
    return one.metric if change is None else f"{one.metric} by {100 * change:+.1f} %"


def few_runs(cell: CellSummary, sample: Sample) -> str:
    """What a table says instead of an interval: `4 runs: none`."""
    return f"{counted(len(sample.values), 'run')}: none"
