"""`flux multi-prog`: runs the program that a file lists for this task's rank.

With it, the tasks of a job can run different programs.
"""

from __future__ import annotations

import os
import re
import shlex

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.formats.spec.idset import Idset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Mapping, Optional

PREFIX = "flux-multi-prog: ERROR: "

_SUBSTITUTED = re.compile("%[to]")


class Line:
    """A line of the file: number (from 1), ranks (None for `*`, all other ranks) and command."""

    __slots__ = ("command", "number", "ranks")

    def __init__(self, number: int, ranks: Optional[Idset], command: List[str]) -> None:
        self.number = number
        self.ranks = ranks
        self.command = command

    def command_of(self, rank: int) -> List[str]:
        """The command with `%t` replaced by the rank, and `%o` by its index in the line's ranks (0 for `*`)."""
        place = 0 if self.ranks is None else sum(1 for other in self.ranks if other < rank)
        values = {"%t": str(rank), "%o": str(place)}
        return [_SUBSTITUTED.sub(lambda found: values[found.group()], word) for word in self.command]


class Programs:
    """The lines of a file.

    A rank has the command of the first line that contains it, or else of the last `*` line.

    `name` is the file's name in errors. Raises CommandError for a wrong line.
    """

    def __init__(self, name: str, texts: Iterable[str]) -> None:
        self.name = name
        self._named: List[Line] = []
        self._others: Optional[Line] = None
        for number, text in enumerate(texts, 1):
            line = self._read(number, text)
            if line is not None and line.ranks is not None:
                self._named.append(line)
            elif line is not None:
                self._others = line

    def _read(self, number: int, text: str) -> Optional[Line]:
        try:
            words = _words(text)
        except ValueError as exc:
            raise CommandError(f"{self.name}: line {number}: '{text.rstrip()}': {exc}") from None
        if not words:
            return None
        try:
            ranks = None if words[0] == "*" else Idset.parse(words[0])
        except ValueError:
            raise CommandError(f"{self.name}: line {number}: invalid idset: {words[0]}") from None
        if not words[1:]:
            raise CommandError(f"{self.name}: line {number}: no command after {words[0]}")
        return Line(number, ranks, words[1:])

    def line_of(self, rank: int) -> Line:
        """The line for the task of `rank`. Raises CommandError if there is none."""
        for line in self._named:
            if line.ranks is not None and rank in line.ranks:
                return line
        if self._others is None:
            raise CommandError(f"{self.name}: No matching line for rank {rank}")
        return self._others


def _words(text: str) -> List[str]:
    """Split a line into words as Flux does. Raises ValueError.

    Quotes and comments are those of a shell. An unquoted `;`, `|`, `&`, `<`, `>`, `(` or `)` is a separate word, and a
    backslash escapes in single quotes, too.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.escapedquotes = "\"'"
    return list(lexer)


def _parser() -> Parser:
    parser = Parser(
        "flux-multi-prog",
        usage="flux multi-prog [OPTIONS] CONFIG",
        description="Run the program that a file lists for this task",
        epilog="A line of CONFIG has an idset of ranks, or * for all other ranks, and a command. In the command, %t is "
        "replaced by the rank and %o by its index in the ranks of the line.",
    )
    add = parser.add_argument
    add("-n", "--dry-run", metavar="IDS", type=_ranks, help="Print the commands of these ranks, and run nothing")
    add("conf", metavar="CONFIG", help="The file with ranks and their commands")
    return parser


def _ranks(text: str) -> Idset:
    try:
        return Idset.parse(text)
    except ValueError:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"invalid IDset value: '{text}'") from None


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        with open(args.conf, encoding="utf-8", errors="surrogateescape") as file:
            programs = Programs(args.conf, file)
    except OSError as exc:
        raise CommandError(f"{exc.strerror}: '{args.conf}'") from None
    if args.dry_run is not None:
        for rank in args.dry_run:
            words = programs.line_of(rank).command_of(rank)
            print(f"{rank}: {' '.join(shlex.quote(word) for word in words)}")
        return 0
    rank = _own_rank(os.environ)
    line = programs.line_of(rank)
    command = line.command_of(rank)
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        status = 127 if isinstance(exc, FileNotFoundError) else 126
        raise CommandError(f"{args.conf}: line {line.number}: {command[0]}: {exc.strerror}", status) from None
    except ValueError as exc:
        raise CommandError(f"{args.conf}: line {line.number}: {exc}") from None


def _own_rank(environment: Mapping[str, str]) -> int:
    text = environment.get("FLUX_TASK_RANK", "")
    if not (text.isascii() and text.isdigit()):
        raise CommandError("FLUX_TASK_RANK not found or invalid")
    return int(text)
