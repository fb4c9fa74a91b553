"""The method `report`: who has used how much, against their shares, as text, JSON, or a page with charts."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from headrace.engine.accounting.fair_share import read_tree
from headrace.engine.accounting.records import ended_jobs, point_in_time
from headrace.engine.accounting.requests import Payload
from headrace.engine.accounting.usage import weights
from headrace.formats.plots import page
from headrace.formats.plots.chart import Axis, Series, area, bars, box, quartiles
from headrace.formats.plots.scale import clock, clock_ticks, length
from headrace.sched.accounting import tables
from headrace.sched.accounting.report import Report, report
from headrace.storage.database import Database

_HOUR = 3600.0
_MONTH = 30 * 86400.0
# Banks in charts; the tables have all.
_CHARTED = 6
# The equal parts of the time for which usage is added up, if a request names no other number.
_PARTS, _MOST_PARTS = 60, 1000


def show_report(database: Database, payload: Payload) -> str:
    """Report the jobs that ran between `from` and `to`, by default the last 30 days. Raises ValueError."""
    end = point_in_time(payload["to"]) if payload.get("to") else time.time()
    start = point_in_time(payload["from"]) if payload.get("from") else end - _MONTH
    names = {userid: user for userid, user in database.rows("SELECT userid, username FROM association_table")}
    jobs = [job for job in ended_jobs(database, {"ended_after": start, "started_before": end}, names) if job.bank]
    parts = payload.get("parts") or _PARTS
    if not isinstance(parts, int) or not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"parts: {parts!r} is not a number from 1 to {_MOST_PARTS}")
    found = report(read_tree(database), jobs, start, end, weights(database), parts)
    if payload.get("json"):
        return _json(found)
    return _page(found) if payload.get("html") else _text(found)


def _json(found: Report) -> str:
    """The values of a report, with the fields of Report, BankUsage and UserUsage."""
    rows = {name: [each._asdict() for each in getattr(found, name)] for name in ("banks", "users")}
    return msgspec.json.encode({**found._asdict(), **rows}).decode()


def _sections(found: Report) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """The tables of a report: title, columns and rows."""
    return [
        (
            "Usage against shares",
            ("bank", "shares", "usage", "usage in h", "jobs"),
            [
                [
                    " " * each.depth + each.bank,
                    _percent(each.entitled),
                    _percent(each.part),
                    _hours(each.usage),
                    str(each.jobs),
                ]
                for each in found.banks
            ],
        ),
        (
            "Users who used most",
            ("user", "usage", "usage in h", "jobs"),
            [[each.username, _percent(each.part), _hours(each.usage), str(each.jobs)] for each in found.users],
        ),
        ("Waits by bank", _WAITS, [_wait(*each) for each in found.waits_by_bank if each[1]]),
        ("Waits by size", ("nodes", *_WAITS[1:]), [_wait(*each) for each in found.waits_by_size if each[1]]),
    ]


_WAITS = ("bank", "jobs", "median", "three quarters", "longest")


def _wait(name: str, waits: Sequence[float]) -> list[str]:
    _, _, median, third, longest = quartiles(waits)
    return [name, str(len(waits)), length(median), length(third), length(longest)]


def _hours(usage: float) -> str:
    return f"{usage / _HOUR:.2f}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _about(found: Report) -> str:
    first, last = (time.strftime("%Y-%m-%d %H:%M", time.localtime(each)) for each in (found.start, found.end))
    return f"Jobs that ran from {first} to {last}: {_hours(found.usage)} h of usage."


def _text(found: Report) -> str:
    parts = [_about(found)]
    parts += [f"{title}\n{tables.as_table(columns, lines)}" for title, columns, lines in _sections(found) if lines]
    return "\n\n".join(parts)


def _page(found: Report) -> str:
    charts: dict[str, list[str]] = {
        "Usage against shares": [_shares_chart(found), _time_chart(found)],
        "Waits by bank": [_waits_chart("Waits by bank", "bank", found.waits_by_bank[:_CHARTED])],
        "Waits by size": [_waits_chart("Waits by size", "nodes of a job", found.waits_by_size)],
    }
    parts = []
    for title, columns, lines in _sections(found):
        if lines:
            parts += [
                page.heading(title),
                *charts.get(title, ()),
                page.table(columns, [[_indented(name), *cells] for name, *cells in lines]),
            ]
    if found.over_time:
        parts += [page.heading("Usage over time"), _time_table(found)]
    return page.page("Usage of banks and users", _about(found), parts)


def _indented(name: str) -> str:
    """A name whose leading blanks a browser shows."""
    plain = name.lstrip(" ")
    return "\N{EM SPACE}" * (len(name) - len(plain)) + plain


def _shares_chart(found: Report) -> str:
    shown = [each for each in found.banks if each.depth == 1][:_CHARTED]
    return bars(
        "Usage against shares",
        "The part of each bank by its shares, and the part that it used.",
        [each.bank for each in shown],
        [("shares", [100 * each.entitled for each in shown]), ("usage", [100 * each.part for each in shown])],
        "bank",
        Axis("percent"),
    )


def _time_chart(found: Report) -> str:
    largest = sorted(found.over_time, key=lambda each: -sum(each[1]))[:_CHARTED]
    series = [
        Series(bank, list(zip(found.edges, (value / _HOUR for value in values)))) for bank, values in sorted(largest)
    ]
    return area(
        "Usage over time",
        "The usage of each bank in equal parts of the time.",
        series,
        Axis("time", clock, clock_ticks),
        Axis("usage in h"),
    )


def _time_table(found: Report) -> str:
    lines = [
        [time.strftime("%Y-%m-%d %H:%M", time.localtime(edge)), *(_hours(values[at]) for _, values in found.over_time)]
        for at, edge in enumerate(found.edges[:-1])
    ]
    return page.table(["from", *(bank for bank, _ in found.over_time)], lines)


def _waits_chart(title: str, x: str, waits: Sequence[tuple[str, Sequence[float]]]) -> str:
    longest = max((wait for _, values in waits for wait in values), default=0.0)
    about = f"How long jobs waited before they started; the longest wait is {length(longest)}."
    return box(title, about, waits, x, Axis("wait", length))
