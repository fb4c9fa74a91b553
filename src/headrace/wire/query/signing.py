"""The signed jobspec J (RFC 38, RFC 39): HEADER.PAYLOAD.SIGNATURE.

With the mechanism `none`, the signature is the word `none`: the broker takes the submitter's identity from the
connection. With `munge`, the signature is a credential, which proves the identity on any host of the site (`munge`).
"""

from __future__ import annotations

import os
from binascii import b2a_base64

from headrace.formats.spec import credential
from headrace.wire.query import QueryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NONE, MUNGE = "none", "munge"
MECHANISMS = (NONE, MUNGE)
# The variable with which users select a mechanism for all commands and programs.
VARIABLE = "HEADRACE_SIGN_TYPE"


class SigningError(QueryError):
    """The mechanism is unknown or not available here; the text is for users."""


def sign(jobspec: str, userid: Optional[int] = None, mechanism: str = "") -> str:
    """Sign a jobspec's text and return J.

    The user is by default FLUX_HANDLE_USERID or the user of this process. Raises SigningError.
    """
    mechanism = mechanism or os.environ.get(VARIABLE) or NONE
    if mechanism not in MECHANISMS:
        raise SigningError(f"unknown mechanism {mechanism!r} to sign with, there are {' and '.join(MECHANISMS)}")
    signer = os.environ.get(credential.USERID) or str(os.getuid()) if userid is None else str(userid)
    header = f"version\0i1\0userid\0i{signer}\0mechanism\0s{mechanism}\0".encode()
    signed = f"{_base64(header)}.{_base64(jobspec.encode('utf-8', 'surrogateescape'))}"
    return f"{signed}.{_credential(signed) if mechanism == MUNGE else NONE}"


def _credential(signed: str) -> str:
    from . import munge

    try:
        return munge.encode(munge.digest(signed.encode("ascii")))
    except munge.MungeError as exc:
        raise SigningError(str(exc.strerror)) from None


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
