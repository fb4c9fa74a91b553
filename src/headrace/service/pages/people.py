"""The page of people: the user's tokens and audit; for administrators all users, tokens and audit."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from headrace.service import problems, service
from headrace.service.fields import Field, choice, of_query, whole_number
from headrace.service.pages import html
from headrace.service.people import NoAudit
from headrace.service.store import StoreError

# The maximum number of rows in a table. Scripts get all rows from /v2.
SHOWN = 100
_SAID = {
    "revoked": "The token is revoked.",
    "added": "The user is added.",
    "removed": "The user is removed.",
    "changed": "The user is changed.",
}
# `before` is an offset in the audit's file.
_FIELDS = (Field("before", whole_number(0, (1 << 53) - 1)), Field("said", choice(_SAID)))

router = APIRouter()


@router.get("/people")
async def show(request: Request) -> Response:
    return _page(request, **of_query(request, _FIELDS))


@router.post("/people/tokens")
async def issue(request: Request) -> Response:
    """Issue a token and show it in the response only. It is in no address and on no other page."""
    form = await html.changes(request)
    text = form.get("minutes", "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        return _page(request, f"Minutes must be a number from 1 on, not '{text}'.", 422)
    token, known = service.of(request).people.issue(form.get("note", ""), int(text) * 60.0 if text else None)
    request.state.token = known.id
    return _page(request, token=token, status=201)


@router.post("/people/tokens/{token_id}/revoke")
async def revoke(request: Request, token_id: str) -> Response:
    service.of(request).people.revoke(token_id)
    return _back("revoked")


@router.post("/people/users")
async def add(request: Request) -> Response:
    form = await html.changes(request)
    name = form.get("name", "")
    try:
        await service.of(request).people.add(name, form.get("password", ""), bool(form.get("admin")))
    except StoreError as exc:
        return _wrong(request, exc)
    request.state.account = name
    return _back("added")


@router.post("/people/users/{name}/change")
async def change(request: Request, name: str) -> Response:
    """Change the password or the role. `admin` is yes or no."""
    form = await html.changes(request)
    role = form.get("admin")
    if role not in (None, "yes", "no"):
        raise HTTPException(400, f"admin is '{role}', it must be yes or no")
    try:
        await service.of(request).people.change(name, form.get("password"), None if role is None else role == "yes")
    except StoreError as exc:
        return _wrong(request, exc)
    return _back("changed")


@router.post("/people/users/{name}/remove")
async def remove(request: Request, name: str) -> Response:
    service.of(request).people.remove(name)
    return _back("removed")


def _back(said: str) -> Response:
    return RedirectResponse(f"/people?said={said}", 303)


def _wrong(request: Request, exc: StoreError) -> Response:
    """The page with an error message."""
    return _page(request, str(exc), problems.of(exc).status)


def _page(
    request: Request,
    problem: str = "",
    status: int = 200,
    token: str = "",
    before: int | None = None,
    said: str = "",
) -> Response:
    """Render the page. `before` and `said` are from the address."""
    here = service.of(request)
    lines: list[dict[str, Any]] = []
    older, no_audit = 0, ""
    try:
        lines, older = here.people.audit(SHOWN, before)
    except NoAudit as exc:
        no_audit = str(exc)
    sees_all = here.identity.sees_all
    tokens = here.people.tokens("all" if sees_all else "")
    several = here.access.accounts.several
    return html.page(
        request,
        "people.html",
        status,
        problem=problem,
        said=_SAID.get(said, ""),
        token=token,
        me=here.identity,
        minutes=here.settings.token_minutes,
        needs_token=here.access.needed,
        tokens=tokens[:SHOWN],
        more_tokens=len(tokens) - SHOWN,
        users=here.people.users() if sees_all and several else [],
        manages=sees_all and several,
        lines=lines,
        older=older,
        no_audit=no_audit,
    )
