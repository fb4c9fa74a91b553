"""The empty response of a handler, and the exception with which it refuses a request."""

from __future__ import annotations

import os


class Empty:
    """The type of EMPTY."""


# A success response without a payload.
EMPTY = Empty()


class RpcError(Exception):
    """A failed request: `errnum` as in errno.h, and a text for the user ("" if the number is enough)."""

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(text or os.strerror(errnum))
        self.errnum = errnum
        self.text = text
