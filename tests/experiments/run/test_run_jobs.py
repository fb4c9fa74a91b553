"""The jobspec of a run."""

from __future__ import annotations

import pytest

from headrace.experiments.run.jobs import words


@pytest.mark.parametrize("command", ["lmp -in in.lj -v x 2", "'/opt/my tools/run' --title 'a b'"])
def test_a_plain_command_is_executed_directly(command: str) -> None:
    assert words(command)[0] in ("lmp", "/opt/my tools/run")


@pytest.mark.parametrize(
    "command", ["a && b", "echo $HOME", "X=1 a", "ls *.txt", "exit 3", "cd /tmp", "a\nb", "", "a > b"]
)
def test_shell_text_is_for_the_shell(command: str) -> None:
    assert words(command) == ["/bin/sh", "-c", command]
