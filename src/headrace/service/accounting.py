"""Banks, associations, usage and priorities of an instance with accounting, for all interfaces.

The accounting service of the instance answers, and decides who may change what: the owner, administrators, and a bank's
coordinators. Each function asks it as the user of the link. `own_link` is used to say why it does not answer.

Each function may raise NoAccounting, Rejected, BrokerUnreachable, and OSError with the broker's errno and text.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from typing import Any

from headrace.formats.spec import jobid
from headrace.service import jobs
from headrace.service.broker_link import BrokerLink
from headrace.service.fields import BadFields, Field
from headrace.service.submission import integer, named
from headrace.service.users.userids import userid_in_passwd
from headrace.wire.query.job_info import username

# The limits of an association. None limits nothing.
LIMITS = ("max_running_jobs", "max_active_jobs", "max_sched_jobs", "max_nodes", "max_cores")
_LARGEST = (1 << 31) - 2


class NoAccounting(LookupError):
    """The instance has no accounting. The text is for users."""


class NoSuchBank(LookupError):
    """No active bank has the name. The text is for users."""


class NoSuchAssociation(LookupError):
    """The user is not in the bank. The text is for users."""


class NotCoordinator(PermissionError):
    """The user may not change the bank. The text is for users."""


class Rejected(ValueError):
    """The accounting service refuses a value. The text is for users."""


# -- the fields of changes


def _limit(value: Any) -> Any:
    return "unlimited" if value is None else integer(0, _LARGEST)(value)


def _names(value: Any) -> str:
    """A list of names as the accounting service takes it, separated by commas."""
    if not isinstance(value, list):
        raise ValueError("must be a list of names")
    found = [named(one) for one in value]
    if any("," in one or " " in one for one in found):
        raise ValueError("must be names without commas and spaces")
    return ",".join(found)


_TEXT = {"type": "string"}
_LIST = {"type": "array", "items": _TEXT}
_MAXIMUM = {"type": ["integer", "null"], "minimum": 0, "maximum": _LARGEST}
_ABOUT = {
    "max_running_jobs": "Jobs that may run at once; null: no limit",
    "max_active_jobs": "Jobs that may be active at once, further ones are refused; null: no limit",
    "max_sched_jobs": "Jobs that may wait for resources at once; null: no limit",
    "max_nodes": "Nodes of running jobs, in all; null: no limit",
    "max_cores": "Cores of running jobs, in all; null: no limit",
}
USER_FIELDS = (
    Field("shares", integer(0, _LARGEST), {"type": "integer", "minimum": 0}, "Compared with other users of the bank"),
    *(Field(name, _limit, _MAXIMUM, _ABOUT[name]) for name in LIMITS),
    Field("queues", _names, _LIST, "The queues that the user may use; an empty list: all"),
    Field("projects", _names, _LIST, "The projects that the user may name in jobs"),
    Field("default_project", named, {**_TEXT, "minLength": 1}, "The project of jobs that name none"),
)
ADD_FIELDS = (Field("user", named, {**_TEXT, "minLength": 1}, "The user's name"), *USER_FIELDS)
BANK_FIELDS = (
    Field(
        "shares",
        integer(1, _LARGEST),
        {"type": "integer", "minimum": 1},
        "Compared with the other banks of the same parent",
    ),
)


# -- requests


async def overview(
    link: BrokerLink, own_link: BrokerLink, associations: str = "all", bank: str = "", user: str = ""
) -> dict[str, Any]:
    """The active banks in the order of the tree, and associations: `none`, the user's `own`, or `all` visible ones.

    The fields are those of `engine.accounting.overview`.
    """
    asked = {"associations": associations, "bank": bank, "user": user}
    found: dict[str, Any] = json.loads(await _ask(link, own_link, "overview", asked))
    return found


async def usage(link: BrokerLink, own_link: BrokerLink, begin: float, end: float, parts: int) -> dict[str, Any]:
    """The usage of banks by jobs that ran from `begin` to `end` (seconds since the epoch), in all and over time.

    Usage is in node-seconds, or as the weights of the instance count. `users` are those who used most, for
    administrators; None for others. Raises PermissionError if only administrators may see it.
    """
    asked = {"from": repr(begin), "to": repr(end), "parts": parts, "json": True}
    found = json.loads(await _ask(link, own_link, "report", asked))
    return {
        **{"from": found["start"], "to": found["end"], "usage": found["usage"], "banks": found["banks"]},
        "edges": found["edges"],
        "over_time": [{"bank": bank, "usage": values} for bank, values in found["over_time"]],
        "users": found["users"] if link.identity is None or link.identity.sees_all else None,
    }


async def priority(link: BrokerLink, own_link: BrokerLink, id: int) -> dict[str, Any]:
    """Why a job has its priority and why it waits. Raises NoSuchJob.

    The fields are those of Explanation in `engine.accounting.why`. Jobs of other users are counted, and for
    administrators listed.
    """
    job = await jobs.one(link, id, ["userid"])
    found: dict[str, Any] = json.loads(await _ask(link, own_link, "why", {"jobid": jobid.encode(id), "json": True}))
    found["user"] = username(job["userid"])
    if found["before"]:
        for other in found["before"]["jobs"]:
            other["user"] = username(other.pop("userid"))
    return found


async def add_user(
    link: BrokerLink, own_link: BrokerLink, bank: str, user: str, values: Mapping[str, Any], userid: int | None
) -> dict[str, Any]:
    """Add a user to a bank, or bring an inactive one back; returns the association.

    `userid` is that of a user of the service, None if unknown. Raises NoSuchBank, NotCoordinator, BadFields.
    """
    await check_may_edit(link, own_link, bank)
    asked = {"username": user, "bank": bank, **values}
    known = userid_in_passwd(user)
    if link.identity is not None and link.identity.sees_all:
        # For coordinators, who cannot choose user ids, the accounting service finds that of the user.
        known = known if userid is None else userid
        asked.update({} if known is None else {"userid": known})
    if known is None and not await _is_somewhere(link, own_link, user):
        text = f"is not known: an administrator can add '{user}' with a user id (flux account add-user --userid)"
        raise BadFields([("user", text)])
    was_inactive = bool((await overview(link, own_link, bank=bank, user=user))["associations"])
    await _ask(link, own_link, "add_user", asked)
    if values and was_inactive:
        # The association is back with its old values.
        await _ask(link, own_link, "edit_user", {"username": user, "bank": bank, **values})
    return await association(link, own_link, bank, user)


async def _is_somewhere(link: BrokerLink, own_link: BrokerLink, user: str) -> bool:
    """True if a user is in any bank."""
    try:
        await _ask(link, own_link, "view_user", {"username": user})
    except Rejected:
        return False
    return True


async def change_user(
    link: BrokerLink, own_link: BrokerLink, bank: str, user: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Change shares and limits of a user in a bank; returns the association.

    Raises NoSuchBank, NotCoordinator, NoSuchAssociation, BadFields.
    """
    await check_may_edit(link, own_link, bank)
    await association(link, own_link, bank, user)
    if not values:
        raise BadFields([("shares", "or a limit is required")])
    await _ask(link, own_link, "edit_user", {"username": user, "bank": bank, **values})
    return await association(link, own_link, bank, user)


