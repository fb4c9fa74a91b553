"""What a configuration says that nobody will listen to: tables and keys that Flux does not have, keys that we do not
follow, and values of another kind than their reader looks for.

A typing error in a table costs a limit or a queue's nodes, silently: every other part of the broker reads the keys it
knows and sees no others. What nobody here reads is told as a doubt and taken all the same, because configurations hold
tables of many projects (those known are in `config_foreign`); an unknown key is an error in policies and queues, as in
Flux (RFC 33), and in tables that one of Flux's modules reads whole. A value of a wrong kind, such as "yes" for true, is
an error. Values of which somebody else says what is wrong with them are not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Union

from . import config as files
from .config import ConfigError
from .config_foreign import FOREIGN


class _Kind(NamedTuple):
    """What a key's value must be, for those whose readers would take something else in silence."""

    types: tuple[type, ...]
    text: str
    has_effect: bool = True


# What a key may hold: a table of keys, a kind of value, anything, or anything that has no effect with us.
_Keys = Union[dict[str, Any], _Kind, str]
_ANY = "any"
_NO_EFFECT = "no effect"
_BOOL = _Kind((bool,), "true or false")
_INTEGER = _Kind((int,), "integer")
_FLAG = _Kind((int, bool), "integer")
_TEXT = _Kind((str,), "string")
_TEXTS = _Kind((list,), "a list of strings")
_SIGNAL = _Kind((int, str), "a signal's name or number")
_TIME = _Kind((str,), "a duration such as '5s'")
_UNUSED_TIME = _Kind((str,), "string", has_effect=False)
_UNUSED_TABLE = _Kind((dict,), "a table", has_effect=False)
_UNUSED_INTEGER = _Kind((int,), "an integer", has_effect=False)
_UNUSED_TEXT = _Kind((str,), "a string", has_effect=False)
_NUMBER = _Kind((int, float), "integer or real")
_PORT = _Kind((int,), "a port, 1 to 65535")
_TABLE = _Kind((dict,), "a table")
_FILE = _Kind((str,), "the name of a file")
_TABLE_LIST = _Kind((list,), "an array of tables")

