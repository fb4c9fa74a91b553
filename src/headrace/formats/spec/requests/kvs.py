"""Requests to `kvs` and `kvs-watch` (RFC 11), and to `content` and `content-backing` (RFC 10)."""

from __future__ import annotations

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods

_NONE = form({})
_LOOKUP = form({"key": str, "namespace?": str, "flags": int, "rootdir?": dict})
_CHANGE = {"namespace": str, "flags": int, "ops": list}

KVS: Methods = {
    "lookup": _LOOKUP,
    "lookup-plus": _LOOKUP,
    "getroot": form({"namespace": str}),
    "commit": form(_CHANGE),
    "fence": form({"name": str, "nprocs": int, **_CHANGE}),
    "wait-version": form({"namespace": str, "rootseq": int}),
    "namespace-create": form({"namespace": str, "owner": int, "flags": int, "rootref?": str}),
    "namespace-remove": form({"namespace": str}),
    "namespace-list": _NONE,
    "blob": form({"ref": str}),
    "job-data": _NONE,
    "dropcache": _NONE,
}

KVS_WATCH: Methods = {
    "lookup": form({"namespace": str, "key": str, "flags": int}),
    "cancel": form({"matchtag?": int}),
}

_CHECKPOINT_PUT = form({"key?": str, "value": {"rootref": str}})

# Blobs and digests are bytes, not JSON.
CONTENT: Methods = {
    "store": None,
    "load": None,
    "validate": None,
    "flush": _NONE,
    "dropcache": _NONE,
    "checkpoint-get": form({"key?": str}),
    "checkpoint-put": _CHECKPOINT_PUT,
    "register-backing": form({"name": str}),
    "unregister-backing": _NONE,
    "limits": _NONE,
}

CONTENT_BACKING: Methods = {name: CONTENT[name] for name in ("store", "load", "checkpoint-get", "checkpoint-put")}
