"""The command in the middle of a pod's shell text: what comes before the brokers has run, what comes after waits.

The runner, process 1, starts the brokers. It gets the environment and the directory that the shell text has made, over
a socket that the shell passed on, and answers with the status that the shell goes on with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

# The number of the socket's descriptor.
VARIABLE = "HEADRACE_POD_ENTER"


def enter(env: Mapping[str, str]) -> int:
    """Tell the runner, and wait for its answer; the status of the brokers."""
    number = env.get(VARIABLE, "")
    if not number.isdigit():
        print("headrace-pod enter: is called by the runner's own shell text", file=sys.stderr)
        return 2
    # Not in every runner, which imports this file.
    import json

    fd = int(number)
    told = {name: value for name, value in env.items() if name != VARIABLE}
    data = json.dumps({"env": told, "cwd": os.getcwd()}).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
    answer = os.read(fd, 16)
    return int(answer) if answer else 1


def read(text: bytes) -> tuple[dict[str, str], str]:
    """The environment and the directory of a shell text that has come to its brokers. Raises ValueError."""
    import json

    told: dict[str, Any] = json.loads(text)
    return told["env"], told["cwd"]
