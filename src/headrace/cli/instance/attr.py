"""`flux getattr`, `flux setattr` and `flux lsattr`: show and change the broker's attributes."""

from __future__ import annotations

import errno
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-{name}: "

_GETATTR = Command("flux-getattr", "[OPTIONS] NAME", "Print the value of one broker attribute")
_SETATTR = Command(
    "flux-setattr",
    "[OPTIONS] NAME VALUE",
    "Change a broker attribute while the instance runs",
    [
        ("e", "expunge", "", "Remove the attribute (without VALUE)"),
        ("f", "force", "", "Change the attribute even if it is fixed while the instance runs"),
    ],
)
_LSATTR = Command(
    "flux-lsattr",
    "[OPTIONS]",
    "List all attributes of this broker",
    [("v", "values", "", "Print values beside the names")],
)


def main(argv: List[str], name: str) -> int:
    if name == "getattr":
        return _getattr(argv)
    return _setattr(argv) if name == "setattr" else _lsattr(argv)


def _getattr(argv: List[str]) -> int:
    (attr,) = _GETATTR.parse(argv).need(1, 1)
    try:
        print(Handle().attr_get(attr))
    except OSError as exc:
        if exc.errno != errno.ENOENT or "connect" in str(exc.strerror):
            raise
        raise CommandError(f"{attr}: {exc.strerror}") from None
    return 0


def _setattr(argv: List[str]) -> int:
    # A value may begin with a dash, such as -1.
    options = _SETATTR.parse(argv, stop_early=True)
    expunge = options.has("expunge")
    attr, *value = options.need(1, 1) if expunge else options.need(2, 2)
    handle = Handle()
    try:
        if expunge:
            handle.rpc("attr.rm", {"name": attr}).get()
        else:
            forced = {"force": True} if options.has("force") else {}
            handle.rpc("attr.set", {"name": attr, "value": value[0], **forced}).get()
    except OSError as exc:
        raise CommandError(f"{attr}: {exc.strerror}") from None
    return 0


def _lsattr(argv: List[str]) -> int:
    options = _LSATTR.parse(argv)
    options.need(0, 0)
    handle = Handle()
    names = sorted(handle.rpc("attr.list").get()["names"])
    if not options.has("values"):
        sys.stdout.write("".join(f"{name}\n" for name in names))
        return 0
    calls = [handle.rpc("attr.get", {"name": name}) for name in names]
    for name, call in zip(names, calls):
        try:
            value = call.get()["value"]
        except OSError:
            value = "-"
        print(f"{name:<40}{value}")
    return 0
