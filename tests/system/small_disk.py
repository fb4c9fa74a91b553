"""Small file systems of a test's own, which it fills up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(made: Path, options: str) -> Iterator[Path]:
    """A file system of its own at `made`."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount a small file system")
    made.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(made)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine mounts no tmpfs: {done.stderr.strip()}")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made)], check=True)


def fill(folder: Path, left: int = 0) -> Path:
    """A file that takes all the room there is, but for `left` bytes."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as handle, contextlib.suppress(OSError):
        while True:
            handle.write(b"x" * (1 << 16))
    os.truncate(path, path.stat().st_size - left)
    return path
