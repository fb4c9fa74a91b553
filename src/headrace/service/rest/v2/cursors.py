"""Cursors: where a page of a list ended, as a text that answers have as `next` and that is of no other use."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

WRONG = "must be what an answer has as next"


def text(place: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()


def read(value: str) -> list[Any]:
    """The place; whoever has written it knows what is in it. Raises ValueError."""
    try:
        place = json.loads(base64.urlsafe_b64decode(value.encode("ascii")))
    except (ValueError, RecursionError, binascii.Error):
        place = None
    if not isinstance(place, list):
        raise ValueError(WRONG)
    return place
