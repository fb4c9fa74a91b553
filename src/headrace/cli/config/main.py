"""`flux config`: the instance's configuration, and what this installation was built with."""

from __future__ import annotations

import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.cli.config.warnings import show_warnings
from headrace.wire.query.builtin import CONFDIR, builtin_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

PREFIX = "flux-config: "

_TABLE = {
    "get": ("Print what the broker is configured with, whole or one key", None),
    "set": ("Change one key until the configuration is next loaded", None),
    "unset": ("Take one key out until the configuration is next loaded", None),
    "load": ("Replace the configuration by a file, a folder of files, or standard input", None),
    "reload": ("Read the configuration files of this broker again", None),
    "builtin": ("Print paths and names that come with this installation", None),
}
_GET = Command(
    "flux-config get",
    "[OPTIONS] [NAME]",
    "Print what the broker is configured with, whole or one key",
    (
        ("d", "default", "VAL", "Print VAL, and succeed, where the key is not set"),
        (
            "t",
            "type",
            "TYPE",
            "Fail unless the value is of this type (string, integer, real, boolean, object, array, fsd, ...)",
        ),
        ("q", "quiet", "", "Say nothing when it fails: the exit status tells"),
        ("c", "config-path", "PATH", 'Look into this file or folder, or "system", not into the running broker'),
    ),
)
_LOAD = Command(
    "flux-config load", "[PATH]", "Replace the configuration by a file, a folder of files, or standard input"
)
_RELOAD = Command(
    "flux-config reload",
    "[OPTIONS]",
    "Read the configuration files of this broker again",
    (("", "follower-noop", "", "On a follower, which the leader tells of changes, do nothing"),),
)
_BUILTIN = Command(
    "flux-config builtin",
    "[OPTIONS] NAME",
    "Print paths and names that come with this installation",
    (
        ("", "installed", "", "Accepted: there is one set of values"),
        ("", "intree", "", "Accepted: there is one set of values"),
    ),
)
_TYPES = {
    "string": (str,),
    "integer": (int,),
    "real": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-config", argv, _TABLE)
    if name in ("set", "unset"):
        from headrace.cli.config import set as config_set

        return config_set.set_value(rest) if name == "set" else config_set.unset(rest)
    return {"get": _get, "load": _load, "reload": _reload, "builtin": _builtin}[name](rest)


def _get(argv: List[str]) -> int:
    options = _GET.parse(argv)
    name = (options.need(0, 1) or [""])[0]
    conf = _configuration(options.get("config-path"))
    found: Any = conf
    for key in [key for key in name.split(".") if key]:
        found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            break
    if found is None:
        if options.has("default"):
            print(options.get("default"))
            return 0
        raise CommandError("" if options.has("quiet") else f"{name} is not set")
    print(_show(found, options.get("type", "any"), name))
    return 0


def _configuration(path: str) -> Any:
    if path:
        from headrace.wire.query.conf_option import read_path

        return read_path(f"{CONFDIR}/{path}/conf.d" if path in ("system", "security", "imp") else path)
    from headrace.wire.client.handle import Handle

    return Handle().rpc("config.get").get()


def _show(value: Any, kind: str, name: str) -> str:
    """The value as text: plain for strings, as a duration for the fsd types, else JSON. Raises CommandError."""
    if kind.startswith("fsd"):
        from headrace.formats.spec import duration

        try:
            seconds = duration.parse(value) if isinstance(value, str) else float(value)
        except (ValueError, TypeError):
            raise CommandError(f"{name} does not have the requested type: {value!r} is not a valid FSD") from None
        if kind == "fsd":
            return str(value) if isinstance(value, str) else duration.encode(seconds)
        return str(int(seconds)) if kind == "fsd-integer" else str(seconds)
    if kind != "any":
        if kind not in _TYPES:
            raise CommandError(f"Unknown type: {kind}")
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise CommandError(f"{name} does not have the requested type")
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _load(argv: List[str]) -> int:
    from headrace.wire.client.handle import Handle
    from headrace.wire.query.conf_option import decode, read_path

    operands = _LOAD.parse(argv).need(0, 1)
    conf = read_path(operands[0]) if operands else decode(sys.stdin.read(), "standard input")
    handle = Handle()
    handle.rpc("config.load", conf).get()
    show_warnings(handle)
    return 0


def _reload(argv: List[str]) -> int:
    from headrace.wire.client.handle import Handle

    options = _RELOAD.parse(argv)
    options.need(0, 0)
    handle = Handle()
    if options.has("follower-noop") and handle.attr_get("rank") != "0":
        return 0
    handle.rpc("config.reload").get()
    show_warnings(handle)
    return 0


def _builtin(argv: List[str]) -> int:
    options = _BUILTIN.parse(argv)
    (name,) = options.need(1, 1)
    values = builtin_values()
    if name not in values:
        raise CommandError(f"{name} is invalid: known are {', '.join(values)}")
    print(values[name])
    return 0
