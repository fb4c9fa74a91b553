"""The pages of banks: the user's share, the tree of banks, usage over time, and a bank that its coordinators change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from headrace.formats.plots import chart, scale
from headrace.formats.plots.chart import SERIES, SMALL, Axis, Series
from headrace.service import accounting, service
from headrace.service.fields import BadFields, Field, checked_text, choice, of_query, pick
from headrace.service.pages import html, view
from headrace.service.pages.job_view import Fact
from headrace.service.pages.statistics import SPANS, Figure

# The maximum number of users of a bank that are shown.
SHOWN = 100
_HOUR = 3600.0
# The spans of the page of statistics that are useful for usage, and the parts of each.
_SPANS = {"24h": 24, "7d": 42, "30d": 60, "90d": 90}
_DEFAULT = "7d"
_SAID = {
    "added": "The user is added to the bank.",
    "changed": "The user is changed.",
    "removed": "The user is no longer in the bank. Usage and limits are kept.",
    "bank": "The shares of the bank are changed.",
}
_FIELDS = (Field("span", choice(_SPANS)),)
_BANK_FIELDS = (Field("user", checked_text), Field("said", choice(_SAID)))
_LABELS = {
    "max_running_jobs": "Jobs that run",
    "max_active_jobs": "Active jobs",
    "max_sched_jobs": "Jobs that wait for resources",
    "max_nodes": "Nodes of running jobs",
    "max_cores": "Cores of running jobs",
}
_HINTS = {
    "max_running_jobs": "Further jobs wait.",
    "max_active_jobs": "Further jobs are refused.",
    "max_sched_jobs": "Further jobs wait.",
}

router = APIRouter()


class Row(NamedTuple):
    """A bank in the table, as texts; `address` is its page. `indent` counts the banks above it."""

    bank: str
    address: str
    indent: int
    shares: str
    entitled: str
    usage: str
    part: str
    level: str
    users: int
    coordinators: str


class Person(NamedTuple):
    """A user of a bank, as texts; `address` is the form that changes the user, "" if that is not allowed."""

    user: str
    address: str
    active: bool
    shares: str
    entitled: str
    usage: str
    fairshare: str
    place: str
    limits: list[Fact]


class Share(NamedTuple):
    """The user's part of a bank."""

    bank: str
    address: str
    facts: list[Fact]


class Input(NamedTuple):
    """A field of a form."""

    name: str
    label: str
    value: str
    hint: str
    is_number: bool


@router.get("/banks")
async def show(request: Request) -> Response:
    here = service.of(request)
    span = of_query(request, _FIELDS).get("span", _DEFAULT)
    try:
        found = await accounting.overview(here.link, here.own_link, "own")
    except accounting.NoAccounting as exc:
        return html.page(request, "banks.html", 501, missing=str(exc))
    end = time.time()
    begin = end - SPANS[span][0]
    drawn, refused = list[Figure](), ""
    try:
        drawn = figures(await accounting.usage(here.link, here.own_link, begin, end, _SPANS[span]))
    except PermissionError:
        refused = "Usage over time is shown to administrators only, because this instance is in private mode."
    return html.page(
        request,
        "banks.html",
        missing="",
        shares=[share(each, found["banks"]) for each in found["associations"] if each["active"]],
        rows=[row(bank) for bank in found["banks"]],
        figures=drawn,
        refused=refused,
        spans=list(_SPANS),
        chosen=span,
        begin=begin,
        end=end,
    )


@router.get("/banks/{bank:path}/users/{user}")
async def show_user(request: Request, bank: str, user: str) -> Response:
    of_query(request, ())
    here = service.of(request)
    await accounting.check_may_edit(here.link, here.own_link, bank)
    found = await accounting.association(here.link, here.own_link, bank, user)
    return _user_form(request, bank, found, texts(found))


@router.get("/banks/{bank:path}")
async def show_bank(request: Request, bank: str) -> Response:
    return await _bank_page(request, bank, **of_query(request, _BANK_FIELDS))


