"""Who a request is from, by a token of ours in a header or in the cookie of the page."""

from __future__ import annotations

from starlette.requests import Request

from headrace.api.identity import credential
from headrace.api.identity.credential import Identity
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
        self.owner = credential.owner()
        self.needed = settings.auth != "none"
        self.seconds = settings.token_minutes * 60
        self.tokens = Tokens(self.seconds)
        self.logins = Tokens(_LOGIN_SECONDS)

    async def of_header(self, request: Request) -> Identity:
        """Whose token the header `Authorization` has. Raises Unauthenticated."""
        if not self.needed:
            return self.owner
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("a token is needed: Authorization: Bearer TOKEN")
        if not self.tokens.valid(token.strip()):
            raise Unauthenticated("the token is not valid, or not any more")
        return self.owner

    async def of_cookie(self, request: Request) -> Identity:
        """Whose token the cookie of the page has. Raises Unauthenticated."""
        if self.needed and not self.tokens.valid(request.cookies.get(cookie_name(request), "")):
            raise Unauthenticated("open the address that the service printed when it started")
        return self.owner

    async def of_either(self, request: Request) -> Identity:
        """The same of the header, or without one of the cookie. Raises Unauthenticated."""
        return await (self.of_header if "authorization" in request.headers else self.of_cookie)(request)
