"""`flux modprobe run FILE`: runs a Python file of module and task definitions (flux-modprobe(1)).

The file imports `flux.modprobe`, which also has the code that runs it. This command starts the interpreter that finds
both.
"""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import ExactCommand, dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-modprobe: "

_TABLE = {"run": ("Run a file of startup or shutdown tasks", None)}
_RUN = ExactCommand(
    "flux-modprobe run",
    "[OPTIONS] FILE",
    "Run a Python file that loads or removes modules and runs tasks",
    (
        ("v", "verbose", "", "Print the tasks that run"),
        ("", "dry-run", "", "Print the tasks that would run, and run nothing"),
    ),
)
_CODE = "import sys, flux.modprobe; sys.exit(flux.modprobe.run_file(sys.argv[1], *map(int, sys.argv[2:])))"


def main(argv: List[str]) -> int:
    _, rest = dispatch("flux-modprobe", argv, _TABLE)
    options = _RUN.parse(rest)
    (path,) = options.need(1, 1)
    if not os.path.isfile(path):
        raise CommandError(f"{path}: No such file")
    flags = [str(int(options.has(name))) for name in ("verbose", "dry-run")]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", _CODE, path, *flags])
