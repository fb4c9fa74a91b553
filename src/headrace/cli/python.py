"""`flux python`: the interpreter of this installation, with `import flux` in reach."""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-python: "


def main(argv: List[str]) -> int:
    if argv == ["--get-path"]:
        print(os.environ["PYTHONPATH"].split(":")[0])
        return 0
    if argv == ["--list-versions"]:
        for name in versions(os.environ.get("FLUX_EXEC_PATH", "")):
            print(name)
        return 0
    try:
        os.execv(sys.executable, [sys.executable, *argv])
    except OSError as exc:
        raise CommandError(f"{sys.executable}: {exc.strerror}") from None


def versions(exec_path: str) -> List[str]:
    """The names `pythonX.Y` of the executables `flux-pythonX.Y` in folders that colons separate, each once."""
    found: List[str] = []
    for folder in filter(None, exec_path.split(":")):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            number = name[len("flux-python") :]
            is_version = name.startswith("flux-python") and number.replace(".", "", 1).isdigit()
            if is_version and os.access(os.path.join(folder, name), os.X_OK) and name[5:] not in found:
                found.append(name[5:])
    return found
