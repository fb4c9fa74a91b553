"""The screen of `flux top` as pieces of text with positions, and the file of --test-exit-dump.

No I/O here.

The layout adapts to the width of the terminal from 62 columns. In a smaller terminal it is truncated.
"""

from __future__ import annotations

import math

from headrace.cli.jobs.columns import visible
from headrace.formats.spec import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, NamedTuple, Sequence

    from headrace.cli.top.view import Use, View
    from headrace.wire.query.job_info import JobInfo

    class Piece(NamedTuple):
        """Text at a row and column, with styles from STYLES."""

        row: int
        column: int
        text: str
        styles: Sequence[str] = ()

    class Signs(NamedTuple):
        """Symbols for an instance, a heartbeat, no expiration, the remaining time, and omitted text."""

        instance: str
        heart: str
        endless: str
        clock: str
        more: str

else:
    from collections import namedtuple

    Piece = namedtuple("Piece", "row column text styles", defaults=((),))
    Signs = namedtuple("Signs", "instance heart endless clock more")

STYLES = ("yellow", "red", "green", "blue", "bold", "dim", "reverse")
UNICODE = Signs("ƒ", "♡", "∞", "⌚", "…")
# For locales that lack these characters.
ASCII = Signs("f", "*", "inf", " left", "...")

_NARROWEST = 62
# The row of the header of the job list.
LIST_ROW = 6


def pieces(view: View, now: float, rows: int, columns: int, signs: Signs) -> Iterator[Piece]:
    """All pieces of a screen of this size at `now`, in seconds since the epoch.

    Later pieces cover earlier ones.
    """
    width = max(columns, _NARROWEST)
    yield from _head(view, now, width, signs)
    for row, use in enumerate(view.uses(), 1):
        yield from _bar(row, 4, min(36, width - 42), use)
    yield from _numbers(view, width)
    yield from _foot(view, now, width)
    yield from _list(view, now, rows, width)
    if view.message:
        yield from _popup(view.message, rows, width)


def _head(view: View, now: float, width: int, signs: Signs) -> Iterator[Piece]:
    yield Piece(0, 0, signs.instance, ("yellow",))
    remaining = view.instance.expiration - now
    end = f"{_short(remaining)}{signs.clock}" if remaining > 0 else signs.endless
    yield Piece(0, width - 1 - len(end), end)
    title, room = view.instance.title, width - 6 - 12
    if len(title) > room:
        title = signs.more + title[len(title) - room + len(signs.more) :]
    yield Piece(0, 6 + (room - len(title)) // 2, title, ("blue", "bold"))


def _bar(row: int, column: int, length: int, use: Use) -> Iterator[Piece]:
    """`name [||||||    ||3/8]`: used resources from the left, down resources from the right."""
    prefix, suffix = f"{use.kind:>5} [", f"{min(use.used, use.total)}/{use.total}]"
    slots = max(length - len(prefix) - len(suffix), 0)
    yield Piece(row, column, f"{prefix}{'':{slots}}{suffix}")
    start = column + len(prefix)
    for number, style in ((min(use.used, use.total), "yellow"), (use.down, "red")):
        # Rounded up, so that a single used or down resource among very many is visible.
        length = math.ceil(number / use.total * slots) if use.total else 0
        yield Piece(row, start if style == "yellow" else start + slots - length, "|" * length, (style,))


def _numbers(view: View, width: int) -> Iterator[Piece]:
    column = width - 20
    yield Piece(1, column, f"{view.pending():5} pending")
    yield Piece(2, column, f"{view.running():5} running")
    if not view.ended_in_detail:
        yield Piece(3, column, f"{view.counts()['inactive']:5} inactive")
        return
    good, bad = view.counts()["successful"], view.unsuccessful()
    yield Piece(3, column - 18, f"{good:6}", ("green", "bold") if good else ())
    yield Piece(3, column - 12, " complete, ")
    yield Piece(3, column - 1, f"{bad:6}", ("red", "bold") if bad else ())
    yield Piece(3, column + 5, " failed")


def _foot(view: View, now: float, width: int) -> Iterator[Piece]:
    instance = view.instance
    yield Piece(5, 1, f"size: {instance.size}", ("dim",))
    if instance.level:
        yield Piece(5, 14, f"depth: {instance.level}", ("dim",))
    yield Piece(5, 31, f"uptime: {_short(abs(now - instance.started))}", ("dim",))
    yield Piece(5, width - 1 - len(instance.version), instance.version, ("dim",))


def heart(columns: int, signs: Signs) -> Piece:
    """The symbol of a heartbeat, at the right edge below the numbers of jobs."""
    return Piece(3, max(columns, _NARROWEST) - 3, signs.heart)


def _list(view: View, now: float, rows: int, width: int) -> Iterator[Piece]:
    queue = f" {'QUEUE':>8}" if view.has_queues else ""
    header = f"{'JOBID':>13}{queue} {'USER':>8} ST NTASKS NNODES RUNTIME NAME"
    yield Piece(LIST_ROW, 0, f"{header:<{width}}", ("reverse",))
    jobs = view.shown_jobs()
    if view.queue and not jobs:
        yield Piece(LIST_ROW + 5, 25, f"No jobs to display in queue {view.queue}")
    for row, job in enumerate(_window(view, jobs, rows - LIST_ROW - 1), LIST_ROW + 1):
        styles = [*(("reverse",) if job.id == view.selected else ()), *(("blue", "bold") if job.get("uri") else ())]
        yield Piece(row, 0, _row(view, job, now)[:width], styles)


def _window(view: View, jobs: List[JobInfo], room: int) -> List[JobInfo]:
    """The part of the jobs that fits on the screen and includes the selected job."""
    place = next((index for index, job in enumerate(jobs) if job.id == view.selected), 0)
    first = max(0, place - max(room, 1) + 1)
    return jobs[first : first + max(room, 0)]


def _row(view: View, job: JobInfo, now: float) -> str:
    get = visible(job)
    queue = f" {get('queue'):>8.8}" if view.has_queues else ""
    return (
        f"{get('id.f58'):>13.13}{queue} {get('username'):>8.8} {get('state_single'):>2.2} {get('ntasks'):>6} "
        f"{get('nnodes'):>6} {_short(abs(now - job.raw['t_run'])):>7.7} {get('name')}"
    )


def _popup(message: str, rows: int, width: int) -> Iterator[Piece]:
    """A box with a message, drawn over the list."""
    inner = width - 8
    lines = [line[at : at + inner] for line in message.split("\n") for at in range(0, max(len(line), 1), inner)]
    top = max(0, min(LIST_ROW + 2, rows - len(lines) - 2))
    rule = "+" + "-" * (inner + 2) + "+"
    for row, text in enumerate([rule, *[f"| {line:<{inner}} |" for line in lines], rule], top):
        yield Piece(row, 2, text)


def _short(seconds: float) -> str:
    return duration.encode(seconds, 2)


def dump(view: View, now: float) -> str:
    """The content of the screen as lines for scripts."""
    counts = view.counts()
    lines = [f"{view.pending()} pending", f"{view.running()} running"]
    if view.ended_in_detail:
        lines += [f"{counts['successful']} complete", f"{view.unsuccessful()} failed"]
    else:
        lines.append(f"{counts['inactive']} inactive")
    lines += [f"{use.kind} {min(use.used, use.total)}/{use.total}" for use in view.uses()]
    lines += [" ".join(_row(view, job, now).split()) for job in view.shown_jobs()]
    return "".join(f"{line}\n" for line in lines)
