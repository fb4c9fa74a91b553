from __future__ import annotations

import html

from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.plots.chart import escape


@given(st.text(st.sampled_from("&<>\"'; aé\n")))
def test_it_is_what_the_standard_library_writes(text: str) -> None:
    assert escape(text) == html.escape(text)
