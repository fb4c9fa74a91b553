"""`flux multi-prog`: become the program that a file names for this task's rank, so that the tasks of a job differ."""

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
    """A line of the file: its number (from 1), its ranks (None for `*`: those that no other line has), its command."""

    __slots__ = ("command", "number", "ranks")

    def __init__(self, number: int, ranks: Optional[Idset], command: List[str]) -> None:
        self.number = number
        self.ranks = ranks
        self.command = command

    def command_of(self, rank: int) -> List[str]:
        """The command with `%t` as the rank and `%o` as its place among the line's ranks (0 on the line of `*`)."""
        place = 0 if self.ranks is None else sum(1 for other in self.ranks if other < rank)
        values = {"%t": str(rank), "%o": str(place)}
        return [_SUBSTITUTED.sub(lambda found: values[found.group()], word) for word in self.command]


class Programs:
    """What a file says: each rank has the command of the first line that names it, else that of the last `*`.

    `name` is what errors call the file. Raises CommandError for a line that cannot be read.
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
        """The line whose command the task of `rank` runs. Raises CommandError where there is none."""
        for line in self._named:
            if line.ranks is not None and rank in line.ranks:
                return line
        if self._others is None:
            raise CommandError(f"{self.name}: No matching line for rank {rank}")
        return self._others


def _words(text: str) -> List[str]:
    """The words of a line as Flux reads them: quotes and comments of a shell; a bare `;`, `|`, `&`, `<`, `>`, `(` or
    `)` is a word of its own, and a backslash escapes within single quotes, too. Raises ValueError."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.escapedquotes = "\"'"
    return list(lexer)


def _parser() -> Parser:
    parser = Parser(
        "flux-multi-prog",
        usage="flux multi-prog [OPTIONS] CONFIG",
        description="Run the program that a file names for this task",
        epilog="A line of CONFIG is an idset of ranks, or * for all others, and a command, in which %t is the rank "
        "and %o its place among the ranks of the line.",
    )
    add = parser.add_argument
    add("-n", "--dry-run", metavar="IDS", type=_ranks, help="Print what each of these ranks would run, and run nothing")
    add("conf", metavar="CONFIG", help="The file that says which ranks run what")
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
