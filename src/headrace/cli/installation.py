"""`flux env`, `python` and `version`: this installation's environment, interpreter and versions."""

from __future__ import annotations

import errno
import os
import sys

from headrace import FLUX_VERSION, __version__
from headrace.cli.common import command_environment
from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


PREFIX = "flux-{name}: "

_ENV = Command(
    "flux-env", "[COMMAND [ARGS...]]", "Print the environment of this installation and instance, or run COMMAND with it"
)


def _env(argv: List[str]) -> int:
    argv = _ENV.parse(argv, stop_early=True).operands
    if not argv:
        for name in command_environment.NAMES:
            if name in os.environ:
                print(f'export {name}="{_quoted(os.environ[name])}"')
        return 0
    try:
        os.execvp(argv[0], argv)
    except ValueError:
        # An empty name: Python raises ValueError without calling the system.
        raise CommandError(f"{argv[0]}: {os.strerror(errno.ENOENT)}", 127) from None
    except OSError as exc:
        raise CommandError(f"{argv[0]}: {exc.strerror}", 127 if isinstance(exc, FileNotFoundError) else 126) from None


def _quoted(text: str) -> str:
    """Escape text for double quotes in a shell."""
    return "".join(["\\" + char if char in '\\"$`' else char for char in text])


def _python(argv: List[str]) -> int:
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
    """The names `pythonX.Y` of programs `flux-pythonX.Y` in a path list, without duplicates."""
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


_VERSION = Command("flux-version", "", "Print the versions of Headrace and of the Flux that it implements")


def _version(argv: List[str]) -> int:
    _VERSION.parse(argv).need(0, 0)
    lines = [("commands", FLUX_VERSION), ("libflux-core", FLUX_VERSION)]
    uri = os.environ.get("FLUX_URI")
    if uri:
        from headrace.wire.client.handle import Handle

        try:
            lines.append(("broker", Handle().attr_get("version")))
        except OSError as exc:
            sys.stderr.write(f"flux-version: {exc.strerror}\n")
        lines.append(("FLUX_URI", uri))
    lines.append(("build-options", f"+headrace=={__version__}+python=={sys.version_info[0]}.{sys.version_info[1]}"))
    for name, value in lines:
        tabs = "\t" * (3 - (len(name) + 1) // 8)
        print(f"{name}:{tabs}{value}")
    return 0


def main(argv: List[str], name: str) -> int:
    return {"env": _env, "python": _python, "version": _version}[name](argv)
