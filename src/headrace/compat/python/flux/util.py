"""Durations as Flux writes them (RFC 23)."""

from __future__ import annotations

from headrace.spec import duration


def parse_fsd(text: str) -> float:
    """Seconds of a Flux standard duration; ValueError when it is none."""
    return duration.parse(text)


def fsd(seconds: float) -> str:
    return duration.encode(seconds)
