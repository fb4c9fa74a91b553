"""What all tests share."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from hypothesis import settings

import distribution
import sizes

# Outside a soak, properties are tried with the same examples each time, as seeds.py says. How long an example takes
# depends on who else uses the machine, and is no property of the code.
settings.register_profile("headrace", deadline=None, print_blob=True, derandomize=not sizes.SOAK)
settings.load_profile("headrace")

# A context of ZeroMQ that a test left behind is collected with its sockets, in any order. Ended before them, it
# would wait for them for ever, in whichever test the collector comes to it; so it lasts as long as the process.
zmq.Context.__del__ = lambda self: None  # type: ignore[method-assign]

# Commands buffer what they print to a pipe, as users' do: what is seen only with this set is not seen by them.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others can pass; those above `tmp_path` are closed."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if sizes.SOAK:
        hangs = pytest.mark.timeout(sizes.limit(int(config.getini("timeout"))))
        for item in items:
            item.add_marker(hangs)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=distribution.order)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> distribution.Pieces:
    return distribution.Pieces(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each folder of tests, setup included: docs/dev/tests.md has its budget."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folders = report.nodeid.partition("::")[0].split("/")[1:-1]
                seconds["/".join(folders[:2])] += report.duration
    if len(seconds) > 1:
        listed = sorted(seconds.items(), key=lambda one: -one[1])
        terminalreporter.write_line("seconds: " + ", ".join(f"{name or 'tests'} {spent:.0f}" for name, spent in listed))
