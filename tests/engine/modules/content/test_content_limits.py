from __future__ import annotations

import errno

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.content.limits import Limits, parse


def test_each_argument_sets_its_limit() -> None:
    args = ["blob-size-limit=1", "memory-limit=2", "purge-target-size=3", "purge-old-entry=4", "flush-batch-limit=5"]
    assert parse(args) == Limits(1, 2, 3, 4, 5)


def test_only_a_limit_that_was_asked_for_is_told() -> None:
    assert parse([]).as_event() == {"blob-size-limit": None}
    assert parse(["blob-size-limit=7"]).as_event() == {"blob-size-limit": 7}


@pytest.mark.parametrize(
    "arg", ["other=1", "blob-size-limit", "blob-size-limit=", "purge-old-entry=-1", "memory-limit=1k"]
)
def test_what_is_no_limit_is_refused_by_its_name(arg: str) -> None:
    with pytest.raises(RpcError, match=arg.partition("=")[0]) as refused:
        parse([arg])
    assert refused.value.errnum == errno.EINVAL
