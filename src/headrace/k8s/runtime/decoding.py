"""JSON of the API server, of which one object may be nested deeper than Python decodes: a definition that leaves the
form of a field open lets users write as much. Without a limit of its own, such an object would end the watch of its
kind.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

# Levels of a document that is nested too deeply which are kept. Objects of Kubernetes have tens of them, and what walks
# them here goes down by a call or two for each.
KEPT_LEVELS = 150

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def decoded(raw: bytes) -> Any:
    """The value of a JSON text. What is deeper than Python decodes has null where it is deeper than KEPT_LEVELS.

    Raises msgspec.DecodeError.
    """
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        return msgspec.json.decode(_cut(raw))


def _cut(raw: bytes) -> bytes:
    parts, depth, kept_from = [], 0, 0
    for token in _TOKEN.finditer(raw):
        sign = token[0]
        if sign in (b"{", b"["):
            depth += 1
            if depth == KEPT_LEVELS + 1:
                parts += [raw[kept_from : token.start()], b"null"]
        elif sign in (b"}", b"]"):
            if depth == KEPT_LEVELS + 1:
                kept_from = token.end()
            depth -= 1
    return b"".join([*parts, raw[kept_from:]])
