"""Paths of files in an experiment."""

from __future__ import annotations

import posixpath


def path_rule(path: str) -> str:
    """What is wrong with a path, which must stay below its folder; "" if nothing is."""
    if "\0" in path or "\n" in path:
        return f"{path!r} is not a path"
    if path.startswith("/"):
        return f'"{path}" must be relative to the folder of this file'
    normal = posixpath.normpath(path)
    if normal == ".." or normal.startswith("../") or ".." in path.split("/"):
        return f'"{path}" must not lead out of its folder: no ".."'
    return "" if path and normal != "." else "a path is missing"
