"""What clients send to `feasibility.check`, and what is no jobspec."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.sched.common.jobspec import of_request
from headrace.formats.spec.message import request

SPEC: dict[str, Any] = {"version": 1, "resources": []}


@pytest.mark.parametrize("jobspec", [SPEC, json.dumps(SPEC)])
def test_an_object_and_its_text_are_the_same(jobspec: Any) -> None:
    assert of_request(request("feasibility.check", {"jobspec": jobspec})) == SPEC


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(RpcError, match=r"^feasibility\.check: jobspec: ") as refused:
        of_request(request("feasibility.check", {"jobspec": text}))
    assert refused.value.errnum == errno.EPROTO
