"""`flux config set` and `unset`: change one value of the running instance's configuration.

The whole configuration is read, changed and loaded again, so that what a module refuses leaves all of it as it was.
"""

from __future__ import annotations

import json

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.config.warnings import show_warnings
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_SET = Command(
    "flux-config set",
    "[OPTIONS] NAME VALUE",
    "Change one key until the configuration is next loaded",
    (("t", "type", "TYPE", "Type of a new value (string, integer, real, boolean, object, array, fsd)"),),
)
_UNSET = Command("flux-config unset", "NAME", "Take one key out until the configuration is next loaded")


def set_value(argv: List[str]) -> int:
    options = _SET.parse(argv)
    name, text = options.need(2, 2)
    handle = Handle()
    conf: Any = handle.rpc("config.get").get()
    table, key = _parent(conf, name)
    kind = options.get("type") or _kind_of(table.get(key))
    if not kind:
        raise CommandError(f"{name} is not set: give the type of its value with --type")
    table[key] = _value(text, kind, name)
    return _load(handle, conf)


def unset(argv: List[str]) -> int:
    (name,) = _UNSET.parse(argv).need(1, 1)
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
    return _load(handle, conf)


def _load(handle: Handle, conf: Dict[str, Any]) -> int:
    handle.rpc("config.load", conf).get()
    show_warnings(handle)
    return 0


def _parent(conf: Dict[str, Any], name: str) -> Any:
    """(table, key) of a dotted name; tables on the way are made. Raises CommandError where a value is in the way."""
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
    """The type of a value that is set, "" for none."""
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
