"""Lists of host names and their text form `node[0-3,7],login` (RFC 29).

A hostlist keeps order and repetitions, because the n-th host is the host of rank n. It is stored as plain names, which
its users (a resource set, the overlay) need; the text form is made on request. It is the same as Flux's: neighbouring
names that differ only in the digits at their end share brackets, whatever their order. Names with text after the number
are written out.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union, overload

# A limit, because a short text can expand to very many hosts. No real list has this many.
MAX_HOSTS = 1 << 20
# No host name is longer (RFC 1035, section 2.3.4), and a longer prefix could be repeated for each host of its brackets.
MAX_NAME = 255

_EXPRESSION = re.compile(r"([^][,]*)(?:\[([^][]*)\]([^][,]*))?(,|$)", re.DOTALL)
_IDS = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_UNPRINTABLE = re.compile(r"[^!-~]")
_DIGITS = "0123456789"
# Longer runs of digits are part of the name, not a number.
_MAX_DIGITS = 18

Selection = Union[int, slice]


class HostlistError(ValueError):
    """Text that is not a hostlist (RFC 29), or a host that is not in the list; the message names it."""


class Hostlist:
    """An ordered list of host names, repetitions kept.

    ``Hostlist(names)`` takes single names, not patterns.
    """

    __slots__ = ("_hosts",)

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts: List[str] = list(hosts)

    @classmethod
    def parse(cls, text: str, limit: int = MAX_HOSTS) -> Hostlist:
        """Return the hosts of a text; empty parts are skipped.

        Raises HostlistError naming the position (from 0) where the text breaks RFC 29, or if there are more than
        `limit` hosts. The limit is checked before any name is generated.
        """
        hosts: List[str] = []
        for prefix, ranges, suffix in _expressions(text, limit):
            if ranges is None:
                hosts.append(prefix)
                continue
            for low, high, width in ranges:
                digits = map(str, range(low, high + 1))
                hosts += (
                    [f"{prefix}{id_.zfill(width)}{suffix}" for id_ in digits]
                    if width
                    else [f"{prefix}{id_}{suffix}" for id_ in digits]
                )
        return cls(hosts)

    def encode(self) -> str:
        """Return the RFC 29 text, in list order; neighbours with the same prefix share brackets."""
        return _encode(self._hosts)

    def expand(self, separator: str = ",") -> str:
        """Return all names, joined by `separator`."""
        return separator.join(self._hosts)

    def append(self, hosts: Union[str, Hostlist]) -> int:
        """Append hosts; text is parsed. Return the number of hosts added. Raises HostlistError."""
        added = Hostlist.parse(hosts)._hosts if isinstance(hosts, str) else hosts._hosts
        self._hosts = self._hosts + added
        return len(added)

    def delete(self, hosts: Union[str, Hostlist]) -> int:
        """Remove the first occurrence of each host; text is parsed. Return the number of hosts removed.

        Raises HostlistError.
        """
        wanted: Dict[str, int] = {}
        for host in Hostlist.parse(hosts)._hosts if isinstance(hosts, str) else hosts._hosts:
            wanted[host] = wanted.get(host, 0) + 1
        kept: List[str] = []
        for host in self._hosts:
            if wanted.get(host):
                wanted[host] -= 1
            else:
                kept.append(host)
        removed = len(self._hosts) - len(kept)
        self._hosts = kept
        return removed

    def find(self, host: str) -> int:
        """Return the first position of a host, -1 if it is not in the list."""
        try:
            return self._hosts.index(host)
        except ValueError:
            return -1

    def index(self, host: str) -> int:
        """Return the first position of a host. Raises HostlistError if it is not in the list."""
        position = self.find(host)
        if position < 0:
            raise HostlistError(f"host '{host}' is not in '{self.encode()}'")
        return position

    def count(self, host: str) -> int:
        """Return the number of occurrences of a host."""
        return self._hosts.count(host)

    def sort(self) -> None:
        """Order the hosts by prefix, then by number: `a2` before `a10`, names without a number first."""
        self._hosts = _sorted(self._hosts)

    def uniq(self) -> None:
        """Sort, and remove repetitions."""
        self._hosts = _sorted(OrderedDict.fromkeys(self._hosts))

    def copy(self) -> Hostlist:
        """Return an independent list of the same hosts."""
        return Hostlist(self._hosts)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Hostlist: ...

    def __getitem__(self, at: Selection) -> Union[str, Hostlist]:
        return Hostlist(self._hosts[at]) if isinstance(at, slice) else self._hosts[at]

    def __delitem__(self, at: Selection) -> None:
        del self._hosts[at]

    def __contains__(self, host: object) -> bool:
        return host in self._hosts

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __add__(self, other: Hostlist) -> Hostlist:
        return Hostlist(self._hosts + other._hosts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hostlist) and self._hosts == other._hosts

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.encode()

    def __repr__(self) -> str:
        return f"Hostlist.parse({self.encode()!r})"


def count_hosts(text: str, limit: int = MAX_HOSTS) -> int:
    """Return the number of hosts in a text, including repetitions, without expanding it.

    The cost depends only on the length of the text. Raises HostlistError like `Hostlist.parse`.
    """
    return sum(1 if ranges is None else _size(ranges) for _, ranges, _ in _expressions(text, limit))


def first_host(text: str) -> str:
    """Return the first host of a text, without expanding the rest.

    Raises HostlistError, also for an empty list.
    """
    for prefix, ranges, suffix in _expressions(text, MAX_HOSTS):
        if ranges is None:
            return prefix
        low, _, width = ranges[0]
        return f"{prefix}{str(low).zfill(width)}{suffix}"
    raise HostlistError("the hostlist is empty: it has no first host")


# The ids of one pair of brackets: first, last, and the width to which zeros fill them.
_Ranges = List[Tuple[int, int, int]]


def _expressions(text: str, limit: int) -> List[Tuple[str, Optional[_Ranges], str]]:
    """The unexpanded parts of a text: (prefix, ranges, suffix), or (name, None, "") for a single host.

    Raises HostlistError, also for more than `limit` hosts in total.
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        raise HostlistError(f"hostlist '{text}': character at {bad.start()} cannot be part of a host name")
    found: List[Tuple[str, Optional[_Ranges], str]] = []
    position = hosts = 0
    while position < len(text):
        match = _EXPRESSION.match(text, position)
        if match is None:
            raise HostlistError(f"hostlist '{text}': expected a name or prefix[0-3]suffix at {position}")
        prefix, ids, suffix, _ = match.groups()
        if ids is not None:
            ranges = _ranges(text, match.start(2), ids)
            found.append((prefix, ranges, suffix))
            hosts += _size(ranges)
            longest = len(prefix) + len(suffix) + max([max(len(str(high)), width) for _, high, width in ranges])
        elif prefix:
            found.append((prefix, None, ""))
            hosts += 1
            longest = len(prefix)
        else:
            longest = 0
        if hosts > limit:
            raise HostlistError(f"hostlist of {len(text)} characters: more than {limit} hosts")
        if longest > MAX_NAME:
            raise HostlistError(f"hostlist: the name at {position} has more than {MAX_NAME} characters")
        position = match.end()
    return found


