"""Tokens for clients of flux-restful-api: by name and password, or by a signed header with both.

The header is a JSON Web Token (RFC 7519, HS256), signed with a key that clients share with the service.
"""

from __future__ import annotations

import warnings
from typing import Any

from fastapi import APIRouter, Request
from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import OctKey
from starlette.responses import Response

from headrace.service import audit, service
from headrace.service.rest.v1 import fields
from headrace.service.rest.v1.fields import Field, text
from headrace.service.settings import Settings

# joserfc's warning about a short key is off, because `headrace api start` warns itself, once.
warnings.filterwarnings("ignore", category=SecurityWarning)

_LOGIN = (
    Field("username", text, "string", "The name of a user"),
    Field("password", text, "string", "The password"),
)

router = APIRouter(prefix="/v1", tags=["v1"])


def name_and_password(authorization: str, settings: Settings) -> tuple[Any, Any]:
    """User and password in a signed header `Authorization`; (None, None) if it is not valid."""
    if not settings.secret_key:
        return None, None
    encoded = authorization.rpartition(" ")[2].strip()
    try:
        claims = jwt.decode(encoded, OctKey.import_key(settings.secret_key), algorithms=["HS256"]).claims
        jwt.JWTClaimsRegistry().validate(claims)
    except (JoseError, ValueError, TypeError):
        return None, None
    return (claims.get("user"), claims.get("pass")) if claims.get("scope") == "token" else (None, None)


@router.get("/auth", summary="How to get a token")
async def describe_auth(request: Request) -> Response:
    settings = service.of(request).settings
    if settings.auth == "none":
        return service.as_json({"backend": "none", "password_login": False, "shared_secret_handshake": False})
    if settings.auth == "proxy":
        return service.as_json({"backend": "proxy", "password_login": False, "shared_secret_handshake": False})
    several = service.of(request).access.accounts.several
    password = several or bool(settings.password)
    signed = password and bool(settings.secret_key)
    backend = "database" if several else "shared-secret" if signed else "token"
    return service.as_json({"backend": backend, "password_login": password, "shared_secret_handshake": signed})


@router.post("/token", summary="A token for a header that is signed with FLUX_SECRET_KEY")
async def get_token(request: Request) -> Response:
    here = service.of(request)
    name, password = name_and_password(request.headers.get("authorization", ""), here.settings)
    return await _token(request, name, password)


@router.post("/login/access-token", summary="A token for user and password", openapi_extra=fields.openapi(_LOGIN))
async def log_in(request: Request) -> Response:
    values = fields.pick(await fields.of_body(request), _LOGIN)
    return await _token(request, values.get("username"), values.get("password"))


async def _token(request: Request, name: Any, password: Any) -> Response:
    access = service.of(request).access
    found = await access.of_password(request, name, password)
    if found is None:
        return service.as_json({"Message": "Denied"}, 400)
    await audit.before_change(request)
    return service.as_json({"access_token": access.accounts.issue(found), "token_type": "Bearer"})
