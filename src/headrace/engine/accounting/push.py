"""Sends the tables of the policy `mf_priority` from the database to the job manager.

`send` fills the policy with everything, as `flux account-priority-update` does. A `Pusher` remembers what the policy
has, and sends the tables that have changed, and only the changed rows of associations.
"""

from __future__ import annotations

import errno
import pwd
from typing import Any

from headrace.engine.accounting.export import policy_data
from headrace.sched.accounting.values import UNLIMITED
from headrace.storage.database import Database
from headrace.wire.client.handle import Handle

SERVICE = "job-manager.mf_priority"

Row = dict[str, Any]

_ASSOCIATIONS = "associations"
# The service for each table, in the order in which they are sent.
_UPDATES = {
    _ASSOCIATIONS: "rec_update",
    "queues": "rec_q_update",
    "projects": "rec_proj_update",
    "banks": "rec_bank_update",
    "priority_factors": "rec_fac_update",
    "config": "rec_config_update",
}
# The limits that the instance owner has in the owner's own association.
_MANY = 1000000


def send(handle: Handle, database: Database) -> None:
    """Send all tables, and an association for the instance owner. Raises OSError, ValueError, DatabaseError."""
    data = policy_data(database, all_queue_limits=True)
    for table, method in _UPDATES.items():
        _update(handle, method, data[table])
    handle.rpc(f"{SERVICE}.reprioritize").get()
    _update(handle, _UPDATES[_ASSOCIATIONS], [_owner(int(handle.attr_get("security.owner")))])


def _update(handle: Handle, method: str, data: Any) -> None:
    handle.rpc(f"{SERVICE}.{method}", {"data": data}).get()


def _owner(userid: int) -> Row:
    """The association of the instance owner, whose bank has the owner's name."""
    try:
        bank = pwd.getpwuid(userid).pw_name
    except KeyError:
        bank = str(userid)
    return {
        "userid": userid,
        "bank": bank,
        "def_bank": bank,
        "fairshare": 0.5,
        "max_running_jobs": _MANY,
        "max_active_jobs": _MANY,
        "queues": "",
        "active": 1,
        "projects": "*",
        "def_project": "*",
        "max_nodes": _MANY,
        "max_cores": _MANY,
        "max_sched_jobs": UNLIMITED,
    }


class Pusher:
    """What the policy of an instance has, and the way to change it."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._sent: dict[str, Any] = {}
        self._associations: dict[tuple[int, str], Row] = {}

    def forget(self) -> None:
        """Send everything the next time: the policy may have been loaded anew."""
        self._sent.clear()
        self._associations.clear()

    def push(self, database: Database) -> bool:
        """Send what has changed; returns False if the policy is not loaded.

        An association whose row was deleted is sent as inactive. Raises OSError, ValueError, DatabaseError.
        """
        data = policy_data(database, all_queue_limits=True)
        associations = {(row["userid"], row["bank"]): row for row in data[_ASSOCIATIONS]}
        rows = [row for key, row in associations.items() if self._associations.get(key) != row]
        rows += [{**row, "active": 0} for key, row in self._associations.items() if key not in associations]
        changed = {table: data[table] for table in _UPDATES if table != _ASSOCIATIONS and self._differs(table, data)}
        if rows:
            changed = {_ASSOCIATIONS: rows, **changed}
        if not changed:
            return True
        try:
            for table, found in changed.items():
                _update(self.handle, _UPDATES[table], found)
            self.handle.rpc(f"{SERVICE}.reprioritize").get()
        except OSError as exc:
            self.forget()
            if exc.errno == errno.ENOSYS:
                return False
            raise
        self._sent.update((table, found) for table, found in changed.items() if table != _ASSOCIATIONS)
        self._associations = associations
        return True

    def _differs(self, table: str, data: dict[str, Any]) -> bool:
        return table not in self._sent or self._sent[table] != data[table]
