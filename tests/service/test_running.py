from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.service import running


def asked(told: dict[str, str]) -> Any:
    """What this process, which listens, answers itself."""

    async def scenario() -> Any:
        with running.listen() as listening:
            answering = asyncio.ensure_future(running.answer(listening, lambda: told))
            found = [await asyncio.to_thread(running._ask, os.getpid()) for _ in range(2)]
            answering.cancel()
        return found

    return asyncio.run(scenario())


def test_a_service_answers_its_user_each_time_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked({"url": "x"}) == [{"url": "x"}] * 2
    whose = running._userid
    # At either end, another user is at the other one.
    monkeypatch.setattr(running, "_userid", lambda connected: whose(connected) + 1)
    assert asked({"url": "x"}) == [None] * 2


def test_services_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "unix"
    prefix = running._prefix()
    lines = [
        f"0: 2 0 10000 1 1 7 @{prefix}12",
        f"0: 3 0 0 1 3 8 @{prefix}12",
        f"0: 2 0 1 1 1 9 @{prefix}x",
        "0: 2 0 /y",
    ]
    table.write_text("Num RefCount\n" + "".join(f"{line}\n" for line in [*lines, f"0: 2 0 0 1 1 7 @{prefix}9"]))
    monkeypatch.setattr(running, "_ask", lambda pid: {"pid": pid} if pid == 12 else None)
    assert running.found(str(table)) == [{"pid": 12}]
    assert running.found(f"{tmp_path}/nosuch") == []


def test_one_that_says_what_is_no_answer_is_passed_over() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0{running._prefix()}{os.getpid()}")
        # It does not listen.
        assert running._ask(os.getpid()) is None
