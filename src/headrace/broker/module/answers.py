"""What a handler of requests may return beside objects, the empty answer, and what it raises to refuse a request."""

from __future__ import annotations

import os


class Empty:
    """The type of EMPTY."""


# A success response without a payload.
EMPTY = Empty()


class RpcError(Exception):
    """A failed request: `errnum` as in errno.h, and a text for the user ("" when the number says it all)."""

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(text or os.strerror(errnum))
        self.errnum = errnum
        self.text = text
