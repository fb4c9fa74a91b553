"""`flux.conf_builtin`: where this installation keeps what."""

from __future__ import annotations

from headrace.cli.config.main import builtin_values


def conf_builtin_get(name: str, which: str = "auto") -> str:
    """A value that `flux config builtin` prints; there is one set, so `which` (auto, intree, installed) changes
    nothing. Raises ValueError for another name or another `which`."""
    values = builtin_values()
    if which not in ("auto", "intree", "installed"):
        raise ValueError(f"invalid which={which!r}: auto, intree and installed are known")
    if name not in values:
        raise ValueError(f"invalid configuration key {name!r}: known are {', '.join(values)}")
    return str(values[name])
