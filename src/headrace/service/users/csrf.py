"""Whether a form was sent from a page of this service: each form that changes something has a token that only a page
of the same session can have.

The token is derived from the session's cookie and its user with a key of this process. So there is no table of tokens,
and a token is useless in another session. `Guard` has refused foreign origins before; the token protects users whose
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
    """A form without the token of its session; the text is for users."""


def token(request: Request) -> str:
    """The token of this session's forms."""
    session = request.cookies.get(cookie_name(request), "")
    # Behind a proxy that logs users in there is no cookie: a session is then all that is one user's.
    user = getattr(request.state, "identity", None)
    text = f"{session}\0{user.userid if user else ''}"
    return hmac.new(_KEY, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def check(request: Request, given: object) -> None:
    """Raises Forged unless `given` is the token of this session."""
    if not isinstance(given, str) or not hmac.compare_digest(token(request).encode(), given.encode("utf-8", "replace")):
        raise Forged("the form was not sent from a page of this session: load the page again, and send it once more")


async def check_request(request: Request) -> None:
    """Raises Forged unless the request has the token of its session, in the header HEADER or in a form's FIELD.

    The form is kept, so that the route may read it, too.
    """
    given: object = request.headers.get(HEADER)
    if given is None:
        given = (await request.form(max_files=0)).get(FIELD)
    check(request, given)
