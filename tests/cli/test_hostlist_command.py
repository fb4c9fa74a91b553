"""`flux hostlist`: which hosts of a list are picked, and in what order."""

from __future__ import annotations

import pytest

from headrace.cli import hostlist


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
    ],
)
def test_the_positions_of_hosts_are_printed_in_their_order(
    argv: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hostlist.main(argv) == 0
    assert capsys.readouterr().out == f"{shown}\n"
