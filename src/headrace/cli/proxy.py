"""`flux proxy`: run a command, or a shell, as a client of another instance.

On the same machine the instance's socket is used directly. An instance elsewhere is reached through ssh: a local
socket is opened here and each connection to it is carried by a relay process there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from headrace.cli.errors import CommandError
from headrace.cli.getopts import Command
from headrace.cli.instances import to_remote
from headrace.cli.uri import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-proxy: "

_COMMAND = Command(
    "flux-proxy",
    "[OPTIONS] JOB|URI [COMMAND...]",
    "Create proxy environment for Flux instance",
    (
        ("f", "force", "", "Allow the proxy command to connect to a broker running a different version of Flux"),
        ("n", "nohup", "", "Ignore SIGHUP"),
        ("", "reconnect", "", "If broker connection is lost, try to reconnect"),
    ),
)


def main(argv: List[str]) -> int:
    options = _COMMAND.parse(argv, stop_early=True)
    target, *command = options.need(1)
    uri = resolve(target)
    from headrace.client.handle import Handle

    Handle(uri).close()
    os.environ["FLUX_URI"] = uri
    os.environ["FLUX_PROXY_REMOTE"] = to_remote(uri)
    for name in ("FLUX_JOB_ID", "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE" if uri[:6] == "local:" else ""):
        os.environ.pop(name, None)
    if not command:
        command = [os.environ.get("SHELL", "/bin/sh")]
    try:
        child = subprocess.Popen(command)
    except OSError as exc:
        status = 127 if isinstance(exc, FileNotFoundError) else 126
        raise CommandError(f"{command[0]}: {exc.strerror}", status) from None
    # An interrupt is the command's to answer; we stay to pass on how it ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = child.wait()
    if status < 0:
        sys.stderr.write(f"flux-proxy: {signal.strsignal(-status)}\n")
        return 128 - status
    return status
