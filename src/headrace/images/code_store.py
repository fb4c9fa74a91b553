"""Writes the file of modules that `code_finder` reads, and compiles the modules in it.

The view's interpreter runs it as a program (`python code_store.py ROOT` with a list on standard input), because code
works only with the version that compiled it. Docstrings, assertions and column positions are left out: they are a third
of the bytes that an import reads.
"""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD = b"HRCODE01"


@dataclass(frozen=True)
class Source:
    """A module to compile: its `text`, with `path` below the root.

    Without a text, it is an extension module at `path`.
    """

    path: str
    text: str | None
    is_package: bool = False
    # Compression adds a tenth to an import's time and saves two thirds of the space.
    compressed: bool = False


def compile_store(python: str, root: str, sources: Mapping[str, Source]) -> bytes:
    """The file of `sources` (by module name), compiled by `python` for paths below `root`.

    Raises ValueError with the interpreter's error for a module that does not compile.
    """
    request = {
        name: {"path": source.path, "text": source.text, "package": source.is_package, "compressed": source.compressed}
        for name, source in sorted(sources.items())
    }
    argv = [python, "-S", "-X", "no_debug_ranges", "-X", "utf8", str(Path(__file__).resolve()), root]
    return _compiled(argv, json.dumps(request))


def module_file(python: str, path: str, text: str, magic: bytes) -> bytes:
    """A compiled module without its source (`.pyc` in place of a `.py`) for `python`, whose magic number is `magic`.

    Raises ValueError.
    """
    argv = [python, "-S", "-X", "no_debug_ranges", "-X", "utf8", str(Path(__file__).resolve()), "--one", path]
    return magic + bytes(12) + _compiled(argv, text)


def _compiled(argv: list[str], text: str) -> bytes:
    # The order of sets in compiled code depends on the hash seed.
    env = {"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
    done = subprocess.run(argv, input=text.encode(), capture_output=True, env=env, check=False)
    if done.returncode:
        raise ValueError(f"{argv[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _main() -> None:
    root = sys.argv[1]
    if root == "--one":
        code = compile(sys.stdin.read(), sys.argv[2], "exec", dont_inherit=True, optimize=2)
        sys.stdout.buffer.write(marshal.dumps(code))
        return
    request = json.load(sys.stdin)
    index: dict[str, tuple[str, bool, int, int, bool]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, one in request.items():
        if one["text"] is None:
            index[name] = (one["path"], False, -1, 0, False)
            continue
        code = compile(one["text"], f"{root}/{one['path']}", "exec", dont_inherit=True, optimize=2)
        data = marshal.dumps(code)
        if one["compressed"]:
            data = zlib.compress(data, 9)
        index[name] = (one["path"], one["package"], offset, len(data), one["compressed"])
        parts.append(data)
        offset += len(data)
    head = marshal.dumps(index)
    sys.stdout.buffer.write(HEAD + len(head).to_bytes(8, "little") + head + b"".join(parts))


if __name__ == "__main__":
    _main()
