"""Values of options are checked before a trace is read."""

from __future__ import annotations

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.simulate import main as simulate


@pytest.mark.parametrize(
    ("option", "why"),
    [("--fair-share=x", "--fair-share: "), ("--html=/nosuch/x", "--html /nosuch/x: no folder /nosuch")],
)
def test_a_value_that_cannot_be_used_is_told_before_the_trace_is_read(option: str, why: str) -> None:
    with pytest.raises(CommandError) as caught:
        simulate.main([option, "no-such-trace"])
    assert str(caught.value).startswith(why)
