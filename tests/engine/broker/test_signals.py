"""Signals that end an instance: none is lost before the loop listens."""

from __future__ import annotations

import subprocess
import sys

_HELD = """
import asyncio, os, signal, sys
from headrace.engine.broker import signals
signals.block()
for name in sys.argv[1:]:
    os.kill(os.getpid(), getattr(signal, name))
signals.catch()
heard = []
received = lambda number: heard.append(signal.Signals(number).name)
async def main():
    signals.listen(asyncio.get_running_loop(), received)
    os.kill(os.getpid(), signal.SIGALRM)
    while len(heard) < len(sys.argv):
        await asyncio.sleep(0.005)
    signals.block()
    os.kill(os.getpid(), signal.SIGTERM)
asyncio.run(main())
print(*sorted(heard))
"""


def test_what_came_early_is_heard_when_the_loop_listens_and_what_comes_late_waits() -> None:
    argv = [sys.executable, "-c", _HELD, "SIGTERM", "SIGHUP"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["SIGALRM", "SIGHUP", "SIGTERM"]


def test_a_long_wait_can_be_interrupted_and_is_put_back_in_order() -> None:
    script = (
        "import os, signal; from headrace.engine.broker import signals; signals.block()\n"
        "try:\n    with signals.interruptible():\n        os.kill(os.getpid(), signal.SIGINT); signal.pause()\n"
        "except signals.Interrupted as exc:\n    print(exc, exc.number)\n"
        "os.kill(os.getpid(), signal.SIGTERM); print('held')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["SIGINT", "2", "held"]


def test_two_signals_at_once_interrupt_a_long_wait_once() -> None:
    script = (
        "import os, signal; from headrace.engine.broker import signals; signals.block()\n"
        "os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGHUP)\n"
        "try:\n    with signals.interruptible():\n        signal.pause()\n"
        "except signals.Interrupted as exc:\n    print('once')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "once\n", "")
