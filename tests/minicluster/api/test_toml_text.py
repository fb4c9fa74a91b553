"""Tables as TOML text, read back by the parser of the standard library."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.api.plan import given_config
from headrace.minicluster.api.toml_text import toml_text

_PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(st.dictionaries(st.text(), _VALUES))
def test_what_is_written_is_read_back(tables: dict[str, Any]) -> None:
    assert given_config(toml_text(tables)) == tables


def test_tables_stand_under_their_names() -> None:
    tables = {"access": {"allow-guest-user": True}, "bootstrap": {"hosts": [{"host": "c-[0-1]"}]}}
    text = '[access]\nallow-guest-user = true\n\n[bootstrap]\nhosts = [{host = "c-[0-1]"}]\n'
    assert toml_text(tables) == text


def test_what_toml_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError, match="no value of TOML"):
        toml_text({"a": object()})
