from __future__ import annotations

from pathlib import Path

import pytest

from headrace.service.store import database
from headrace.service.store.database import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return database.open_file(str(tmp_path / "api.sqlite"))
