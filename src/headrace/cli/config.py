"""`flux config`: shows and changes the instance's configuration, and shows built-in values.

`set` and `unset` read the configuration, change one value and load the whole configuration again, so that a rejected
value changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.wire.client.installation import CONFDIR, builtin_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.wire.client.handle import Handle


PREFIX = "flux-config: "

_TABLE = {
    "get": ("Print the broker's configuration, or one key of it", None),
    "set": ("Change one key until the configuration is next loaded", None),
    "unset": ("Remove one key until the configuration is next loaded", None),
    "load": ("Replace the configuration with a file, a folder of files, or standard input", None),
    "reload": ("Read the configuration files of this broker again", None),
    "builtin": ("Print built-in paths and names of this installation", None),
}
_GET = Command(
    "flux-config get",
    "[OPTIONS] [NAME]",
    _TABLE["get"][0],
    (
        ("d", "default", "VAL", "If the key is not set, print VAL and succeed"),
        (
            "t",
            "type",
            "TYPE",
            "Fail unless the value is of this type (string, integer, real, boolean, object, array, fsd, ...)",
        ),
        ("q", "quiet", "", "Print no error if the key is not set"),
        ("c", "config-path", "PATH", 'Read this file or folder, or "system", instead of the running broker\'s'),
    ),
)
_LOAD = Command("flux-config load", "[PATH]", _TABLE["load"][0])
_RELOAD = Command(
    "flux-config reload",
    "[OPTIONS]",
    "Read the configuration files of this broker again",
    (("", "follower-noop", "", "Do nothing on a follower, which gets changes from the leader"),),
)
_BUILTIN = Command(
    "flux-config builtin",
    "[OPTIONS] NAME",
    _TABLE["builtin"][0],
    (
        ("", "installed", "", "No effect (there is one set of values)"),
        ("", "intree", "", "No effect (there is one set of values)"),
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
    actions = {"get": _get, "set": _set_value, "unset": _unset, "load": _load, "reload": _reload, "builtin": _builtin}
    return actions[name](rest)


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
    """The value as text: strings as they are, fsd types as a duration, others as JSON.

    Raises CommandError.
    """
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


def show_warnings(handle: Any) -> None:
    """Warn about keys of the new configuration that nothing reads, such as misspelled ones."""
    with contextlib.suppress(OSError):
        for line in handle.rpc("config.warnings").get()["lines"]:
            sys.stderr.write(f"{PREFIX}warning: {line}\n")


_SET = Command(
    "flux-config set",
    "[OPTIONS] NAME VALUE",
    "Change one key until the configuration is next loaded",
    (("t", "type", "TYPE", "Type of a new value (string, integer, real, boolean, object, array, fsd)"),),
)
_UNSET = Command("flux-config unset", "NAME", _TABLE["unset"][0])


def _set_value(argv: List[str]) -> int:
    options = _SET.parse(argv)
    name, text = options.need(2, 2)
    from headrace.wire.client.handle import Handle

    handle = Handle()
    conf: Any = handle.rpc("config.get").get()
    table, key = _parent(conf, name)
    kind = options.get("type") or _kind_of(table.get(key))
    if not kind:
        raise CommandError(f"{name} is not set: give the type of its value with --type")
    table[key] = _value(text, kind, name)
    return _load_changed(handle, conf)


def _unset(argv: List[str]) -> int:
    (name,) = _UNSET.parse(argv).need(1, 1)
    from headrace.wire.client.handle import Handle

    handle = Handle()
    conf: Any = handle.rpc("config.get").get()
    tables = [conf]
    *path, key = name.split(".")
    for part in path:
        inner = tables[-1].get(part)
        if not isinstance(inner, dict):
            return 0
        tables.append(inner)
    if key not in tables[-1]:
        return 0
    del tables[-1][key]
    return _load_changed(handle, conf)


def _load_changed(handle: Handle, conf: Dict[str, Any]) -> int:
    handle.rpc("config.load", conf).get()
    show_warnings(handle)
    return 0


def _parent(conf: Dict[str, Any], name: str) -> Any:
    """The table and key of a dotted name; missing tables are created.

    Raises CommandError if a parent is a value.
    """
    *path, key = name.split(".")
    if not all([*path, key]):
        raise CommandError(f"{name}: a name is KEY or TABLE.KEY")
    table = conf
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise CommandError(f"{name}: {part} is a value, not a table")
    return table, key


_KINDS = ((bool, "boolean"), (int, "integer"), (float, "real"), (str, "string"), (dict, "object"), (list, "array"))


def _kind_of(value: Any) -> str:
    """The type of a value, "" if it is not set."""
    return next((kind for type_, kind in _KINDS if isinstance(value, type_)), "")


def _value(text: str, kind: str, name: str) -> Any:
    if kind == "fsd":
        from headrace.formats.spec import duration

        try:
            duration.parse(text)
        except ValueError:
            raise CommandError(f"{name}: {text} is not a Flux standard duration") from None
        return text
    known = [name for _, name in _KINDS]
    if kind not in known:
        raise CommandError(f"Unknown type: {kind}: use {', '.join(known)} or fsd")
    if kind == "string" and text[:1] != '"':
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if kind == "real" and _kind_of(value) == "integer":
        value = float(value)
    if _kind_of(value) != kind:
        raise CommandError(f"{name}: {text} does not have the requested type {kind}")
    return value
