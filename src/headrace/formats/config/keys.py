"""Checks of a configuration's keys, and warnings about keys without effect.

Each module reads only the keys it knows, so a misspelt key would silently cost a limit or a queue's nodes. `check`
raises an error for a value of the wrong type, and for an unknown key in a table that Flux reads strictly
(`schema.STRICT_FOR`). `warnings` returns a line for every other key that no module reads. Such keys are accepted,
because configurations contain tables of other projects (`schema.FOREIGN`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from . import files as config_files
from . import guests, schema
from .files import ConfigError
from .schema import Expected, ValueType

_UNKNOWN_TABLE = "unknown table, nothing here reads it"
_ABSENT = object()
# Types whose errors come from json_unpack() in Flux, in all tables and in `[exec]`. Scripts match these messages.
_UNPACKED = (schema.INTEGER, schema.FLAG, schema.TEXT)
_UNPACKED_BY_EXEC = (schema.TEXT, schema.BOOL, schema.INTEGER, schema.NUMBER, schema.UNUSED_TIME)


class _Refused(Exception):
    """A rejected key or value: the key's path, the message, and the value if the value is the error."""

    def __init__(self, path: tuple[str, ...], text: str, *values: Any) -> None:
        super().__init__(text)
        self.path = path
        self.values = values
        self.module = schema.READ_BY.get(path[0], "")


class RefusedTable(ConfigError):
    """A key or a value in a table is rejected by the module that reads the table (`module`)."""

    def __init__(self, module: str, text: str) -> None:
        super().__init__(text)
        self.module = module


def check(config: dict[str, Any], path: str = "", owner: int | None = None) -> None:
    """Check a configuration.

    Raises ConfigError for the first value of the wrong type, or for all unknown keys of a table that is read strictly.

    `path` is the file or folder from which the configuration, or a part of it, was read; the error names the file.
    `owner` is the user id of the instance's owner; keys that only root can use are rejected for any other owner.
    """
    try:
        _check_all(config)
        if owner:
            _check_owner(config, owner)
    except _Refused as exc:
        where = _file_prefix(exc.path, _read(path), exc.values)
        if exc.module:
            file = where.removesuffix(": ")
            raise RefusedTable(exc.module, f"{exc} (in {file})" if file else str(exc)) from None
        raise ConfigError(where + str(exc)) from None


def _check_all(config: dict[str, Any]) -> None:
    for name, expected in schema.TABLES.items():
        # `sched = "simple"` is short for `sched.module = "simple"`.
        if name in config and not (name == "sched" and isinstance(config[name], str)):
            _check(config[name], expected, (name,))
    queues = config.get("queues")
    if isinstance(queues, dict):
        for name, table in queues.items():
            if not name:
                raise _Refused(("queues", name), 'queues."": the name of a queue cannot be empty')
            _check(table, schema.QUEUE, ("queues", name))
    _check_roles(config.get("access", {}))
    _check_exec(config.get("exec", {}))
    _check_guests(config.get("headrace", {}).get("guests", {}))
    _check_tbon(config.get("tbon", {}))
    for key, value in config.get("ingest", {}).get("frobnicator", {}).items():
        _check(value, schema.FROBNICATOR.get(key, schema.ANY), ("ingest", "frobnicator", key))
    for key in _unread(config):
        if key.path[0] in schema.STRICT_FOR and key.unknown:
            raise _unknown_keys(config, key)


def _unknown_keys(config: dict[str, Any], first: _Unread) -> _Refused:
    """The error for a strictly read table: all its unknown keys, and a suggestion for the first one."""
    parent = first.path[:-1]
    unknown = [key.path[-1] for key in _unread(config) if key.path[:-1] == parent and key.unknown]
    hint = f"did you mean {first.meant}?" if first.meant else f"known are {_listed(first.known, 'and')}"
    # Flux calls these two tables "config table", the others "configuration".
    what = "config table" if parent[0] in ("policy", "queues") else "configuration"
    text = f"error parsing [{'.'.join(parent)}] {what}: {len(unknown)} object item(s) left unpacked"
    return _Refused(first.path, f"{text}: {', '.join(unknown)}; {hint}")


def _check_roles(access: dict[str, Any]) -> None:
    """Raise _Refused for a table in `[access.roles]` other than `admin`."""
    for role in access.get("roles", {}):
        if role != "admin":
            text = f"unknown role {role!r} in [access.roles]: there is admin alone"
            raise _Refused(("access", "roles", role), text)


