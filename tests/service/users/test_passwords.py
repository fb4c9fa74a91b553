from __future__ import annotations

from typing import Any

import pytest

from headrace.service.settings import Settings
from headrace.service.users.accounts import password_matches

SETTINGS = Settings(user="fluxuser", password="se\u00e7ret")


def test_the_name_and_the_password_of_the_settings_match() -> None:
    assert password_matches("fluxuser", "se\u00e7ret", SETTINGS)


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("fluxuser", "secret"),
        ("other", "se\u00e7ret"),
        ("fluxuser", ""),
        ("", ""),
        ("fluxuser", "\ud800"),
        ("fluxuser", None),
        (None, "se\u00e7ret"),
        (["fluxuser"], "se\u00e7ret"),
    ],
)
def test_nothing_else_does(name: Any, password: Any) -> None:
    assert not password_matches(name, password, SETTINGS)


@pytest.mark.parametrize("password", ["", "x", None])
def test_without_a_password_of_the_settings_none_matches(password: Any) -> None:
    assert not password_matches("fluxuser", password, Settings())
