"""The password of the one user there is, FLUX_USER and FLUX_TOKEN of the environment."""

from __future__ import annotations

import hmac
from typing import Any

from headrace.service.settings import Settings


def matches(user: Any, password: Any, settings: Settings) -> bool:
    """Whether name and password are right; never where none is set. The time it takes does not tell what is wrong."""
    if not (isinstance(user, str) and isinstance(password, str) and settings.password):
        return False
    right_user = hmac.compare_digest(_bytes(user), _bytes(settings.user))
    return hmac.compare_digest(_bytes(password), _bytes(settings.password)) and right_user


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
