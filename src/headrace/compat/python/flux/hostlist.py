"""`flux.hostlist`: host lists of RFC 29."""

from __future__ import annotations

import errno
from typing import Any, Iterable, Union

from headrace.spec import hostlist as _hostlist


class Hostlist(_hostlist.Hostlist):
    """A list of host names, from text in RFC 29 form or from names."""

    def __init__(self, arg: Union[str, Iterable[str]] = ()) -> None:
        super().__init__(list(_hostlist.Hostlist.parse(arg)) if isinstance(arg, str) else arg)

    def __getitem__(self, at: Any) -> Any:
        """A host by index; a list by slice or by a set of indices."""
        if isinstance(at, (int, slice)):
            found = super().__getitem__(at)
            return found if isinstance(found, str) else Hostlist(found)
        return Hostlist(super(Hostlist, self).__getitem__(index) for index in at)

    def index(self, hosts: Any, ignore_nomatch: bool = False) -> Any:
        """The index of a host, a list of them for a hostlist. Raises FileNotFoundError for one that is not there."""
        wanted = list(Hostlist(hosts) if isinstance(hosts, str) else hosts)
        found = [self.find(host) for host in wanted]
        if -1 in found and not ignore_nomatch:
            raise FileNotFoundError(errno.ENOENT, f"Unable to find '{wanted[found.index(-1)]}'")
        return found[0] if isinstance(hosts, str) and len(wanted) == 1 else [index for index in found if index >= 0]

    def copy(self) -> Hostlist:
        return Hostlist(self)


def decode(arg: str) -> Hostlist:
    return Hostlist(arg)
