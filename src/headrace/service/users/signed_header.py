"""The header by which clients of flux-restful-api ask for a token: user and password, signed with a key that they share
with the service (a JSON Web Token, RFC 7519, with HS256).
"""

from __future__ import annotations

import warnings
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import OctKey

from headrace.service.settings import Settings

# `headrace api start` warns of a short key itself, once.
warnings.filterwarnings("ignore", category=SecurityWarning)


def name_and_password(authorization: str, settings: Settings) -> tuple[Any, Any]:
    """The user and password in the value of a header `Authorization`; (None, None) where it is no such token."""
    if not settings.secret_key:
        return None, None
    encoded = authorization.rpartition(" ")[2].strip()
    try:
        claims = jwt.decode(encoded, OctKey.import_key(settings.secret_key), algorithms=["HS256"]).claims
        jwt.JWTClaimsRegistry().validate(claims)
    except (JoseError, ValueError, TypeError):
        return None, None
    return (claims.get("user"), claims.get("pass")) if claims.get("scope") == "token" else (None, None)
