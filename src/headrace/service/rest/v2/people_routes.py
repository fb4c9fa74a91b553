"""The routes of `/v2` about users, their tokens and the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headrace.service import service
from headrace.service.fields import BadFields, Field, checked_text, of_query, pick, whole_number
from headrace.service.rest.v2 import fields
from headrace.service.submission import integer, named, truth
from headrace.service.users.tokens import LONGEST_NOTE

router = APIRouter(prefix="/v2", tags=["v2"], dependencies=[Depends(service.by_header)])

_TEXT = {"type": "string"}
_MOST = 1000
_DEFAULT_LIMIT = 50


def _note(value: Any) -> str:
    if len(checked_text(value)) > LONGEST_NOTE:
        raise ValueError(f"must have {LONGEST_NOTE} characters at most")
    return str(value)


_PAGE = (
    Field(
        "limit",
        whole_number(1, _MOST),
        {"type": "integer", "minimum": 1, "maximum": _MOST, "default": _DEFAULT_LIMIT},
        "The maximum number of entries on a page",
    ),
    Field("cursor", fields.cursor, _TEXT, "The next of an earlier response, for the page after it"),
)
_OF_USER = Field(
    "user", fields.text, _TEXT, "Whose tokens: a user, or all (default: your own; others for administrators)"
)
_ISSUE = (
    Field("note", _note, {"type": "string", "maxLength": LONGEST_NOTE}, "What the token is for"),
    Field("minutes", integer(1), {"type": "integer", "minimum": 1}, "The token's lifetime, at most that of a login"),
)
_PASSWORD = Field("password", named, {**_TEXT, "minLength": 1}, "The password")
_ADMIN = Field("admin", truth, {"type": "boolean"}, "Whether the user is an administrator")
_ADD = (Field("name", named, {**_TEXT, "minLength": 1}, "The user's name"), _PASSWORD, _ADMIN)
_CHANGE = (_PASSWORD, _ADMIN)

_Row = TypeVar("_Row", bound=NamedTuple)


def _parameters(form: Iterable[Field]) -> dict[str, Any]:
    return {"parameters": fields.parameters(form)}


def _body(form: Iterable[Field], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"requestBody": fields.body_of(form, required)}


def _page(name: str, rows: Sequence[_Row], key: Callable[[_Row], list[Any]], chosen: dict[str, Any]) -> Response:
    """A page of `limit` rows after the cursor. The rows must be in the order of their keys."""
    limit, begin = chosen.get("limit", _DEFAULT_LIMIT), chosen.get("cursor")
    try:
        remaining = [row for row in rows if begin is None or key(row) > begin]
    except TypeError:
        raise BadFields([("cursor", fields.WRONG_CURSOR)]) from None
    shown = remaining[:limit]
    next = fields.cursor_text(key(shown[-1])) if len(remaining) > limit else None
    return service.as_json({name: [row._asdict() for row in shown], "next": next})


@router.get("/tokens", summary="Valid tokens, without their texts", openapi_extra=_parameters((_OF_USER, *_PAGE)))
async def list_tokens(request: Request) -> Response:
    chosen = of_query(request, (_OF_USER, *_PAGE))
    found = service.of(request).people.tokens(chosen.get("user", ""))
    return _page("tokens", found, lambda token: [-token.issued, token.id], chosen)


@router.post("/tokens", summary="Issue a token for yourself; its text is not shown again", openapi_extra=_body(_ISSUE))
async def issue_token(request: Request) -> Response:
    values = pick(await fields.of_body(request), _ISSUE)
    minutes = values.get("minutes")
    text, known = service.of(request).people.issue(values.get("note", ""), minutes and minutes * 60.0)
    request.state.token = known.id
    return service.as_json({"token": text, **known._asdict()}, 201, {"Location": f"/v2/tokens/{known.id}"})


@router.delete("/tokens/{token_id}", summary="Revoke a token")
async def revoke_token(request: Request, token_id: str) -> Response:
    of_query(request, ())
    service.of(request).people.revoke(token_id)
    return Response(status_code=204)


@router.get("/users", summary="Users, for administrators", openapi_extra=_parameters(_PAGE))
async def list_users(request: Request) -> Response:
    chosen = of_query(request, _PAGE)
    return _page("users", service.of(request).people.users(), lambda user: [user.name], chosen)


@router.post("/users", summary="Add a user", openapi_extra=_body(_ADD, ("name", "password")))
async def add_user(request: Request) -> Response:
    values = pick(await fields.of_body(request), _ADD)
    missing = [(name, "is required") for name in ("name", "password") if name not in values]
    if missing:
        raise BadFields(missing)
    made = await service.of(request).people.add(values["name"], values["password"], values.get("admin", False))
    request.state.account = made.name
    return service.as_json(made._asdict(), 201, {"Location": f"/v2/users/{made.name}"})


@router.post("/users/{name}", summary="Change a user's password or role", openapi_extra=_body(_CHANGE))
async def change_user(request: Request, name: str) -> Response:
    values = pick(await fields.of_body(request), _CHANGE)
    found = await service.of(request).people.change(name, values.get("password"), values.get("admin"))
    return service.as_json(found._asdict())


@router.delete("/users/{name}", summary="Remove a user and the user's tokens; the userid is not given to another user")
async def remove_user(request: Request, name: str) -> Response:
    of_query(request, ())
    service.of(request).people.remove(name)
    return Response(status_code=204)


@router.get(
    "/audit",
    summary="Changes and refusals, the newest first: your own, or all for administrators",
    openapi_extra=_parameters(_PAGE),
)
async def read_audit(request: Request) -> Response:
    """A page may have fewer lines than `limit`. There are more lines as long as `next` is not null."""
    chosen = of_query(request, _PAGE)
    begin = chosen.get("cursor")
    if begin is not None and not (len(begin) == 1 and type(begin[0]) is int and 0 <= begin[0] < 1 << 53):
        raise BadFields([("cursor", fields.WRONG_CURSOR)])
    found = service.of(request).people.audit(chosen.get("limit", _DEFAULT_LIMIT), begin and begin[0])
    return service.as_json({"audit": found.lines, "next": fields.cursor_text([found.end]) if found.end else None})
