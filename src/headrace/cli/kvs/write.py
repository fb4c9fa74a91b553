"""`flux kvs put`, `unlink`, `link`, `mkdir`, `copy` and `move`: the writing subcommands."""

from __future__ import annotations

import errno
import json
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec.kvs_flags import APPEND, NO_MERGE, READDIR, SYNC, TREEOBJ
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options

_OUTPUT = (
    ("O", "treeobj-root", "", "Print the new root reference, for --at"),
    ("b", "blobref", "", "Print the blobref of the new root"),
    ("s", "sequence", "", "Print the number of this commit, for kvs wait"),
)
_PUT = Command(
    "flux-kvs put",
    "[OPTIONS] key=value [key=value...]",
    "Set keys to values, all in one commit",
    (
        kvs.NAMESPACE,
        *_OUTPUT,
        ("r", "raw", "", "Store the bytes as they are; for the value -, read standard input"),
        ("t", "treeobj", "", "Store the value as a tree object (RFC 11); for -, read standard input"),
        ("n", "no-merge", "", "Do not merge this commit with others"),
        ("A", "append", "", "Append to existing values"),
        ("S", "sync", "", "Wait until the change would survive a crash"),
    ),
)
_UNLINK = Command(
    "flux-kvs unlink",
    "[OPTIONS] key [key...]",
    "Remove keys, all in one commit",
    (
        kvs.NAMESPACE,
        *_OUTPUT,
        ("R", "recursive", "", "Remove directories and their content"),
        ("f", "force", "", "Ignore keys that do not exist"),
    ),
)
_LINK = Command(
    "flux-kvs link",
    "[OPTIONS] target linkname",
    "Create a symbolic link to a key",
    (kvs.NAMESPACE, *_OUTPUT, ("T", "target-namespace", "NAME", "The namespace of the target")),
)
_MKDIR = Command("flux-kvs mkdir", "[OPTIONS] key [key...]", "Create empty directories", (kvs.NAMESPACE, *_OUTPUT))
_MOVE_OPTIONS = (
    ("S", "src-namespace", "NAME", "The namespace of the source"),
    ("D", "dst-namespace", "NAME", "The namespace of the destination"),
)
_COPY = Command("flux-kvs copy", "source destination", "Copy a key or a directory", _MOVE_OPTIONS)
_MOVE = Command("flux-kvs move", "source destination", "Rename a key or a directory", _MOVE_OPTIONS)


def _commit(handle: Handle, options: Options, ops: List[Dict[str, Any]], flags: int = 0) -> int:
    try:
        answer = kvs.commit(handle, kvs.namespace(options), ops, flags)
    except OSError as exc:
        raise kvs.refused("flux_kvs_commit", exc) from None
    if options.has("treeobj-root"):
        dirref = {"data": [answer["rootref"]], "type": "dirref", "ver": 1}
        print(json.dumps(dirref, separators=(",", ":")))
    elif options.has("blobref"):
        print(answer["rootref"])
    elif options.has("sequence"):
        print(answer["rootseq"])
    return 0


def put(argv: List[str]) -> int:
    options = _PUT.parse(argv)
    ops = []
    for text in options.need(1):
        key, sep, value = text.partition("=")
        if not sep or not key:
            raise CommandError("put: you must specify a value as key=value")
        ops.append(kvs.op(key, _dirent(key, value, options), APPEND if options.has("append") else 0))
    flags = (NO_MERGE if options.has("no-merge") else 0) | (SYNC if options.has("sync") else 0)
    return _commit(Handle(), options, ops, flags)


def _dirent(key: str, value: str, options: Options) -> Dict[str, Any]:
    if value == "-" and (options.has("raw") or options.has("treeobj")):
        data = sys.stdin.buffer.read()
    else:
        data = value.encode("utf-8", "surrogateescape")
    if options.has("treeobj"):
        try:
            found = json.loads(data)
        except ValueError as exc:
            raise CommandError(f"{key}: not a tree object: {exc}") from None
        if not isinstance(found, dict):
            raise CommandError(f"{key}: not a tree object: it must be a JSON object")
        return found
    return kvs.val(data)


def unlink(argv: List[str]) -> int:
    options = _UNLINK.parse(argv)
    handle = Handle()
    space = kvs.namespace(options)
    ops = []
    for key in options.need(1):
        try:
            kind = kvs.lookup(handle, key, space, TREEOBJ)["type"]
            full = kind in ("dir", "dirref") and not options.has("recursive")
            if full and kvs.lookup(handle, key, space, READDIR)["data"]:
                raise CommandError(f"cannot unlink '{key}': Directory not empty")
        except OSError as exc:
            if exc.errno == errno.ENOENT and options.has("force"):
                continue
            raise CommandError(f"cannot unlink '{key}': {os.strerror(exc.errno or 0)}") from None
        ops.append(kvs.op(key, None))
    return _commit(handle, options, ops) if ops else 0


def link(argv: List[str]) -> int:
    options = _LINK.parse(argv)
    target, name = options.need(2, 2)
    data = {"target": target}
    if options.has("target-namespace"):
        data["namespace"] = options.get("target-namespace")
    return _commit(Handle(), options, [kvs.op(name, {"ver": 1, "type": "symlink", "data": data})])


def mkdir(argv: List[str]) -> int:
    options = _MKDIR.parse(argv)
    ops = [kvs.op(key, {"ver": 1, "type": "dir", "data": {}}) for key in options.need(1)]
    return _commit(Handle(), options, ops)


def copy(argv: List[str]) -> int:
    return _copy(_COPY.parse(argv), remove=False)


def move(argv: List[str]) -> int:
    return _copy(_MOVE.parse(argv), remove=True)


def _copy(options: Options, remove: bool) -> int:
    source, destination = options.need(2, 2)
    handle = Handle()
    default = kvs.namespace(options)
    space_from, space_to = options.get("src-namespace", default), options.get("dst-namespace", default)
    try:
        found = kvs.lookup(handle, source, space_from, TREEOBJ)
        kvs.commit(handle, space_to, [kvs.op(destination, found)])
        if remove:
            kvs.commit(handle, space_from, [kvs.op(source, None)])
    except OSError as exc:
        raise CommandError(f"{source}: {os.strerror(exc.errno or 0)}") from None
    return 0