@router.post("/banks/{bank:path}/users")
async def add(request: Request, bank: str) -> Response:
    here, form = service.of(request), await html.changes(request)
    user = form.get("user", "").strip()
    try:
        values = pick(values_of({**form, "user": user}), accounting.ADD_FIELDS)
        userid = here.people.userid_of(values.pop("user"))
        await accounting.add_user(here.link, here.own_link, bank, user, values, userid)
    except (BadFields, accounting.Rejected) as exc:
        return await _bank_page(request, bank, problem=_sentence(exc), given=form)
    return _to(bank, "added")


@router.post("/banks/{bank:path}/users/{user}/change")
async def change(request: Request, bank: str, user: str) -> Response:
    here, form = service.of(request), await html.changes(request)
    try:
        values = pick(values_of(form), accounting.USER_FIELDS)
        await accounting.change_user(here.link, here.own_link, bank, user, values)
    except (BadFields, accounting.Rejected) as exc:
        await accounting.check_may_edit(here.link, here.own_link, bank)
        found = await accounting.association(here.link, here.own_link, bank, user)
        return _user_form(request, bank, found, {**texts(found), **form}, _problems(exc))
    return _to(bank, "changed")


@router.post("/banks/{bank:path}/users/{user}/remove")
async def remove(request: Request, bank: str, user: str) -> Response:
    here = service.of(request)
    await accounting.remove_user(here.link, here.own_link, bank, user)
    return _to(bank, "removed")


@router.post("/banks/{bank:path}/change")
async def change_bank(request: Request, bank: str) -> Response:
    here, form = service.of(request), await html.changes(request)
    try:
        values = pick(values_of(form), accounting.BANK_FIELDS)
        await accounting.change_bank(here.link, here.own_link, bank, values)
    except (BadFields, accounting.Rejected) as exc:
        return await _bank_page(request, bank, problem=_sentence(exc))
    return _to(bank, "bank")


def _to(bank: str, said: str) -> Response:
    return RedirectResponse(f"{_address(bank)}?said={said}", 303)


def _address(bank: str, user: str = "") -> str:
    return f"/banks/{quote(bank)}" + (f"/users/{quote(user, safe='')}" if user else "")


def _problems(exc: BadFields | accounting.Rejected) -> dict[str, str]:
    """The errors of a form by field; "" for one that belongs to none."""
    return dict(exc.problems) if isinstance(exc, BadFields) else {"": str(exc)}


def _sentence(exc: BadFields | accounting.Rejected) -> str:
    return "; ".join(f"{name} {text}".strip() for name, text in _problems(exc).items())


async def _bank_page(
    request: Request,
    bank: str,
    user: str = "",
    said: str = "",
    problem: str = "",
    given: Mapping[str, str] | None = None,
) -> Response:
    """The page of a bank; with `user`, only users whose names contain it. `given` is a form that has a problem."""
    here = service.of(request)
    found = await accounting.overview(here.link, here.own_link, bank=bank)
    place = accounting.find_bank(found, bank)
    people = [
        person(each, place["may_edit_users"]) for each in found["associations"] if user.lower() in each["user"].lower()
    ]
    return html.page(
        request,
        "bank.html",
        422 if problem else 200,
        bank=bank,
        address=_address(bank),
        facts=bank_facts(place),
        above=_above(found["banks"], place),
        below=[row(each)._replace(indent=0) for each in found["banks"] if each["parent"] == bank],
        has_users=not any(each["parent"] == bank for each in found["banks"]),
        may_edit=place["may_edit"],
        may_edit_users=place["may_edit_users"],
        shares=(given or {}).get("shares") or "1",
        own_shares=f"{place['shares']:g}",
        people=people[:SHOWN],
        more=len(people) - SHOWN,
        chosen=user,
        name=(given or {}).get("user", ""),
        said=_SAID.get(said, ""),
        problem=problem,
    )


