"""`flux.hostlist`: host lists of RFC 29."""

from __future__ import annotations

from typing import Iterable, Union

from headrace.spec import hostlist as _hostlist


class Hostlist(_hostlist.Hostlist):
    """A list of host names, from text in RFC 29 form or from names."""

    def __init__(self, arg: Union[str, Iterable[str]] = ()) -> None:
        super().__init__(list(_hostlist.Hostlist.parse(arg)) if isinstance(arg, str) else arg)


def decode(arg: str) -> Hostlist:
    return Hostlist(arg)
