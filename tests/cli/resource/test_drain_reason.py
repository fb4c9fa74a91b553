"""The reason of `flux resource drain` and `undrain`."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.resource import main as resource


@pytest.mark.parametrize("command", ["drain", "undrain"])
def test_a_reason_that_is_not_text_is_refused(command: str, answers: Any) -> None:
    given = answers(resource)
    with pytest.raises(CommandError) as caught:
        resource.main([command, "0", "bad", "\udcff"])
    assert str(caught.value) == "the reason ('bad \\udcff') is not UTF-8 text" and not given.asked
