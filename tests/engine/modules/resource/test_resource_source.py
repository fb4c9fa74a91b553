"""R from the configuration: what the table `[resource]` may name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.resource import source


def test_a_path_that_is_no_text_is_refused_and_opens_nothing() -> None:
    # A number is a descriptor to open(), which would be closed afterwards.
    reading, writing = os.pipe()
    with pytest.raises(RpcError, match=r"resource\.path: must be the name of a file") as refused:
        source.configured({"resource": {"path": reading}}, ["a"], False)
    assert refused.value.errnum == errno.EINVAL
    os.close(reading)
    os.close(writing)


def test_configured_resources_have_the_key_for_schedulers_that_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    table = {"config": [{"hosts": "a", "cores": "0"}], "scheduling": str(path)}
    path.write_text('{"graph": {}}')
    found = source.configured({"resource": table}, ["a"], False)
    assert found is not None
    assert found.scheduling == {"graph": {}}
    path.write_text("{")
    with pytest.raises(RpcError, match=r"resource\.scheduling: .*key\.json: Expecting"):
        source.configured({"resource": table}, ["a"], False)
    with pytest.raises(RpcError, match="must be the name of a file, not 3"):
        source.configured({"resource": {**table, "scheduling": 3}}, ["a"], False)


def test_without_path_or_config_there_is_nothing_configured() -> None:
    assert source.configured({"resource": {"noverify": True}}, ["a"], False) is None
