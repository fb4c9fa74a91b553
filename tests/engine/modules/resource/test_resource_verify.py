"""The table `resource.verify`, and what of a counted node differs from R."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from headrace.engine.broker.answers import RpcError
from headrace.engine.modules.resource.counted import mismatch, modes_of
from headrace.formats.spec.rset import ResourceSet

R = ResourceSet.from_config([{"hosts": "a.example", "cores": "0-1", "gpus": "0"}])
SAME = [0, "a", "0-1", "0"]
EXTRA = [0, "a", "0-3", "0-1"]
LESS = [0, "a", "0", ""]


@pytest.mark.parametrize(
    ("verify", "hostname", "core", "gpu"),
    [
        (None, "strict", "allow-extra", "ignore"),
        (True, "strict", "strict", "strict"),
        (False, "ignore", "ignore", "ignore"),
        ({}, "strict", "strict", "strict"),
        ({"default": "allow-missing", "gpu": "ignore"}, "allow-missing", "allow-missing", "ignore"),
    ],
)
def test_what_is_not_said_has_the_mode_that_flux_gives_it(verify: Any, hostname: str, core: str, gpu: str) -> None:
    table = {} if verify is None else {"verify": verify}
    assert modes_of(table) == {"hostname": hostname, "core": core, "gpu": gpu}


@pytest.mark.parametrize(
    ("verify", "text"),
    [
        (3, "resource.verify: must be true, false or a table"),
        ({"cores": "strict"}, "resource.verify: unknown key 'cores'; known are default, hostname, core, gpu"),
        ({"gpu": 1}, "resource.verify.gpu: must be one of strict, allow-extra, allow-missing, ignore, not 1"),
    ],
)
def test_a_wrong_table_is_refused_with_its_field(verify: Any, text: str) -> None:
    with pytest.raises(RpcError) as refused:
        modes_of({"verify": verify})
    assert (refused.value.errnum, str(refused.value)) == (errno.EINVAL, text)


@pytest.mark.parametrize(
    ("found", "verify", "text"),
    [
        (SAME, True, ""),
        ([0, "a.example", "0-1", "0"], True, ""),
        ([0, "b", "0-1", "0"], None, "got hostname 'b', expected 'a.example'"),
        ([0, "b", "0-1", "0"], {"hostname": "ignore"}, ""),
        (EXTRA, None, ""),
        (EXTRA, True, "has extra resources: core[2-3],gpu[1]"),
        (EXTRA, {"core": "allow-extra"}, "has extra resources: gpu[1]"),
        (LESS, None, "missing resources: core[1]"),
        (LESS, {"default": "allow-extra"}, "missing resources: core[1],gpu[0]"),
        (LESS, {"default": "allow-missing"}, ""),
        (LESS, False, ""),
    ],
)
def test_a_node_differs_in_what_its_mode_does_not_allow(found: list[Any], verify: Any, text: str) -> None:
    assert mismatch(R, found, modes_of({} if verify is None else {"verify": verify})) == text
