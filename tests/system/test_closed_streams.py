"""Commands whose standard streams were closed by their caller: they behave as with /dev/null."""

from __future__ import annotations

import pytest
from instance import FLUX, start


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_streams_does_its_work_and_ends(closed: str) -> None:
    done = start(
        "-s1",
        f"for i in run submit; do timeout 20 flux $i true {closed} || exit 2; done; "
        f"timeout 20 flux jobs {closed} || exit 3; "
        "flux queue drain; flux jobs -a -n -o '{name} {result}'",
    )
    assert done.rc == 0, done.err
    assert done.out.endswith("true COMPLETED\n" * 2)
    assert not done.left


def test_an_instance_starts_with_closed_streams() -> None:
    done = start("-s1", f"timeout 40 {FLUX} start -s2 flux run -N2 hostname <&-")
    assert (done.rc, len(done.out.splitlines())) == (0, 2), done.err
    assert not done.left
