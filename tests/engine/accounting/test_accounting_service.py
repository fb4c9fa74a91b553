"""The service's answers: who may call what, errors, and that every failed request leaves the database as it was."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from accounting_databases import KINDS, only_sqlite
from headrace.engine.accounting import banks, database, service
from headrace.formats.spec.message import ROLE_ADMIN, ROLE_USER
from headrace.storage.database import Database, DatabaseError

ANN = service.Caller(False, "ann")

OPEN = {
    *(
        "view_user",
        "view_bank",
        "list_banks",
        "view_queue",
        "view_project",
        "list_projects",
        "list_queues",
        "list_users",
    ),
    *("view_factor", "list_factors", "view_config", "list_configs", "bank_info"),
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "site.db")
    database.create(made)
    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the database."""
    return str(request.param)


@pytest.fixture
def data(kind: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    if kind == "postgresql":
        accounts = request.getfixturevalue("accounts")
        accounts.restore("empty")
        yield accounts.data
        return
    with contextlib.closing(database.opened(request.getfixturevalue("path"))) as opened:
        yield opened


def test_guests_may_read_and_change_nothing(data: Database) -> None:
    reading = {name for name, method in service.METHODS.items() if method.open}
    assert reading >= OPEN
    for name in service.METHODS.keys() - reading:
        with pytest.raises(service.Refused) as refused:
            service.answer(data, name, {}, service.Caller(False))
        assert (refused.value.errnum, str(refused.value)) == (errno.EPERM, "Request requires owner credentials")
    assert "decay_factor" in service.answer(data, "list_configs", {}, service.Caller(False))


@pytest.mark.parametrize(
    ("name", "payload", "errnum", "text"),
    [
        ("nosuch", {}, errno.ENOSYS, "No service matching accounting.nosuch is registered"),
        ("view_user", {}, errno.EINVAL, "view-user: missing key in payload: 'username'"),
        ("view_user", {"username": 5}, errno.EINVAL, "view-user: ValueError: username: 5 is not a text"),
        ("add_bank", {"bank": "a"}, errno.EINVAL, "add-bank: missing key in payload: 'shares'"),
        ("edit_config", {"key_value_strings": "a=b"}, errno.EINVAL, "must be a list of KEY=VALUE"),
        ("edit_queue", {"queue": "a", "priority": "x"}, errno.EINVAL, "queue a not found in queue_table"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(
    data: Database, name: str, payload, errnum: int, text: str
) -> None:
    with pytest.raises(service.Refused) as refused:
        service.answer(data, name, payload, service.OWNER)
    assert refused.value.errnum == errnum
    assert text in str(refused.value)


def test_a_queue_takes_whole_numbers_only(data: Database) -> None:
    service.answer(data, "add_queue", {"queue": "a"}, service.OWNER)
    with pytest.raises(service.Refused, match="passed in value must be an integer"):
        service.answer(data, "edit_queue", {"queue": "a", "priority": "5"}, service.OWNER)


def call(data: Database, name: str, caller: service.Caller = service.OWNER, **payload: object) -> None:
    service.answer(data, name, payload, caller)


@pytest.fixture
def coordinated(data: Database) -> Database:
    """Banks root, A, B; A1 and A2 below A, of which ann is the coordinator; bob in A1, cy in A2 and B."""
    for bank, parent in (("root", ""), ("A", "root"), ("B", "root"), ("A1", "A"), ("A2", "A")):
        call(data, "add_bank", bank=bank, parent_bank=parent, shares=1)
    for user, bank in (("bob", "A1"), ("cy", "A2"), ("cy", "B")):
        call(data, "add_user", username=user, bank=bank, userid=7)
    call(data, "add_coordinator", username="ann", bank="A")
    return data


ALLOWED = [
    ("add_user", {"username": "di", "bank": "A1"}),
    ("edit_user", {"username": "bob", "bank": "A1", "shares": 5, "max_nodes": 3}),
    ("delete_user", {"username": "bob", "bank": "A1"}),
    ("add_bank", {"bank": "A3", "parent_bank": "A", "shares": 1}),
    ("edit_bank", {"bank": "A1", "shares": 5}),
    ("delete_bank", {"bank": "A1"}),
]
FORBIDDEN = [
    ("add_user", {"username": "di", "bank": "B"}),
    ("add_user", {"username": "di", "bank": "A1", "userid": 0}),
    ("add_user", {"username": "di"}),
    ("edit_user", {"username": "cy", "bank": "B", "shares": 5}),
    ("edit_user", {"username": "cy", "shares": 5}),
    ("edit_user", {"username": "cy", "bank": "A2", "default_bank": "A2"}),
    ("edit_user", {"username": "cy", "bank": "A2", "userid": 0}),
    ("edit_user", {"username": "cy", "bank": "A2", "fairshare": 1.0}),
    ("edit_user", {"username": "cy", "bank": ["A2"], "shares": 5}),
    ("delete_user", {"username": "cy", "bank": "B"}),
    ("delete_user", {"username": "bob", "bank": "A1", "force": True}),
    ("add_bank", {"bank": "C", "parent_bank": "root", "shares": 1}),
    ("add_bank", {"bank": "C", "shares": 1}),
    ("edit_bank", {"bank": "A", "shares": 5}),
    ("edit_bank", {"bank": "A1", "parent_bank": "root"}),
    ("edit_bank", {"bank": "B", "parent_bank": "A"}),
    ("delete_bank", {"bank": "A"}),
    ("delete_bank", {"bank": "A1", "force": True}),
    ("edit_all_users", {"shares": 5}),
    ("add_queue", {"queue": "q"}),
    ("add_coordinator", {"username": "ann", "bank": "root"}),
    ("export_db", {}),
]


@pytest.mark.parametrize(("name", "payload"), ALLOWED)
def test_a_coordinator_may_change_what_is_below_the_bank(coordinated: Database, name: str, payload) -> None:
    for caller in (service.Caller(False, "bob"), service.Caller(False)):
        with pytest.raises(service.Refused, match="Request requires owner credentials"):
            service.answer(coordinated, name, payload, caller)
    assert service.answer(coordinated, name, payload, ANN) == ""
    call(coordinated, "delete_coordinator", username="ann", bank="A")
    with pytest.raises(service.Refused, match="Request requires owner credentials"):
        service.answer(coordinated, name, payload, ANN)


@pytest.mark.parametrize(("name", "payload"), FORBIDDEN)
def test_a_coordinator_may_change_nothing_else(coordinated: Database, name: str, payload) -> None:
    with pytest.raises(service.Refused, match="Request requires owner credentials"):
        service.answer(coordinated, name, payload, ANN)


def test_coordinators_are_listed_and_go_with_their_bank(coordinated: Database) -> None:
    assert (
        service.answer(coordinated, "list_coordinators", {}, ANN) == "username | bank\n---------+-----\nann      | A   "
    )
    for name, payload, why in (
        ("add_coordinator", {"username": "ann", "bank": "A"}, "IntegrityError: ann is a coordinator of bank A already"),
        ("add_coordinator", {"username": "ann", "bank": "X"}, "bank X not found in bank_table"),
        ("delete_coordinator", {"username": "ann", "bank": "B"}, "ann is not a coordinator of bank B"),
    ):
        with pytest.raises(service.Refused, match=why):
            call(coordinated, name, **payload)
    call(coordinated, "delete_bank", bank="A", force=True)
    with pytest.raises(service.Refused, match="no results found in query"):
        call(coordinated, "list_coordinators")


@only_sqlite
def test_tables_of_our_own_appear_with_the_first_coordinator(data: Database) -> None:
    with pytest.raises(service.Refused, match="no results found in query"):
        call(data, "list_coordinators")
    assert not any(table.startswith("headrace") for table in database.tables(data))
    with pytest.raises(service.Refused, match="Request requires owner credentials"):
        call(data, "add_coordinator", ANN, username="ann", bank="A")
    assert not any(table.startswith("headrace") for table in database.tables(data))


def test_an_error_of_a_method_is_told_and_ends_nothing(data: Database, monkeypatch, capsys) -> None:
    def broken(data: Database, _payload: object) -> str:
        data.execute("DELETE FROM config_table")
        raise ZeroDivisionError("no method is perfect")

    monkeypatch.setitem(service.METHODS, "broken", service.Method(broken, False))
    with pytest.raises(service.Refused, match="broken: ZeroDivisionError: no method is perfect"):
        service.answer(data, "broken", {}, service.OWNER)
    assert "Traceback" in capsys.readouterr().err
    assert data.rows("SELECT count(*) FROM config_table") == [(7,)]


def test_a_locked_database_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOCK_TIMEOUT", 0.01)
    with contextlib.closing(database.opened(path)) as data, contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(service.Refused, match="add-project: OperationalError: database is locked"):
            service.answer(data, "add_project", {"project": "a"}, service.OWNER)
        assert "project_id" in service.answer(data, "list_projects", {}, service.OWNER)
        other.rollback()
        assert service.answer(data, "add_project", {"project": "a"}, service.OWNER) == ""


@only_sqlite
def test_a_full_database_is_told_and_nothing_is_half_done(data: Database) -> None:
    ((pages,),) = data.rows("PRAGMA page_count")
    data.rows(f"PRAGMA max_page_count = {pages}")
    service.answer(data, "add_bank", {"bank": "root", "shares": 1}, service.OWNER)
    added = 0
    with pytest.raises(service.Refused, match="add-user: OperationalError: database or disk is full"):
        for added in range(10000):
            service.answer(data, "add_user", {"username": f"u{added}", "bank": "root", "userid": 5}, service.OWNER)
    assert 0 < added < 10000
    for table, each in (
        ("association_table", 1),
        ("job_usage_factor_table", 1),
        ("job_usage_per_association_table", 4),
    ):
        assert data.rows(f"SELECT count(*) FROM {table}") == [(added * each,)]


def test_two_programs_that_write_take_turns(path: str) -> None:
    """Each adds projects of its own while the other does; none is refused because of the other."""

    def add(name: str) -> None:
        with contextlib.closing(database.opened(path)) as data:
            data.execute("PRAGMA synchronous = OFF")
            for number in range(25):
                service.answer(data, "add_project", {"project": f"{name}{number}"}, service.OWNER)

    threads = [threading.Thread(target=add, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with contextlib.closing(database.opened(path)) as data:
        assert data.rows("SELECT count(*) FROM project_table") == [(51,)]


NAMES = st.sampled_from(["root", "A", "B", "C", "D"])
USERS = st.sampled_from(["ann", "bob", "cy"])
QUEUES = st.sampled_from(["day", "night", "x", "day,night", "-1"])
NUMBERS = st.sampled_from([None, -1, 0, 1, "5", "x", 2147483648])
FORCE = st.booleans()


class Tables(RuleBasedStateMachine):
    """Any requests in any order: banks stay a tree with users in its leaves, and a refusal changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.data = database.template()
        for key, value in {"priority_usage_reset_period": "100", "priority_decay_half_life": "50"}.items():
            database.insert(self.data, "config_table", {"key": key, "value": value})
        for name in ("day", "night"):
            self.call("add_queue", queue=name)

    def call(self, name: str, **payload: object) -> None:
        before = self.everything()
        try:
            service.answer(self.data, name, payload, service.OWNER)
        except service.Refused as exc:
            assert exc.errnum == errno.EINVAL
            assert "ValueError" in str(exc) or "IntegrityError" in str(exc), str(exc)
            assert self.everything() == before

    def everything(self) -> dict[str, list[object]]:
        return {table: list(self.data.rows(f"SELECT * FROM {table}")) for table in database.tables(self.data)}

    @rule(bank=NAMES, parent=NAMES | st.just(""), shares=NUMBERS)
    def add_bank(self, bank: str, parent: str, shares: object) -> None:
        self.call("add_bank", bank=bank, parent_bank=parent, shares=shares)

    @rule(bank=NAMES, parent=st.none() | NAMES | st.just(""), shares=NUMBERS)
    def edit_bank(self, bank: str, parent: str | None, shares: object) -> None:
        self.call("edit_bank", bank=bank, parent_bank=parent, shares=shares)

    @rule(bank=NAMES, force=FORCE)
    def delete_bank(self, bank: str, force: bool) -> None:
        self.call("delete_bank", bank=bank, force=force)

    @rule(user=USERS, bank=NAMES, shares=NUMBERS, queues=QUEUES)
    def add_user(self, user: str, bank: str, shares: object, queues: str) -> None:
        self.call("add_user", username=user, bank=bank, userid=7, shares=shares, queues=queues)

    @rule(user=USERS, bank=st.none() | NAMES, default=st.none() | NAMES, limit=NUMBERS, queues=st.none() | QUEUES)
    def edit_user(self, user: str, bank: object, default: object, limit: object, queues: object) -> None:
        self.call("edit_user", username=user, bank=bank, default_bank=default, max_nodes=limit, queues=queues)

    @rule(user=USERS, bank=NAMES, force=FORCE)
    def delete_user(self, user: str, bank: str, force: bool) -> None:
        self.call("delete_user", username=user, bank=bank, force=force)

    @rule(bank=st.none() | NAMES, limit=NUMBERS)
    def edit_all_users(self, bank: object, limit: object) -> None:
        self.call("edit_all_users", bank=bank, max_cores=limit)

    @invariant()
    def banks_are_a_tree(self) -> None:
        banks.check_tree(self.data)

    @invariant()
    def each_association_has_its_usage(self) -> None:
        missing = self.data.rows(
            "SELECT username, bank FROM association_table EXCEPT SELECT username, bank FROM job_usage_factor_table"
        )
        periods = self.data.rows(
            "SELECT username, bank FROM association_table EXCEPT"
            " SELECT username, bank FROM job_usage_per_association_table GROUP BY username, bank HAVING count(*) = 2"
        )
        assert (missing, periods) == ([], [])

    @invariant()
    def limits_are_in_bounds(self) -> None:
        for table, column in (
            ("association_table", "shares"),
            ("association_table", "max_nodes"),
            ("bank_table", "shares"),
        ):
            wrong = f"typeof({column}) <> 'integer' OR {column} < 0 OR {column} > 2147483647"
            assert self.data.rows(f"SELECT {column} FROM {table} WHERE {wrong}") == []

    def teardown(self) -> None:
        self.data.close()


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_connection_that_is_closed_is_told(path: str) -> None:
    data = database.opened(path)
    data.close()
    with pytest.raises(service.Refused, match="list-projects: ProgrammingError"):
        service.answer(data, "list_projects", {}, service.OWNER)
    with pytest.raises(DatabaseError):
        data.execute("SELECT 1")


def test_a_user_without_an_account_has_the_name_of_the_association(data: Database) -> None:
    service.answer(data, "add_bank", {"bank": "root", "shares": 1}, service.OWNER)
    service.answer(data, "add_bank", {"bank": "A", "parent_bank": "root", "shares": 1}, service.OWNER)
    for user, userid in (("ann.x", 200_000), ("bob.x", 200_001), ("bob.y", 200_001), ("nobody.x", None)):
        service.answer(data, "add_user", {"username": user, "bank": "A", "userid": userid}, service.OWNER)
    assert service.caller_of(data, 200_000, ROLE_USER) == service.Caller(False, "ann.x", 200_000)
    assert service.caller_of(data, 200_000, ROLE_USER | ROLE_ADMIN).is_admin
    assert service.caller_of(data, 0, ROLE_USER) == service.Caller(False, "root", 0)
    # Two names, no association, and the id of all users without one.
    for userid in (200_001, 200_002, 4294967295):
        assert service.caller_of(data, userid, ROLE_USER).user == ""
    # Another association of a user without an account has the same user id.
    service.answer(data, "add_bank", {"bank": "B", "parent_bank": "root", "shares": 1}, service.OWNER)
    service.answer(data, "add_user", {"username": "ann.x", "bank": "B"}, service.OWNER)
    assert data.rows("SELECT userid FROM association_table WHERE username = 'ann.x'") == [(200_000,), (200_000,)]


def test_in_private_mode_guests_see_their_own_jobs() -> None:
    ann = service.Caller(False, "ann", 1001)
    assert service.restricted("jobs", {"username": "bob", "count": 1}, ann) == {"username": "ann", "count": 1}
    assert service.restricted("view_job_records", {"user": None}, ann) == {"user": "ann"}
    assert service.restricted("why", {"jobid": "f1"}, ann) == {"jobid": "f1", "only_userid": 1001}
    assert service.restricted("view_bank", {"bank": "A"}, ann) == {"bank": "A"}
    for name, caller in (
        ("report", ann),
        ("show_usage", ann),
        ("view_usage_report", ann),
        ("jobs", service.Caller(False, "", 1001)),
        ("why", service.Caller(False)),
    ):
        with pytest.raises(service.Refused, match="Request requires owner credentials"):
            service.restricted(name, {}, caller)
    # All methods that show jobs are restricted.
    assert service._PRIVATE.keys() < service.METHODS.keys()
