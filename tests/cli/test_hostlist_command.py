"""`flux hostlist`: which hosts of a list are picked, and in what order."""

from __future__ import annotations

import pytest

from headrace.cli import hostlist
from headrace.cli.common.errors import CommandError


@pytest.mark.parametrize(
    ("positions", "hosts"), [("1,3-4", "a[2,4-5]"), ("-1,3-4", "a[7-8,10]"), ("-10", "a1"), ("9", "a10")]
)
def test_hosts_are_picked_by_position_in_the_order_of_the_list(
    positions: str, hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hostlist.main([f"--nth={positions}", "a[1-10]"]) == 0
    assert capsys.readouterr().out == f"{hosts}\n"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["-F", "a[1,4-5]", "a[1-5]"], "0 3 4"),
        (["-F", "a5,a1", "a[1-5]"], "4 0"),
        (["-e", "-d,", "-F", "a5,a1", "a[1-5]"], "4,0"),
        (["-F", "a2", "a[2,1,2]"], "0"),
        (["-e", "-d", r"\n", "-F", "a5,a1", "a[1-5]"], "4\n0"),
    ],
)
def test_the_positions_of_hosts_are_printed_in_their_order(
    argv: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hostlist.main(argv) == 0
    assert capsys.readouterr().out == f"{shown}\n"


def test_quiet_tells_by_the_status_whether_hosts_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostlist.main(["-q", "-F", "a1", "a[1-2]"]) == 0
    assert hostlist.main(["-q", "-x", "a1", "a1"]) == 1
    assert capsys.readouterr().out == ""
    with pytest.raises(CommandError, match="hosts 'a3' not found"):
        hostlist.main(["-q", "-F", "a3", "a[1-2]"])


@pytest.mark.parametrize("both", [("-i", "-m"), ("-m", "-X"), ("-e", "-c")])
def test_options_that_exclude_each_other_are_refused(both: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        hostlist.main([*both, "a1"])
    assert "not allowed with" in capsys.readouterr().err
