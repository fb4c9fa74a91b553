"""Two real exec agents for all tests of a file: jobs are independent, and a start costs a tenth of a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agent_world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(2, str(tmp_path_factory.mktemp("run")))
    yield made
    made.close()
