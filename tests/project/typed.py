"""Typing what pages show: shell blocks as a script, sessions (`$ command`, then its output) command by command."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from instance import FLUX, clean_env

_MARK = "--- next command ---"
_LENGTH = re.compile(r"\d+(\.\d+)?(s|m|h|d)")


def session(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a session, each with the lines that the page shows of its output."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def script_of(text: str) -> str:
    """A script that runs a session's commands, with a mark before each. An id that the page shows is the last job's."""
    commands = [re.sub(r"ƒ\w+", "$(flux job last)", command) for command, _ in session(text)]
    return "\n".join(f"echo '{_MARK}'\n{command}" for command in commands)


def parts(printed: str) -> list[list[str]]:
    """What each command of `script_of` has printed, in lines."""
    return [part.splitlines() for part in printed.split(f"{_MARK}\n")[1:]]


def comparable(lines: list[str], names: dict[str, str]) -> list[str]:
    """Lines without what differs from run to run: ids, lengths of time and `names` (word to what stands for it)."""
    return [" ".join(_word(word, names) for word in line.split()) for line in lines]


def _word(word: str, names: dict[str, str]) -> str:
    if word.startswith("ƒ"):
        return "ID"
    return "TIME" if _LENGTH.fullmatch(word) else names.get(word, word)


# What stands on the pages for the user and the host, and what they are here.
SHOWN = {"alice": "USER", "laptop": "HOST"}
HERE = {getpass.getuser(): "USER", socket.gethostname(): "HOST"}


def typed(script: str, folder: Path, options: str | None) -> str:
    """Standard output and error of a script that `sh` runs in `folder`: within `flux start OPTIONS`, or with None as it
    is. Fails unless it succeeds."""
    file = folder / "typed.sh"
    file.write_text(script)
    shell = ["sh", str(file)]
    command = shell if options is None else [FLUX, "start", *options.split(), *shell]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_env(HOME=str(folder), PATH=path, LC_ALL="C.UTF-8"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
