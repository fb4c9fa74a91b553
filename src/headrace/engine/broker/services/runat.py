"""The state `cleanup`, after the initial program has ended.

Runs the commands that were pushed for it (`runat.push`, `flux admin cleanup-push`), and ends all jobs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.engine.broker.program import run_command
from headrace.formats.spec.job_exception import CANCEL, FATAL
from headrace.formats.spec.job_state import RUN
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.broker import RUNAT

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase


class Cleanup:
    """The pushed commands, the last one first. On rank 0 they run before the broker's own cleanup steps."""

    def __init__(self, broker: BrokerBase, ctx: ModuleContext) -> None:
        self._broker = broker
        self.commands: list[str] = []
        ctx.service("runat", {"push": self._push}, requests=RUNAT)

    def _push(self, msg: Message) -> Empty:
        """Handle `runat.push {name: "cleanup", commands}`: add commands at the front.

        Raises RpcError(EPROTO, EINVAL).
        """
        name, commands = msg.obj["name"], msg.obj["commands"]
        if name != "cleanup" or self._broker.rank:
            raise RpcError(
                errno.EINVAL, f"runat.push: commands can be pushed to cleanup of rank 0, not to {name!r} here"
            )
        if not commands:
            raise RpcError(errno.EPROTO, "runat.push: commands array is empty")
        if not all(command.strip() for command in commands):
            raise RpcError(errno.EINVAL, "runat.push: cannot push an empty command line")
        if self._broker.past("run"):
            raise RpcError(errno.EINVAL, "runat.push: cleanup has begun")
        self.commands[:0] = reversed(commands)
        return EMPTY

    async def run(self, limit: float | None) -> int:
        """Run all commands in order, each for `limit` seconds at most. Returns the first nonzero status."""
        if not self.commands:
            return 0
        from headrace.engine.broker.program import LoggedOutput

        status = 0
        for number, command in enumerate(self.commands):
            name = f"cleanup.{number}"
            own = await run_command(self._broker, command, name, limit, LoggedOutput(self._broker, name))
            status = status or own
        return status


async def end_jobs(broker: BrokerBase, number: int, limit: float | None, wait: bool) -> int:
    """Stop every queue, cancel running jobs, and `wait` until no job is left.

    Each step may take `limit` seconds. The steps are numbered in the log from `number`. Returns the number of steps: 0
    without a job manager.
    """
    running = {"dry_run": False, "userid": -1, "states": RUN, "severity": FATAL, "type": CANCEL}
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("stop queues", "job-manager.queue-start", {"start": False, "all": True, "nocheckpoint": True}),
        ("cancel running jobs", "job-manager.raiseall", running),
    ]
    if wait:
        steps.append(("wait for running jobs", "job-manager.idle", {}))
    step = number
    for what, topic, body in steps:
        begin = time.monotonic()
        try:
            await asyncio.wait_for(broker.context.rpc(topic, body), limit)
            outcome = "done"
        except asyncio.TimeoutError:
            outcome = "timed out"
        except RpcError as exc:
            if exc.errnum == errno.ENOSYS:
                # Without a job manager there are no jobs.
                continue
            outcome = str(exc)
        text = f"cleanup.{step}: {what}: {outcome} {time.monotonic() - begin:.1f}s"
        broker.log(logging.INFO, "broker", text)
        step += 1
    return step - number
