"""What `headrace mini` is called: in usage, hints and errors, where it may be a plugin `kubectl minicluster`; and
`flux mini run`, `submit`, `bulksubmit`, `batch` and `alloc`, which were the names of Flux's own commands until 2023.

Of these, `headrace mini` itself has `run` only. `mini run` runs a MiniCluster if its single operand is a file that
cannot be a program.
"""

from __future__ import annotations

import os
import shutil
import sys

from headrace.cli.common.arguments import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


_OWN = "headrace mini"
command = _OWN


def is_plugin() -> bool:
    """Whether kubectl runs this program as its plugin."""
    return command != _OWN


def prefix() -> str:
    """What begins each line on standard error."""
    return f"{command.replace(' ', '-')}: "


def in_its_words(text: str) -> str:
    """A hint of the library, which knows the commands as `headrace mini COMMAND`, under the name of this program."""
    return text.replace(f"{_OWN} ", f"{command} ")


def tell(line: str) -> None:
    """Say on standard error what a command waits for or does."""
    sys.stderr.write(f"{prefix()}{in_its_words(line)}\n")
    sys.stderr.flush()


_FORMER = ("alloc", "batch", "bulksubmit", "run", "submit")
_NAMES = (".yaml", ".yml", ".json")


def submits_job(argv: List[str]) -> bool:
    """Whether `flux mini ARGV` is a command of Flux itself, to be run without the word `mini`."""
    if not argv or argv[0] not in _FORMER:
        return False
    return argv[0] != "run" or not _runs_minicluster(argv[1:])


def _runs_minicluster(words: List[str]) -> bool:
    operands = [word for word in words if word == "-" or word[:1] != "-"]
    if len(operands) == 1 and operands[0].endswith(_NAMES):
        return True
    from headrace.cli.mini import run

    parser = Parser("")
    run.add_arguments(parser)
    own_options = all(word in operands or word in parser._option_string_actions for word in words)
    return own_options and (not operands or (len(operands) == 1 and _is_data(operands[0])))


def _is_data(path: str) -> bool:
    """Whether this is standard input or a file, and not a program."""
    return path == "-" or (os.path.exists(path) and not os.path.isdir(path) and shutil.which(path) is None)
