"""The command in a pod's shell text in place of the brokers: it waits while the runner runs them.

The runner (process 1) starts the brokers, not the shell. This command sends the environment and the directory that the
shell text has set to the runner, over a socket inherited from the shell, and receives the brokers' exit status, with
which the shell continues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

# The number of the socket's descriptor.
VARIABLE = "HEADRACE_POD_ENTER"


def enter(env: Mapping[str, str]) -> int:
    """Send environment and directory to the runner; wait for the brokers and return their status."""
    number = env.get(VARIABLE, "")
    if not number.isdigit():
        print("headrace-pod enter: only the runner's own shell text may call this", file=sys.stderr)
        return 2
    # Imported here, because the runner imports this file and does not need it.
    import json

    fd = int(number)
    variables = {name: value for name, value in env.items() if name != VARIABLE}
    data = json.dumps({"env": variables, "cwd": os.getcwd()}).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
    answer = os.read(fd, 16)
    return int(answer) if answer else 1


def read(text: bytes) -> tuple[dict[str, str], str]:
    """The environment and the directory of a shell text, as `enter` sent them. Raises ValueError."""
    import json

    received: dict[str, Any] = json.loads(text)
    return received["env"], received["cwd"]
