"""`flux kvs ls` and `flux kvs dir`: list directories of the KVS."""

from __future__ import annotations

import errno
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.kvs import requests as kvs
from headrace.formats.spec.kvs_flags import READDIR, TREEOBJ
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    from headrace.cli.common.getopts import Options

_LS = Command(
    "flux-kvs ls",
    "[OPTIONS] [key...]",
    "Print the names in directories, in columns",
    (
        kvs.NAMESPACE,
        ("R", "recursive", "", "List subdirectories recursively"),
        ("d", "directory", "", "Print the name of a directory, not its content"),
        ("w", "width", "N", "Fit lines to N columns (0: no limit)"),
        ("1", "1", "", "Print one name per line"),
        ("F", "classify", "", "Mark directories with . and links with @"),
    ),
)
_DIR = Command(
    "flux-kvs dir",
    "[OPTIONS] [key]",
    "Print the keys of a directory with their values",
    (
        kvs.NAMESPACE,
        ("R", "recursive", "", "Include keys of subdirectories"),
        ("d", "directory", "", "Print the keys only, without values"),
        ("w", "width", "N", "Fit lines to N columns (0: no limit)"),
        ("a", "at", "TREEOBJ", "Read the snapshot with this root reference (see getroot)"),
    ),
)
_GAP = 4
_DEFAULT_WIDTH = 80
_MARKS = {"dir": ".", "dirref": ".", "symlink": "@"}


def _width(options: Options) -> int:
    """The width of lines: --width, the terminal's, COLUMNS, or 80, in this order; 0 means no limit."""
    if options.has("width"):
        return options.get_int("width", 0)
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        columns = os.environ.get("COLUMNS", "")
        return int(columns) if columns.isdigit() else _DEFAULT_WIDTH


def ls(argv: List[str]) -> int:
    options = _LS.parse(argv)
    handle = Handle()
    space = kvs.namespace(options)
    keys = options.operands or ["."]
    status = 0
    singles: List[str] = []
    folders: List[str] = []
    for key in keys:
        try:
            kind = kvs.lookup(handle, key, space, TREEOBJ)["type"]
        except OSError as exc:
            sys.stderr.write(f"{key}: {os.strerror(exc.errno or 0)}\n")
            status = 1
            continue
        is_folder = kind in ("dir", "dirref")
        if key[-1:] == "." and not is_folder:
            sys.stderr.write(f"{key}: {os.strerror(errno.ENOTDIR)}\n")
            status = 1
            continue
        name = key.rstrip(".") or "."
        if is_folder and not options.has("directory"):
            folders.append(name)
        else:
            singles.append(name + (_MARKS.get(kind, "") if options.has("classify") else ""))
    if singles:
        _columns(singles, options)
    titled = options.has("recursive") or len(keys) > 1
    for index, key in enumerate(folders):
        _ls_folder(handle, key, space, options, titled, first=index == 0 and not singles)
    return status


def _ls_folder(handle: Handle, key: str, space: str, options: Options, titled: bool, first: bool) -> None:
    entries: Dict[str, Any] = kvs.lookup(handle, key, space, READDIR)["data"]
    if not first:
        print()
    if titled:
        print(f"{key}:")
    marked = options.has("classify")
    _columns([name + (_MARKS.get(entries[name]["type"], "") if marked else "") for name in sorted(entries)], options)
    if options.has("recursive"):
        for name in sorted(entries):
            if entries[name]["type"] in ("dir", "dirref"):
                _ls_folder(handle, _join(key, name), space, options, True, first=False)


def _join(folder: str, name: str) -> str:
    return name if folder in (".", "") else f"{folder}.{name}"


def _columns(names: List[str], options: Options) -> None:
    """Print names in columns, filled downwards, like ls(1)."""
    if not names:
        return
    if options.has("1"):
        sys.stdout.write("".join(f"{name}\n" for name in names))
        return
    width = max(len(name) for name in names) + _GAP
    limit = _width(options)
    count = max(1, limit // width) if limit else len(names)
    rows = -(-len(names) // count)
    for row in range(rows):
        line = "".join([f"{name:<{width}}" for name in names[row::rows]])
        sys.stdout.write(line.rstrip() + "\n")


def dir_(argv: List[str]) -> int:
    options = _DIR.parse(argv)
    key = (options.need(0, 1) or ["."])[0]
    root = kvs.snapshot(options)
    handle = Handle()
    space = kvs.namespace(options)
    try:
        for name, entry in _walk(handle, key, space, root, options.has("recursive")):
            _print_entry(handle, name, entry, space, root, options)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise CommandError(f"{key}: {os.strerror(exc.errno or 0)}") from None
    return 0


def _walk(handle: Handle, key: str, space: str, root: Any, deep: bool) -> Iterator[Tuple[str, Dict[str, Any]]]:
    entries: Dict[str, Any] = kvs.lookup(handle, key, space, READDIR, root)["data"]
    for name in sorted(entries):
        full = _join(key, name)
        if deep and entries[name]["type"] in ("dir", "dirref"):
            inner = list(_walk(handle, full, space, root, deep))
            # An empty directory is shown itself; others appear in the names of their keys.
            yield from inner or [(full, entries[name])]
        else:
            yield full, entries[name]


def _print_entry(handle: Handle, name: str, entry: Dict[str, Any], space: str, root: Any, options: Options) -> None:
    kind = entry["type"]
    if kind in ("dir", "dirref"):
        line = f"{name}."
    elif kind == "symlink":
        target = entry["data"]
        prefix = f"{target['namespace']}::" if "namespace" in target else ""
        line = f"{name} -> {prefix}{target['target']}"
    elif options.has("directory"):
        line = name
    else:
        value = kvs.data_of(kvs.lookup(handle, name, space, 0, root)).decode("utf-8", "surrogateescape")
        line = f"{name} = {value}"
        limit = _width(options) if options.has("width") or sys.stdout.isatty() else 0
        if limit and len(line) > limit:
            line = line[: limit - 3] + "..."
    print(line)
