"""Behind a proxy: the last entry of each header is the proxy's word, whatever clients have written before it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.service.middleware import Forwarded, address_of


def passed(*headers: tuple[str, str], client: tuple[str, int] | None = ("10.0.0.9", 5)) -> tuple[Any, str]:
    """The client and the scheme of a request, as the application has them."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["scheme"]))

    scope = {
        "type": "http",
        "client": client,
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    asyncio.run(Forwarded(app)(scope, None, None))  # type: ignore[arg-type]
    return seen[0]  # type: ignore[no-any-return]


def test_without_headers_a_request_is_the_proxys_own() -> None:
    assert passed() == (("10.0.0.9", 5), "http")
    assert passed(client=None) == (None, "http")


def test_what_a_client_wrote_before_the_proxys_entry_does_not_count() -> None:
    for_it = "x-forwarded-for"
    assert passed((for_it, "10.0.0.1, 203.0.113.7")) == (("203.0.113.7", 0), "http")
    assert passed((for_it, "10.0.0.1"), (for_it, "203.0.113.7"), client=None) == (("203.0.113.7", 0), "http")
    assert passed(("x-forwarded-proto", "http, HTTPS"))[1] == "https"
    for text in ("evil<script>", "203.0.113.7, unknown", "", "1" * 3000):
        assert passed((for_it, text), ("x-forwarded-proto", text)) == (("10.0.0.9", 5), "http")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[x]:80", ""),
        ("1.2.3", ""),
        ("_hidden", ""),
    ],
)
def test_an_entry_may_have_brackets_and_a_port(text: str, address: str) -> None:
    assert address_of(text) == address
