"""The page of statistics: jobs of the last hour to the last 90 days, as charts and as numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.formats.plots import chart, scale
from headrace.formats.plots.chart import SERIES, SMALL, Axis
from headrace.service import jobs, service
from headrace.service.fields import Field, choice, of_query
from headrace.service.pages import html, view
from headrace.service.pages.job_view import Fact
from headrace.service.statistics import ATTRIBUTES, statistics
from headrace.wire.query.resource_sets import Given, SchedulerResources

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
# Spans by name: seconds of the span, seconds of a bin, and the length of a bin in words.
SPANS = {
    "1h": (_HOUR, _MINUTE, "a minute"),
    "6h": (6 * _HOUR, 5 * _MINUTE, "5 minutes"),
    "24h": (_DAY, 30 * _MINUTE, "half an hour"),
    "7d": (7 * _DAY, 2 * _HOUR, "2 hours"),
    "30d": (30 * _DAY, 12 * _HOUR, "12 hours"),
    "90d": (90 * _DAY, _DAY, "a day"),
}
_DEFAULT = "24h"
_FIELDS = (Field("span", choice(SPANS)),)
_RESULTS = ("completed", "failed", "canceled", "timeout")

router = APIRouter()


class Figure(NamedTuple):
    """A chart, and its numbers as a table. The first cell of a row is the name of the row."""

    title: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@router.get("/statistics")
async def show(request: Request) -> Response:
    here = service.of(request)
    chosen = of_query(request, _FIELDS).get("span", _DEFAULT)
    span, width, bin = SPANS[chosen]
    now = time.time()
    begin = _begin(now - span, width)
    found = statistics(await jobs.between(here.link, begin, now, ATTRIBUTES), begin, now, width, now)
    resources = SchedulerResources(Given(await here.link.call("resource.sched-status", {}, nodeid=0)))
    sizes = {kind: resources.count("all", kind, "") for kind in ("ncores", "nnodes")}
    return html.page(
        request,
        "statistics.html",
        spans=list(SPANS),
        chosen=chosen,
        facts=facts(found, sizes["ncores"]),
        figures=figures(found, sizes["ncores"], sizes["nnodes"], bin),
        begin=begin,
        end=now,
        sees_all=here.identity.sees_all,
    )


@router.get("/charts.css")
async def charts_css(request: Request) -> Response:
    of_query(request, ())
    return Response(chart.CSS, media_type="text/css")


def _begin(begin: float, width: float) -> float:
    """The start of the bin with this time. Bins are aligned to midnight in the service's time zone."""
    offset = time.localtime(begin).tm_gmtoff
    return (begin + offset) // width * width - offset


def facts(found: dict[str, Any], cores: int) -> list[Fact]:
    """The span in a few numbers."""
    rows = found["bins"]
    total = {name: sum(row[name] for row in rows) for name in ("submitted", "started", "ended", *_RESULTS)}
    shown = [Fact(f"Jobs {name}", str(total[name])) for name in ("submitted", "started", "ended")]
    if total["ended"]:
        ends = ", ".join(f"{total[name]} {name}" for name in _RESULTS if total[name])
        shown.append(Fact("Of these", ends))
    mean = _in_words(view.amount(_mean(found, "cores")))
    shown.append(Fact("Cores in use, on average", f"{mean} of {cores}"))
    if found["waits"]:
        longest = max(one["max"] for one in found["waits"])
        shown.append(Fact("Longest wait", _in_words(view.elapsed(longest))))
    return shown


