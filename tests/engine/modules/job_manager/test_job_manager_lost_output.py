"""What the log of the instance has of lost output."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.engine.modules.job_manager import logs
from headrace.engine.modules.job_manager.logs import LostOutput
from waiting import stays_in_loop


class Log:
    """As much of a module's context as is needed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _level: int, text: str) -> None:
        self.lines.append(text)

    def call_later(self, seconds: float, fn: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, fn)


def test_the_first_loss_is_told_of_at_once_then_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LOSS_EVERY", 0.02)

    async def scenario() -> None:
        log: Any = Log()
        losses = LostOutput(log)
        for id in (5, 6, 6, 7):
            losses.add(id, "output is lost: /full")
        assert log.lines == ["ƒ6: output is lost: /full"]
        while len(log.lines) < 2:
            await asyncio.sleep(0.001)
        # One log of a job may be lost after the other: the job counts once.
        assert log.lines[1:] == ["ƒ8: output is lost: /full (and that of 1 other jobs)"]
        losses.add(8, "output is lost: /again")
        assert len(log.lines) == 2
        losses.close()
        assert log.lines[2:] == ["ƒ9: output is lost: /again"]
        await stays_in_loop(lambda: len(log.lines) == 3, 0.05)
        losses.close()
        assert len(log.lines) == 3, "what was told is not told again"

    asyncio.run(scenario())
