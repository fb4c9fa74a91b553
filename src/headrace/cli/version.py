"""`flux version`: the version of Flux that is implemented, of the broker that commands would talk to, and our own."""

from __future__ import annotations

import os
import sys

from headrace import FLUX_VERSION, __version__
from headrace.cli.common.getopts import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-version: "

_COMMAND = Command("flux-version", "", "Print the version of Flux that this implements, and our own")


def main(argv: List[str]) -> int:
    _COMMAND.parse(argv).need(0, 0)
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
