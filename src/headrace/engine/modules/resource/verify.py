"""Verification of configured resources: the table `resource.verify`, and how a counted node differs from R.

flux-config-resource(5) has the modes of each type and their defaults.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet

STRICT, ALLOW_EXTRA, ALLOW_MISSING, IGNORE = MODES = ("strict", "allow-extra", "allow-missing", "ignore")
_TYPES = ("hostname", "core", "gpu")
_COUNTED = (("core", 2), ("gpu", 3))

Modes = dict[str, str]


def modes_of(table: dict[str, Any]) -> Modes:
    """The mode of each type, by the table `resource`. Raises RpcError(EINVAL) with the field."""
    verify = table.get("verify")
    if verify is None:
        # Nodes may have more than is configured, and GPUs that discovery does not find.
        return {"hostname": STRICT, "core": ALLOW_EXTRA, "gpu": IGNORE}
    if isinstance(verify, bool):
        return dict.fromkeys(_TYPES, STRICT if verify else IGNORE)
    if not isinstance(verify, dict):
        raise RpcError(errno.EINVAL, "resource.verify: must be true, false or a table")
    for key, mode in verify.items():
        if key not in ("default", *_TYPES):
            raise RpcError(
                errno.EINVAL, f"resource.verify: unknown key {key!r}; known are default, {', '.join(_TYPES)}"
            )
        if mode not in MODES:
            raise RpcError(errno.EINVAL, f"resource.verify.{key}: must be one of {', '.join(MODES)}, not {mode!r}")
    default: str = verify.get("default", STRICT)
    return {kind: str(verify.get(kind, default)) for kind in _TYPES}


def mismatch(rset: ResourceSet, found: list[Any], modes: Modes) -> str:
    """The first difference between a counted node and its rank of R that `modes` do not allow; "" for none.

    `found` is rank, host, cores and GPUs. A host name may be the first part of the name in R.
    """
    rank, host = found[0], found[1]
    expected = rset.host(rank)
    if modes["hostname"] == STRICT and expected and host not in (expected, expected.partition(".")[0]):
        return f"got hostname '{host}', expected '{expected}'"
    pairs = [(kind, rset.ids(rank, kind), Idset.parse(found[place])) for kind, place in _COUNTED]
    missing = _text((kind, ours - counted) for kind, ours, counted in pairs if modes[kind] in (STRICT, ALLOW_EXTRA))
    if missing:
        return f"missing resources: {missing}"
    extra = _text((kind, counted - ours) for kind, ours, counted in pairs if modes[kind] in (STRICT, ALLOW_MISSING))
    return f"has extra resources: {extra}" if extra else ""


def _text(differences: Iterable[tuple[str, Idset]]) -> str:
    return ",".join(f"{kind}[{ids}]" for kind, ids in differences if ids)
