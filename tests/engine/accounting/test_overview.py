"""The overview of banks and associations: their places in the tree, and what each caller sees and may change."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.engine.accounting import database, service
from headrace.storage.database import Database

ANN, BOB, EVE = (service.Caller(False, name, 1001 + at) for at, name in enumerate(("ann", "bob", "eve")))
BOSS = service.Caller(True, "boss", 1009)


@pytest.fixture
def data() -> Iterator[Database]:
    """Bank root with A (3 shares: ann, bob) and B (1 share), which has C (eve) and is coordinated by bob."""
    with contextlib.closing(database.template()) as made:
        for bank, parent, shares in (("root", "", 1), ("A", "root", 3), ("B", "root", 1), ("C", "B", 5)):
            service.answer(made, "add_bank", {"bank": bank, "parent_bank": parent, "shares": shares}, service.OWNER)
        for user, userid, bank, used in (("ann", 1001, "A", 60.0), ("bob", 1002, "A", 0.0), ("eve", 1003, "C", 20.0)):
            row = {"username": user, "userid": userid, "bank": bank, "shares": 1, "max_nodes": 4}
            service.answer(made, "add_user", row, service.OWNER)
            change = "UPDATE association_table SET job_usage = :used WHERE username = :user"
            made.execute(change, {"used": used, "user": user})
        for user, value in (("bob", 1.0), ("ann", 0.666667), ("eve", 0.333333)):
            made.execute(
                "UPDATE association_table SET fairshare = :value WHERE username = :user", {"value": value, "user": user}
            )
        database.need_own_tables(made)
        service.answer(made, "add_coordinator", {"username": "bob", "bank": "B"}, service.OWNER)
        yield made


def seen(data: Database, caller: service.Caller, **payload: Any) -> Any:
    return json.loads(service.answer(data, "overview", payload, caller))


def test_banks_have_their_parts_of_the_whole(data: Database) -> None:
    banks = seen(data, EVE)["banks"]
    places = [(bank["bank"], bank["parent"], bank["depth"], bank["users"], bank["coordinators"]) for bank in banks]
    assert places == [
        *(("root", "", 0, 0, []), ("A", "root", 1, 2, []), ("B", "root", 1, 0, ["bob"]), ("C", "B", 2, 1, [])),
    ]
    numbers = {bank["bank"]: (bank["entitled"], bank["usage"], bank["part"], bank["level"]) for bank in banks}
    assert numbers == {
        "root": (1.0, 80.0, 1.0, 1.0),
        "A": (0.75, 60.0, 0.75, 1.0),
        "B": (0.25, 20.0, 0.25, 1.0),
        "C": (0.25, 20.0, 0.25, 1.0),
    }


def test_an_association_has_its_place(data: Database) -> None:
    (bob,) = seen(data, BOB, associations="own")["associations"]
    assert (bob["user"], bob["bank"], bob["place"], bob["of"], bob["level"]) == ("bob", "A", 1, 3, None)
    assert (bob["entitled"], bob["limits"]["max_nodes"], bob["limits"]["max_cores"]) == (0.375, 4, None)
    (ann,) = seen(data, BOSS, user="ann")["associations"]
    assert (ann["place"], ann["part"], ann["level"], ann["fairshare"]) == (2, 0.75, 0.5, 0.666667)


@pytest.mark.parametrize(
    ("caller", "users", "edits", "edits_users"),
    [
        (ANN, {"ann"}, set(), set()),
        (BOB, {"bob", "eve"}, {"C"}, {"B", "C"}),
        (EVE, {"eve"}, set(), set()),
        (service.Caller(False, "", 99), set(), set(), set()),
        (BOSS, {"ann", "bob", "eve"}, {"root", "A", "B", "C"}, {"root", "A", "B", "C"}),
    ],
)
def test_each_sees_and_edits_what_is_the_own(
    data: Database, caller: service.Caller, users: set[str], edits: set[str], edits_users: set[str]
) -> None:
    found = seen(data, caller)
    assert {row["user"] for row in found["associations"]} == users
    assert {bank["bank"] for bank in found["banks"] if bank["may_edit"]} == edits
    assert {bank["bank"] for bank in found["banks"] if bank["may_edit_users"]} == edits_users
    # A request cannot name its sender.
    forged = service.answer(data, "overview", {"caller": [True, "boss", 1009]}, caller)
    assert json.loads(forged) == found
    # What a caller may change here, the service lets the caller change.
    for bank in ("A", "C"):
        payload = {"username": "eve" if bank == "C" else "ann", "bank": bank, "shares": 2}
        with contextlib.nullcontext() if bank in edits_users else pytest.raises(service.Refused):
            service.answer(data, "edit_user", payload, caller)
    with contextlib.nullcontext() if "C" in edits else pytest.raises(service.Refused):
        service.answer(data, "edit_bank", {"bank": "C", "shares": 2}, caller)


def test_associations_are_chosen(data: Database) -> None:
    assert seen(data, BOSS, associations="none")["associations"] == []
    assert [row["user"] for row in seen(data, BOSS, bank="A")["associations"]] == ["ann", "bob"]
    assert seen(data, EVE, bank="A")["associations"] == []
    with pytest.raises(service.Refused, match="associations: 'mine' is not one of none, own, all"):
        seen(data, BOSS, associations="mine")


def test_what_is_inactive_has_no_place(data: Database) -> None:
    service.answer(data, "delete_user", {"username": "eve", "bank": "C"}, service.OWNER)
    (eve,) = seen(data, EVE)["associations"]
    assert (eve["active"], eve["entitled"], eve["level"], eve["of"]) == (False, 0.0, None, 2)
    service.answer(data, "delete_bank", {"bank": "C"}, service.OWNER)
    assert [bank["bank"] for bank in seen(data, EVE)["banks"]] == ["root", "A", "B"]


def test_a_database_without_banks_is_empty() -> None:
    with contextlib.closing(database.template()) as empty:
        assert seen(empty, BOSS) == {"banks": [], "associations": []}
