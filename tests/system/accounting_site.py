"""Instances with the module accounting, and the database of it, for tests with real processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster, cluster
from instance import processes_with

from headrace.engine.accounting import database, users
from headrace.engine.accounting.database import DEFAULT_ACCESS, Access
from headrace.formats.spec import jobspec_build
from headrace.storage.database import Database
from headrace.wire.query import signing

USERS = {1001: ("ann", "A"), 1002: ("bob", "B")}


@contextlib.contextmanager
def site(tmp_path: Path) -> Iterator[tuple[Cluster, Database]]:
    """An instance with a statedir, the policy and the module, and its database in a file: see `filled`."""
    path = tmp_path / "site.db"
    with filled(str(path)) as data, instance(tmp_path / "state", f'database = "{path}"') as brokers:
        yield brokers, data


@contextlib.contextmanager
def filled(path: str, access: Access = DEFAULT_ACCESS) -> Iterator[Database]:
    """A new accounting database with banks A and B and a user in each."""
    database.create(path, access=access)
    with contextlib.closing(database.opened(path, access)) as data:
        for bank, parent, shares in (("root", "", 1), ("A", "root", 3), ("B", "root", 1)):
            database.insert(data, "bank_table", {"bank": bank, "parent_bank": parent, "shares": shares})
        for userid, (name, bank) in USERS.items():
            row = {"creation_time": 0, "username": name, "userid": userid, "bank": bank, "default_bank": bank}
            database.insert(data, "association_table", {**row, "max_running_jobs": 9999, "max_active_jobs": 9999})
            users.add_usage(data, name, userid, bank)
        yield data


@contextlib.contextmanager
def instance(statedir: Path, *settings: str) -> Iterator[Cluster]:
    """An instance with the policy and the module, which is not started yet; `settings` are lines of [accounting]."""
    with cluster(1, f"statedir={statedir}") as brokers:
        with open(brokers.config, "a") as config:
            config.write(
                "\n".join(["[accounting]", "interval = 0.2", *settings])
                + '\n[job-manager]\nplugins = [{load = "mf_priority.so"}]\n'
                "[exec.testexec]\nallow-guests = true\n"
            )
        yield brokers


def program(brokers: Cluster) -> int:
    """The process of the module's program; 0 if it does not run."""
    found = [line for line in processes_with(f"HR_TEST={brokers.folder}") if "account-service" in line]
    return int(found[0].split()[0]) if found else 0


def submit(
    brokers: Cluster, userid: int, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.01, number: int = 1
) -> None:
    """Submit simulated jobs in the name of a user."""
    monkeypatch.setenv("FLUX_HANDLE_USERID", str(userid))
    spec = jobspec_build.from_command(["hostname"])
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": f"{seconds}s"}}
    with brokers.handle() as handle:
        body = {"J": signing.sign(json.dumps(spec), userid), "urgency": 16, "flags": 0}
        for call in [handle.rpc("job-ingest.submit", body) for _ in range(number)]:
            call.get()


def ended(brokers: Cluster) -> list[dict[str, Any]]:
    """All jobs, which have ended."""
    attributes = ["userid", "t_run", "t_inactive", "nnodes", "state"]
    with brokers.handle() as handle:
        handle.rpc("job-manager.drain").get()
        answers = handle.stream("job-list.list", {"max_entries": 0, "attrs": attributes})
        return [job for answer in answers for job in answer["jobs"]]


def usages(data: Database) -> dict[str, float]:
    found = data.rows("SELECT username, job_usage FROM association_table UNION SELECT bank, job_usage FROM bank_table")
    return {name: usage for name, usage in found}