def _above(banks: Sequence[Mapping[str, Any]], place: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The banks above a bank, the root first, each with the address of its page."""
    parents = {each["bank"]: each["parent"] for each in banks}
    found: list[tuple[str, str]] = []
    parent = place["parent"]
    while parent:
        found.insert(0, (parent, _address(parent)))
        parent = parents[parent]
    return found


def _user_form(
    request: Request,
    bank: str,
    found: Mapping[str, Any],
    values: Mapping[str, str],
    problems: Mapping[str, str] | None = None,
) -> Response:
    return html.page(
        request,
        "bank_user.html",
        422 if problems else 200,
        bank=bank,
        bank_address=_address(bank),
        address=_address(bank, found["user"]),
        person=person(found, True),
        inputs=inputs(values),
        problems=problems or {},
    )


# -- texts


def row(bank: Mapping[str, Any]) -> Row:
    return Row(
        bank=bank["bank"],
        address=_address(bank["bank"]),
        indent=bank["depth"],
        shares=f"{bank['shares']:g}",
        entitled=percent(bank["entitled"]),
        usage=length(bank["usage"]),
        part=percent(bank["part"]),
        level=level(bank["level"]),
        users=bank["users"],
        coordinators=", ".join(bank["coordinators"]),
    )


def person(found: Mapping[str, Any], may_edit: bool) -> Person:
    return Person(
        user=found["user"],
        address=_address(found["bank"], found["user"]) if may_edit else "",
        active=found["active"],
        shares=f"{found['shares']:g}",
        entitled=percent(found["entitled"]),
        usage=length(found["usage"]),
        fairshare=view.amount(found["fairshare"]),
        place=f"{found['place']} of {found['of']}" if found["active"] else "",
        limits=limits(found),
    )


def limits(found: Mapping[str, Any]) -> list[Fact]:
    """The limits of an association that limit something."""
    return [Fact(_LABELS[name], str(most)) for name, most in found["limits"].items() if most is not None]


def share(found: Mapping[str, Any], banks: Sequence[Mapping[str, Any]]) -> Share:
    bank = next((each for each in banks if each["bank"] == found["bank"]), None)
    facts = [
        Fact("Place by fair share", f"{found['place']} of {found['of']} users"),
        Fact("Fair share", view.amount(found["fairshare"])),
        Fact("Your part by shares", f"{percent(found['entitled'])} of the instance"),
        Fact("Your usage", f"{length(found['usage'])}, {percent(found['part'])} of all"),
    ]
    if bank is not None:
        facts.append(Fact("Your bank", f"{percent(bank['entitled'])} by shares, {percent(bank['part'])} of usage"))
    facts += [Fact(f"{fact.label}, at most", fact.text) for fact in limits(found)]
    if found["queues"]:
        facts.append(Fact("Queues", ", ".join(found["queues"])))
    if projects := [name for name in found["projects"] if name != "*"]:
        facts.append(Fact("Projects", ", ".join(projects)))
    name = found["bank"] + (" (default)" if found["bank"] == found["default_bank"] else "")
    return Share(name, _address(found["bank"]), facts)


def bank_facts(bank: Mapping[str, Any]) -> list[Fact]:
    return [
        Fact("Shares", f"{bank['shares']:g}"),
        Fact("Part by shares", f"{percent(bank['entitled'])} of the instance"),
        Fact("Usage", f"{length(bank['usage'])}, {percent(bank['part'])} of all"),
        Fact("Level", level(bank["level"])),
        Fact("Coordinators", ", ".join(bank["coordinators"]) or "none"),
    ]


def percent(part: float) -> str:
    return f"{view.amount(100 * part)} %"


def length(usage: float) -> str:
    """A usage in a unit that suits it."""
    unit, name = _unit(usage)
    return f"{view.amount(usage / unit)} {name}"


def _unit(largest: float) -> tuple[float, str]:
    """The unit for usages up to this one: its length in seconds and its name."""
    if largest >= _HOUR or not largest:
        return _HOUR, "h"
    return (60.0, "min") if largest >= 60.0 else (1.0, "s")


def level(value: float | None) -> str:
    """A bank's part of the shares divided by its part of the usage."""
    return "no usage" if value is None else view.amount(value)


# -- charts


def figures(found: Mapping[str, Any]) -> list[Figure]:
    """The charts of `accounting.usage`."""
    return [_over_time(found), _against_shares(found)]


def _against_shares(found: Mapping[str, Any]) -> Figure:
    top = [bank for bank in found["banks"] if bank["depth"] == 1][:SERIES]
    title = "Usage against shares"
    about = "The part of the banks below the root by their shares, and the part that they used."
    svg = chart.bars(
        title,
        about,
        [view.clipped(bank["bank"], 12) for bank in top],
        [(name, [100 * bank[key] for bank in top]) for name, key in (("shares", "entitled"), ("usage", "part"))],
        "bank",
        Axis("percent"),
        SMALL,
    )
    rows = [
        (
            "\N{EM SPACE}" * bank["depth"] + bank["bank"],
            *(view.amount(100 * bank[key]) for key in ("entitled", "part")),
            length(bank["usage"]),
            str(bank["jobs"]),
        )
        for bank in found["banks"]
    ]
    return Figure(title, svg, ["Bank", "Shares (%)", "Usage (%)", "Usage", "Jobs"], rows)


def _over_time(found: Mapping[str, Any]) -> Figure:
    """Usage by bank. The chart has the banks with the most usage, as many as there are colours."""
    edges, series = found["edges"], {each["bank"]: each["usage"] for each in found["over_time"]}
    unit, name = _unit(max((sum(values) for values in zip(*series.values())), default=0.0))
    largest = sorted(sorted(series, key=lambda bank: -sum(series[bank]))[:SERIES])
    spans = list(pairwise(edges))
    title = "Usage over time"
    drawn = [
        Series(
            view.clipped(bank, 12),
            [(at, value / unit) for span, value in zip(spans, series[bank]) for at in span],
        )
        for bank in largest
    ]
    about = f"{length(found['usage'])} of usage by jobs that ran in this time."
    svg = chart.area(title, about, drawn, Axis("time", scale.clock, scale.clock_ticks), Axis(f"usage ({name})"), SMALL)
    rows = [
        (view.moment(begin), *(view.amount(series[bank][at] / unit) for bank in series))
        for at, (begin, _) in reversed(list(enumerate(spans)))
    ]
    return Figure(title, svg, ["From", *(f"{bank} ({name})" for bank in series)], rows if series else [])


# -- the form of a user


def texts(found: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the form for an association."""
    return {
        "shares": f"{found['shares']:g}",
        **{name: "" if most is None else str(most) for name, most in found["limits"].items()},
        "queues": " ".join(found["queues"]),
        "projects": " ".join(name for name in found["projects"] if name != "*"),
    }


def inputs(values: Mapping[str, str]) -> list[Input]:
    """The fields of the form, with the texts `values`."""
    return [
        Input("shares", "Shares", values["shares"], "Compared with the shares of other users of the bank.", True),
        *(Input(name, f"{_LABELS[name]}, at most", values[name], _hint(name), True) for name in accounting.LIMITS),
        Input("queues", "Queues", values["queues"], "Names with spaces between. Empty: all.", False),
        Input("projects", "Projects", values["projects"], "Names with spaces between.", False),
    ]


def _hint(limit: str) -> str:
    return f"{_HINTS.get(limit, '')} Empty: no limit.".strip()


def values_of(form: Mapping[str, str]) -> dict[str, Any]:
    """The JSON values of a form's texts. An invalid text is kept, and rejected later."""
    readers: dict[str, Callable[[str], Any]] = {
        "shares": _number,
        **dict.fromkeys(accounting.LIMITS, lambda text: _number(text) if text else None),
        **dict.fromkeys(("queues", "projects"), lambda text: text.replace(",", " ").split()),
    }
    return {name: readers.get(name, str)(text.strip()) for name, text in form.items()}


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
