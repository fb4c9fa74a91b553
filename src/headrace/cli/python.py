"""`flux python`: the interpreter of this installation, with `import flux` in reach."""

from __future__ import annotations

import os
import sys

from headrace.cli.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-python: "


def main(argv: List[str]) -> int:
    if argv == ["--get-path"]:
        print(os.environ["PYTHONPATH"].split(":")[0])
        return 0
    try:
        os.execv(sys.executable, [sys.executable, *argv])
    except OSError as exc:
        raise CommandError(f"{sys.executable}: {exc.strerror}") from None
