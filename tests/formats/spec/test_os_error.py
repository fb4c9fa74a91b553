"""What an OSError says to people."""

from __future__ import annotations

import pytest

from headrace.formats.spec.os_error import reason, text_of, with_class


@pytest.mark.parametrize(
    ("error", "text", "why", "named"),
    [
        (OSError(28, "No room"), "No room", "No room", "No room"),
        (OSError(28, "No room", "/a b"), "/a b: No room", "No room", "/a b: No room"),
        (OSError(28, "No room", b"/\xff"), "/\udcff: No room", "No room", "/\udcff: No room"),
        # Calls on a descriptor name that.
        (OSError(28, "No room", 7), "No room", "No room", "No room"),
        (OSError("no number"), "no number", "no number", "no number"),
        (OSError(), "OSError", "OSError", "OSError"),
        (ValueError("bad"), "bad", "bad", "ValueError: bad"),
        (ValueError(), "ValueError", "ValueError", "ValueError: "),
    ],
)
def test_an_error_is_a_path_and_a_reason_without_numbers_or_quotes(
    error: Exception, text: str, why: str, named: str
) -> None:
    assert (text_of(error), reason(error), with_class(error)) == (text, why, named)
