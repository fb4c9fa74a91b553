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