def _check_exec(table: dict[str, Any]) -> None:
    """Raise _Refused, with Flux's messages, for values that Flux's job-exec rejects."""
    properties = table.get("sdexec-properties", {})
    if not isinstance(properties, dict):
        raise _Refused(("exec", "sdexec-properties"), "exec.sdexec-properties is not a table", properties)
    for key, value in properties.items():
        if not isinstance(value, str):
            path = ("exec", "sdexec-properties", key)
            raise _Refused(path, f"{'.'.join(path)} is not a string", value)
    if table.get("method", "bulk-exec") not in ("bulk-exec", "bgexec"):
        text = f"unknown exec.method {table['method']!r}: there are bulk-exec and bgexec"
        raise _Refused(("exec", "method"), text, table["method"])
    for key in ("barrier-timeout", "max-kill-timeout"):
        if key in table and not _is_duration(table[key]):
            text = f"invalid duration {table[key]!r} specified for exec.{key}"
            raise _Refused(("exec", key), text, table[key])
    key = "shell-exit-timeout"
    value = table.get(key)
    if isinstance(value, str) and value != "none" and not _is_duration(value):
        raise _Refused(("exec", key), f"invalid {key}: {value}", value)


def _check_guests(table: dict[str, Any]) -> None:
    for key, choices in (("submit", guests.CHOICES), ("mechanism", guests.MECHANISMS)):
        value = table.get(key, choices[0])
        if value not in choices:
            text = f"headrace.guests.{key}: must be {_listed(choices, 'or')}, not {value!r}"
            raise _Refused(("headrace", "guests", key), text, value)
    if table.get("min-uid", 1) < 1:
        # A guest is never root.
        text = f"{guests.MIN_UID_KEY}: must be from 1, not {table['min-uid']}"
        raise _Refused(("headrace", "guests", "min-uid"), text, table["min-uid"])
    if "/" in table.get("pam-service", ""):
        text = f"headrace.guests.pam-service: must be the name of a service of PAM, not {table['pam-service']!r}"
        raise _Refused(("headrace", "guests", "pam-service"), text, table["pam-service"])


def _check_owner(config: dict[str, Any], owner: int) -> None:
    """Raise _Refused for a key that only root can use."""
    if guests.submit(config) == guests.AS_USER:
        text = (
            f'{guests.KEY}: "{guests.AS_USER}" needs an instance of root, which can start processes of other users: '
            f"the owner of this one is user {owner}"
        )
        raise _Refused(("headrace", "guests", "submit"), text, guests.AS_USER)


def _check_tbon(table: dict[str, Any]) -> None:
    """Raise _Refused for values with which a broker would fail to start."""
    from headrace.formats.spec.duration import DurationError, parse
    from headrace.formats.spec.topology import Topology, TopologyError

    for key in ("connect_timeout", "tcp_user_timeout", "torpid_max", "torpid_min"):
        try:
            parse(table.get(key, "0s"))
        except DurationError as exc:
            # The broker's message for the same error in the attribute.
            raise _Refused(("tbon", key), f"Error parsing tbon.{key} attribute: {exc}", table[key]) from None
    for key in ("child_rcvhwm", "zmq_io_threads", "zmqdebug"):
        if not 0 <= table.get(key, 0) < 1_000_000 or (key == "child_rcvhwm" and table.get(key) == 1):
            least = "0 (no limit) or from 2" if key == "child_rcvhwm" else "from 0"
            raise _Refused(("tbon", key), f"tbon.{key}: must be {least} to 999999, not {table[key]}", table[key])
    if "topo" not in table:
        return
    try:
        Topology(1, table["topo"])
    except TopologyError as exc:
        raise _Refused(("tbon", "topo"), str(exc), table["topo"]) from None


def _is_duration(text: str) -> bool:
    from headrace.formats.spec.duration import DurationError, parse

    try:
        parse(text)
    except DurationError:
        return False
    return True


def _check(value: Any, expected: Expected, path: tuple[str, ...]) -> None:
    """Raise _Refused if the value at `path`, or a value below it, does not have the expected type.

    Keys that are not in `expected` are ignored here; `_unread` reports them.
    """
    if isinstance(expected, ValueType):
        if not _is_of_type(value, expected):
            raise _wrong_type(value, expected, path)
    elif isinstance(expected, dict):
        if not isinstance(value, dict):
            raise _wrong_type(value, schema.TABLE, path)
        for key, inner in value.items():
            if key in expected:
                _check(inner, expected[key], (*path, key))


def _is_of_type(value: Any, expected: ValueType) -> bool:
    if type(value) not in expected.types:
        return False
    if expected is schema.TEXTS:
        return all(isinstance(item, str) for item in value)
    if expected is schema.TABLE_LIST:
        return all(isinstance(item, dict) for item in value)
    if expected is schema.LIMIT:
        return bool(value >= 0)
    return expected is not schema.PORT or 0 < value < 1 << 16


