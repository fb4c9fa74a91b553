"""Values of options are checked before a trace is read."""

from __future__ import annotations

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.simulate import main as simulate


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--fair-share=x", "--fair-share: "),
        ("--fair-share=1d --fair-share-interval=x", "--fair-share-interval: "),
        ("--html=/nosuch/x", "--html /nosuch/x: no folder /nosuch"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_before_the_trace_is_read(options: str, why: str) -> None:
    with pytest.raises(CommandError) as caught:
        simulate.main([*options.split(), "no-such-trace"])
    assert str(caught.value).startswith(why)
