"""The constraint operators of RFC 43, as functions that test a job. Pure.

A constraint is compiled once for each request. The result includes the job states that can match at all, so that a
listing of active jobs never reads finished ones, however many there are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.modules.job_list.record import Job
from headrace.spec.hostlist import Hostlist, HostlistError
from headrace.spec.idset import Idset, IdsetError
from headrace.spec.job_state import ACTIVE, INACTIVE, NEW, RESULT_BITS, STATE_BITS, STATE_MASKS
from headrace.spec.message import USERID_UNKNOWN

Test = Callable[[Job], bool]

ALL_STATES = 127
_STATE_NAMES = {"new": NEW, **STATE_BITS, **STATE_MASKS, "active": NEW | ACTIVE}
_MAX_DEPTH = 32
# A longer list of hosts or ranks in a constraint would make every comparison slow.
_MAX_NAMES = 4096
_TIMES = ("t_submit", "t_depend", "t_run", "t_cleanup", "t_inactive")
_COMPARE = ((">=", operator.ge), ("<=", operator.le), (">", operator.gt), ("<", operator.lt))


class MatchError(ValueError):
    """An invalid constraint (RFC 43); the text names the operator or value."""


class Match(NamedTuple):
    """A compiled constraint: `test(job)`, None if it matches every job, and the states that can match (a bit set)."""

    test: Test | None
    states: int = ALL_STATES


_EVERY_JOB = Match(None)


def compiled(constraint: Any) -> Match:
    """The constraint of a request; None matches every job. Raises MatchError."""
    return _EVERY_JOB if constraint is None else _compile(constraint, 0)


def _compile(constraint: Any, depth: int) -> Match:
    if not isinstance(constraint, dict):
        raise MatchError("constraint must be JSON object")
    if depth > _MAX_DEPTH:
        raise MatchError(f"constraint is nested deeper than {_MAX_DEPTH}")
    tests: list[Test] = []
    states = ALL_STATES
    for op, values in constraint.items():
        if not isinstance(values, list):
            raise MatchError(f"operator {op} values not an array")
        part = _operator(op, values, depth)
        states &= part.states
        if part.test is not None:
            tests.append(part.test)
    return Match(_all(tests), states)


def _operator(op: str, values: list[Any], depth: int) -> Match:
    if op in ("and", "or", "not"):
        parts = [_compile(value, depth + 1) for value in values]
        tests = [part.test for part in parts if part.test is not None]
        if op == "or":
            return _either(parts, tests)
        both = _all(tests)
        if op == "not":
            return Match((lambda job: False) if both is None else (lambda job: not both(job)))
        states = ALL_STATES
        for part in parts:
            states &= part.states
        return Match(both, states)
    maker = _MAKERS.get(op)
    if maker is not None:
        return maker(values)
    if op in _TIMES:
        return Match(_time(op, values))
    raise MatchError(f"unknown constraint operator: {op}")


def _either(parts: list[Match], tests: list[Test]) -> Match:
    """Any of `parts`, of which `tests` are the tests; without parts, every job."""
    if not parts:
        return _EVERY_JOB
    states = 0
    for part in parts:
        states |= part.states
    return Match(_any(tests) if len(tests) == len(parts) else None, states)


def _all(tests: list[Test]) -> Test | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    if len(tests) == 2:
        first, second = tests
        return lambda job: first(job) and second(job)
    return lambda job: all(test(job) for test in tests)


def _any(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda job: any(test(job) for test in tests)


def _userid(values: list[Any]) -> Match:
    users = set(_checked("userid", values, int))
    # In flux-core, FLUX_USERID_UNKNOWN stands for any user.
    if -1 in users or USERID_UNKNOWN in users:
        return _EVERY_JOB
    return Match(lambda job: job.userid in users)


def _name(values: list[Any]) -> Match:
    names = set(_checked("name", values, str))
    return Match(lambda job: job.name in names)


def _queue(values: list[Any]) -> Match:
    queues = set(_checked("queue", values, str))
    return Match(lambda job: job.queue in queues)


def _bits(op: str, values: list[Any], names: Mapping[str, int]) -> int:
    bits = 0
    for value in values:
        if isinstance(value, str):
            if value.lower() not in names:
                raise MatchError(f"invalid {op} value {value!r} specified")
            bits |= names[value.lower()]
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            bits |= value
        else:
            raise MatchError(f"{op} value must be a string or a number")
    return bits


def _states(values: list[Any]) -> Match:
    states = _bits("states", values, _STATE_NAMES) & ALL_STATES
    return Match(lambda job: job.state & states != 0, states)


def _results(values: list[Any]) -> Match:
    results = _bits("results", values, RESULT_BITS)
    return Match(lambda job: job.result is not None and job.result & results != 0, INACTIVE)


def _ranks(values: list[Any]) -> Match:
    wanted = Idset()
    for text in _checked("ranks", values, str):
        try:
            wanted |= Idset.parse(text)
        except IdsetError as exc:
            raise MatchError(f"ranks value {text!r} is not an idset: {exc}") from None
    return Match(lambda job: bool(job.ranks) and bool(Idset.parse(job.ranks or "") & wanted))


def _hostlist(values: list[Any]) -> Match:
    wanted: set[str] = set()
    for text in _checked("hostlist", values, str):
        try:
            wanted.update(Hostlist.parse(text))
        except HostlistError as exc:
            raise MatchError(f"hostlist value {text!r} is not a hostlist: {exc}") from None
        if len(wanted) > _MAX_NAMES:
            raise MatchError(f"too many hosts specified: at most {_MAX_NAMES}")
    return Match(lambda job: bool(job.nodelist) and not wanted.isdisjoint(Hostlist.parse(job.nodelist or "")))


def _time(op: str, values: list[Any]) -> Test:
    if len(values) != 1 or not isinstance(values[0], str):
        raise MatchError(f"{op} takes one string such as '>1700000000.0'")
    text = values[0]
    for sign, compare in _COMPARE:
        if text.startswith(sign):
            try:
                limit = float(text[len(sign) :])
            except ValueError:
                break
            if limit < 0:
                raise MatchError(f"{op}: a timestamp is not negative")
            return lambda job: (getattr(job, op) or 0.0) > 0.0 and compare(getattr(job, op), limit)
    raise MatchError(f"{op}: {text!r} must be one of > < >= <= and a timestamp")


def _checked(op: str, values: list[Any], kind: type) -> list[Any]:
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MatchError(f"{op} value must be {'a string' if kind is str else 'an integer'}")
    return values


_MAKERS: dict[str, Callable[[list[Any]], Match]] = {
    "userid": _userid,
    "name": _name,
    "queue": _queue,
    "states": _states,
    "results": _results,
    "ranks": _ranks,
    "hostlist": _hostlist,
}
