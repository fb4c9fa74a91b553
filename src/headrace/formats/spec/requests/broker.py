"""Requests to the broker's own services (RFC 5): attr, config, event, groups, log and others."""

from __future__ import annotations

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods

_NONE = form({})
_NAME = form({"name": str})
_SERVICE = form({"service": str})
_TOPIC = form({"topic": str})

ATTR: Methods = {"get": _NAME, "set": form({"name": str, "value": str, "force?": bool}), "rm": _NAME, "list": _NONE}

BROKER: Methods = {
    "getenv": form({"names": [str]}),
    "setenv": form({"env": dict}),
    "heartbeat-lost": _NONE,
    "disconnect": None,
}

# `load` accepts any object as configuration.
CONFIG: Methods = {"get": _NONE, "warnings": _NONE, "reload": _NONE, "load": _NONE}

EVENT: Methods = {
    "publish": form({"topic": str, "flags?": int, "payload?": str}),
    "subscribe": _TOPIC,
    "unsubscribe": _TOPIC,
}

GROUPS: Methods = {"get": _NAME, "join": _NAME, "leave": _NAME, "update": form({"update": dict})}

# Log lines (RFC 5424) are text, not JSON.
LOG: Methods = {
    "append": None,
    "forward": None,
    "dmesg": form({"follow?": bool, "nobacklog?": bool}),
    "clear": _NONE,
    "stats-get": _NONE,
}

MODULE: Methods = {
    "load": form({"path": str, "name?": str, "args?": [str], "exec?": bool}),
    "reload": form({"path": str, "name?": str, "args?": [str], "exec?": bool, "force?": bool}),
    "remove": _NAME,
    "list": _NONE,
    "status": _NONE,
    "debug": form({"name": str, "op?": str, "flags?": int}),
    "trace": form({"names": [str], "typemask?": int, "topic_glob?": str, "full?": bool}),
}

OVERLAY: Methods = {
    "health": _NONE,
    "topology": form({"rank": int}),
    "disconnect-subtree": form({"rank": int}),
    "drained": form({"route": [str]}),
    "monitor": _NONE,
    "grow": form({"hosts": str}),
}

RUNAT: Methods = {"push": form({"name": str, "commands": [str]})}

SERVICE: Methods = {"add": _SERVICE, "remove": _SERVICE}

SHUTDOWN: Methods = {"start": form({"loglevel?": int})}

STATE_MACHINE: Methods = {"get": _NONE, "wait": _NONE, "monitor": _NONE}

# The methods of every module.
EVERY_MODULE: Methods = {
    "debug": form({"op?": str, "flags?": int}),
    "ping": _NONE,
    "rusage": form({"who?": str}),
    "stats-get": _NONE,
    "stats-clear": _NONE,
    "config-reload": _NONE,
}
