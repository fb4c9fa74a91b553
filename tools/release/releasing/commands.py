"""Programs that a release runs: each with an environment of its own, and with its output in the error when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .source import ReleaseError

# What a build may take from the caller: the rest of the environment does not change what is built.
_KEPT = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
_PREFIXES = ("PIP_", "GO", "HEADRACE_KUBE")


def run(*command: str | Path, cwd: Path, more: Mapping[str, str] = {}, path: Path | None = None) -> str:
    """Run a program, with the folder `path` first in its PATH; returns its output. Raises ReleaseError."""
    kept = {name: text for name, text in os.environ.items() if name in _KEPT or name.startswith(_PREFIXES)}
    system = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    env = {**kept, "PATH": f"{path}:{system}" if path else system, "LC_ALL": "C.UTF-8", "TZ": "UTC", **more}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise ReleaseError(f"{' '.join(words)} ended with {done.returncode}:\n{said}")
    return done.stdout


def environment(folder: Path, *packages: str | Path) -> Path:
    """A virtual environment on this process's Python with `packages`, words of `pip install`. It has no pip itself.
    Returns its `bin`. Raises ReleaseError.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    install_into(folder / "bin", *packages)
    return folder / "bin"


def install_into(commands: Path, *packages: str | Path) -> None:
    """Install `packages` into the environment with the folder `commands`. Raises ReleaseError."""
    pip = (sys.executable, "-m", "pip", "--python", commands / "python", "install", "-q", "--no-compile")
    run(*pip, *packages, cwd=commands.parent)
