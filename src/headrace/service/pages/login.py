"""Login and logout: by the printed one-time address, or by name and password."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from headrace.service import audit, service
from headrace.service.fields import Field, checked_text, of_query
from headrace.service.pages.html import page
from headrace.service.users import csrf
from headrace.service.users.access import TooManyFailures, Unauthenticated, cookie_name
from headrace.service.users.credential import Identity, owner
from headrace.service.users.userids import UseridMismatch

_FIRST = "/jobs"
# A path of this service. `//host` leads to another host, and for browsers so may `\\` and control characters.
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")


def _own_path(value: str) -> str:
    if not _OWN_PATH.fullmatch(value):
        raise ValueError(f"must be a path of this service, such as {_FIRST}, not '{value}'")
    return value


_FIELDS = (Field("token", checked_text), Field("next", _own_path))

public = APIRouter(include_in_schema=False)
router = APIRouter(include_in_schema=False, dependencies=[Depends(service.by_cookie)])


@public.get("/login")
async def show(request: Request) -> Response:
    """Exchange the one-time token in the address for a cookie, or show the login form."""
    chosen = of_query(request, _FIELDS)
    access = service.of(request).access
    if access.accounts.logs_in:
        return _form(request, chosen.get("next", _FIRST))
    if access.logins.use_up(chosen.get("token", "")):
        return _logged_in(request, owner(), _FIRST)
    # A browser that already has the cookie may open the one-time address again.
    await access.of_cookie(request)
    return RedirectResponse(_FIRST, 303)


@public.post("/login")
async def log_in(request: Request) -> Response:
    access = service.of(request).access
    if not access.accounts.logs_in:
        raise Unauthenticated(access.accounts.help)
    await csrf.check_request(request)
    async with request.form(max_files=0) as form:
        name, password, next = form.get("name"), form.get("password"), str(form.get("next", _FIRST))
    try:
        found = await access.of_password(request, name, password)
    except TooManyFailures as exc:
        return _form(request, next, str(exc), 429, {"Retry-After": str(exc.wait)})
    except UseridMismatch as exc:
        return _form(request, next, str(exc), 403)
    if found is None:
        return _form(request, next, "That is not the password of a user with this name.", 401)
    await audit.before_change(request)
    return _logged_in(request, found, next)


@router.post("/logout")
async def log_out(request: Request) -> Response:
    service.of(request).access.accounts.end(request.cookies.get(cookie_name(request), ""))
    found = RedirectResponse("/login", 303)
    found.delete_cookie(cookie_name(request))
    return found


def to_form(request: Request) -> Response:
    """Redirect to the login form, which leads back to the requested page."""
    url = request.url
    next = url.path + (f"?{url.query}" if url.query else "")
    return RedirectResponse("/login" + (f"?{urlencode({'next': next})}" if _OWN_PATH.fullmatch(next) else ""), 303)


def _form(
    request: Request, next: str, problem: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    found = page(request, "login.html", status, next=next, problem=problem)
    found.headers.update(headers or {})
    return found


def _logged_in(request: Request, identity: Identity, next: str) -> Response:
    access = service.of(request).access
    found = RedirectResponse(next if _OWN_PATH.fullmatch(next) else _FIRST, 303)
    found.set_cookie(
        cookie_name(request),
        access.accounts.issue(identity, session=True),
        max_age=access.seconds,
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="lax",
    )
    return found
