"""Runs a Python program in an environment with additional packages.

The first process on a machine creates the environment. Tasks run this file on its own, so it uses only the standard
library: `python with_packages.py FOLDER REQUIREMENTS PROGRAM...`. FOLDER is the folder of the environment, REQUIREMENTS
a requirements file for pip, and PROGRAM the arguments of the environment's Python. The environment also has all
packages of this Python.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import site
import subprocess
import sys
import sysconfig
import venv


def main(folder: str, requirements: str, *program: str) -> None:
    if not _prepare(folder, requirements):
        sys.exit(1)
    scripts = os.path.join(folder, "bin")
    os.environ["VIRTUAL_ENV"] = folder
    os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", os.defpath)
    python = os.path.join(scripts, "python")
    os.execv(python, [python, *program])


def _prepare(folder: str, requirements: str) -> bool:
    """Return True if the environment exists. The first process creates it; others wait for that."""
    with open(f"{folder}.state", "a+", encoding="ascii") as state:
        fcntl.flock(state, fcntl.LOCK_EX)
        state.seek(0)
        known = state.read()
        if not known:
            known = "made" if _make(folder, requirements) else "failed"
            state.write(known)
    return known == "made"


def _make(folder: str, requirements: str) -> bool:
    with open(requirements, encoding="utf-8") as file:
        packages = ", ".join(line for line in file.read().splitlines() if not line.startswith("--"))
    sys.stderr.write(f"installing packages: {packages}\n")
    has_pip = importlib.util.find_spec("pip") is not None
    try:
        venv.create(folder, system_site_packages=True, symlinks=True, with_pip=not has_pip)
        _see_outer_packages(folder)
    except (OSError, subprocess.CalledProcessError) as exc:
        sys.stderr.write(f"cannot make the environment {folder}: {exc}\n")
        return False
    pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", "--no-warn-script-location", "--no-user", "--requirement", requirements]
    if subprocess.run(pip, stdin=subprocess.DEVNULL, check=False).returncode:
        sys.stderr.write(f"pip could not install the packages: {packages}\n")
        return False
    return True


def _see_outer_packages(folder: str) -> None:
    """Add this Python's packages to the environment, with the additions of their .pth files.

    By itself, an environment sees only the packages of the installed interpreter. This Python may itself be part of an
    environment.
    """
    inner = sysconfig.get_path("purelib", "posix_prefix", vars={"base": folder, "platbase": folder})
    outer = [path for path in site.getsitepackages() if os.path.isdir(path)]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in outer]
    with open(os.path.join(inner, "outer_packages.pth"), "w", encoding="utf-8") as file:
        file.write("".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