_SIZES = {"nnodes": _ANY, "ncores": _ANY, "ngpus": _ANY}
_POLICY = {
    "jobspec": {"defaults": {"system": {"duration": _ANY, "queue": _ANY}}},
    "limits": {"duration": _ANY, "job-size": {"max": _SIZES, "min": _SIZES}},
    "access": {"allow-user": _NO_EFFECT, "allow-group": _NO_EFFECT},
    "scheduler": _TABLE,
}
_QUEUE = {"requires": _ANY, "hosts": _ANY, "policy": _POLICY, "parent": _NO_EFFECT}
_TABLES: dict[str, dict[str, Any]] = {
    "access": {
        **dict.fromkeys(("allow-guest-user", "allow-root-owner", "private-mode"), _BOOL),
        "roles": {"admin": dict.fromkeys(("users", "groups"), _TEXTS)},
    },
    "bootstrap": {
        "curve_cert": _Kind((str,), "the name of a certificate file, as `flux keygen` makes one"),
        **dict.fromkeys(("default_bind", "default_connect"), _TEXT),
        "hosts": _TABLE_LIST,
        "default_port": _PORT,
        "enable_ipv6": _BOOL,
    },
    "exec": {
        **dict.fromkeys(("kill-signal", "term-signal"), _SIGNAL),
        "kill-timeout": _TIME,
        "max-kill-count": _INTEGER,
        # How Flux starts its shells; ours has none to start.
        **dict.fromkeys(("imp", "job-shell", "method", "service"), _TEXT),
        "service-override": _BOOL,
        "max-start-delay-percent": _NUMBER,
        "sdexec-properties": _ANY,
        "sdexec-stop-timer-sec": _INTEGER,
        "sdexec-stop-timer-signal": _SIGNAL,
        "testexec": {"allow-guests": _BOOL},
        **dict.fromkeys(("barrier-timeout", "max-kill-timeout"), _UNUSED_TIME),
        "shell-exit-timeout": _Kind((str, int, float), "a duration such as '5s'", has_effect=False),
    },
    "headrace": {
        **dict.fromkeys(("exec-modules", "skip-modules"), _TEXTS),
        **dict.fromkeys(("drain-lost", "expects-late-nodes"), _BOOL),
        "most-requeues": _INTEGER,
    },
    "heartbeat": dict.fromkeys(("period", "timeout", "warn_thresh"), _ANY),
    "ingest": {
        # What Flux's frobnicator and workers do is done here without them.
        "batch-count": _INTEGER,
        "buffer-size": _TEXT,
        # Its plugins have tables of their own in it.
        "frobnicator": _TABLE,
        "validator": {
            **dict.fromkeys(("args", "plugins"), _ANY),
            "disable": _BOOL,
            "require-instance": dict.fromkeys(("mincores", "minnodes"), _INTEGER),
        },
    },
    "job-manager": {
        **dict.fromkeys(("inactive-age-limit", "inactive-num-limit"), _ANY),
        "journal-size-limit": _INTEGER,
        **dict.fromkeys(("epilog", "housekeeping", "perilog", "prolog"), _UNUSED_TABLE),
        "plugins": _Kind((list,), "an array of tables", has_effect=False),
        "stop-queues-on-restart": _Kind((bool,), "true or false", has_effect=False),
    },
    "policy": _POLICY,
    "resource": {
        "config": _TABLE_LIST,
        "exclude": _ANY,
        **dict.fromkeys(("no-update-watch", "norestrict", "noverify", "rediscover"), _BOOL),
        **dict.fromkeys(("path", "scheduling"), _FILE),
        **dict.fromkeys(("history", "verify"), _NO_EFFECT),
        "journal-max": _UNUSED_INTEGER,
        "reserve": _UNUSED_TEXT,
    },
    "sched": {"module": _Kind((str,), "simple or graph")},
    "sched-fluxion-qmanager": dict.fromkeys(
        (
            *("queue-policy", "queue-params", "policy-params"),
            *("queue-policy-per-queue", "queue-params-per-queue", "policy-params-per-queue"),
            "fair-share",
        ),
        _ANY,
    ),
    "sched-fluxion-resource": {
        **dict.fromkeys(("match-policy", "match-format"), _ANY),
        # Tuning, and where Fluxion's resources come from.
        **dict.fromkeys(("load-allowlist", "load-file", "load-format", "prune-filters"), _TEXT),
        **dict.fromkeys(("subsystems", "traverser"), _TEXT),
        **dict.fromkeys(("reserve-vtx-vec", "update-interval"), _INTEGER),
    },
    "tbon": {
        **dict.fromkeys(("child_rcvhwm", "zmq_io_threads"), _INTEGER),
        **dict.fromkeys(("prefertcp", "zmqdebug"), _FLAG),
        **dict.fromkeys(("connect_timeout", "tcp_user_timeout", "torpid_max", "torpid_min"), _TEXT),
        **dict.fromkeys(("interface-hint", "topo"), _TEXT),
    },
}


_FROBNICATOR = {"disable": _BOOL, "plugins": _TEXTS, "args": _TEXTS}
_UNKNOWN_TABLE = "unknown table, nothing here reads it"
# Tables in which a key that Flux does not have is refused, and the module whose error scripts look for.
_STRICT_FOR = {
    "access": "connector-local",
    "heartbeat": "heartbeat",
    "ingest": "job-ingest",
    "policy": "job-manager",
    "queues": "job-manager",
    "resource": "resource",
}
# Flux's job-exec refuses values of a wrong kind in its table, and takes unknown keys.
_READ_BY = {**_STRICT_FOR, "exec": "job-exec"}


class _Wrong(Exception):
    """Where a key is that is refused, what to say of it, and its value if that is what is wrong."""

    def __init__(self, path: tuple[str, ...], text: str, *values: Any) -> None:
        super().__init__(text)
        self.path = path
        self.values = values
        self.module = _READ_BY.get(path[0], "")


class RefusedTable(ConfigError):
    """A table has a key or a value that the module which reads it does not take; `module` is its name."""

    def __init__(self, module: str, text: str) -> None:
        super().__init__(text)
        self.module = module