def _wrong_type(value: Any, expected: ValueType, path: tuple[str, ...]) -> _Refused:
    where = ".".join(path)
    if path[0] == "exec" and expected in _UNPACKED_BY_EXEC:
        text = f"error reading config value {where}: Expected {expected.text}, got {_json_type(value)}"
    elif expected in _UNPACKED:
        text = f"Config file error [{path[0]}]: {where}: Expected {expected.text}, got {value!r}"
    else:
        text = f"{where}: must be {expected.text}, not {value!r}"
    return _Refused(path, text, value)


def _json_type(value: Any) -> str:
    """The name of a value's type in Flux's error messages."""
    if isinstance(value, bool):
        return str(value).lower()
    names = {int: "integer", float: "real", str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), type(value).__name__)


class _Unread(NamedTuple):
    """A key that Headrace does not read.

    Its path, the most similar known key (`meant`) or "", and all known keys of its table. `unknown` is false for a key
    of Flux that has no effect in Headrace.
    """

    path: tuple[str, ...]
    meant: str = ""
    known: tuple[str, ...] = ()
    unknown: bool = True

    @property
    def is_unrelated_table(self) -> bool:
        """True for an unknown table without a similar known table."""
        return len(self.path) == 1 and self.unknown and not self.meant

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self._text()}"

    def _text(self) -> str:
        if not self.unknown:
            return "has no effect in Headrace"
        if self.is_unrelated_table:
            return _UNKNOWN_TABLE
        what = "unknown table" if len(self.path) == 1 else "unknown key"
        return f"{what}, did you mean {self.meant}?" if self.meant else f"{what}, not {_listed(self.known, 'or')}"


def warnings(config: dict[str, Any], path: str = "", known_only: bool = False) -> list[str]:
    """Return a line for each key that has no effect: its path, and the most similar known key.

    With `known_only`, a table without a similar known table is omitted: users try out `flux config` with such tables.
    `path` is the file or folder from which the configuration, or a part of it, was read; lines begin with the file's
    name.
    """
    found = [key for key in _unread(config) if not (known_only and key.is_unrelated_table)]
    read = _read(path) if found else []
    return [_file_prefix(key.path, read) + str(key) for key in found]


def _read(path: str) -> list[tuple[str, dict[str, Any]]]:
    """The name and the contents of each file at `path`; [] if a file has become invalid since."""
    try:
        return config_files.read(path) if path else []
    except ConfigError:
        return []


def _file_prefix(path: tuple[str, ...], read: list[tuple[str, dict[str, Any]]], values: tuple[Any, ...] = ()) -> str:
    """Return "FILE: " for the file that sets the key at `path`; "" if no file sets it.

    With `values`, the file must set it to one of them. If several files set it, the last one is named, since it
    overrides the others.
    """
    for name, table in reversed(read):
        here: Any = table
        for key in path:
            here = here.get(key, _ABSENT) if isinstance(here, dict) else _ABSENT
        if here is not _ABSENT and (not values or here in values):
            return f"{name}: "
    return ""


def _unread(config: dict[str, Any]) -> Iterator[_Unread]:
    for name, table in config.items():
        if name == "queues":
            for queue, inner in table.items() if isinstance(table, dict) else ():
                yield from _unread_in(inner, schema.QUEUE, ("queues", queue))
        elif name in schema.TABLES:
            yield from _unread_in(table, schema.TABLES[name], (name,))
        elif name not in schema.FOREIGN:
            yield _Unread((name,), _similar(name, [*schema.TABLES, "queues", *schema.FOREIGN]))


def _unread_in(value: Any, expected: Expected, path: tuple[str, ...]) -> Iterator[_Unread]:
    if expected == schema.NO_EFFECT or (isinstance(expected, ValueType) and not expected.has_effect):
        yield _Unread(path, unknown=False)
    elif isinstance(expected, dict) and isinstance(value, dict):
        for key, inner in value.items():
            if key in expected:
                yield from _unread_in(inner, expected[key], (*path, key))
            else:
                yield _Unread((*path, key), _similar(key, list(expected)), tuple(sorted(expected)))


def _similar(name: str, names: list[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, names, 1)), "")


def _listed(names: tuple[str, ...], joint: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {joint} {last}" if first else last


def attributes(config: dict[str, Any]) -> dict[str, str]:
    """The broker attributes that a checked configuration sets, from its table `[tbon]`."""
    known = schema.TABLES["tbon"]
    given = {key: value for key, value in config.get("tbon", {}).items() if key in known}
    return {f"tbon.{key}": str(int(value) if isinstance(value, bool) else value) for key, value in given.items()}