def figures(found: dict[str, Any], cores: int, nodes: int, bin: str) -> list[Figure]:
    """The charts of `found`, a result of `statistics`, on a machine with so many cores and nodes."""
    mean = view.amount(_mean(found, "cores"))
    most = {name: view.amount(max(row[name] for row in found["bins"])) for name in ("cores", "running", "pending")}
    about = f"Of {cores} cores {mean} were in use on average, {most['cores']} at most."
    ended = sum(row["ended"] for row in found["bins"])
    return [
        _over_time(
            "Utilisation",
            about,
            found,
            {"cores": lambda row: _share(row["cores"], cores), "nodes": lambda row: _share(row["nodes"], nodes)},
            "% in use",
            units=" (%)",
            stacked=False,
        ),
        _over_time(
            "Jobs by state",
            f"Jobs at a time: at most {most['running']} ran, and {most['pending']} waited.",
            found,
            {name: itemgetter(name) for name in ("running", "pending")},
            "jobs",
        ),
        _over_time(
            "Throughput",
            f"Jobs that ended, by their results: {ended}.",
            found,
            {name: itemgetter(name) for name in _RESULTS},
            f"jobs in {bin}",
        ),
        _waits(found["waits"]),
    ]


def _over_time(
    title: str,
    about: str,
    found: dict[str, Any],
    values: dict[str, Callable[[dict[str, Any]], float]],
    label: str,
    units: str = "",
    stacked: bool = True,
) -> Figure:
    """A chart of values over the bins. `label` is the label of the value axis.

    `units` is appended to the names of the table's columns.
    """
    draw = chart.area if stacked else chart.line
    ends = [*(row["t"] for row in found["bins"][1:]), found["to"]]
    series = [
        chart.Series(name, [(at, of(row)) for row, end in zip(found["bins"], ends) for at in (row["t"], end)])
        for name, of in values.items()
    ]
    time_axis = Axis("time", scale.clock, scale.clock_ticks)
    rows = [
        (view.moment(row["t"]), *(view.amount(of(row)) for of in values.values())) for row in reversed(found["bins"])
    ]
    columns = ["From", *(name.capitalize() + units for name in values)]
    return Figure(title, draw(title, about, series, time_axis, Axis(label), SMALL), columns, rows)


def _waits(waits: list[dict[str, Any]]) -> Figure:
    """The median wait by size, with a bar for each queue.

    The chart has the queues with the most jobs, as many as there are colours.
    """
    counts: dict[str, int] = {}
    for one in waits:
        counts[one["queue"]] = counts.get(one["queue"], 0) + one["count"]
    queues = sorted(sorted(counts, key=lambda queue: -counts[queue])[:SERIES])
    sizes = sorted({one["size"] for one in waits if one["queue"] in queues})
    medians = {(one["queue"], one["size"]): one["median"] for one in waits}
    title = "Waits by queue and size"
    about = "No job started."
    if waits:
        longest = view.elapsed(max(one["max"] for one in waits))
        about = f"How long jobs that started had waited, by their cores; the longest {longest}."
    given = [(queue, [medians.get((queue, size), 0.0) for size in sizes]) for queue in queues]
    svg = chart.bars(
        title, about, [_size(size) for size in sizes], given, "cores of a job", Axis("median", scale.length), SMALL
    )
    rows = [
        (
            f"{one['queue'] or 'all jobs'}, {_size(one['size'])} cores",
            str(one["count"]),
            *(view.elapsed(one[name]) for name in ("median", "p90", "max")),
        )
        for one in waits
    ]
    return Figure(title, svg, ["Queue and size", "Jobs", "Median", "9 of 10 within", "Longest"], rows)


def _size(cores: int) -> str:
    """The range of sizes up to this power of two."""
    return str(cores) if cores <= 2 else f"{cores // 2 + 1}–{cores}"


def _in_words(amount: str) -> str:
    return amount.replace("<", "less than ")


def _mean(found: dict[str, Any], name: str) -> float:
    """The average of a level over the span, weighted because the last bin may be shorter."""
    total = sum(row[name] * min(found["bin"], found["to"] - row["t"]) for row in found["bins"])
    mean: float = total / (found["to"] - found["from"])
    return mean


def _share(part: float, total: int) -> float:
    return 100.0 * part / total if total else 0.0
