"""The method `overview`: banks with their shares and usage, and the associations that the caller may see, as JSON.

The service and its pages show it. Banks are for everybody. Associations are for their users, for the coordinators of
their banks, and for the owner and administrators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Dict, List, Optional

import msgspec
from msgspec import Struct

from headrace.engine.accounting import banks, coordinators
from headrace.engine.accounting.dialect import has_table
from headrace.engine.accounting.fair_share import read_tree
from headrace.engine.accounting.requests import Caller, Payload, optional, select
from headrace.engine.accounting.users import LIMITS
from headrace.engine.accounting.users import TABLE as ASSOCIATIONS
from headrace.sched.accounting import rows, tree
from headrace.sched.accounting.tree import Node
from headrace.sched.accounting.values import UNLIMITED
from headrace.storage.database import Database

# The associations of an answer: none, those of the caller, or all that the caller may see.
_CHOICES = ("none", "own", "all")

_COLUMNS = ("username", "userid", "bank", "default_bank", "active", "shares", "job_usage", "fairshare")
_LISTS = ("queues", "projects")


class BankStanding(Struct, frozen=True):
    """An active bank in the tree, parents first.

    `entitled` is its part of the instance by shares, `part` its part of all usage, both 0 to 1. `level` is its part of
    the shares of its siblings divided by its part of their usage; None without usage. `may_edit` is true if the caller
    may change its shares, `may_edit_users` for its users.
    """

    bank: str
    parent: str
    depth: int
    shares: float
    entitled: float
    usage: float
    part: float
    level: Optional[float]
    priority: float
    users: int
    coordinators: List[str]
    may_edit: bool
    may_edit_users: bool


class Association(Struct, frozen=True):
    """A user in a bank, with the terms of BankStanding.

    It is at `place` of the `of` active associations by fair share. A limit of None limits nothing.
    """

    user: str
    userid: int
    bank: str
    default_bank: str
    active: bool
    shares: float
    entitled: float
    usage: float
    part: float
    level: Optional[float]
    fairshare: float
    place: int
    of: int
    limits: Dict[str, Optional[int]]
    queues: List[str]
    projects: List[str]
    default_project: str


class Overview(Struct, frozen=True):
    """Banks in the order of the tree, and associations in the order of their rows."""

    banks: List[BankStanding]
    associations: List[Association]


class _Place(Struct, frozen=True):
    """A node of the tree with what follows from its place."""

    node: Node
    parent: str
    depth: int
    entitled: float
    level: Optional[float]


def overview(database: Database, payload: Payload) -> str:
    """Answer `overview`: an Overview. `bank` and `user` choose associations. Raises ValueError."""
    caller: Caller = payload["caller"]
    choice = optional(payload, "associations") or "all"
    if choice not in _CHOICES:
        raise ValueError(f"associations: {choice!r} is not one of {', '.join(_CHOICES)}")
    if not database.rows("SELECT 1 FROM bank_table"):
        return msgspec.json.encode(Overview([], [])).decode()
    places = _places(read_tree(database))
    own = coordinators.banks_of(database, caller.user)
    within = {bank for each in own for bank in banks.subtree(database, each)}
    below = {bank for each in own for bank in banks.subtree(database, each)[1:]}
    found = _associations(database, payload, caller, within) if choice != "none" else []
    shown = Overview(_banks(database, places, caller, within, below), _with_places(database, places, found))
    return msgspec.json.encode(shown).decode()


def _places(root: Node) -> dict[tuple[str, str], _Place]:
    """All places of the tree by user and bank; banks have the user "". Depth first, in the order of the rows."""
    found: dict[tuple[str, str], _Place] = {}
    waiting = [_Place(root, "", 0, 1.0, 1.0 if root.usage else None)]
    while waiting:
        place = waiting.pop()
        node = place.node
        found[(node.name if node.is_user else "", node.bank)] = place
        shares = tree.total(child.shares for child in node.children)
        waiting += [
            _Place(
                child,
                node.name,
                place.depth + 1,
                place.entitled * child.shares / shares if shares else 0.0,
                level if level < float("inf") else None,
            )
            for child, level in zip(node.children[::-1], tree.levels(node.children)[::-1])
        ]
    return found


def _banks(
    database: Database,
    places: dict[tuple[str, str], _Place],
    caller: Caller,
    within: set[str],
    below: set[str],
) -> list[BankStanding]:
    priorities: dict[str, float] = {bank: value for bank, value in select(database, banks.TABLE, ["bank", "priority"])}
    helpers: dict[str, list[str]] = {}
    if has_table(database, coordinators.TABLE):
        for user, bank in select(database, coordinators.TABLE, ["username", "bank"]):
            helpers.setdefault(bank, []).append(user)
    whole = next(iter(places.values())).node.usage
    return [
        BankStanding(
            bank=bank,
            parent=place.parent,
            depth=place.depth,
            shares=place.node.shares,
            entitled=place.entitled,
            usage=place.node.usage,
            part=_part(place.node.usage, whole),
            level=place.level,
            priority=priorities[bank],
            users=sum(child.is_user for child in place.node.children),
            coordinators=sorted(helpers.get(bank, ())),
            may_edit=caller.is_admin or bank in below,
            may_edit_users=caller.is_admin or bank in within,
        )
        for (user, bank), place in places.items()
        if not user
    ]


def _associations(database: Database, payload: Payload, caller: Caller, within: set[str]) -> list[dict[str, Any]]:
    """The rows that the caller may see, of those that the request chooses."""
    terms: list[str] = ["1 = 1"]
    values: dict[str, Any] = {}
    for key, column in (("bank", "bank"), ("user", "username")):
        if chosen := optional(payload, key):
            terms.append(f"{column} = :{key}")
            values[key] = chosen
    if payload.get("associations") == "own":
        terms.append("userid = :own")
        values["own"] = caller.userid
    columns = (*_COLUMNS, *LIMITS, *_LISTS, "default_project")
    found = [dict(zip(columns, row)) for row in select(database, ASSOCIATIONS, columns, " AND ".join(terms), values)]
    return [row for row in found if caller.is_admin or row["userid"] == caller.userid or row["bank"] in within]


def _with_places(
    database: Database, places: dict[tuple[str, str], _Place], found: Iterable[dict[str, Any]]
) -> list[Association]:
    order = sorted(value for (value,) in select(database, ASSOCIATIONS, ["fairshare"], "active = 1"))
    whole = next(iter(places.values())).node.usage
    return [_association(row, places.get((row["username"], row["bank"])), order, whole) for row in found]


def _association(row: dict[str, Any], place: _Place | None, order: Sequence[float], whole: float) -> Association:
    """An association; one that is inactive has no place in the tree."""
    return Association(
        user=row["username"],
        userid=row["userid"],
        bank=row["bank"],
        default_bank=row["default_bank"],
        active=row["active"] == 1,
        shares=row["shares"],
        entitled=place.entitled if place else 0.0,
        usage=row["job_usage"],
        part=_part(row["job_usage"], whole) if place else 0.0,
        level=place.level if place else None,
        fairshare=row["fairshare"],
        place=len(order) - bisect_right(order, row["fairshare"]) + 1,
        of=len(order),
        limits={name: None if row[name] == UNLIMITED else row[name] for name in LIMITS},
        queues=list(rows.names(row["queues"])),
        projects=list(rows.names(row["projects"])),
        default_project=row["default_project"],
    )


def _part(usage: float, whole: float) -> float:
    return usage / whole if whole else 0.0
