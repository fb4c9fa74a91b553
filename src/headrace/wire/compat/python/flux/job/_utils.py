"""Parsing of command-line values, for programs with the options of `flux run` for signals and times."""

from __future__ import annotations

from typing import Union

from headrace.formats.spec import duration, jobspec_build

__all__ = ["decode_duration", "decode_signal"]


def decode_duration(value: Union[str, float]) -> float:
    """The seconds of a number or a Flux standard duration (RFC 23). Raises ValueError."""
    if isinstance(value, str):
        return duration.parse(value)
    if isinstance(value, (int, float)) and value >= 0:
        return float(value)
    raise ValueError(f"invalid duration {value!r}: give seconds, or a Flux standard duration such as 1.5h")


def decode_signal(value: Union[str, int]) -> int:
    """The number of a signal given as `USR1`, `SIGUSR1`, `"10"` or 10. Raises ValueError."""
    return jobspec_build.signal_number(str(value))
