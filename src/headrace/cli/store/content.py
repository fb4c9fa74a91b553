"""`flux content`: stores and loads blobs by their hashes (RFC 10)."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, dispatch
from headrace.wire.client.handle import NODEID_ANY, Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-content: "

_BYPASS = ("b", "bypass-cache", "", "Bypass the cache and use the backing store")
_TABLE = {
    "load": ("Write the blobs of these references to standard output", None),
    "store": ("Store standard input as a blob and print its reference", None),
    "flush": ("Wait until all blobs of this broker's cache are stored", None),
    "dropcache": ("Drop blobs of this broker's cache that are stored", None),
}
_COMMANDS = {
    "load": Command(
        "flux-content load",
        "[OPTIONS] BLOBREF ...",
        "Write the blobs of these references to standard output",
        (_BYPASS,),
    ),
    "store": Command(
        "flux-content store", "[OPTIONS]", "Store standard input as a blob and print its reference", (_BYPASS,)
    ),
    "flush": Command("flux-content flush", "", _TABLE["flush"][0]),
    "dropcache": Command("flux-content dropcache", "", _TABLE["dropcache"][0]),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-content", argv, _TABLE)
    options = _COMMANDS[name].parse(rest)
    service, node = ("content-backing", 0) if options.has("bypass-cache") else ("content", NODEID_ANY)
    if name == "load":
        return _load(options.operands or sys.stdin.read().split(), service, node)
    options.need(0, 0)
    if name == "store":
        return _store(service, node)
    Handle().rpc(f"content.{name}").get()
    return 0


def _load(blobrefs: List[str], service: str, node: int) -> int:
    digests = []
    for blobref in blobrefs:
        _, dash, digits = blobref.partition("-")
        try:
            digests.append(bytes.fromhex(digits if dash else "?"))
        except ValueError:
            raise CommandError("error loading blob: Invalid argument") from None
    handle = Handle()
    for digest in digests:
        try:
            blob = handle.rpc(f"{service}.load", nodeid=node, payload=digest).get_raw()
        except OSError as exc:
            raise CommandError(f"error loading blob: {exc.strerror}") from None
        sys.stdout.buffer.write(blob)
    sys.stdout.buffer.flush()
    return 0


def _store(service: str, node: int) -> int:
    blob = sys.stdin.buffer.read()
    handle = Handle()
    name = handle.attr_get("content.hash")
    try:
        digest = handle.rpc(f"{service}.store", nodeid=node, payload=blob).get_raw()
    except OSError as exc:
        raise CommandError(f"error storing blob: {exc.strerror}") from None
    print(f"{name}-{digest.hex()}")
    return 0
