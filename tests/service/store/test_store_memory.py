from __future__ import annotations

from pathlib import Path

import pytest

from headrace.service.store import StoreUnusable, memory
from headrace.service.store.memory import Memory


def test_userids_that_were_given_are_runs() -> None:
    known = Memory(7).with_userids([200_001, 200_000, 7_000_000]).with_userids([200_002, 1])
    assert known.given == ((1, 1), (200_000, 200_002), (7_000_000, 7_000_000))
    assert 200_002 in known and 200_003 not in known and "x" not in known
    assert known.last_of(200_000, 299_999) == 200_002 and known.last_of(200_000, 200_001) == 200_001
    assert known.last_of(300_000, 300_009) == 299_999 and known.last_of(5, 200_000) == 200_000


def test_it_is_written_beside_the_database_and_read_again(tmp_path: Path) -> None:
    database = str(tmp_path / "users.db")
    assert memory.read(database) is None
    memory.write(database, known := Memory(7, ((200_000, 200_002),)))
    path = tmp_path / "users-userids.json"
    assert memory.read(database) == known and path.stat().st_mode & 0o777 == 0o600
    for damaged in ("", "{}", '{"store": 1, "given": [7]}', "[]"):
        path.write_text(damaged)
        with pytest.raises(StoreUnusable, match=r"users-userids\.json is damaged: bring it back from a copy"):
            memory.read(database)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreUnusable, match=r"users-userids\.json: Is a directory"):
        memory.read(database)
