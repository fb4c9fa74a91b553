from __future__ import annotations

import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from headrace.service.rest.v1.login import name_and_password
from headrace.service.settings import Settings

KEY = "a key of thirty-two characters.."
CLAIMS = {"user": "ann", "pass": "secret", "scope": "token"}
NOBODY = (None, None)


def header(claims: dict[str, Any], key: str = KEY, algorithm: str = "HS256") -> str:
    return "Bearer " + jwt.encode({"alg": algorithm}, claims, OctKey.import_key(key), algorithms=[algorithm])


def read(text: str, key: str = KEY) -> tuple[Any, Any]:
    return name_and_password(text, Settings(secret_key=key))


def test_a_header_that_is_signed_with_the_key_has_a_user_and_a_password() -> None:
    assert read(header(CLAIMS)) == ("ann", "secret")
    assert read(header({**CLAIMS, "exp": time.time() + 60})) == ("ann", "secret")


@pytest.mark.parametrize(
    "claims",
    [
        {**CLAIMS, "scope": "other"},
        {"user": "ann", "pass": "secret"},
        {**CLAIMS, "exp": 1},
        {**CLAIMS, "nbf": 1 << 40},
        {},
    ],
)
def test_one_that_is_for_something_else_or_not_valid_now_has_none(claims: dict[str, Any]) -> None:
    assert read(header(claims)) == NOBODY


def test_another_key_or_algorithm_is_no_signature() -> None:
    assert read(header(CLAIMS, "another key of thirty-two chars..")) == NOBODY
    assert read(header(CLAIMS, algorithm="HS512")) == NOBODY
    # {"alg": "none"}
    _, payload, _ = header(CLAIMS).removeprefix("Bearer ").split(".")
    assert read(f"Bearer eyJhbGciOiJub25lIn0.{payload}.") == NOBODY
    for text in ("", "Bearer ", "Bearer x", "Bearer a.b.c", "Basic YTpi", "Bearer \u00e4.\u00e4.\u00e4"):
        assert read(text) == NOBODY


def test_without_a_key_nothing_is_signed() -> None:
    assert read(header(CLAIMS), key="") == NOBODY
