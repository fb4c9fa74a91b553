"""Job dependencies (RFC 26): from {scheme, value} in a jobspec to a condition. Pure.

The description in a dependency-add event contains the whole condition, so a restart reads conditions from the eventlog.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import COMPLETED

_SCHEMES = {
    "after": "after-start",
    "afterstart": "after-start",
    "afterany": "after-finish",
    "afterok": "after-success",
    "afternotok": "after-failure",
    "afterexcept": "after-except",
}
_KINDS = frozenset(_SCHEMES.values())
SINGLETON = "singleton"
_BEGIN = "begin-time"
# The last second of the year 9999, which most calendars can represent.
_LAST = 253_402_300_799.0


class DependencyError(ValueError):
    """A dependency that is invalid or cannot be met; the text names its scheme and the reason."""


class Need(NamedTuple):
    """A condition of a job: another job (`job` > 0), a begin time (`time` > 0), or its turn (singleton)."""

    description: str
    kind: str
    job: int
    time: float


def parse(dependency: dict[str, Any]) -> Need:
    """The need of one element of `attributes.system.dependencies`; raises DependencyError."""
    scheme, value = dependency["scheme"], dependency["value"]
    kind = _SCHEMES.get(scheme)
    if kind is not None:
        try:
            antecedent = jobid.parse(value)
        except ValueError:
            raise DependencyError(f'dependency: {scheme}: "{value}" is not a valid jobid') from None
        if not antecedent:
            raise DependencyError(f"dependency: {scheme}: job not found: {value}")
        # The id keeps the form that the user gave it, as in Flux.
        return Need(f"{kind}={value}", kind, antecedent, 0.0)
    if scheme == _BEGIN:
        try:
            when = float(value)
        except ValueError:
            raise DependencyError(
                f"dependency: begin-time: {value!r} is not a time in seconds since the epoch"
            ) from None
        if not 0 < when < float("inf"):
            raise DependencyError(f"dependency: begin-time: {value!r} is not a time after the epoch")
        if when > _LAST:
            raise DependencyError(f"dependency: begin-time: {value!r} is after the year 9999")
        return Need(f"{_BEGIN}={when:.3f}", _BEGIN, 0, when)
    if scheme == SINGLETON:
        return Need(SINGLETON, SINGLETON, 0, 0.0)
    raise DependencyError(f'dependency scheme "{scheme}" not supported')


def from_description(description: str) -> Need | None:
    """The condition in a dependency-add event; None for a dependency that another service removes."""
    if description == SINGLETON:
        return Need(description, SINGLETON, 0, 0.0)
    kind, _, value = description.partition("=")
    try:
        if kind in _KINDS:
            return Need(description, kind, jobid.parse(value), 0.0)
        if kind == _BEGIN:
            return Need(description, kind, 0, float(value))
    except ValueError:
        pass
    return None


def verdict(kind: str, started: bool, result: int | None, excepted: bool) -> bool | None:
    """Whether a condition on another job is met; None if undecided.

    `result` is None while that job is active. Only afterany is met by a job that never started, so canceling one job of
    an afternotok chain ends the chain.
    """
    if kind == "after-start" and started:
        return True
    if result is None:
        return None
    if kind == "after-finish":
        return True
    if kind == "after-success":
        return result == COMPLETED
    if kind == "after-except":
        return started and excepted
    return started and result != COMPLETED if kind == "after-failure" else False


def refusal(kind: str, antecedent: int) -> str:
    """Why a condition can no longer be met."""
    why = {
        "after-success": "failed or was canceled",
        "after-failure": "completed successfully or never started",
        "after-except": "had no fatal exception or never started",
    }.get(kind, "will never start")
    scheme = {"after-success": "afterok", "after-failure": "afternotok", "after-except": "afterexcept"}.get(
        kind, "afterstart"
    )
    return f"dependency: {scheme}: job {jobid.encode(antecedent)} {why}"
