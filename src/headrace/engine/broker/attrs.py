"""Broker attributes: Flux's names, the names that -S accepts, and the responses of the attr.* service.

Attributes are strings. `attr.get` is answered locally on each rank. Attributes that must agree on all ranks (size,
hostlist, instance-level ...) are therefore set on every broker at boot.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import duration

# Response flag of attr.get: the value will not change, so clients may cache it.
FLAG_IMMUTABLE = 1

# An empty default means that the attribute is not set: attr.get responds ENOENT, and lists omit it.
_USER_DEFAULTS = {
    "broker.boot-method": "",
    "broker.cleanup-timeout": "none",
    "broker.critical-ranks": "",
    "broker.exit-norestart": "",
    "broker.exit-restart": "",
    "broker.module-nopanic": "",
    "broker.quorum": "",
    "broker.quorum-warn": "1m",
    "broker.rc1_path": "",
    "broker.rc2_none": "",
    "broker.rc3_path": "",
    "broker.recovery-mode": "",
    "broker.sd-notify": "",
    "broker.sd-stop-timeout": "none",
    "broker.shutdown-timeout": "none",
    "broker.shutdown-warn": "1m",
    "broker.starttime": "",
    "broker.unload-builtins-timeout": "1m",
    "broker.uuid": "",
    "conf.shell_initrc": "",
    "conf.shell_pluginpath": "",
    "content.backing-module": "content-sqlite",
    "content.dump": "",
    "content.hash": "sha1",
    "content.restore": "",
    "cron.directory": "",
    "hostlist": "",
    "hostname": "",
    "local-uri": "",
    "log-critical-level": "2",
    "log-filename": "",
    "log-forward-level": "7",
    "log-level": "7",
    "log-ring-size": "1024",
    "log-stderr-level": "3",
    "log-stderr-mode": "leader",
    "log-syslog-enable": "0",
    "log-syslog-level": "3",
    "rundir": "",
    "rundir-cleanup": "1",
    "statedir": "",
    "statedir-cleanup": "0",
    "tbon.child_rcvhwm": "0",
    "tbon.connect_timeout": "30s",
    "tbon.interface-hint": "default-route",
    "tbon.prefertcp": "0",
    "tbon.tcp_user_timeout": "20s",
    "tbon.topo": "kary:32",
    "tbon.torpid_max": "30s",
    "tbon.torpid_min": "5s",
    "tbon.zmq_io_threads": "1",
    "tbon.zmqdebug": "0",
}

_READ_ONLY = (
    "broker.mapping",
    "broker.pid",
    "instance-level",
    "jobid",
    "jobid-path",
    "parent-kvs-namespace",
    "parent-uri",
    "rank",
    "security.owner",
    "size",
    "tbon.descendants",
    "tbon.endpoint",
    "tbon.level",
    "tbon.maxlevel",
    "tbon.parent-endpoint",
    "version",
)

# Durations of RFC 23. The limits may also be "none".
_DURATIONS = (
    "broker.unload-builtins-timeout",
    "tbon.connect_timeout",
    "tbon.tcp_user_timeout",
    "tbon.torpid_max",
    "tbon.torpid_min",
)
_LIMITS = (
    "broker.cleanup-timeout",
    "broker.quorum-warn",
    "broker.sd-stop-timeout",
    "broker.shutdown-timeout",
    "broker.shutdown-warn",
)
_COUNTS = ("log-ring-size", "tbon.child_rcvhwm", "tbon.zmq_io_threads", "tbon.zmqdebug")
_LEVELS = ("log-stderr-level", "log-level", "log-forward-level", "log-critical-level", "log-syslog-level")
# Flux's own attributes that may change in a running broker.
_RUNTIME = (
    "broker.module-nopanic",
    "content.dump",
    "content.restore",
    "log-critical-level",
    "log-forward-level",
    "log-ring-size",
    "log-stderr-level",
    "tbon.torpid_max",
    "tbon.torpid_min",
)
# Attributes that `flux lsattr` lists even while they are not set, because most of them have a default in Flux.
_OPTIONAL = (
    "broker.rc1_path",
    "broker.rc3_path",
    "conf.shell_initrc",
    "conf.shell_pluginpath",
    "parent-uri",
    "statedir",
    "tbon.endpoint",
)

_SETTABLE_PREFIXES = ("user.", "test.", "test-nr.", "config.path", "sched.")
# `flux setattr` may create attributes with these prefixes while the broker runs.
_MADE_UP = ("user.", "test.", "sched.")


class AttrError(ValueError):
    """An unknown attribute in a -S option, or an invalid value for one."""


class AttrTable:
    """The attributes of one broker."""

    def __init__(self, given: dict[str, str] | None = None) -> None:
        self._values = {name: value for name, value in _USER_DEFAULTS.items() if value != ""}
        for name, value in (given or {}).items():
            if name in _READ_ONLY:
                raise AttrError(f"{name}: attribute is read-only")
            if name not in _USER_DEFAULTS and not name.startswith(_SETTABLE_PREFIXES):
                raise AttrError(f"{name}: unknown attribute")
            _check(name, value)
            # Durations are shown with their unit.
            self._values[name] = "0s" if name in _DURATIONS and not duration.parse(value) else value
        # Called with name and new value on every change; the value None means that the attribute was removed.
        self.watchers: list[Callable[[str, str | None], None]] = []

    def _changed(self, name: str) -> None:
        for watcher in self.watchers:
            watcher(name, self._values.get(name))

    def get(self, name: str, default: str = "") -> str:
        """The value, or `default` if the attribute is not set."""
        return self._values.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def set(self, name: str, value: str | int) -> None:
        """Set an attribute from inside the broker, without any checks."""
        self._values[name] = str(value)
        self._changed(name)

    def items(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._values.items()))

    def names(self) -> list[str]:
        """The response of attr.list, which includes attributes without a value."""
        return sorted({*self._values, *_OPTIONAL})

    def lookup(self, name: str) -> dict[str, object]:
        """The response of attr.get. Raises RpcError(ENOENT)."""
        if name not in self._values:
            raise RpcError(errno.ENOENT)
        return {"value": self._values[name], "flags": FLAG_IMMUTABLE}

    def update(self, name: str, value: str, force: bool = False) -> None:
        """Handle attr.set. Without `force`, only a few of Flux's own attributes may change at runtime.

        Raises RpcError(ENOENT, EPERM, EINVAL).
        """
        known = name in _USER_DEFAULTS or name in _READ_ONLY or name in self._values
        if not known and not name.startswith((*_MADE_UP, "test-nr.")):
            raise RpcError(errno.ENOENT, "unknown attribute")
        may_change = name in _RUNTIME or name.startswith(_MADE_UP) or (force and name not in _READ_ONLY)
        if not may_change:
            raise RpcError(errno.EPERM, "attribute may not be updated")
        if name in _USER_DEFAULTS:
            try:
                _check(name, value)
            except AttrError as exc:
                raise RpcError(errno.EINVAL, str(exc).removeprefix(f"{name}: ")) from None
        self.set(name, value)

    def remove(self, name: str) -> None:
        """Handle attr.rm. Raises RpcError(ENOENT, EPERM)."""
        if name in _USER_DEFAULTS or name in _READ_ONLY:
            raise RpcError(errno.EPERM, "attribute may not be removed")
        if self._values.pop(name, None) is None:
            raise RpcError(errno.ENOENT)
        self._changed(name)


def _check(name: str, value: str) -> None:
    """Raise AttrError if `value` is invalid for an attribute."""
    if name in _DURATIONS or (name in _LIMITS and value != "none"):
        try:
            duration.parse(value)
        except duration.DurationError as exc:
            raise AttrError(f"Error parsing {name} attribute: {exc}") from None
    elif name in _COUNTS and not (value.isascii() and value.isdigit() and len(value) < 7):
        raise AttrError(f"{name}: value must be an integer of at most six digits, not '{value}'")
    elif name == "log-stderr-mode" and value not in ("leader", "local"):
        raise AttrError(f"{name}: '{value}' is neither leader nor local")
    elif name in ("rundir", "statedir") and not value:
        raise AttrError(f"{name}: give a folder, or leave it out")
    elif name == "content.backing-module" and value not in ("content-sqlite", "none"):
        raise AttrError(f"{name}: '{value}' is neither content-sqlite nor none")
    elif name in _LEVELS and value not in ("-1", *"01234567"):
        raise AttrError(f"{name}: '{value}' is not a level: use 0 to 7, or -1 for none")
    elif name == "tbon.child_rcvhwm" and value == "1":
        raise AttrError(f"{name}: value must be 0 (unlimited) or >= 2")
    elif name == "log-syslog-enable" and value not in ("0", "1"):
        raise AttrError(f"{name}: '{value}' is neither 0 nor 1")
    elif name == "log-filename" and not value:
        raise AttrError(f"{name}: give a file, or leave it out")
