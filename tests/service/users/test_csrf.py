"""The token of forms."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from headrace.service.users import csrf


def request(cookie: str) -> Request:
    headers = [(b"host", b"localhost"), (b"cookie", b"headrace-http=" + cookie.encode())]
    scope: Any = {"type": "http", "method": "POST", "path": "/", "scheme": "http", "server": ("localhost", 80)}
    return Request({**scope, "query_string": b"", "headers": headers})


def test_a_token_is_that_of_its_session_only() -> None:
    token = csrf.token(request("one"))
    csrf.check(request("one"), token)
    assert len(token) == 64 and token != csrf.token(request("two"))
    for wrong in (csrf.token(request("two")), "", None, "é\ud800", token[:-1]):
        with pytest.raises(csrf.Forged, match="load the page again"):
            csrf.check(request("one"), wrong)
