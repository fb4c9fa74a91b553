"""Requests to `resource` (RFC 28 and RFC 20)."""

from __future__ import annotations

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods

_NONE = form({})
_DRAIN = form({"targets": str, "reason?": str, "mode?": str})

FOLLOWER: Methods = {"gather": form({"nodes": [list]}), "status": _NONE, "topo-get": _NONE}

LEADER: Methods = {
    **FOLLOWER,
    "sched-status": _NONE,
    "get": _NONE,
    "acquire": _NONE,
    "acquire-mute": _NONE,
    "journal": _NONE,
    "drain": _DRAIN,
    "undrain": _DRAIN,
    "reload": form({"path": str, "xml?": bool, "force?": bool}),
    "monitor-waitup": form({"up": int}),
    "monitor-force-down": form({"ranks": str}),
    # These methods are Headrace's own.
    "shrink": form({"targets": str}),
    "busy": _NONE,
}
