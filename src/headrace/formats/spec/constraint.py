"""Job constraints (RFC 31) and their text form for users (RFC 35).

A constraint is compiled once into a function on bit sets, which tests all ranks of a resource set together: for a
system of 16,384 nodes ``fast and not host:n7`` costs three integer operations, not 16,384 evaluations. The text parser
does not know the meaning of operators, so other queries (``flux jobs --filter``) can use it with their own operators.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Collection, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from headrace.formats.spec.hostlist import MAX_HOSTS, Hostlist, HostlistError, count_hosts
from headrace.formats.spec.idset import Idset, IdsetError, parse_ranges

Constraint = Dict[str, List[Any]]

# matcher(ranks, ranks of a host, ranks by property) -> the ranks that match; all sets as bits.
Matcher = Callable[[int, Callable[[str], int], Mapping[str, int]], int]

# Real constraints have a few levels; the limit keeps the recursion within Python's stack.
_MAX_DEPTH = 100

_PROPERTY_FORBIDDEN = re.compile(r"[!&'\"^`|()]")


class ConstraintError(ValueError):
    """A constraint object is not well formed (RFC 31); the message contains the path of the term."""


class ConstraintSyntaxError(ConstraintError):
    """A constraint text cannot be parsed (RFC 35); the message contains the position."""


# -- objects (RFC 31) -----------------------------------------------------------------------------


def validate(obj: Any) -> None:
    """Check a constraint object; raises ConstraintError."""
    compile(obj)


def compile(obj: Any) -> Matcher:
    """Turn a constraint object into a function on bit sets; raises ConstraintError.

    Operators: properties (all of them, ``^name`` for its absence), hostlist and ranks (any of them), and, or, not. An
    object without terms, an empty ``and`` and an empty ``or`` match everything; an empty ``not`` matches nothing.
    """
    return _compile(obj, "", 0, [MAX_HOSTS])


def of_queue(table: Mapping[str, Any], path: str = "queue") -> Optional[Constraint]:
    """The constraint of a queue (RFC 33): all properties in `requires`, and a host in `hosts`.

    None for a queue of all nodes. Raises ConstraintError with the key below `path`.
    """
    parts: List[Constraint] = []
    requires, hosts = table.get("requires"), table.get("hosts")
    if requires is not None:
        if not isinstance(requires, list) or not all(isinstance(item, str) for item in requires):
            raise ConstraintError(f"{path}.requires: must be an array of property names, not {requires!r}")
        for item in requires:
            if not item or _PROPERTY_FORBIDDEN.search(item):
                raise ConstraintError(f"{path}.requires: {item!r} is not the name of a property")
        if requires:
            parts.append({"properties": requires})
    if hosts is not None and hosts != "all":
        if not isinstance(hosts, str):
            raise ConstraintError(f"{path}.hosts: must be a hostlist or 'all', not {hosts!r}")
        try:
            Hostlist.parse(hosts)
        except ValueError as exc:
            raise ConstraintError(f"{path}.hosts: {exc}") from None
        parts.append({"hostlist": [hosts]})
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else None


def match(obj: Any, rank: int, host: str, properties: Collection[str] = ()) -> bool:
    """Return whether one node satisfies a constraint; raises ConstraintError."""
    bit = 1 << rank
    return compile(obj)(bit, lambda name: bit if name == host else 0, dict.fromkeys(properties, bit)) != 0


def terms(obj: Any) -> Iterator[Tuple[str, Any]]:
    """Yield every (operator, value) of a valid constraint's leaves, such as ``("hostlist", "node[0-3]")``."""
    for op, values in obj.items():
        for value in values:
            if op in {"and", "or", "not"}:
                yield from terms(value)
            else:
                yield op, value


def size(obj: Any) -> int:
    """The size of a compiled constraint: the total number of its operators, values, hosts and rank ranges.

    The cost of the call depends only on the length of the texts in it. A term that is not well formed counts as one.
    """
    found = 0
    rest: List[Tuple[str, Any]] = [("", obj)]
    while rest:
        op, value = rest.pop()
        found += 1
        if isinstance(value, dict):
            for name, values in value.items():
                found += 1
                if isinstance(values, list):
                    rest.extend([(name, inner) for inner in values])
        elif isinstance(value, str):
            try:
                found += count_hosts(value) if op == "hostlist" else len(parse_ranges(value)) if op == "ranks" else 0
            except (HostlistError, IdsetError):
                # compile() rejects a list with more hosts than the limit before it expands the list.
                continue
    return found


def _compile(obj: Any, path: str, depth: int, room: List[int]) -> Matcher:
    """Compile one term.

    `room` has one element, the number of hosts that the rest of the constraint may name.
    """
    if not isinstance(obj, dict):
        raise ConstraintError(f"constraint{path}: must be an object such as {{'properties': ['fast']}}, not {obj!r}")
    if depth > _MAX_DEPTH:
        raise ConstraintError(f"constraint: nested deeper than {_MAX_DEPTH}")
    parts = []
    for op, values in obj.items():
        here = f"{path}.{op}"
        if op not in _OPERATORS:
            raise ConstraintError(
                f"constraint{path}: unknown constraint operator: {op}; known are {', '.join(sorted(_OPERATORS))}"
            )
        if not isinstance(values, list):
            raise ConstraintError(f"constraint{here}: must be an array, not {values!r}")
        parts.append(_OPERATORS[op](values, here, depth, room))
    return parts[0] if len(parts) == 1 else _all_of(parts)