def check(config: dict[str, Any], path: str = "") -> None:
    """Raises ConfigError with the path of the first value of a wrong kind, or of keys unknown in a strict table.

    `path` is a file or folder that the configuration, or a part of it, came from: the text names the file.
    """
    try:
        _check_all(config)
    except _Wrong as exc:
        where = _in_file(exc.path, _read(path), exc.values)
        module = _STRICT_FOR["access"] if exc.path[0] == "access" else exc.module
        if module:
            file = where.removesuffix(": ")
            raise RefusedTable(module, f"{exc} (in {file})" if file else str(exc)) from None
        raise ConfigError(where + str(exc)) from None


def _check_all(config: dict[str, Any]) -> None:
    for name, keys in _TABLES.items():
        # `sched = "simple"` is short for the key of the table.
        if name in config and not (name == "sched" and isinstance(config[name], str)):
            _check(config[name], keys, (name,))
    queues = config.get("queues")
    if isinstance(queues, dict):
        for name, table in queues.items():
            if not name:
                raise _Wrong(("queues", name), 'queues."": the name of a queue cannot be empty')
            _check(table, _QUEUE, ("queues", name))
    _check_access(config.get("access", {}))
    _check_exec(config.get("exec", {}))
    for key, value in config.get("ingest", {}).get("frobnicator", {}).items():
        _check(value, _FROBNICATOR.get(key, _ANY), ("ingest", "frobnicator", key))
    for doubt in _all(config):
        if doubt.path[0] in _STRICT_FOR and doubt.unknown:
            raise _left_unpacked(config, doubt)


def _left_unpacked(config: dict[str, Any], doubt: _Doubt) -> _Wrong:
    """The error for a table with a key that its module does not know: all of them, and what the first one may mean."""
    parent = doubt.path[:-1]
    others = [other.path[-1] for other in _all(config) if other.path[:-1] == parent and other.unknown]
    told = f"{len(others)} object item(s) left unpacked: {', '.join(others)}"
    hint = doubt.text.partition(", ")[2]
    if hint.startswith("not "):
        hint = "known are " + hint.removeprefix("not ").replace(" or ", " and ")
    # Flux names these two tables in other words than the rest.
    what = "config table" if parent[0] in ("policy", "queues") else "configuration"
    return _Wrong(doubt.path, f"error parsing [{'.'.join(parent)}] {what}: {told}; {hint}")


def _check_access(access: dict[str, Any]) -> None:
    """Roles that there are not."""
    for role in access.get("roles", {}):
        if role != "admin":
            text = f"unknown role {role!r} in [access.roles]: there is admin alone"
            raise _Wrong(("access", "roles", role), text)


def _check_exec(table: dict[str, Any]) -> None:
    """Values that have no effect here: Flux's job-exec refuses these when they are of a wrong form."""
    properties = table.get("sdexec-properties", {})
    if not isinstance(properties, dict):
        raise _Wrong(("exec", "sdexec-properties"), "exec.sdexec-properties is not a table", properties)
    for key, value in properties.items():
        if not isinstance(value, str):
            path = ("exec", "sdexec-properties", key)
            raise _Wrong(path, f"{'.'.join(path)} is not a string", value)
    if table.get("method", "bulk-exec") not in ("bulk-exec", "bgexec"):
        text = f"unknown exec.method {table['method']!r}: there are bulk-exec and bgexec"
        raise _Wrong(("exec", "method"), text, table["method"])
    for key in ("barrier-timeout", "max-kill-timeout"):
        if key in table and not _is_duration(table[key]):
            text = f"invalid duration {table[key]!r} specified for exec.{key}"
            raise _Wrong(("exec", key), text, table[key])
    key = "shell-exit-timeout"
    value = table.get(key)
    if isinstance(value, str) and value != "none" and not _is_duration(value):
        raise _Wrong(("exec", key), f"invalid {key}: {value}", value)


def _is_duration(text: str) -> bool:
    from headrace.spec.duration import DurationError, parse

    try:
        parse(text)
    except DurationError:
        return False
    return True


