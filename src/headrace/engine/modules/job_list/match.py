"""The constraint operators of RFC 43, as functions that test a job. Pure.

A constraint is compiled once per request. The result includes the job states that can match at all, so that a listing
of active jobs never reads inactive jobs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.engine.modules.job_list.record import Job
from headrace.formats.spec.hostlist import Hostlist, HostlistError, count_hosts
from headrace.formats.spec.idset import MAX_ID, Idset, IdsetError, parse_ranges
from headrace.formats.spec.job_state import ACTIVE, INACTIVE, NEW, RESULT_BITS, STATE_BITS, STATE_MASKS
from headrace.formats.spec.message import USERID_UNKNOWN

Test = Callable[[Job], bool]
# How many items of each kind (_VALUES, _HOSTS, _RANKS) the rest of a constraint may have.
Room = dict[str, int]

ALL_STATES = 127
_ALL_RESULTS = 15
_STATE_NAMES = {"new": NEW, **STATE_BITS, **STATE_MASKS, "active": NEW | ACTIVE}
_MAX_DEPTH = 32
# Limits on a whole constraint, because larger ones would make every comparison slow. For ranks, the sum of the largest
# ids is limited, because a bit set is as long as its largest id.
_VALUES, _HOSTS, _RANKS = "operators and values", "hosts", "ranks"
_MOST = {_VALUES: 1000, _HOSTS: 4096, _RANKS: MAX_ID + 1}
# Cache size for parsed ranks and nodelists. Jobs that were allocated together have equal texts, which most operators of
# a constraint read again.
_KNOWN_TEXTS = 64
_TIMES = ("t_submit", "t_depend", "t_run", "t_cleanup", "t_inactive")
_COMPARE = ((">=", operator.ge), ("<=", operator.le), (">", operator.gt), ("<", operator.lt))


class MatchError(ValueError):
    """An invalid constraint (RFC 43). The text names the operator or value."""


class Match(NamedTuple):
    """A compiled constraint.

    `test(job)` is None if every job matches. `states` are the states that can match, as a bit set.
    """

    test: Test | None
    states: int = ALL_STATES


_EVERY_JOB = Match(None)


def compiled(constraint: Any) -> Match:
    """The constraint of a request; None matches every job. Raises MatchError."""
    return _EVERY_JOB if constraint is None else _compile(constraint, 0, dict(_MOST))


def _take(room: Room, what: str, number: int) -> None:
    room[what] -= number
    if room[what] < 0:
        raise MatchError(f"too many {what} specified: at most {_MOST[what]}")


def _compile(constraint: Any, depth: int, room: Room) -> Match:
    if not isinstance(constraint, dict):
        raise MatchError("constraint must be JSON object")
    if depth > _MAX_DEPTH:
        raise MatchError(f"constraint is nested deeper than {_MAX_DEPTH}")
    tests: list[Test] = []
    states = ALL_STATES
    for op, values in constraint.items():
        if not isinstance(values, list):
            raise MatchError(f"operator {op} values not an array")
        _take(room, _VALUES, 1 + len(values))
        part = _operator(op, values, depth, room)
        states &= part.states
        if part.test is not None:
            tests.append(part.test)
    return Match(_all(tests), states)


def _operator(op: str, values: list[Any], depth: int, room: Room) -> Match:
    if op in ("and", "or", "not"):
        parts = [_compile(value, depth + 1, room) for value in values]
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
        return maker(values, room)
    if op in _TIMES:
        return Match(_time(op, values))
    raise MatchError(f"unknown constraint operator: {op}")


def _either(parts: list[Match], tests: list[Test]) -> Match:
    """The disjunction of `parts`, whose tests are `tests`. Without parts, every job matches."""
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


def _userid(values: list[Any], room: Room) -> Match:
    users = set(_checked("userid", values, int))
    # In flux-core, FLUX_USERID_UNKNOWN means any user.
    if -1 in users or USERID_UNKNOWN in users:
        return _EVERY_JOB
    return Match(lambda job: job.userid in users)


def _name(values: list[Any], room: Room) -> Match:
    names = set(_checked("name", values, str))
    return Match(lambda job: job.name in names)


def _queue(values: list[Any], room: Room) -> Match:
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


def _states(values: list[Any], room: Room) -> Match:
    states = _bits("states", values, _STATE_NAMES) & ALL_STATES
    return Match(lambda job: job.state & states != 0, states)


def _results(values: list[Any], room: Room) -> Match:
    results = _bits("results", values, RESULT_BITS) & _ALL_RESULTS
    return Match(lambda job: job.result is not None and job.result & results != 0, INACTIVE)


def _ranks(values: list[Any], room: Room) -> Match:
    wanted = Idset()
    for text in _checked("ranks", values, str):
        try:
            ranks = parse_ranges(text)
        except IdsetError as exc:
            raise MatchError(f"ranks value {text!r} is not an idset: {exc}") from None
        if ranks:
            _take(room, _RANKS, ranks[-1][1] + 1)
            wanted |= Idset.from_ranges(ranks)
    return Match(lambda job: bool(job.ranks) and not wanted.isdisjoint(_ranks_of(job.ranks or "")))


def _hostlist(values: list[Any], room: Room) -> Match:
    wanted: set[str] = set()
    for text in _checked("hostlist", values, str):
        try:
            _take(room, _HOSTS, count_hosts(text))
            wanted.update(Hostlist.parse(text))
        except HostlistError as exc:
            raise MatchError(f"hostlist value {text!r} is not a hostlist: {exc}") from None
    return Match(lambda job: bool(job.nodelist) and not wanted.isdisjoint(_hosts_of(job.nodelist or "")))


@lru_cache(_KNOWN_TEXTS)
def _ranks_of(text: str) -> Idset:
    return Idset.parse(text)


@lru_cache(_KNOWN_TEXTS)
def _hosts_of(text: str) -> frozenset[str]:
    return frozenset(Hostlist.parse(text))


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


_MAKERS: dict[str, Callable[[list[Any], Room], Match]] = {
    "userid": _userid,
    "name": _name,
    "queue": _queue,
    "states": _states,
    "results": _results,
    "ranks": _ranks,
    "hostlist": _hostlist,
}
