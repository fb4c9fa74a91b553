"""R from the configuration: what the table `[resource]` may name."""

from __future__ import annotations

import errno
import os

import pytest

from headrace.broker.module import RpcError
from headrace.modules import resource_source


def test_a_path_that_is_no_text_is_refused_and_opens_nothing() -> None:
    # A number is a descriptor to open(), which would be closed afterwards.
    reading, writing = os.pipe()
    with pytest.raises(RpcError, match=r"resource\.path: must be the name of a file") as refused:
        resource_source.configured({"resource": {"path": reading}})
    assert refused.value.errnum == errno.EINVAL
    os.close(reading)
    os.close(writing)


def test_without_path_or_config_there_is_nothing_configured() -> None:
    assert resource_source.configured({"resource": {"noverify": True}}) is None
