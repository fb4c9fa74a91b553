from __future__ import annotations

import pytest

from headrace.cli.queue import main as queue
from headrace.wire.query.color import stdout_colored


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """A stdout that is a terminal, and an environment that says nothing of colors."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


@pytest.mark.parametrize(("no_color", "colored"), [(None, True), ("", True), ("1", False)])
def test_a_terminal_gets_colors_unless_its_user_wants_none(no_color, colored, monkeypatch):
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert stdout_colored("auto") is colored
    assert stdout_colored("always")
    assert not stdout_colored("never")


@pytest.mark.parametrize(("no_color", "default"), [(None, "always"), ("", "always"), ("1", "never")])
def test_queues_are_listed_with_colors_as_recorded_unless_the_user_wants_none(no_color, default, monkeypatch):
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert queue._parser().parse_args(["list"]).color == default
    assert queue._parser().parse_args(["list", "--color"]).color == "always"
