from __future__ import annotations

import pytest

from accounting_databases import Accounts, accounts
from engine.accounting.instance_stand_in import add_users
from postgresql import server

__all__ = ["accounts", "server"]


@pytest.fixture(scope="session")
def remote(accounts: Accounts) -> Accounts:
    """A database of PostgreSQL in which the banks and users of `add_users` are saved as `follow`."""
    add_users(accounts.data)
    accounts.save("follow")
    return accounts
