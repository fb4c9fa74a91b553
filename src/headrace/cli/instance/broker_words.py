"""The command line of `flux start`: which of its words are the broker's own options, and the program that runs them.

The initial program and what `--broker-opts` holds are handed to the broker together, in that order: of
`flux start -o --config DIR ls` the broker makes `--config DIR` and the program `ls`, as of its own command line.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

# Options that the broker has as well, and those of `flux start` alone; all take a value.
_BROKERS = ("-S", "-c", "--setattr", "--config-path", "--conf")
_STARTS = (
    *("-s", "-r", "--test-size", "--recovery", "--test-hosts", "--test-rundir", "--wrap", "--test-exit-mode"),
    *("--test-exit-timeout", "--test-start-mode", "--test-pmi-clique"),
)


def split(argv: List[str]) -> Tuple[List[str], List[str]]:
    """(the command line as the parser takes it, the words of the broker's options as they were given).

    The parser takes no value that begins with a dash, and those of `--broker-opts` all do; it counts `-v`, so
    `--verbose=N` and `-vN` become so many.
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
    # An abbreviation counts; `--conf` is an option of its own.
    return name in _BROKERS or ("--setattr".startswith(name) and name != "--") or "--config-path".startswith(name)


def program() -> Tuple[List[str], bool]:
    """What executes a broker, and whether that is a `flux-broker` of somebody's own in FLUX_EXEC_PATH_PREPEND or
    FLUX_EXEC_PATH."""
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
