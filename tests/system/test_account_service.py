"""`flux account-service` in a real instance: who may do what, restarts, and how it ends."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from instance import start
from option_lines import Line, answers, check, like, names

GUEST = "FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=1234"
STOP = "flux python -c 'import flux; flux.Flux().rpc(\"accounting.shutdown_service\").get()'"

LINES = [
    Line("flux account list-banks", like(r"flux-account: ERROR: No service matching accounting.*\n"), 1),
    Line("flux account-service --path=a.db", "flux-account-service: ERROR: Database file does not exist: a.db\n", 1),
    Line("flux account --path=a.db create-db"),
    Line("flux account-service -p a.db -t", "registered accounting service\n"),
    Line("flux account-service -p a.db", like(".*the service accounting is registered already\n"), 1),
    Line("flux account add-bank root 1 && flux account add-bank --parent-bank=root A 1"),
    Line(
        "flux account add-user --username=ann --userid=1001 --bank=A; flux account view-user ann --list-banks", "A\n\n"
    ),
    Line(
        "flux account add-user --username=ann --bank=A",
        "flux-account: ERROR: add-user: IntegrityError: association ann,A already active in association_table\n",
        1,
    ),
    Line(f"{GUEST} flux account list-banks --fields=bank -o {{bank}}", "bank\nroot\nA\n"),
    Line(f"{GUEST} flux account add-project x", "flux-account: ERROR: Request requires owner credentials\n", 1),
    Line(
        f"{GUEST} flux account export-json",
        "flux-account: ERROR: Request requires owner credentials\n",
        1,
    ),
    # A guest cannot end it; another method has no form.
    Line(
        f"{GUEST} {STOP} 2>&1 | tail -n1",
        "PermissionError: [Errno 1] Request requires owner credentials\n",
    ),
    Line(
        "flux python -c 'import flux; flux.Flux().rpc(\"accounting.list_banks\", [1]).get()' 2>&1 | tail -n1",
        like(r".*accounting.list_banks: payload is a JSON list, it must be an object\n"),
    ),
    # The files of export-db and pop-db are the command's, wherever the service runs.
    Line("mkdir d && cd d && flux account export-db && ls bank_table.csv", "bank_table.csv\n"),
    Line("cd d && printf 'queue\\nday\\n' >queue_table.csv && flux account pop-db -c queue_table.csv"),
    Line("flux account list-queues -o {queue}", "queue\nday\n"),
    # What the service answered is on disk.
    Line(
        f"{STOP} && flux account-service -p a.db --test-background && flux account view-bank A -o {{bank}}",
        "bank\nA\nregistered accounting service\n",
    ),
    Line(
        "flux account-update-db --path=a.db --verbose | tail -n1; flux account-update-db -p a.db -n a.db -v",
        like("INFO: created backup at a.db.backup\n.*INFO: updated database schema version to 38\n"),
    ),
    Line("flux account-update-db --path=a.db --new-db=x.db", like(".*Database file does not exist: x.db\n"), 1),
    Line(STOP),
    Line("flux account list-banks", like(r".*No service matching accounting.*\n"), 1),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("account")
    return folder, answers(LINES, folder, "--test-size=1")


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_the_service_answers(told, index: int) -> None:
    check(LINES[index], told[1][index])


def test_the_database_and_its_backup_are_the_owners_alone(told) -> None:
    home = told[0] / "home"
    for name in ("a.db", "a.db.backup", "d/bank_table.csv"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(home / "a.db")) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_service_ends_with_its_instance_and_by_signals(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        f"cd {tmp_path}; flux account -p a.db create-db\n"
        "for signal in TERM INT; do flux account-service -p a.db & pid=$!\n"
        "until flux account list-configs >/dev/null 2>&1; do sleep .05; done; kill -$signal $pid; wait $pid; echo $?\n"
        "flux account list-configs 2>/dev/null; echo $?; done\n"
        "flux account-service -p a.db -t; flux account add-bank root 1; echo $?\n"
    )
    done = start("--test-size=1", "bash", str(script))
    assert (done.out, done.rc) == ("0\n1\n0\n1\n0\n", 0), done.err
    assert not done.left
    shutil.rmtree(tmp_path)