def _size(ranges: _Ranges) -> int:
    return sum([high - low + 1 for low, high, _ in ranges])


def _ranges(text: str, start: int, ids: str) -> _Ranges:
    """The ranges of an idlist; `start` is the position of `ids` in the whole hostlist."""
    if not ids:
        raise HostlistError(f"hostlist '{text}': no ids in the brackets at {start - 1}")
    found: _Ranges = []
    pad: Optional[int] = None
    position = 0
    while position < len(ids):
        match = _IDS.match(ids, position)
        if match is None:
            raise HostlistError(f"hostlist '{text}': expected an id or a range such as 0-3 at {start + position}")
        after = match.end()
        if after < len(ids) and (ids[after] != "," or after + 1 == len(ids)):
            raise HostlistError(f"hostlist '{text}': expected ',' and an id or ']' at {start + after}")
        low, high = match.groups()
        if len(low) > _MAX_DIGITS or len(high or "") > _MAX_DIGITS:
            raise HostlistError(f"hostlist '{text}': id at {start + position} has more than {_MAX_DIGITS} digits")
        # Leading zeros of the first id set the width of all ids (RFC 29); a later id can increase it.
        own = _padding(low)
        pad = own if pad is None else pad
        first, last = int(low), int(low if high is None else high)
        if last < first:
            raise HostlistError(f"hostlist '{text}': range at {start + position} ends before it starts")
        found.append((first, last, max(pad, own)))
        position = after + 1
    return found


def _padding(digits: str) -> int:
    """The width that a number's leading zeros set; 0 without leading zeros."""
    return len(digits) if len(digits) > 1 and digits[0] == "0" else 0


def _split(host: str) -> Tuple[str, str]:
    """A name as its prefix and the digits at its end, which may be empty."""
    prefix = host.rstrip(_DIGITS)
    digits = host[len(prefix) :]
    return (prefix, digits) if len(digits) <= _MAX_DIGITS else (host, "")


def _encode(hosts: List[str]) -> str:
    done: List[str] = []
    prefix: Optional[str] = None
    pieces: List[str] = []  # the finished ids of the open brackets
    pad = 0  # the width that the first id of the open brackets sets
    low = high = ""  # the run being extended
    expected = ""  # the digits that would extend the run
    for host in hosts:
        stem, digits = _split(host)
        if digits and stem == prefix and digits == expected:
            high = digits
        else:
            if low:
                pieces.append(low if low == high else f"{low}-{high}")
                if not digits or stem != prefix or len(digits) < pad:
                    done.append(_close(prefix or "", pieces, low, high))
                    low = ""
            if not digits:
                done.append(host)
                prefix = None
                continue
            if not low:
                prefix, pieces, pad = stem, [], _padding(digits)
            low = high = digits
        expected = str(int(digits) + 1).zfill(len(low))
    if low:
        pieces.append(low if low == high else f"{low}-{high}")
        done.append(_close(prefix or "", pieces, low, high))
    return ",".join(done)


def _close(prefix: str, pieces: List[str], low: str, high: str) -> str:
    if len(pieces) == 1 and low == high:
        return prefix + low
    return f"{prefix}[{','.join(pieces)}]"


def _sorted(hosts: Iterable[str]) -> List[str]:
    """The hosts sorted by prefix, then by padding, then by number.

    `8` and `08` are different hosts, in groups with different padding. An unpadded number such as `10` belongs to the
    group of its prefix with the widest padding that is no wider than the number: it follows `09` if there is such a
    host, otherwise `9`.
    """
    split = [(host, *_split(host)) for host in hosts]
    families: Dict[str, Set[int]] = {}
    for _, prefix, digits in split:
        families.setdefault(prefix, set()).add(_padding(digits))

    def key(entry: Tuple[str, str, str]) -> Tuple[str, int, int]:
        _, prefix, digits = entry
        if not digits:
            return prefix, -1, 0
        return prefix, max(pad for pad in families[prefix] | {0} if pad <= len(digits)), int(digits)

    return [host for host, _, _ in sorted(split, key=key)]
