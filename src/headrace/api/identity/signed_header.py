"""The header by which clients of flux-restful-api ask for a token: user and password, signed with a key that they share
with the service (a JSON Web Token, RFC 7519, with HS256).
"""

from __future__ import annotations

import warnings

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import OctKey

from headrace.api.identity.passwords import matches
from headrace.api.settings import Settings

# `headrace api start` warns of a short key itself, once.
warnings.filterwarnings("ignore", category=SecurityWarning)


def proves_owner(authorization: str, settings: Settings) -> bool:
    """Whether the value of a header `Authorization` is such a token of the one user there is."""
    if not settings.secret_key:
        return False
    encoded = authorization.rpartition(" ")[2].strip()
    try:
        claims = jwt.decode(encoded, OctKey.import_key(settings.secret_key), algorithms=["HS256"]).claims
        jwt.JWTClaimsRegistry().validate(claims)
    except (JoseError, ValueError, TypeError):
        return False
    return claims.get("scope") == "token" and matches(claims.get("user"), claims.get("pass"), settings)
