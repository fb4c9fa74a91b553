"""The rows of the accounting tables, as the policy looks them up.

Associations are added and changed, and stay until the policy is loaded anew: their counts are those of jobs that exist.
The other tables are replaced as a whole, but for the weights of the factors that a payload does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from headrace.sched.accounting.associations import Association, Queue, unlimited
from headrace.sched.accounting.priority import Weights
from headrace.sched.accounting.values import (
    AssociationRow,
    BankRow,
    FactorRow,
    ProjectRow,
    QueueRow,
    Settings,
    read_rows,
    read_settings,
)

ASSOCIATIONS, QUEUES, PROJECTS, BANKS, FACTORS = "associations", "queues", "projects", "banks", "priority_factors"


class Directory:
    """Associations by user and bank, queues by name, and what priorities depend on."""

    def __init__(self) -> None:
        self.associations: dict[tuple[int, str], Association] = {}
        self.default_banks: dict[int, str] = {}
        # Users that the tables do not have.
        self.unknown_users: dict[int, Association] = {}
        # Also queues that jobs name and the tables do not have: their row is None.
        self.queues: dict[str, Queue] = {}
        self.projects: tuple[str, ...] = ()
        self.banks: dict[str, float] = {}
        self.weights = Weights()
        self.settings = Settings()

    def find(self, userid: int, bank: str) -> Association | None:
        """The association of a user in a bank, or in the default bank if none is named."""
        return self.associations.get((userid, bank or self.default_banks.get(userid, "")))

    def find_or_unknown(self, userid: int, bank: str) -> Association:
        """The association of a user in a bank; for one that the tables do not have, an association without limits."""
        found = self.find(userid, bank) or self.unknown_users.get(userid)
        if found is None:
            found = self.unknown_users[userid] = Association(unlimited(userid), is_known=False)
        return found

    def all_associations(self) -> Iterator[Association]:
        """All associations, also those of users that the tables do not have."""
        yield from self.associations.values()
        yield from self.unknown_users.values()

    def queue(self, name: str) -> Queue:
        """The queue of a name."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue

    def queue_row(self, name: str) -> QueueRow | None:
        """The row of a queue; None if the tables do not have it."""
        queue = self.queues.get(name)
        return queue.row if queue else None

    def update_associations(self, rows: Iterable[AssociationRow]) -> None:
        """Add or change associations."""
        for row in rows:
            association = self.associations.get((row.userid, row.bank))
            if association is None:
                self.associations[row.userid, row.bank] = Association(row)
            else:
                association.set_row(row)
            self.default_banks[row.userid] = row.def_bank

    def replace_queues(self, rows: Iterable[QueueRow]) -> None:
        """Take the rows of all queues."""
        by_name = {row.queue: row for row in rows}
        for name in by_name:
            self.queue(name)
        for name, queue in self.queues.items():
            queue.row = by_name.get(name)

    def replace_projects(self, rows: Iterable[ProjectRow]) -> None:
        """Take all projects."""
        self.projects = tuple(row.project for row in rows)

    def replace_banks(self, rows: Iterable[BankRow]) -> None:
        """Take the priorities of all banks."""
        self.banks = {row.bank: row.priority for row in rows}

    def update_weights(self, rows: Sequence[FactorRow]) -> None:
        """Change the weights of factors; others than those of the formula are ignored."""
        known = {row.factor: row.weight for row in rows if row.factor in Weights.__struct_fields__}
        self.weights = msgspec.structs.replace(self.weights, **known)

    def load(self, config: Any) -> list[AssociationRow]:
        """Take the tables that a document of `flux account export-json` has; returns its associations.

        Raises ValueError that names table, row and field; then nothing is changed.
        """
        if not isinstance(config, dict):
            raise ValueError("config: not an object")
        associations = read_rows(ASSOCIATIONS, AssociationRow, config.get(ASSOCIATIONS) or [])
        queues = read_rows(QUEUES, QueueRow, config[QUEUES]) if QUEUES in config else None
        projects = read_rows(PROJECTS, ProjectRow, config[PROJECTS]) if PROJECTS in config else None
        banks = read_rows(BANKS, BankRow, config[BANKS]) if BANKS in config else None
        factors = read_rows(FACTORS, FactorRow, config.get(FACTORS) or [])
        settings = read_settings(config["config"]) if "config" in config else None
        self.update_associations(associations)
        if queues is not None:
            self.replace_queues(queues)
        if projects is not None:
            self.replace_projects(projects)
        if banks is not None:
            self.replace_banks(banks)
        self.update_weights(factors)
        if settings is not None:
            self.settings = settings
        return associations
