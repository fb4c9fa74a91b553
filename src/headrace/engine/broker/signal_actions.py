"""Actions of a broker for the signals that it receives while its loop runs (`signals.listen`)."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

from headrace.engine.broker.signals import FOR_JOBS

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase


def received(broker: BrokerBase, number: int) -> None:
    """Handle a signal: the leader passes it to jobs or shuts the instance down, a follower leaves alone."""
    if number == signal.SIGCHLD:
        if broker.agent is not None:
            broker.agent.keep_going()
        return
    name = signal.Signals(number).name
    if number in FOR_JOBS:
        # All brokers of a job get the signal, but only the leader passes it on.
        if not broker.rank:
            broker.log(logging.INFO, "broker", f"{name}: sent to all running jobs")
            broker.signal_jobs(number)
        return
    if broker.rank:
        # A terminal's SIGINT also reaches the leader, whose shutdown reaches this broker through the tree. A broker
        # that has not joined yet leaves on its own, because its leader may be on another machine.
        alone = broker.state == "join" and broker.boot.method != "test"
        if (number != signal.SIGINT or alone) and not broker.stopping:
            broker.log(logging.INFO, "broker", f"{name}: leaving")
            broker.leave()
        return
    broker.log(logging.INFO, "broker", f"{name}: shutting down")
    if number == signal.SIGINT and broker.program is not None and broker.program.running:
        # The program decides what an interrupt means.
        broker.program.interrupt()
        return
    repeated, broker.shutdown_requested = broker.shutdown_requested, True
    if not broker.past("run"):
        # After `run`, the initial program has ended, and the exit code is the program's.
        broker.ended_by = broker.ended_by or number
        if broker.attrs.get("broker.rc2_none") != "1":
            broker.exit_code = broker.exit_code or 128 + number
        broker.begin_shutdown()
    elif repeated and broker.state == "cleanup":
        # A second signal during cleanup: stop waiting for jobs.
        broker.advance("cleanup-fail")
    elif repeated and broker.state == "shutdown":
        broker.advance("shutdown-timeout")
