"""What a configuration says that nobody will listen to: keys that Flux does not have, and keys that we do not follow.

A typing error in a table costs a limit or a queue's nodes, silently: every other part of the broker reads the keys it
knows and sees no others. Only tables whose keys are all known are looked at (flux-config(5) and RFC 33 name them);
others may be anybody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

from .config import ConfigError

# What a key may hold: a table of keys, anything (no table that we know), or anything that has no effect with us.
_Keys = Union[dict[str, Any], str]
_ANY = "any"
_NO_EFFECT = "no effect"

_SIZES = {"nnodes": _ANY, "ncores": _ANY, "ngpus": _ANY}
_POLICY = {
    "jobspec": {"defaults": {"system": {"duration": _ANY, "queue": _ANY}}},
    "limits": {"duration": _ANY, "job-size": {"max": _SIZES, "min": _SIZES}},
    "access": {"allow-user": _NO_EFFECT, "allow-group": _NO_EFFECT},
    "scheduler": _ANY,
}
_QUEUE = {"requires": _ANY, "hosts": _ANY, "policy": _POLICY, "parent": _NO_EFFECT}
_TBON: dict[str, tuple[type, ...]] = {
    "child_rcvhwm": (int,),
    "connect_timeout": (str,),
    "interface-hint": (str,),
    "prefertcp": (int, bool),
    "tcp_user_timeout": (str,),
    "topo": (str,),
    "torpid_max": (str,),
    "torpid_min": (str,),
    "zmq_io_threads": (int,),
    "zmqdebug": (int, bool),
}
_TABLES: dict[str, _Keys] = {
    "access": dict.fromkeys(("allow-guest-user", "allow-root-owner"), _ANY),
    "exec": {
        **dict.fromkeys(("kill-signal", "kill-timeout", "max-kill-count", "term-signal"), _ANY),
        # How Flux starts its shells; ours has none to start.
        **dict.fromkeys(("imp", "job-shell", "max-start-delay-percent", "service", "service-override"), _ANY),
        **dict.fromkeys(("sdexec-properties", "sdexec-stop-timer-sec", "sdexec-stop-timer-signal", "testexec"), _ANY),
        **dict.fromkeys(("barrier-timeout", "max-kill-timeout"), _NO_EFFECT),
    },
    "headrace": dict.fromkeys(("exec-modules", "skip-modules"), _ANY),
    "policy": _POLICY,
    "resource": {
        **dict.fromkeys(("config", "exclude", "norestrict", "noverify", "path", "rediscover"), _ANY),
        **dict.fromkeys(("reserve", "scheduling"), _NO_EFFECT),
    },
    "tbon": dict.fromkeys(_TBON, _ANY),
}


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
    """The broker attributes that a configuration sets: the table `[tbon]`. Raises ConfigError."""
    table = config.get("tbon")
    if not isinstance(table, dict):
        return {}
    out = {}
    for key, value in table.items():
        if key not in _TBON:
            continue
        if type(value) not in _TBON[key]:
            raise ConfigError(f"tbon.{key}: must be {'a string' if str in _TBON[key] else 'an integer'}")
        out[f"tbon.{key}"] = str(int(value) if isinstance(value, bool) else value)
    return out
