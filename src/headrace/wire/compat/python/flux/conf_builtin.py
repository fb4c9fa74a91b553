"""`flux.conf_builtin`: the paths of this installation."""

from __future__ import annotations

from headrace.wire.client.installation import builtin_values


def conf_builtin_get(name: str, which: str = "auto") -> str:
    """A value of `flux config builtin`.

    There is only one set of values, so `which` (auto, intree, installed) has no effect. Raises ValueError for an
    unknown name or `which`.
    """
    values = builtin_values()
    if which not in ("auto", "intree", "installed"):
        raise ValueError(f"invalid which={which!r}: auto, intree and installed are known")
    if name not in values:
        raise ValueError(f"invalid configuration key {name!r}: known are {', '.join(values)}")
    return values[name]
