"""MUNGE signatures (RFC 39), made and checked by the local munged through libmunge.

A credential proves the user id of the process that made it, on any host whose munged has the same key.
"""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

_LIBRARY = "libmunge.so.2"
# The byte before a digest identifies the hash.
_SHA256 = b"\x01"
# From munge.h: an option of a context, and status codes. A credential that has expired or was decoded before gets such
# a code, and is decoded nevertheless.
_OPT_ENCODE_TIME = 6
_SUCCESS, _EXPIRED, _REPLAYED = 0, 15, 17


class MungeError(OSError):
    """libmunge is missing, munged does not answer, or a credential is invalid; the text says which."""


def digest(signed: bytes) -> bytes:
    """The digest of HEADER.PAYLOAD, which is what MUNGE signs."""
    return _SHA256 + hashlib.sha256(signed).digest()


def encode(payload: bytes) -> str:
    """Make a credential of this process's user with a payload. Raises MungeError."""
    made = ctypes.c_void_p()
    with _context() as (library, context):
        _raise_on_error(library, context, library.munge_encode(ctypes.byref(made), context, payload, len(payload)))
        text = ctypes.string_at(made.value or 0)
        _free(made)
    return text.decode("ascii")


def decode(credential: str) -> Tuple[bytes, int, int]:
    """Return a credential's payload, the user id of its maker, and its time in seconds since the epoch.

    A credential that was decoded before, or whose time to live has expired, is accepted. Raises MungeError.
    """
    data, size, uid, gid = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint32(), ctypes.c_uint32()
    made = ctypes.c_long()
    text = credential.encode("ascii", "replace")
    with _context() as (library, context):
        number = library.munge_decode(
            text, context, ctypes.byref(data), ctypes.byref(size), ctypes.byref(uid), ctypes.byref(gid)
        )
        payload = ctypes.string_at(data.value, size.value) if data.value else b""
        _free(data)
        if number not in (_EXPIRED, _REPLAYED):
            _raise_on_error(library, context, number)
        _raise_on_error(library, context, library.munge_ctx_get(context, _OPT_ENCODE_TIME, ctypes.byref(made)))
    return payload, uid.value, made.value


@contextmanager
def _context() -> Iterator[Any]:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise MungeError(2, f"munge: there is no {_LIBRARY} on this machine") from None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_strerror.restype = ctypes.c_char_p
    context = ctypes.c_void_p(library.munge_ctx_create())
    try:
        yield library, context
    finally:
        library.munge_ctx_destroy(context)


def _raise_on_error(library: Any, context: Any, number: int) -> None:
    if number != _SUCCESS:
        text = library.munge_ctx_strerror(context) or library.munge_strerror(number) or b""
        raise MungeError(5, f"munge: {text.decode('utf-8', 'replace')}")


def _free(memory: ctypes.c_void_p) -> None:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    libc.free(memory)
