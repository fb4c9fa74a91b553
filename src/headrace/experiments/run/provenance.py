"""Where and with what an experiment was run: `provenance.json`."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.experiments.values import Experiment

# Variables of the environment that are kept, by name or prefix. All others may hold secrets.
_NAMES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LANG", "LC_ALL", "SHELL", "CUDA_VISIBLE_DEVICES", "LOADEDMODULES")
_PREFIXES = ("OMP_", "KMP_", "GOMP_", "OMPI_MCA_", "MPICH_", "UCX_", "FI_", "I_MPI_", "MKL_", "OPENBLAS_")
# What of a name with such a part is left out although its prefix is kept.
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL", "COOKIE")
_MPI_PROGRAMS = ("mpichversion", "ompi_info", "mpirun")
_TIMEOUT = 10.0


def new_seed() -> int:
    """A seed for the order of runs; the plan keeps it."""
    return secrets.randbelow(1 << 31)


def collect(experiment: Experiment) -> dict[str, Any]:
    """Versions, machine and environment of this process, which creates the experiment. Raises nothing."""
    return {
        "created": time.time(),
        "command": sys.argv[1:],
        "headrace": {"version": __version__, "commit": _commit()},
        "python": platform.python_version(),
        "machine": _machine(),
        "mpi": _mpi(),
        "images": sorted({cell.job.image for cell in experiment.cells if cell.job.image}),
        "environment": _environment(),
    }


def _commit() -> str:
    """The commit of a checkout that this code is run from, "" for an installed package."""
    root = Path(__file__).resolve().parents[4]
    if not (root / ".git").exists():
        return ""
    return _output("git", "-C", str(root), "rev-parse", "HEAD").strip()


def _machine() -> dict[str, Any]:
    system = platform.uname()
    return {
        "host": system.node,
        "kernel": f"{system.system} {system.release}",
        "architecture": system.machine,
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
    }


def _mpi() -> str:
    """The first line that an MPI library's program prints about its version, "" without one."""
    for program in _MPI_PROGRAMS:
        if shutil.which(program):
            lines = _output(program, "--version").splitlines()
            return next((line.strip() for line in lines if line.strip()), program)
    return ""


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name in _NAMES or name.startswith(_PREFIXES)) and not any(part in name for part in _SECRET)
    }


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    """The value of the first line `name : value` of a file."""
    for line in _read(path).splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""
