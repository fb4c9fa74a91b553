from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgresql
import pytest
from stored import emptied

from headrace.cluster_queue.store.database import Address


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Postgresql]:
    if postgresql.binaries() is None:
        pytest.skip("needs PostgreSQL: `make packages` installs it")
    with postgresql.running() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return Address(f"sqlite:{tmp_path}/store.sqlite")
    server = request.getfixturevalue("server")
    emptied(server.address)
    return server.address
