"""`flux.hostlist`: host lists (RFC 29) with the methods of the C bindings."""

from __future__ import annotations

import errno
from typing import Any, Iterable, List, Union

from headrace.formats.spec import hostlist as _hostlist


def _names(hosts: Any) -> List[str]:
    """The hosts of a list, of its text, or of several texts. Raises TypeError, ValueError."""
    if isinstance(hosts, str):
        return list(_hostlist.Hostlist.parse(hosts))
    if isinstance(hosts, _hostlist.Hostlist):
        return list(hosts)
    names: List[str] = []
    for text in hosts:
        if not isinstance(text, str):
            raise TypeError(f"a host's name is a string, not {type(text).__name__}")
        names.extend(_hostlist.Hostlist.parse(text))
    return names


class Hostlist(_hostlist.Hostlist):
    """A list of host names, from text in RFC 29 form or from several such texts."""

    def __init__(self, arg: Union[str, Iterable[str]] = ()) -> None:
        super().__init__(_names(arg))

    def __getitem__(self, at: Any) -> Any:
        """A host by index; a list by a slice or a set of indices."""
        if isinstance(at, str):
            raise TypeError("an index of a host list is a number, a slice or a set of numbers")
        if isinstance(at, (int, slice)):
            found = super().__getitem__(at)
            return found if isinstance(found, str) else Hostlist(found)
        return Hostlist(super(Hostlist, self).__getitem__(index) for index in at)

    def __repr__(self) -> str:
        return f"Hostlist('{self}')"

    def append(self, *args: Any) -> int:
        """Append hosts; returns the number of hosts added."""
        return sum(super(Hostlist, self).append(_hostlist.Hostlist(_names(hosts))) for hosts in args)

    def delete(self, hosts: Any) -> int:
        """Remove the first occurrence of each host; returns the number of hosts removed."""
        return super().delete(_hostlist.Hostlist(_names(hosts)))

    def count(self) -> int:  # type: ignore[override]
        return len(self)

    def expand(self) -> List[str]:  # type: ignore[override]
        return list(self)

    def sort(self) -> Hostlist:  # type: ignore[override]
        super().sort()
        return self

    def uniq(self) -> Hostlist:  # type: ignore[override]
        """Sort, and remove repetitions."""
        super().uniq()
        return self

    def find(self, host: str) -> int:
        """The index of a host. Raises FileNotFoundError for an unknown host."""
        found = super().find(host)
        if found < 0:
            raise FileNotFoundError(errno.ENOENT, f"Unable to find '{host}'")
        return found

    def index(self, hosts: Any, ignore_nomatch: bool = False) -> Any:
        """The index of a host; for a hostlist, a list of indices.

        Raises FileNotFoundError for an unknown host.
        """
        wanted = _names(hosts)
        found = [super(Hostlist, self).find(host) for host in wanted]
        if -1 in found and not ignore_nomatch:
            raise FileNotFoundError(errno.ENOENT, f"Unable to find '{wanted[found.index(-1)]}'")
        return found[0] if isinstance(hosts, str) and len(wanted) == 1 else [index for index in found if index >= 0]

    def copy(self) -> Hostlist:
        return Hostlist(self)


def decode(arg: Any) -> Hostlist:
    return Hostlist(arg)
