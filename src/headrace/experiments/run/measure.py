"""What a run's files say: its metrics, and whether it was good."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from headrace.experiments.values import Check, Metric

from .search import Searcher, SearchError

# Bytes of a JSON file that is read for a metric.
_MOST_JSON = 64 << 20


class Unmet(Exception):
    """A run has no value for a metric; the message says why."""


def measure(metrics: tuple[Metric, ...], folder: Path, searcher: Searcher) -> tuple[dict[str, float], list[str]]:
    """The metrics that a run's files have, by name, and a sentence for each required metric that is missing."""
    found: dict[str, float] = {}
    missing = []
    for metric in metrics:
        try:
            found[metric.name] = _value(metric, folder, searcher)
        except Unmet as exc:
            if metric.required:
                missing.append(f"metric {metric.name}: {exc}")
    return found, missing


def check(wanted: Check, status: int, folder: Path, searcher: Searcher) -> str:
    """Why a run that exited with `status` is not good; "" if it is."""
    if status != wanted.exit:
        return f"exit {status}" + (f" instead of {wanted.exit}" if wanted.exit else "")
    if wanted.regex:
        try:
            if searcher.last(wanted.regex, folder / "stdout") is None:
                return f"check: no match of {wanted.regex!r} in stdout"
        except SearchError as exc:
            return f"check: {exc}"
    return ""


def _value(metric: Metric, folder: Path, searcher: Searcher) -> float:
    path = folder / metric.source
    if not path.is_file():
        raise Unmet(f"the run left no file {metric.source}")
    if metric.json:
        return _number(_at(metric.json, _json(path, metric.source), metric.source), f"{metric.json} in {metric.source}")
    try:
        text = searcher.last(metric.regex, path)
    except SearchError as exc:
        raise Unmet(str(exc)) from None
    if text is None:
        raise Unmet(f"no match of {metric.regex!r} in {metric.source}")
    return _number(text, f"the match of {metric.regex!r} in {metric.source}")


def _number(value: Any, where: str) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise Unmet(f"{where} is not a number: {str(value)[:60]!r}")
    return number


def _json(path: Path, name: str) -> Any:
    """The JSON value of a file, or of its last line that is an object or array: programs print other lines first."""
    if path.stat().st_size > _MOST_JSON:
        raise Unmet(f"{name} is larger than {_MOST_JSON >> 20} MiB")
    text = path.read_text(encoding="utf-8", errors="replace")
    for part in (text, *(line for line in reversed(text.splitlines()) if line[:1] in ("{", "["))):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    raise Unmet(f"{name} has no JSON")


def _at(where: str, value: Any, name: str) -> Any:
    """The value at a path such as `timing.loop.0`: keys of objects and indices of arrays, divided by dots."""
    for key in where.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise Unmet(f"no {where} in the JSON of {name}")
    return value
