"""`flux kvs get`, `readlink`, `getroot`, `version` and `wait`: the reading subcommands."""

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
        ("r", "raw", "", "Write the bytes without a newline at the end"),
        ("t", "treeobj", "", "Print the tree object (RFC 11) of the value"),
        ("a", "at", "TREEOBJ", "Read the snapshot with this root reference (see getroot)"),
        ("l", "label", "", "Begin each value with its key and ="),
        ("W", "waitcreate", "", "If the key does not exist yet, wait for it"),
        ("w", "watch", "", "Print the value again whenever it changes"),
        ("u", "uniq", "", "With --watch, print a value only if it differs from the last"),
        ("A", "append", "", "With --watch, print only appended data"),
        ("f", "full", "", "With --watch, also report replacements of a parent directory"),
        ("c", "count", "COUNT", "With --watch, stop after COUNT values"),
        ("S", "stream", "", "Read a large value in pieces"),
    ),
)
_READLINK = Command(
    "flux-kvs readlink",
    "[OPTIONS] key [key...]",
    "Print the targets of symbolic links",
    (
        kvs.NAMESPACE,
        ("a", "at", "TREEOBJ", "Read the snapshot with this root reference (see getroot)"),
        ("o", "namespace-only", "", "Print only the namespace of a target in another namespace"),
        ("k", "key-only", "", "Print only the key of a target in another namespace"),
    ),
)
_GETROOT = Command(
    "flux-kvs getroot",
    "[OPTIONS]",
    "Print the current root reference",
    (
        kvs.NAMESPACE,
        ("s", "sequence", "", "Print the number of the last commit instead"),
        ("o", "owner", "", "Print the userid of the namespace's owner instead"),
        ("b", "blobref", "", "Print only the blobref of the root"),
    ),
)
_VERSION = Command("flux-kvs version", "[OPTIONS]", "Print the number of the last commit", (kvs.NAMESPACE,))
_WAIT = Command("flux-kvs wait", "[OPTIONS] version", "Wait until this broker has seen a commit", (kvs.NAMESPACE,))


def get(argv: List[str]) -> int:
    options = _GET.parse(argv)
    keys = options.need(1)
    handle = Handle()
    space = kvs.namespace(options)
    if options.has("watch") and options.has("stream"):
        # A stream ends after the current value, a watch does not end.
        raise CommandError(f"{keys[0]}: {os.strerror(errno.EINVAL)}")
    if options.has("watch"):
        return _watch(handle, keys[0], space, options)
    if options.has("stream"):
        if options.has("treeobj") or options.has("at"):
            raise CommandError("--stream cannot be used with --treeobj or --at")
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
    """Write values in the blobs in which the store keeps them, so that no value is in memory as a whole."""
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
