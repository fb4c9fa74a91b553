"""Requests to a scheduler: `sched` (RFC 27), `feasibility`, and Fluxion's two services for users."""

from __future__ import annotations

import enum

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods


class AllocResponse(enum.IntEnum):
    """The field `type` of a response to `sched.alloc` (RFC 27).

    Every type but ANNOTATE completes the request.
    """

    SUCCESS = 0
    ANNOTATE = 1
    DENY = 2
    CANCEL = 3


_NONE = form({})
_CHECK = form({"jobspec": (dict, str)})

# The scheduler decodes `alloc` itself.
SCHED: Methods = {
    "alloc": None,
    "cancel": form({"id": int}),
    "free": form({"id": int, "R?": dict, "final?": bool}),
    # Not in RFC 27. Each job is [id, successor, expiration].
    "inherit": form({"jobs": [list]}),
    # Each job is [id, priority].
    "prioritize": form({"jobs": [[int]]}),
    # Not in RFC 27: the reasons why these jobs are pending.
    "reasons": form({"ids": [int]}),
    # Seconds since the epoch.
    "expiration": form({"id": int, "expiration": float}),
    "resource-status": _NONE,
}

FEASIBILITY: Methods = {"check": _CHECK}

FLUXION_RESOURCE: Methods = {
    "find": form({"criteria": str, "format?": str}),
    "info": form({"jobid": int}),
    "set_property": form({"sp_resource_path": str, "sp_keyval": str}),
    "get_property": form({"gp_resource_path": str, "gp_key": str}),
    "set_status": form({"resource_path": str, "status": str}),
    "params": _NONE,
    "status": _NONE,
    "satisfiability": _CHECK,
    "stats-get": _NONE,
}

FLUXION_QMANAGER: Methods = {"params": _NONE, "stats-get": _NONE}
