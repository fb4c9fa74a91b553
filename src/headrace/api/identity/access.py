"""Whether a request may pass: with a token of ours, in a header or in the cookie of the page."""

from __future__ import annotations

from starlette.requests import Request

from headrace.api.identity.tokens import Tokens
from headrace.api.settings import Settings

# Seconds that the address which is printed at the start can be opened for.
_LOGIN_SECONDS = 3600.0


def cookie_name(request: Request) -> str:
    """The name of the page's cookie. It has the port, as browsers send a host's cookies to all of its ports."""
    return f"headrace-{request.url.port or request.url.scheme}"


class Unauthenticated(PermissionError):
    """The request has no valid token; the text is for users."""


class Access:
    """The tokens of this service; `logins` are those of addresses that open the page, once each."""

    def __init__(self, settings: Settings) -> None:
        self.needed = settings.auth != "none"
        self.seconds = settings.token_minutes * 60
        self.tokens = Tokens(self.seconds)
        self.logins = Tokens(_LOGIN_SECONDS)

    def check_header(self, request: Request) -> None:
        """Raises Unauthenticated without a valid token in the header `Authorization`."""
        if not self.needed:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("a token is needed: Authorization: Bearer TOKEN")
        if not self.tokens.valid(token.strip()):
            raise Unauthenticated("the token is not valid, or not any more")

    def check_cookie(self, request: Request) -> None:
        """Raises Unauthenticated without a valid token in the cookie of the page."""
        if self.needed and not self.tokens.valid(request.cookies.get(cookie_name(request), "")):
            raise Unauthenticated("open the address that the service printed when it started")