async def remove_user(link: BrokerLink, own_link: BrokerLink, bank: str, user: str) -> None:
    """Make a user of a bank inactive: jobs are refused, and usage and limits are kept.

    Raises NoSuchBank, NotCoordinator, NoSuchAssociation.
    """
    await check_may_edit(link, own_link, bank)
    if not (await association(link, own_link, bank, user))["active"]:
        raise NoSuchAssociation(f"the user {user} is not in the bank {bank}")
    await _ask(link, own_link, "delete_user", {"username": user, "bank": bank})


async def change_bank(link: BrokerLink, own_link: BrokerLink, bank: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Change the shares of a bank; returns the bank. Raises NoSuchBank, NotCoordinator, BadFields."""
    await check_may_edit(link, own_link, bank, "may_edit")
    if not values:
        raise BadFields([("shares", "is required")])
    await _ask(link, own_link, "edit_bank", {"bank": bank, **values})
    return find_bank(await overview(link, own_link, "none"), bank)


async def association(link: BrokerLink, own_link: BrokerLink, bank: str, user: str) -> dict[str, Any]:
    """A user in a bank that the user of the link may see, active or not. Raises NoSuchAssociation."""
    found: list[dict[str, Any]] = (await overview(link, own_link, bank=bank, user=user))["associations"]
    if not found:
        raise NoSuchAssociation(f"the user {user} is not in the bank {bank}")
    return found[0]


def find_bank(found: Mapping[str, Any], bank: str) -> dict[str, Any]:
    """A bank of an overview. Raises NoSuchBank."""
    for each in found["banks"]:
        if each["bank"] == bank:
            return dict(each)
    raise NoSuchBank(f"there is no bank {bank}")


async def check_may_edit(link: BrokerLink, own_link: BrokerLink, bank: str, key: str = "may_edit_users") -> None:
    """Raise NoSuchBank, or NotCoordinator with a reason. The accounting service checks again with the change."""
    found = await overview(link, own_link, "none")
    place = find_bank(found, bank)
    if place[key]:
        return
    if place["may_edit_users"]:
        raise NotCoordinator(f"the shares of {bank} are for the coordinators of the banks above it and administrators")
    raise NotCoordinator(f"you are not a coordinator of {bank} or of a bank above it, nor an administrator")


# The name of the method and the class of the error at the beginning of an error's text.
_ORIGIN = re.compile(r"[a-z-]+: (\w+: )?")


async def _ask(link: BrokerLink, own_link: BrokerLink, method: str, payload: Mapping[str, Any]) -> str:
    """The text of the answer of the accounting service."""
    try:
        answer = await link.call(f"accounting.{method}", payload)
    except OSError as exc:
        if exc.errno == errno.ENOSYS:
            raise await _absence(own_link) from None
        if exc.errno == errno.EINVAL:
            raise Rejected(_ORIGIN.sub("", str(exc.strerror), count=1)) from None
        raise
    return str(answer[method])


async def _absence(own_link: BrokerLink) -> Exception:
    """Why nothing answers as the service `accounting`."""
    if "accounting" in await own_link.call("config.get"):
        text = "the accounting service does not answer: see flux module stats accounting, and flux dmesg"
        return OSError(errno.ENOSYS, text)
    return NoAccounting("this instance has no accounting: its configuration has no table [accounting]")
