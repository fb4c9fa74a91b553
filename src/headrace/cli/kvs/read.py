"""`flux kvs get`, `readlink`, `getroot`, `version` and `wait`."""

from __future__ import annotations

import errno
import json
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec.kvs_flags import (
    READLINK,
    STREAM,
    TREEOBJ,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_UNIQ,
)
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options

_GET = Command(
    "flux-kvs get",
    "[OPTIONS] key",
    "Print the values of keys",
    (
        kvs.NAMESPACE,
        ("r", "raw", "", "Write the bytes as they are, without a newline after them"),
        ("t", "treeobj", "", "Print the tree object (RFC 11) that holds the value"),
        ("a", "at", "TREEOBJ", "Look into the snapshot that this reference names (see getroot)"),
        ("l", "label", "", "Begin each value with its key and ="),
        ("W", "waitcreate", "", "Wait for the key where it is not there yet"),
        ("w", "watch", "", "Print the value again whenever it changes"),
        ("u", "uniq", "", "With --watch, print a value only if it differs from the last"),
        ("A", "append", "", "With --watch, print only what was appended"),
        ("f", "full", "", "With --watch, also notice when a directory above the key was replaced"),
        ("c", "count", "COUNT", "With --watch, end after COUNT values"),
        ("S", "stream", "", "Read a large value in pieces"),
    ),
)
_READLINK = Command(
    "flux-kvs readlink",
    "[OPTIONS] key [key...]",
    "Print what symbolic links point to",
    (
        kvs.NAMESPACE,
        ("a", "at", "TREEOBJ", "Look into the snapshot that this reference names (see getroot)"),
        ("o", "namespace-only", "", "Of a link into a namespace, print the namespace"),
        ("k", "key-only", "", "Of a link into a namespace, print the key"),
    ),
)
_GETROOT = Command(
    "flux-kvs getroot",
    "[OPTIONS]",
    "Print a reference to the whole KVS as it is now",
    (
        kvs.NAMESPACE,
        ("s", "sequence", "", "Print the number of the commit"),
        ("o", "owner", "", "Print who owns the namespace, as a user id"),
        ("b", "blobref", "", "Print the content reference alone"),
    ),
)
_VERSION = Command("flux-kvs version", "[OPTIONS]", "Print the number of the last commit", (kvs.NAMESPACE,))
_WAIT = Command("flux-kvs wait", "[OPTIONS] version", "Wait until this broker has seen that commit", (kvs.NAMESPACE,))


def get(argv: List[str]) -> int:
    options = _GET.parse(argv)
    keys = options.need(1)
    handle = Handle()
    space = kvs.namespace(options)
    if options.has("watch") and options.has("stream"):
        # A stream ends with the value that is there, a watch does not end.
        raise CommandError(f"{keys[0]}: {os.strerror(errno.EINVAL)}")
    if options.has("watch"):
        return _watch(handle, keys[0], space, options)
    if options.has("stream"):
        if options.has("treeobj") or options.has("at"):
            raise CommandError("--stream gives values: it goes with neither --treeobj nor --at")
        return _stream(handle, keys, space, options)
    flags = TREEOBJ if options.has("treeobj") else 0
    root = kvs.snapshot(options)
    for key in keys:
        try:
            found = (
                kvs.wait_for(handle, key, space, flags)
                if options.has("waitcreate")
                else kvs.lookup(handle, key, space, flags, root)
            )
        except OSError as exc:
            raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
        _print(key, found, options)
    return 0


def _stream(handle: Handle, keys: List[str], space: str, options: Options) -> int:
    """Write values in the parts that the store keeps them in, so that none is held here as a whole."""
    flags = STREAM | (WAITCREATE if options.has("waitcreate") else 0)
    out = sys.stdout.buffer
    for key in keys:
        call = handle.stream("kvs-watch.lookup", {"key": key, "namespace": space, "flags": flags})
        out.write(f"{key}=".encode() if options.has("label") else b"")
        empty = True
        while True:
            try:
                portion = kvs.data_of(call.get()["val"])
                empty = empty and not portion
                out.write(portion)
            except BrokenPipeError:
                raise
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    break
                raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
        out.write(b"" if options.has("raw") or empty else b"\n")
    out.flush()
    return 0


def _watch(handle: Handle, key: str, space: str, options: Options) -> int:
    flags = WATCH
    for name, bit in (
        ("waitcreate", WAITCREATE),
        ("treeobj", TREEOBJ),
        ("uniq", WATCH_UNIQ),
        ("full", WATCH_FULL),
        ("append", WATCH_APPEND),
    ):
        if options.has(name):
            flags |= bit
    remaining = options.get_int("count", -1)
    call = handle.stream("kvs-watch.lookup", {"key": key, "namespace": space, "flags": flags})
    while remaining:
        try:
            answer = call.get()
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return 0
            raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
        _print(key, answer["val"], options)
        sys.stdout.flush()
        remaining -= 1
    call.cancel("kvs-watch.cancel")
    return 0


def _print(key: str, found: Dict[str, Any], options: Options) -> None:
    out = sys.stdout
    if options.has("label"):
        out.write(f"{key}=")
    if options.has("treeobj"):
        out.write(json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n")
        return
    data = kvs.data_of(found)
    out.flush()
    out.buffer.write(data if options.has("raw") or not data else data + b"\n")
    out.buffer.flush()


def readlink(argv: List[str]) -> int:
    options = _READLINK.parse(argv)
    keys = options.need(1)
    handle = Handle()
    root = kvs.snapshot(options)
    for key in keys:
        try:
            target = kvs.lookup(handle, key, kvs.namespace(options), READLINK, root)["data"]
        except OSError as exc:
            raise CommandError(f"readlink: {key}: {os.strerror(exc.errno or 0)}") from None
        space = target.get("namespace")
        if space is None or options.has("key-only"):
            print(target["target"])
        else:
            print(space if options.has("namespace-only") else f"{space}::{target['target']}")
    return 0


def _root(options: Options) -> Dict[str, Any]:
    space = kvs.namespace(options)
    try:
        answer: Dict[str, Any] = Handle().rpc("kvs.getroot", {"namespace": space}).get()
    except OSError as exc:
        raise CommandError(f"{space}: {os.strerror(exc.errno or 0)}") from None
    return answer


def getroot(argv: List[str]) -> int:
    options = _GETROOT.parse(argv)
    options.need(0, 0)
    root = _root(options)
    if options.has("sequence"):
        print(root["rootseq"])
    elif options.has("owner"):
        print(root["owner"])
    elif options.has("blobref"):
        print(root["rootref"])
    else:
        dirref = {"data": [root["rootref"]], "type": "dirref", "ver": 1}
        print(json.dumps(dirref, separators=(",", ":")))
    return 0


def version(argv: List[str]) -> int:
    options = _VERSION.parse(argv)
    options.need(0, 0)
    print(_root(options)["rootseq"])
    return 0


def wait(argv: List[str]) -> int:
    options = _WAIT.parse(argv)
    (text,) = options.need(1, 1)
    if not (text.isascii() and text.isdigit()):
        raise CommandError(f"invalid version '{text}'")
    handle = Handle()
    try:
        handle.rpc("kvs.wait-version", {"namespace": kvs.namespace(options), "rootseq": int(text)}).get()
    except OSError as exc:
        raise kvs.refused("flux_kvs_wait_version", exc) from None
    return 0