def _check(value: Any, keys: _Keys, path: tuple[str, ...]) -> None:
    if isinstance(keys, _Kind):
        good = type(value) in keys.types and (keys is not _TEXTS or all(isinstance(item, str) for item in value))
        good = good and (keys is not _TABLE_LIST or all(isinstance(item, dict) for item in value))
        good = good and (keys is not _PORT or 0 < value < 1 << 16)
        wanted = keys.text
    else:
        good, wanted = isinstance(value, dict) or isinstance(keys, str), "a table"
    where = ".".join(path)
    if not good and path[0] == "exec" and keys in (_TEXT, _BOOL, _INTEGER, _NUMBER, _UNUSED_TIME):
        text = f"error reading config value {where}: Expected {wanted}, got {_json_kind(value)}"
        raise _Wrong(path, text, value)
    if not good and keys in (_INTEGER, _FLAG, _TEXT):
        # As Flux says it, for those who look for that.
        raise _Wrong(path, f"Config file error [{path[0]}]: {where}: Expected {wanted}, got {value!r}", value)
    if not good:
        raise _Wrong(path, f"{where}: must be {wanted}, not {value!r}", value)
    if isinstance(keys, dict):
        for key, inner in value.items():
            if key in keys:
                _check(inner, keys[key], (*path, key))


def _json_kind(value: Any) -> str:
    """What a value is called in errors of Flux."""
    if isinstance(value, bool):
        return str(value).lower()
    kinds = {int: "integer", float: "real", str: "string", list: "array", dict: "object", type(None): "null"}
    return kinds.get(type(value), type(value).__name__)


class _Doubt(NamedTuple):
    """A key that will not do what its author thinks: where it is, what there is to say, and whether Flux has it."""

    path: tuple[str, ...]
    text: str
    unknown: bool = True

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.text}"


def doubts(config: dict[str, Any], path: str = "", likely: bool = False) -> list[str]:
    """A line for each key that will not do what its author thinks, with its path; the most similar key that exists.

    With `likely` not for tables that are like none that is known: they may be what somebody tries `flux config` with.
    `path` is a file or folder that the configuration, or a part of it, came from: lines begin with the file's name.
    """
    found = [doubt for doubt in _all(config) if not (likely and doubt.text == _UNKNOWN_TABLE)]
    read = _read(path) if found else []
    return [_in_file(doubt.path, read) + str(doubt) for doubt in found]


def _read(path: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        return files.read(path) if path else []
    except ConfigError:
        # Changed since.
        return []


def _in_file(path: tuple[str, ...], read: list[tuple[str, dict[str, Any]]], values: tuple[Any, ...] = ()) -> str:
    """The last file that has the key at `path`, with one of `values` if there are any: later files win."""
    for name, table in reversed(read):
        here: Any = table
        for key in path:
            here = here.get(key, files) if isinstance(here, dict) else files
        if here is not files and (not values or here in values):
            return f"{name}: "
    return ""


def _all(config: dict[str, Any]) -> Iterator[_Doubt]:
    for name, table in config.items():
        if name == "queues":
            for queue, inner in table.items() if isinstance(table, dict) else ():
                yield from _look(inner, _QUEUE, ("queues", queue))
        elif name in _TABLES:
            yield from _look(table, _TABLES[name], (name,))
        elif name not in FOREIGN:
            meant = _similar(name, [*_TABLES, "queues", *FOREIGN])
            yield _Doubt((name,), f"unknown table, did you mean {meant}?" if meant else _UNKNOWN_TABLE)


def _look(value: Any, keys: _Keys, path: tuple[str, ...]) -> Iterator[_Doubt]:
    if keys == _NO_EFFECT or (isinstance(keys, _Kind) and not keys.has_effect):
        yield _Doubt(path, "has no effect in Headrace", unknown=False)
    elif isinstance(keys, dict) and isinstance(value, dict):
        for key, inner in value.items():
            if key in keys:
                yield from _look(inner, keys[key], (*path, key))
            else:
                meant = _similar(key, list(keys))
                told = f"did you mean {meant}?" if meant else f"not {_listed(keys)}"
                yield _Doubt((*path, key), f"unknown key, {told}")


def _similar(name: str, names: list[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, names, 1)), "")


def _listed(keys: dict[str, Any]) -> str:
    *first, last = sorted(keys)
    return f"{', '.join(first)} or {last}" if first else last


def attributes(config: dict[str, Any]) -> dict[str, str]:
    """The broker attributes that a configuration, already checked, sets: the table `[tbon]`."""
    known = _TABLES["tbon"]
    given = {key: value for key, value in config.get("tbon", {}).items() if key in known}
    return {f"tbon.{key}": str(int(value) if isinstance(value, bool) else value) for key, value in given.items()}
