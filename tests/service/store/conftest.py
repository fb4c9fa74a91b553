from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from headrace.service.store import database


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = database.open_file(str(tmp_path / "api.sqlite"))
    yield made
    made.dispose()
