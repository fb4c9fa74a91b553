"""Ranks that are named on a command line, by number or by host."""

from __future__ import annotations

from headrace.cli.common.errors import CommandError
from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def ranks_of(hosts: List[str], targets: str) -> Idset:
    """The ranks that an idset or a hostlist names. Raises CommandError."""
    try:
        ranks = Idset.parse(targets)
    except ValueError:
        pass
    else:
        if ranks and ranks.last >= len(hosts):
            raise CommandError(f"{targets}: rank is out of range: the instance has ranks 0 to {len(hosts) - 1}")
        return ranks
    try:
        names = list(Hostlist.parse(targets))
    except ValueError as exc:
        raise CommandError(f"{targets}: {exc}") from None
    for name in names:
        if name not in hosts:
            raise CommandError(f"{name}: no such host")
    return Idset([hosts.index(name) for name in names])
