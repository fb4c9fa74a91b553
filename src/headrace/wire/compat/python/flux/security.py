"""`flux.security`: signed jobspecs (RFC 38, RFC 39), with the same mechanisms as submission."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Optional, Tuple, Union

from headrace.wire.query import signing


class SecurityContext:
    """Signs job specifications.

    `config_pattern` and `flags` have no effect: there is no configuration to read.
    """

    def __init__(self, config_pattern: Optional[str] = None, flags: int = 0) -> None:
        """Does nothing: signing needs no state."""

    def sign_wrap(self, payload: Union[str, bytes], mech_type: Optional[str] = None, flags: int = 0) -> bytes:
        """Sign `payload` as this process's user, and return J. Raises TypeError, ValueError."""
        return _sign(None, payload, mech_type)

    def sign_wrap_as(
        self, userid: int, payload: Union[str, bytes], mech_type: Optional[str] = None, flags: int = 0
    ) -> bytes:
        """Sign `payload` as a user, and return J.

        A broker accepts J only from that user, or from the owner with the mechanism `none`. Raises TypeError, or
        ValueError for an unknown mechanism.
        """
        return _sign(userid, payload, mech_type)

    def sign_unwrap(self, signed_payload: bytes, flags: int = 0) -> Tuple[bytes, int]:
        """The payload and the user of a J; its signature is not checked. Raises TypeError, ValueError."""
        if not isinstance(signed_payload, bytes):
            raise TypeError(f"signed_payload must be bytes, not {type(signed_payload).__name__}")
        header, payload, _ = signed_payload.split(b".", 2)
        fields = a2b_base64(header).split(b"\0")
        return a2b_base64(payload), int(fields[fields.index(b"userid") + 1][1:])


def _sign(userid: Optional[int], payload: Union[str, bytes], mechanism: Optional[str]) -> bytes:
    if not isinstance(payload, (str, bytes)):
        raise TypeError(f"payload must be text or bytes, not {type(payload).__name__}")
    text = payload if isinstance(payload, str) else payload.decode("utf-8", "surrogateescape")
    return signing.sign(text, userid, mechanism or "").encode()
