"""The routes of `/v2` about experiments."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.experiments.store.status import Status
from headrace.service import service
from headrace.service.fields import Field, of_query, whole_number
from headrace.service.rest.v2 import fields

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])

_PAGE, _LARGEST_PAGE = 1000, 10_000
_MOST_RUNS = 10_000_000
_PART = (
    Field("start", whole_number(0, _MOST_RUNS), {"type": "integer"}, "Leave out the first runs (default: 0)"),
    Field("limit", whole_number(1, _LARGEST_PAGE), {"type": "integer"}, f"At most this many runs (default: {_PAGE})"),
)


@router.get("/experiments", summary="Experiments, and how far they are")
async def list_experiments(request: Request) -> Response:
    of_query(request, ())
    here = service.of(request)
    found = await here.experiments.listing(here.identity)
    listed = [{"folder": one.folder, **_progress(one.status)} for one in found.experiments]
    return service.as_json({"experiments": listed, "problems": found.problems})


@router.get(
    "/experiments/{experiment:path}",
    summary="An experiment: its cells, failures and runs, by its folder",
    openapi_extra={"parameters": fields.parameters(_PART)},
)
async def get_experiment(request: Request, experiment: str) -> Response:
    """`next` is the `start` of the next page of runs. A run that ends late comes between the runs of earlier pages."""
    chosen = of_query(request, _PART)
    here = service.of(request)
    found = await here.experiments.one(here.identity, experiment)
    start = chosen.get("start", 0)
    end = start + chosen.get("limit", _PAGE)
    failures = zip(found.status.failures, found.last_lines)
    return service.as_json(
        {
            **{"folder": found.folder, **_progress(found.status), "has_report": found.has_report},
            "cells": found.status.cells,
            "failures": [{"run": run, "last_lines": lines} for run, lines in failures],
            "runs": found.runs[start:end],
            "next": end if end < len(found.runs) else None,
        }
    )


def _progress(status: Status) -> dict[str, Any]:
    wanted = ("name", "state", "planned", "done", "failed")
    return {name: value for name, value in msgspec.structs.asdict(status).items() if name in wanted}
