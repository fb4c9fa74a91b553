"""The jobspec of a `feasibility.check` request, which clients send as an object or as text."""

from __future__ import annotations

import errno
from typing import Any

import msgspec

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec.message import Message

# Exceptions of reading an invalid jobspec. RFC 14 is not checked, since a request may have resources alone.
MALFORMED = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


def of_request(msg: Message) -> dict[str, Any]:
    """The jobspec of a request. Raises RpcError(EPROTO) for text that is not a JSON object."""
    jobspec = msg.obj["jobspec"]
    if isinstance(jobspec, str):
        try:
            jobspec = msgspec.json.decode(jobspec)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
            raise RpcError(errno.EPROTO, f"{msg.topic}: jobspec: not JSON: {exc}") from None
    if not isinstance(jobspec, dict):
        raise RpcError(errno.EPROTO, f"{msg.topic}: jobspec: expected object, got {type(jobspec).__name__}")
    return jobspec


def malformed(exc: Exception) -> RpcError:
    """The error for a jobspec that raised `exc`, one of MALFORMED."""
    return RpcError(errno.EINVAL, f"jobspec: not what RFC 14 describes ({type(exc).__name__}: {exc})")
