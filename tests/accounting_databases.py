"""A database of PostgreSQL with the accounting tables, whose tests begin with a saved state of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.engine.accounting import database, dialect
from headrace.engine.accounting.database import Access
from headrace.storage.database import Postgresql as Postgres
from postgresql import Postgresql
from sizes import SOAK

NOW = 1_700_000_000.0
KINDS = ["sqlite", "postgresql"]

# Tests about files.
only_sqlite = pytest.mark.parametrize("kind", KINDS[:1], indirect=True)
# Tests of many command lines that differ little in what they ask of the database.
sqlite_first = pytest.mark.parametrize("kind", KINDS if SOAK else KINDS[:1], indirect=True)


class Accounts:
    """The database at `url`, with one connection for all tests."""

    def __init__(self, server: Postgresql, name: str) -> None:
        address = server.create(name)
        self.url = address.url
        self.access = Access(address.password_file)
        database.create(self.url, now=NOW, access=self.access)
        opened = database.opened(self.url, self.access)
        assert isinstance(opened, Postgres)
        self.data = opened
        self._states: dict[str, str] = {}

    def save(self, name: str) -> None:
        """Keep the rows of all tables."""
        self.data.execute(f"CREATE SCHEMA {name}")
        parts = []
        for table in dialect.table_names(self.data):
            self.data.execute(f"CREATE TABLE {name}.{table} AS TABLE {table}")
            columns = ", ".join(self._columns(table, "is_generated = 'NEVER'"))
            parts += [f"DELETE FROM {table}", f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {name}.{table}"]
            for column in self._columns(table, "is_identity = 'YES'"):
                sequence, last = f"pg_get_serial_sequence('{table}', '{column}')", f"SELECT max({column}) FROM {table}"
                parts.append(f"SELECT setval({sequence}, coalesce(({last}), 0) + 1, false)")
        self._states[name] = "; ".join(parts)

    def restore(self, name: str) -> None:
        # Another test may have restarted the server.
        self.data.open()
        self.data.execute(self._states[name])

    def _columns(self, table: str, where: str) -> list[str]:
        names = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public'"
        found = self.data.rows(f"{names} AND table_name = :table AND {where}", {"table": table})
        return [str(name) for (name,) in found]


@pytest.fixture(scope="session")
def accounts(server: Postgresql) -> Iterator[Accounts]:
    """An empty accounting database, saved as `empty`."""
    made = Accounts(server, "accounts")
    made.save("empty")
    yield made
    made.data.close()
