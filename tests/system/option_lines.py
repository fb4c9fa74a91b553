"""Tables of command lines and what they must answer, run one after another in one instance that they share.

A table costs one start of an instance, however long it is; its lines may build on what earlier ones left behind
(jobs, keys, files in the home folder that all of them start in). Each line stands for an option, and its answer must
be one that it would not give if the option were ignored.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from instance import start

HERE = Path(__file__).parent


class Line(NamedTuple):
    """A command line for `sh`, its stdout followed by its stderr (exactly, or as `like` has it), its exit status."""

    command: str
    printed: str | re.Pattern[str] = ""
    status: int = 0


def like(pattern: str) -> re.Pattern[str]:
    """For what differs from run to run: a pattern that must match all that is printed."""
    return re.compile(pattern, re.DOTALL)


def after_first(watcher: str, then: str) -> str:
    """A line that does `then` once `watcher` has printed something, and ends with all that the watcher printed."""
    return f"rm -f seen; {watcher} >seen & until test -s seen; do sleep .02; done; {then}; wait; cat seen"


def answers(lines: list[Line], folder: Path, *options: str) -> list[dict[str, Any]]:
    """What each line printed and its status, run in an instance that `flux start OPTIONS` starts for them."""
    table, home, results = folder / "lines.jsonl", folder / "home", folder / "results.jsonl"
    home.mkdir()
    table.write_text("".join(json.dumps({"command": line.command}) + "\n" for line in lines))
    done = start(*options, sys.executable, str(HERE / "recorded_runner.py"), str(table), str(home), str(results))
    assert done.rc == 0, done.err
    return [json.loads(text) for text in results.read_text().splitlines()]


def check(line: Line, answer: dict[str, Any]) -> None:
    """Compare one answer with its line."""
    printed = answer["stdout"] + answer["stderr"]
    if isinstance(line.printed, str):
        assert printed == line.printed, f"printed {printed!r}"
    else:
        assert line.printed.fullmatch(printed), printed
    assert answer["rc"] == line.status, f"status {answer['rc']}, printed {printed!r}"


def names(lines: list[Line]) -> list[str]:
    """Test ids: the lines, cut to what fits."""
    return [line.command[:60] for line in lines]
