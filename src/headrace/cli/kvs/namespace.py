"""`flux kvs namespace create|remove|list` and `flux kvs dropcache`: commands for the store as a whole."""

from __future__ import annotations

import os

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.formats.spec.message import USERID_UNKNOWN
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_TABLE = {
    "create": ("Create namespaces, each with its own root directory", None),
    "remove": ("Remove namespaces and their content", None),
    "list": ("Print the namespaces that this broker knows", None),
}
_CREATE = Command(
    "flux-kvs namespace create",
    "[OPTIONS] name [name...]",
    _TABLE["create"][0],
    (
        ("o", "owner", "UID", "Set the owner to this userid (default: yours)"),
        ("r", "rootref", "BLOBREF", "Start with the content of this root instead of an empty one"),
    ),
)
_REMOVE = Command("flux-kvs namespace remove", "name [name...]", _TABLE["remove"][0])
_LIST = Command("flux-kvs namespace list", "", "Print the namespaces that this broker knows")
_DROPCACHE = Command(
    "flux-kvs dropcache",
    "[--all]",
    "Drop cached data that the KVS can load again",
    (("a", "all", "", "On all brokers, not only on this one"),),
)


def namespace(argv: List[str]) -> int:
    name, rest = dispatch("flux-kvs namespace", argv, _TABLE)
    return {"create": _create, "remove": _remove, "list": _list}[name](rest)


def _create(argv: List[str]) -> int:
    options = _CREATE.parse(argv)
    owner = options.get_int("owner", os.getuid())
    if not 0 <= owner <= USERID_UNKNOWN:
        raise CommandError(f"--owner: {owner} is not a userid")
    request: Dict[str, Any] = {"owner": owner, "flags": 0}
    if options.has("rootref"):
        request["rootref"] = options.get("rootref")
    return _each("create", options.need(1), request)


def _each(verb: str, names: List[str], request: Dict[str, Any]) -> int:
    handle = Handle()
    for name in names:
        try:
            handle.rpc(f"kvs.namespace-{verb}", {"namespace": name, **request}).get()
        except OSError as exc:
            raise CommandError(f"{name}: {os.strerror(exc.errno or 0)}") from None
    return 0


def _remove(argv: List[str]) -> int:
    return _each("remove", _REMOVE.parse(argv).need(1), {})


def _list(argv: List[str]) -> int:
    _LIST.parse(argv).need(0, 0)
    print(f"{'NAMESPACE':<36} {'OWNER':>10} {'FLAGS':>10}")
    for space in Handle().rpc("kvs.namespace-list").get()["namespaces"]:
        owner = "-" if space["owner"] == USERID_UNKNOWN else space["owner"]
        print(f"{space['namespace']:<36} {owner:>10} {space['flags']:#010x}")
    return 0


def dropcache(argv: List[str]) -> int:
    options = _DROPCACHE.parse(argv)
    options.need(0, 0)
    if options.has("all"):
        Handle().rpc("event.publish", {"topic": "kvs.dropcache", "flags": 0}).get()
    else:
        Handle().rpc("kvs.dropcache").get()
    return 0