def _all_of(parts: List[Matcher]) -> Matcher:
    def matcher(ranks: int, host: Callable[[str], int], props: Mapping[str, int]) -> int:
        for part in parts:
            ranks = part(ranks, host, props)
        return ranks

    return matcher


def _any_of(parts: List[Matcher]) -> Matcher:
    def matcher(ranks: int, host: Callable[[str], int], props: Mapping[str, int]) -> int:
        if not parts:
            return ranks
        found = 0
        for part in parts:
            found |= part(ranks, host, props)
        return found

    return matcher


def _compile_and(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    return _all_of([_compile(value, f"{path}[{i}]", depth + 1, room) for i, value in enumerate(values)])


def _compile_or(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    return _any_of([_compile(value, f"{path}[{i}]", depth + 1, room) for i, value in enumerate(values)])


def _compile_not(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    inner = _compile_and(values, path, depth, room)
    return lambda ranks, host, props: ranks & ~inner(ranks, host, props)


def _compile_properties(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    wanted: List[str] = []
    unwanted: List[str] = []
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise ConstraintError(f"constraint{path}[{i}]: a property must be a string, not {value!r}")
        name = value[1:] if value.startswith("^") else value
        bad = _PROPERTY_FORBIDDEN.search(name)
        if bad:
            raise ConstraintError(f"constraint{path}[{i}]: invalid character '{bad.group()}' in property \"{value}\"")
        if not name:
            raise ConstraintError(f"constraint{path}[{i}]: a property must have a name, not {value!r}")
        (unwanted if value.startswith("^") else wanted).append(name)

    def matcher(ranks: int, host: Callable[[str], int], props: Mapping[str, int]) -> int:
        for name in wanted:
            ranks &= props.get(name, 0)
        for name in unwanted:
            ranks &= ~props.get(name, 0)
        return ranks

    return matcher


def _compile_hostlist(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    hosts: List[str] = []
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise ConstraintError(f"constraint{path}[{i}]: must be a host list string, not {value!r}")
        try:
            room[0] -= count_hosts(value)
            if room[0] < 0:
                raise ConstraintError(f"constraint{path}[{i}]: the constraint names more than {MAX_HOSTS} hosts in all")
            hosts.extend(Hostlist.parse(value))
        except HostlistError as exc:
            raise ConstraintError(f"constraint{path}[{i}]: invalid hostlist: {exc}") from None

    def matcher(ranks: int, host: Callable[[str], int], props: Mapping[str, int]) -> int:
        found = 0
        for name in hosts:
            found |= host(name)
        return ranks & found

    return matcher


def _compile_ranks(values: List[Any], path: str, depth: int, room: List[int]) -> Matcher:
    named: List[Tuple[int, int]] = []
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise ConstraintError(f"constraint{path}[{i}]: must be an idset string, not {value!r}")
        try:
            named.extend(parse_ranges(value))
        except IdsetError as exc:
            raise ConstraintError(f"constraint{path}[{i}]: invalid idset: {exc}") from None

    def matcher(ranks: int, host: Callable[[str], int], props: Mapping[str, int]) -> int:
        # A bit set is as long as its largest id, so ranks beyond the last existing rank are dropped.
        last = ranks.bit_length() - 1
        return ranks & Idset.from_ranges([(low, min(high, last)) for low, high in named if low <= last]).bits

    return matcher


_OPERATORS: Dict[str, Callable[[List[Any], str, int, List[int]], Matcher]] = {
    "and": _compile_and,
    "or": _compile_or,
    "not": _compile_not,
    "properties": _compile_properties,
    "hostlist": _compile_hostlist,
    "ranks": _compile_ranks,
}


# -- text (RFC 35) --------------------------------------------------------------------------------


class Syntax(NamedTuple):
    """The operators of one use of the query language.

    Their names, the default operator (key None), the operators whose values are split at a character, and the operators
    whose terms are merged.
    """

    operators: Mapping[Optional[str], str] = {}
    split: Mapping[str, str] = {}
    combined: FrozenSet[str] = frozenset()


# --requires of the submission commands.
REQUIRES = Syntax(
    operators={None: "properties", "host": "hostlist", "hosts": "hostlist", "rank": "ranks"},
    split={"properties": ","},
    combined=frozenset({"properties"}),
)


def parse(text: str, syntax: Syntax = REQUIRES) -> Constraint:
    """Parse a constraint query such as ``fast and not (slow or host:a[1-2])``.

    Raises ConstraintSyntaxError. ``and`` (also ``&``, ``&&``, or nothing between two terms) binds tighter than ``or``
    (``|``, ``||``), ``not`` and ``-`` tighter than both. Only the text is checked; validate() checks the values of the
    operators.
    """
    return _Parser(text, syntax).parse()


def tokens(text: str) -> List[str]:
    """The tokens of a query as text, for error messages and debugging; raises ConstraintSyntaxError."""
    return [f"{token.kind} {token.value!r} at {token.position}" for token in _lex(text)]


class _Token(NamedTuple):
    kind: str  # one of: and or not - ( ) term
    value: str
    position: int


_LEX = re.compile(
    r"""\s+ | (?P<neg>-) | (?P<not>not\b) | (?P<and>&{1,2}|and\b) | (?P<or>\|{1,2}|or\b)
      | (?P<open>\() | (?P<close>\)) | (?P<quote>['"]) | (?P<term>[^()|&\s"']+)""",
    re.VERBOSE,
)
_KINDS = {"neg": "-", "not": "not", "and": "and", "or": "or", "open": "(", "close": ")"}


def _lex(text: str) -> List[_Token]:
    tokens: List[_Token] = []
    pending: Optional[_Token] = None  # an "op:" that waits for its quoted operand
    position = 0
    while position < len(text):
        found = _LEX.match(text, position)
        if found is None:
            raise ConstraintSyntaxError(f"Illegal character '{text[position]}' at position {position}")
        start, position = position, found.end()
        name = found.lastgroup
        if name is None:
            continue
        if name in _KINDS:
            tokens.append(_Token(_KINDS[name], found.group(), start))
            continue
        value = found.group()
        if name == "quote":
            end = text.find(value, position)
            if end < 0:
                quote = '"\'"' if value == "'" else "'\"'"
                raise ConstraintSyntaxError(f"Unclosed quote {quote} at position {position}")
            value, position = text[position:end], end + 1
            if not value:
                continue
        if pending is not None:
            tokens.append(_Token("term", pending.value + value, pending.position))
            pending = None
        elif value.endswith(":"):
            pending = _Token("term", value, start)
        else:
            tokens.append(_Token("term", value, start))
    if pending is not None:
        raise ConstraintSyntaxError(f"Missing argument to token '{pending.value}'")
    return tokens


class _Parser:
    def __init__(self, text: str, syntax: Syntax) -> None:
        self.text = text
        self.syntax = syntax
        self.tokens = _lex(text)
        self.at = 0
        self.open: List[int] = []

    def parse(self) -> Constraint:
        result = self.disjunction(0)
        if self.at < len(self.tokens):
            raise self.unexpected()
        return result

    def peek(self) -> str:
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def unexpected(self) -> ConstraintSyntaxError:
        if self.at >= len(self.tokens):
            if self.open:
                return ConstraintSyntaxError(f"Unclosed parenthesis in position {self.open[-1]}")
            return ConstraintSyntaxError(f"Unexpected end of input in '{self.text}'")
        token = self.tokens[self.at]
        if token.kind == ")" and not self.open:
            return ConstraintSyntaxError(f"Mismatched parentheses starting at position {token.position}.")
        return ConstraintSyntaxError(f"Invalid token '{token.value}' at position {token.position}")

    def disjunction(self, depth: int) -> Constraint:
        left = self.conjunction(depth)
        while self.peek() == "or":
            self.at += 1
            right = self.conjunction(depth)
            if "or" in left:
                left["or"].append(right)
            else:
                left = {"or": [left, right]}
        return left

    def conjunction(self, depth: int) -> Constraint:
        left = self.negation(depth)
        while True:
            kind = self.peek()
            if kind == "and":
                self.at += 1
            elif kind not in {"not", "-", "(", "term"}:
                return left
            left = self.joined(left, self.negation(depth))

    def joined(self, left: Constraint, right: Constraint) -> Constraint:
        if "and" in left:
            left["and"].append(right)
            return left
        op = next(iter(left))
        if op in self.syntax.combined and op in right:
            left[op].extend(right[op])
            return left
        return {"and": [left, right]}

    def negation(self, depth: int) -> Constraint:
        if depth > _MAX_DEPTH:
            raise ConstraintSyntaxError(f"nested deeper than {_MAX_DEPTH}")
        kind = self.peek()
        if kind == "not":
            self.at += 1
            return {"not": [self.negation(depth + 1)]}
        if kind == "-":
            self.at += 1
            if self.peek() != "term":
                raise self.unexpected()
            return {"not": [self.term()]}
        if kind == "(":
            self.open.append(self.tokens[self.at].position)
            self.at += 1
            inner = self.disjunction(depth + 1)
            if self.peek() != ")":
                raise self.unexpected()
            self.at += 1
            self.open.pop()
            return inner
        if kind == "term":
            return self.term()
        raise self.unexpected()

    def term(self) -> Constraint:
        text = self.tokens[self.at].value
        self.at += 1
        name, colon, value = text.partition(":")
        operators = self.syntax.operators
        if colon:
            op = operators.get(name, name)
        elif None in operators:
            op, value = operators[None], text
        else:
            raise ConstraintSyntaxError(f'Missing required operator in "{text}"')
        bad = re.search(r"[^\w.+@-]", op)
        if bad:
            raise ConstraintSyntaxError(f"invalid character '{bad.group()}' in operator '{op}:'")
        separator = self.syntax.split.get(op)
        return {op: value.split(separator) if separator else [value]}
