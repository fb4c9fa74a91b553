"""What a configuration says that nobody will listen to: keys that Flux does not have, keys that we do not follow, and
values of another kind than their reader looks for.

A typing error in a table costs a limit or a queue's nodes, silently: every other part of the broker reads the keys it
knows and sees no others. Only tables whose keys are all known are looked at (flux-config(5) and RFC 33 name them);
others may be anybody's. A key is told as a doubt; a value of a wrong kind, such as "yes" for true, is an error. Values
of which somebody else says what is wrong with them are not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Union

from .config import ConfigError


class _Kind(NamedTuple):
    """What a key's value must be, for those whose readers would take something else in silence."""

    types: tuple[type, ...]
    text: str


# What a key may hold: a table of keys, a kind of value, anything, or anything that has no effect with us.
_Keys = Union[dict[str, Any], _Kind, str]
_ANY = "any"
_NO_EFFECT = "no effect"
_BOOL = _Kind((bool,), "true or false")
_INTEGER = _Kind((int,), "an integer")
_FLAG = _Kind((int, bool), "an integer")
_TEXT = _Kind((str,), "a string")
_TEXTS = _Kind((list,), "a list of strings")
_SIGNAL = _Kind((int, str), "a signal's name or number")
_TIME = _Kind((str, int, float), "a duration such as '5s'")

_SIZES = {"nnodes": _ANY, "ncores": _ANY, "ngpus": _ANY}
_POLICY = {
    "jobspec": {"defaults": {"system": {"duration": _ANY, "queue": _ANY}}},
    "limits": {"duration": _ANY, "job-size": {"max": _SIZES, "min": _SIZES}},
    "access": {"allow-user": _NO_EFFECT, "allow-group": _NO_EFFECT},
    "scheduler": _ANY,
}
_QUEUE = {"requires": _ANY, "hosts": _ANY, "policy": _POLICY, "parent": _NO_EFFECT}
_TABLES: dict[str, dict[str, Any]] = {
    "access": dict.fromkeys(("allow-guest-user", "allow-root-owner"), _BOOL),
    "exec": {
        **dict.fromkeys(("kill-signal", "term-signal"), _SIGNAL),
        "kill-timeout": _TIME,
        "max-kill-count": _INTEGER,
        # How Flux starts its shells; ours has none to start.
        **dict.fromkeys(("imp", "job-shell", "max-start-delay-percent", "service", "service-override"), _ANY),
        **dict.fromkeys(("sdexec-properties", "sdexec-stop-timer-sec", "sdexec-stop-timer-signal", "testexec"), _ANY),
        **dict.fromkeys(("barrier-timeout", "max-kill-timeout"), _NO_EFFECT),
    },
    "headrace": dict.fromkeys(("exec-modules", "skip-modules"), _TEXTS),
    "policy": _POLICY,
    "resource": {
        **dict.fromkeys(("config", "exclude", "norestrict", "noverify", "path", "rediscover"), _ANY),
        **dict.fromkeys(("reserve", "scheduling"), _NO_EFFECT),
    },
    "tbon": {
        **dict.fromkeys(("child_rcvhwm", "zmq_io_threads"), _INTEGER),
        **dict.fromkeys(("prefertcp", "zmqdebug"), _FLAG),
        **dict.fromkeys(("connect_timeout", "tcp_user_timeout", "torpid_max", "torpid_min"), _TEXT),
        **dict.fromkeys(("interface-hint", "topo"), _TEXT),
    },
}


def check(config: dict[str, Any]) -> None:
    """Raises ConfigError with the path of the first value of a wrong kind."""
    for name, keys in _TABLES.items():
        if name in config:
            _check(config[name], keys, name)
    queues = config.get("queues")
    if isinstance(queues, dict):
        for name, table in queues.items():
            if not name:
                raise ConfigError('queues."": the name of a queue cannot be empty')
            _check(table, _QUEUE, f"queues.{name}")


def _check(value: Any, keys: _Keys, path: str) -> None:
    if isinstance(keys, _Kind):
        good = type(value) in keys.types and (keys is not _TEXTS or all(isinstance(item, str) for item in value))
        wanted = keys.text
    else:
        good, wanted = isinstance(value, dict) or isinstance(keys, str), "a table"
    if not good:
        raise ConfigError(f"{path}: must be {wanted}, not {value!r}")
    if isinstance(keys, dict):
        for key, inner in value.items():
            if key in keys:
                _check(inner, keys[key], f"{path}.{key}")


def doubts(config: dict[str, Any]) -> list[str]:
    """A line for each key that will not do what its author thinks, with its path; the most similar key that exists."""
    lines = []
    for name in config:
        if name not in _TABLES and name != "queues":
            meant = _similar(name, [*_TABLES, "queues"], 0.8)
            if meant:
                lines.append(f"{name}: unknown table, did you mean {meant}?")
    for name, keys in _TABLES.items():
        lines += _look(config.get(name), keys, name)
    queues = config.get("queues")
    if isinstance(queues, dict):
        for name, table in queues.items():
            lines += _look(table, _QUEUE, f"queues.{name}")
    return lines


def _look(value: Any, keys: _Keys, path: str) -> Iterator[str]:
    if keys == _NO_EFFECT:
        yield f"{path}: has no effect in Headrace"
    elif isinstance(keys, dict) and isinstance(value, dict):
        for key, inner in value.items():
            if key in keys:
                yield from _look(inner, keys[key], f"{path}.{key}")
            else:
                meant = _similar(key, list(keys), 0.6)
                yield f"{path}.{key}: unknown key, " + (f"did you mean {meant}?" if meant else f"not {_listed(keys)}")


def _similar(name: str, names: list[str], least: float) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, names, 1, least)), "")


def _listed(keys: dict[str, Any]) -> str:
    *first, last = sorted(keys)
    return f"{', '.join(first)} or {last}" if first else last


def attributes(config: dict[str, Any]) -> dict[str, str]:
    """The broker attributes that a configuration, already checked, sets: the table `[tbon]`."""
    known = _TABLES["tbon"]
    given = {key: value for key, value in config.get("tbon", {}).items() if key in known}
    return {f"tbon.{key}": str(int(value) if isinstance(value, bool) else value) for key, value in given.items()}
