"""`flux.security`: signed jobspecs without an instance."""

from __future__ import annotations

import os
import sys

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.security import SecurityContext

from headrace.wire.query import signing


def test_what_is_signed_names_its_user_and_can_be_read() -> None:
    context = SecurityContext()
    signed = context.sign_wrap_as(4242, '{"a": "ü"}', mech_type="none")
    assert signed == signing.sign('{"a": "ü"}', 4242, "none").encode()
    assert context.sign_unwrap(signed) == ('{"a": "ü"}'.encode(), 4242)
    assert context.sign_unwrap(context.sign_wrap(b"{}")) == (b"{}", os.getuid())


def test_what_cannot_be_signed_is_an_error() -> None:
    context = SecurityContext()
    with pytest.raises(ValueError, match="unknown mechanism"):
        context.sign_wrap("{}", mech_type="nosuch")
    with pytest.raises(TypeError, match="payload must be text or bytes"):
        context.sign_wrap({})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="signed_payload must be bytes"):
        context.sign_unwrap("a.b.c")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        context.sign_unwrap(b"nothing")
