"""The constraint operators of RFC 43, as functions that test a job. Pure.

A constraint is compiled once for each request. The result includes the job states that can match at all, so that a
listing of active jobs never reads finished ones, however many there are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

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


class Match:
    """A compiled constraint: `test(job)`, and the states that can match (a bit set)."""

    __slots__ = ("states", "test")

    def __init__(self, constraint: Any) -> None:
        """Compile a constraint; None matches every job. Raises MatchError."""
        self.test: Test | None
        self.test, self.states = (None, ALL_STATES) if constraint is None else _compile(constraint, 0)


def _compile(constraint: Any, depth: int) -> tuple[Test | None, int]:
    if not isinstance(constraint, dict):
        raise MatchError("constraint must be JSON object")
    if depth > _MAX_DEPTH:
        raise MatchError(f"constraint is nested deeper than {_MAX_DEPTH}")
    tests: list[Test] = []
    states = ALL_STATES
    for op, values in constraint.items():
        if not isinstance(values, list):
            raise MatchError(f"operator {op} values not an array")
        test, mask = _operator(op, values, depth)
        states &= mask
        if test is not None:
            tests.append(test)
    return _all(tests), states


def _operator(op: str, values: list[Any], depth: int) -> tuple[Test | None, int]:
    if op in ("and", "or", "not"):
        parts = [_compile(value, depth + 1) for value in values]
        tests = [test for test, _mask in parts]
        if op == "or":
            states = 0
            for _test, mask in parts:
                states |= mask
            if not parts or None in tests:
                return None, states if parts else ALL_STATES
            return _any([test for test in tests if test is not None]), states
        states = ALL_STATES
        for _test, mask in parts:
            states &= mask
        both = _all([test for test in tests if test is not None])
        if op == "and":
            return both, states
        return (lambda job: False) if both is None else (lambda job: not both(job)), ALL_STATES
    maker = _MAKERS.get(op)
    if maker is not None:
        return maker(values)
    if op in _TIMES:
        return _time(op, values), ALL_STATES
    raise MatchError(f"unknown constraint operator: {op}")


def _all(tests: list[Test]) -> Test | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    if len(tests) == 2:
        first, second = tests
        return lambda job: first(job) and second(job)
    return lambda job: all(test(job) for test in tests)


def _any(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda job: any(test(job) for test in tests)


def _userid(values: list[Any]) -> tuple[Test | None, int]:
    users = set(_checked("userid", values, int))
    # In flux-core, FLUX_USERID_UNKNOWN stands for any user.
    if -1 in users or USERID_UNKNOWN in users:
        return None, ALL_STATES
    return (lambda job: job.userid in users), ALL_STATES


def _name(values: list[Any]) -> tuple[Test | None, int]:
    names = set(_checked("name", values, str))
    return (lambda job: job.name in names), ALL_STATES


def _queue(values: list[Any]) -> tuple[Test | None, int]:
    queues = set(_checked("queue", values, str))
    return (lambda job: job.queue in queues), ALL_STATES


def _bits(op: str, values: list[Any], names: dict[str, int]) -> int:
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


def _states(values: list[Any]) -> tuple[Test | None, int]:
    states = _bits("states", values, _STATE_NAMES) & ALL_STATES
    return (lambda job: job.state & states != 0), states


def _results(values: list[Any]) -> tuple[Test | None, int]:
    results = _bits("results", values, RESULT_BITS)
    return (lambda job: job.result is not None and job.result & results != 0), INACTIVE


def _ranks(values: list[Any]) -> tuple[Test | None, int]:
    wanted = Idset()
    for text in _checked("ranks", values, str):
        try:
            wanted |= Idset.parse(text)
        except IdsetError as exc:
            raise MatchError(f"ranks value {text!r} is not an idset: {exc}") from None
    return (lambda job: bool(job.ranks) and bool(Idset.parse(job.ranks or "") & wanted)), ALL_STATES


def _hostlist(values: list[Any]) -> tuple[Test | None, int]:
    wanted: set[str] = set()
    for text in _checked("hostlist", values, str):
        try:
            wanted.update(Hostlist.parse(text))
        except HostlistError as exc:
            raise MatchError(f"hostlist value {text!r} is not a hostlist: {exc}") from None
        if len(wanted) > _MAX_NAMES:
            raise MatchError(f"too many hosts specified: at most {_MAX_NAMES}")
    return (lambda job: bool(job.nodelist) and not wanted.isdisjoint(Hostlist.parse(job.nodelist or ""))), ALL_STATES


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


_MAKERS: dict[str, Callable[[list[Any]], tuple[Test | None, int]]] = {
    "userid": _userid,
    "name": _name,
    "queue": _queue,
    "states": _states,
    "results": _results,
    "ranks": _ranks,
    "hostlist": _hostlist,
}
