"""The signed jobspec J (RFC 38, RFC 39) with the mechanism `none`: HEADER.PAYLOAD.none.

The broker takes the submitter's identity from the connection, so nothing has to be proved here; the form is what
real Flux stores and sends.
"""

from __future__ import annotations

import os
from binascii import b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def sign(jobspec: str, userid: Optional[int] = None) -> str:
    """The J of a jobspec's text, in the name of a user (default: who runs this process, or FLUX_HANDLE_USERID)."""
    signer = os.environ.get("FLUX_HANDLE_USERID") or str(os.getuid()) if userid is None else str(userid)
    header = f"version\0i1\0userid\0i{signer}\0mechanism\0snone\0".encode()
    return f"{_base64(header)}.{_base64(jobspec.encode('utf-8', 'surrogateescape'))}.none"


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
