"""Splits the command line of `flux start` into its own options and the broker's.

The broker parses the options in `--broker-opts` and the words of the initial program as one command line. For example,
`flux start -o --config DIR ls` passes `--config DIR ls` to the broker: the option `--config DIR` and the program `ls`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

# Options with a value: those that `flux start` shares with the broker, and those of `flux start` alone.
_BROKERS = ("-S", "-c", "--setattr", "--config-path", "--conf")
_STARTS = (
    *("-s", "-r", "--test-size", "--recovery", "--test-hosts", "--test-rundir", "--wrap", "--test-exit-mode"),
    *("--test-exit-timeout", "--test-start-mode", "--test-pmi-clique"),
)


def split(argv: List[str]) -> Tuple[List[str], List[str]]:
    """Return the command line for the parser of `flux start`, and the broker's options as they were given.

    The parser rejects a value that begins with a dash if it is a separate word. Values of `--broker-opts` begin with a
    dash, so they are joined to the option. The parser counts `-v`, so `--verbose=N` and `-vN` become N times `-v`.
    """
    line: List[str] = []
    brokers: List[str] = []
    words = iter(argv)
    for word in words:
        if word == "--" or word[:1] != "-" or word == "-":
            # The initial program and its own options.
            return [*line, word, *words], brokers
        name, equals, value = word.partition("=")
        if name in ("-o", "--broker-opts") or (word[:2] == "-o" and word[:3] != "--"):
            text = value if equals and name == "--broker-opts" else word[2:] if word[:2] == "-o" else ""
            if not text:
                text = next(words, "")
            line.append(f"--broker-opts={text}")
            brokers += [part for part in text.split(",") if part]
        elif name == "--verbose" and value.isdigit():
            line += ["-v"] * int(value)
        elif word[:2] == "-v" and word[2:].isdigit():
            line += ["-v"] * int(word[2:])
        else:
            given = [word]
            if not equals and word in (*_BROKERS, *_STARTS):
                given += [text for text in (next(words, None),) if text is not None]
            line += given
            if _is_brokers(name):
                brokers += given
    return line, brokers


def _is_brokers(name: str) -> bool:
    if name[:2] != "--":
        return name[:2] in _BROKERS
    # An abbreviation is accepted, but `--conf` is a different option than `--config-path`.
    return name in _BROKERS or ("--setattr".startswith(name) and name != "--") or "--config-path".startswith(name)


def program() -> Tuple[List[str], bool]:
    """The command that runs a broker, and True if it is the user's own `flux-broker`.

    Users name the folders of their own commands in FLUX_EXEC_PATH_PREPEND and FLUX_EXEC_PATH.
    """
    for variable in ("FLUX_EXEC_PATH_PREPEND", "FLUX_EXEC_PATH"):
        for folder in os.environ.get(variable, "").split(":"):
            path = os.path.join(folder, "flux-broker")
            if folder and os.access(path, os.X_OK):
                return [path], True
    from headrace.wire.client.installation import command_folder

    folder = command_folder()
    if folder:
        return [os.path.join(folder, "flux"), "broker"], False
    code = "import sys; from headrace.cli.main import flux; sys.exit(flux())"
    return [sys.executable, "-c", code, "broker"], False
