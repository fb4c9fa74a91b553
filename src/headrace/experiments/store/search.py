"""Finds the folders of experiments below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

_FILES = frozenset(("experiment.yaml", "plan.json"))
# Folders in folders that are looked into.
_DEEPEST = 4


def folders(top: str) -> Iterator[str]:
    """The folders of experiments in `top`, and in its folders that are no experiments. Raises OSError for `top`.

    Symbolic links to folders are not followed.
    """
    os.listdir(top)
    for path, inner, files in os.walk(top):
        relative = os.path.relpath(path, top)
        if set(files) >= _FILES:
            yield path
        depth = 0 if relative == os.curdir else relative.count(os.sep) + 1
        is_experiment = "plan.json" in files
        inner[:] = [] if is_experiment or depth >= _DEEPEST else sorted(one for one in inner if one[0] != ".")
