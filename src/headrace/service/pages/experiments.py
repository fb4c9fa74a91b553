"""The pages of experiments: how far they are, their cells, runs and failures, and their reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.experiments.store.status import Status
from headrace.experiments.values import Result
from headrace.formats.plots import scale
from headrace.service import service
from headrace.service.experiments import Listed
from headrace.service.fields import of_query
from headrace.service.pages import html, view

# Runs in the table, the last ones that began.
SHOWN = 100
# Cells in the table.
_MOST_CELLS = 500
# Words of a state for the styles of pages, and shapes, so that colour is not the only sign of a state.
_STATES = {"running": ("running", "▶"), "interrupted": ("pending", "◌"), "complete": ("completed", "✔")}
_RUN_SHAPES = {"completed": "✔", "failed": "✖", "timeout": "◷", "cancelled": "⊘", "lost": "✖"}
# A report is text of programs in a page with styles of its own. `sandbox` gives it an origin of its own without
# scripts and forms (CSP Level 3), so it has no access to the session of its reader.
_REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
}

router = APIRouter()


class Progress(NamedTuple):
    """An experiment as texts. `row` has the fields that the macro `status` reads."""

    name: str
    folder: str
    address: str
    row: State
    planned: int
    done: int
    failed: int


class State(NamedTuple):
    kind: str
    shape: str
    status: str
    state: str = ""


class Run(NamedTuple):
    """A run as texts. `lines` are the last ones of its output, of a failed run."""

    name: str
    row: State
    reason: str
    metrics: str
    started: float
    time: str
    nodes: str
    lines: str = ""


@router.get("/experiments")
async def show_all(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    found = await here.experiments.listing(here.identity)
    return html.page(
        request, "experiments.html", experiments=[_progress(one) for one in found.experiments], problems=found.problems
    )


@router.get("/experiments/{experiment:path}/report.html")
async def report(request: Request, experiment: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    text = await here.experiments.report(here.identity, experiment)
    return Response(text, headers=_REPORT_HEADERS, media_type="text/html")


@router.get("/experiments/{experiment:path}")
async def show(request: Request, experiment: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    found = await here.experiments.one(here.identity, experiment)
    failures = zip(reversed(found.status.failures), reversed(found.last_lines))
    return html.page(
        request,
        "experiment.html",
        progress=_progress(Listed(found.folder, found.status)),
        cells=found.status.cells[:_MOST_CELLS],
        more_cells=len(found.status.cells) - _MOST_CELLS,
        failures=[run(result, lines) for result, lines in failures],
        more_failures=found.status.failed - len(found.status.failures),
        runs=[run(result) for result in reversed(found.runs[-SHOWN:])],
        more_runs=len(found.runs) - SHOWN,
        has_report=found.has_report,
    )


def _progress(one: Listed) -> Progress:
    status: Status = one.status
    kind, shape = _STATES[status.state]
    return Progress(
        view.clipped(status.name, view.LONGEST_NAME),
        one.folder,
        f"/experiments/{quote(one.folder)}",
        State(kind, shape, status.state),
        status.planned,
        status.done,
        status.failed,
    )


def run(result: Result, lines: Sequence[str] = ()) -> Run:
    kind = {"completed": "completed", "cancelled": "canceled"}.get(result.state, "failed")
    metrics = ", ".join(f"{name} {scale.measured(value)}" for name, value in result.metrics.items())
    name = f"{result.cell}/{result.number}" + (" (warm-up)" if result.warmup else "")
    return Run(
        name,
        State(kind, _RUN_SHAPES[result.state], result.state),
        view.clipped(result.reason),
        view.clipped(metrics),
        result.started,
        view.elapsed(result.ended - result.started) if result.ended > result.started else "",
        view.clipped(result.nodes, view.LONGEST_NAME),
        "\n".join(lines),
    )
