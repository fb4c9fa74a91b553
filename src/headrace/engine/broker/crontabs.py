"""The attribute `cron.directory`: the crontab files in it are loaded when the instance starts, by `flux cron tab`."""

from __future__ import annotations

import errno
import logging
import os
import shlex
from typing import TYPE_CHECKING

from .answers import RpcError
from .program import run_command
from .program_output import LoggedOutput

if TYPE_CHECKING:
    from .parts import BrokerBase

_NAME = "cron.directory"


async def load(broker: BrokerBase) -> None:
    """Load them on rank 0. A folder that is not there is an empty one. Raises RpcError for a bad file."""
    folder = broker.attrs.get(_NAME, "")
    if broker.rank or not folder or not os.path.isdir(folder):
        return
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            continue
        # PATH of a broker's programs begins with the folder of its own `flux`.
        command = shlex.join(["flux", "cron", "tab", path])
        if await run_command(broker, command, _NAME, output=LoggedOutput(broker, _NAME)):
            text = f"could not load crontab: {path}"
            broker.log(logging.CRITICAL, "broker", text)
            raise RpcError(errno.EINVAL, text)
