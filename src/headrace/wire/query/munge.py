"""Signatures by MUNGE (RFC 39): libmunge, where this machine has it, asks the munged of this machine.

Who can ask a munged of the same key can have a credential read, so it tells whose process has made it, on any host.
"""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

_LIBRARY = "libmunge.so.2"
# The byte before a digest says of what kind it is.
_SHA256 = b"\x01"
# munge.h: options of a context, and the errors of credentials that can be read all the same.
_OPT_ENCODE_TIME = 6
_SUCCESS, _EXPIRED, _REPLAYED = 0, 15, 17


class MungeError(OSError):
    """There is no libmunge, no munged answers, or a credential is none; the text says which."""


def digest(signed: bytes) -> bytes:
    """What is signed of HEADER.PAYLOAD."""
    return _SHA256 + hashlib.sha256(signed).digest()


def encode(payload: bytes) -> str:
    """A credential of this process's user. Raises MungeError."""
    made = ctypes.c_void_p()
    with _context() as (library, context):
        _must(library, context, library.munge_encode(ctypes.byref(made), context, payload, len(payload)))
        text = ctypes.string_at(made.value or 0)
        _free(made)
    return text.decode("ascii")


def decode(credential: str) -> Tuple[bytes, int, int]:
    """What a credential was made of, by which user id, and when (seconds since the epoch). Raises MungeError.

    A credential can be read again, and after MUNGE's own time to live.
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
            _must(library, context, number)
        _must(library, context, library.munge_ctx_get(context, _OPT_ENCODE_TIME, ctypes.byref(made)))
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


def _must(library: Any, context: Any, number: int) -> None:
    if number != _SUCCESS:
        text = library.munge_ctx_strerror(context) or library.munge_strerror(number) or b""
        raise MungeError(5, f"munge: {text.decode('utf-8', 'replace')}")


def _free(memory: ctypes.c_void_p) -> None:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    libc.free(memory)
