"""CSRF protection: a form that changes something needs a token that only pages of its session have.

The token is derived from the session's cookie and user, with a key of this process. So there is no table of tokens, and
a token is useless in another session. `Guard` has already refused foreign origins; the token protects users whose
browser sends no origin.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from starlette.requests import Request

from headrace.service.users.access import cookie_name

# The name of the form's field.
FIELD = "csrf"
# The header of requests that scripts of a page make.
HEADER = "x-csrf-token"
_KEY = secrets.token_bytes(32)


class Forged(PermissionError):
    """A form lacks the token of its session. The text is for users."""


def token(request: Request) -> str:
    """The token of this session's forms."""
    session = request.cookies.get(cookie_name(request), "")
    # Behind a proxy that logs users in there is no cookie. All requests of one user are then one session.
    user = getattr(request.state, "identity", None)
    text = f"{session}\0{user.userid if user else ''}"
    return hmac.new(_KEY, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def check(request: Request, given: object) -> None:
    """Raise Forged unless `given` is the token of this session."""
    if not isinstance(given, str) or not hmac.compare_digest(token(request).encode(), given.encode("utf-8", "replace")):
        raise Forged("the form was not sent from a page of this session: load the page again, and send it once more")


async def check_request(request: Request) -> None:
    """Raise Forged unless the request has the token of its session, in HEADER or in the form's FIELD.

    The parsed form is kept in the request, so the route can read it, too.
    """
    given: object = request.headers.get(HEADER)
    if given is None:
        given = (await request.form(max_files=0)).get(FIELD)
    check(request, given)
