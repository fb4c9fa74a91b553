"""Checks a J whose mechanism is `munge` (RFC 39). Imported with the first one: most instances never have any."""

from __future__ import annotations

import asyncio
import errno

from headrace.engine.broker.module.context import RpcError
from headrace.wire.query import munge

# Seconds between signature and submission, the default of flux-security.
_MOST_AGE = 14 * 24 * 3600.0


async def check(j: str, userid: int, now: float) -> None:
    """Raises RpcError unless user `userid` has signed J. The munged of this machine may take long to answer."""
    signed, _, signature = j.rpartition(".")
    try:
        payload, signer, time = await asyncio.to_thread(munge.decode, signature)
    except munge.MungeError as exc:
        raise RpcError(errno.EPERM, f"J: {exc.strerror}") from None
    if payload != munge.digest(signed.encode("ascii", "replace")):
        raise RpcError(errno.EPERM, "J: the signature is one of something else")
    if signer != userid:
        raise RpcError(errno.EPERM, f"J: signed by user {signer}, not by user {userid}")
    if now - time > _MOST_AGE:
        raise RpcError(errno.EPERM, f"J: signed {(now - time) / 86400:.0f} days ago")
