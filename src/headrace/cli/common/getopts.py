"""Option parsing of the commands that Flux writes in C.

Their errors are a usage on stderr, or `unrecognized option`, and exit status 1.

These commands are called in shell loops and must start quickly, so they do not import argparse. Options may come
between operands (GNU style), unless `stop_early` is set because the rest of the line is another command. A long option
may be abbreviated to a unique prefix, as with getopt_long(3), except in an `ExactCommand`.
"""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

    # (short letter or "", long name, metavar or "" for a flag, help); a metavar in brackets is an optional argument
    OptionTable = Sequence[Tuple[str, str, str, str]]

# Bits by which the unit of a size shifts the number.
_BINARY = {"k": 10, "K": 10, "M": 20, "G": 30}
_HELP = ("h", "help", "", "Print this text and end")


class Options:
    """Parsed options: `values[long]` lists what was given, in order; a flag gives "" each time it occurs."""

    __slots__ = ("operands", "spec", "values")

    def __init__(self, spec: Command) -> None:
        self.spec = spec
        self.values: Dict[str, List[str]] = {}
        self.operands: List[str] = []

    def has(self, name: str) -> bool:
        return name in self.values

    def count(self, name: str) -> int:
        return len(self.values.get(name, ()))

    def get(self, name: str, default: str = "") -> str:
        """The last value given for `name`."""
        given = self.values.get(name)
        return given[-1] if given else default

    def get_list(self, name: str) -> List[str]:
        return self.values.get(name, [])

    def get_int(self, name: str, default: int) -> int:
        """The last value as an integer. Raises CommandError if it is not one."""
        text = self.get(name)
        if not text:
            return default
        try:
            return int(text, 0)
        except ValueError:
            raise CommandError(
                f"Option \"{name}\" requires an integer argument, got '{text}'\n{self.spec.hint()}"
            ) from None

    def get_size(self, name: str, default: int) -> int:
        """The last value as a number of bytes; K, M and G after it stand for powers of 1024.

        Raises CommandError.
        """
        text = self.get(name)
        if not text:
            return default
        digits, factor = (text[:-1], 1 << _BINARY[text[-1]]) if text[-1] in _BINARY else (text, 1)
        if not (digits.isascii() and digits.isdigit()):
            raise CommandError(
                f"Option \"{name}\" requires a size, such as 512, 4K or 2M, got '{text}'\n{self.spec.hint()}"
            )
        return int(digits) * factor

    def need(self, least: int, most: Optional[int] = None) -> List[str]:
        """The operands. Unless there are `least` to `most` of them, print the usage and exit with status 1."""
        if len(self.operands) < least or (most is not None and len(self.operands) > most):
            self.spec.usage_error()
        return self.operands


class Command:
    """A command line: the program's name, the usage line, a line on its purpose, and the options."""

    __slots__ = ("options", "prog", "purpose", "synopsis")
    abbreviations = True

    def __init__(self, prog: str, synopsis: str, purpose: str, options: OptionTable = ()) -> None:
        self.prog = prog
        self.synopsis = synopsis
        self.purpose = purpose
        self.options = (_HELP, *options)

    def usage(self) -> str:
        lines = [f"Usage: {self.prog} {self.synopsis}".rstrip()]
        if self.purpose:
            lines.append(self.purpose)
        for short, name, metavar, text in self.options:
            value = "" if not metavar else f"[={metavar[1:-1]}]" if metavar[0] == "[" else f"={metavar}"
            lines.append(f"  {'-' + short + ',' if short else '   '} {'--' + name + value:<17}  {text}".rstrip())
        return "\n".join(lines) + "\n"

    def hint(self) -> str:
        return f"Try `{self.prog} --help' for more information."

    def usage_error(self) -> NoReturn:
        sys.stderr.write(self.usage())
        raise CommandError("", 1)

    def parse(self, argv: Sequence[str], stop_early: bool = False) -> Options:
        """Split `argv` into options and operands. Raises CommandError; `--help` ends with 0."""
        found = Options(self)
        args = list(argv)
        pos = 0
        while pos < len(args):
            arg = args[pos]
            pos += 1
            if arg == "--":
                found.operands += args[pos:]
                break
            if arg[:2] == "--":
                pos = self._long(found, arg, args, pos)
            elif arg[:1] == "-" and len(arg) > 1:
                pos = self._short(found, arg, args, pos)
            else:
                found.operands.append(arg)
                if stop_early:
                    found.operands += args[pos:]
                    break
        if found.has("help"):
            sys.stderr.write(self.usage())
            raise CommandError("", 0)
        return found

    def _long(self, found: Options, arg: str, args: List[str], pos: int) -> int:
        name, sep, value = arg[2:].partition("=")
        matches = [option for option in self.options if option[1].startswith(name)]
        exact = [option for option in matches if option[1] == name]
        if len(exact or matches) != 1 or not (exact or self.abbreviations):
            self._unrecognized(f"--{name}")
        _, full, metavar, _ = (exact or matches)[0]
        if sep and not metavar:
            raise CommandError(f"{self.prog}: option '--{full}' doesn't allow an argument\n{self.hint()}", bare=True)
        if metavar and not sep and metavar[0] != "[":
            if pos == len(args):
                self._missing(f"--{full}")
            value = args[pos]
            pos += 1
        found.values.setdefault(full, []).append(value)
        return pos

    def _short(self, found: Options, arg: str, args: List[str], pos: int) -> int:
        at = 1
        while at < len(arg):
            letter = arg[at]
            at += 1
            option = next((option for option in self.options if option[0] == letter), None)
            if option is None:
                self._unrecognized(f"-{letter}")
            _, full, metavar, _ = option
            value = ""
            if metavar:
                value = arg[at:]
                at = len(arg)
                if not value and metavar[0] != "[":
                    if pos == len(args):
                        self._missing(f"-{letter}")
                    value = args[pos]
                    pos += 1
            found.values.setdefault(full, []).append(value)
        return pos

    def _unrecognized(self, option: str) -> NoReturn:
        raise CommandError(f"{self.prog}: unrecognized option '{option}'\n{self.hint()}", bare=True)

    def _missing(self, option: str) -> NoReturn:
        raise CommandError(f"{self.prog}: '{option}' missing argument\n{self.hint()}", bare=True)


class ExactCommand(Command):
    """A command whose long options cannot be abbreviated, because in Flux it is not a C program."""

    __slots__ = ()
    abbreviations = False


def dispatch(prog: str, argv: Sequence[str], table: Mapping[str, Tuple[str, object]]) -> Tuple[str, List[str]]:
    """The subcommand in `argv` and its arguments.

    Without a valid one, print the subcommands and exit with status 1.
    """
    if argv and argv[0] in table:
        return argv[0], list(argv[1:])
    asked = bool(argv) and argv[0] in ("-h", "--help")
    out = ""
    if argv and not asked:
        out = (
            f"{prog}: Unknown subcommand: {argv[0]}\n"
            if argv[0][:1] != "-"
            else (f"{prog}: unrecognized option '{argv[0]}'\n")
        )
    elif not argv:
        out = f"{prog}: missing subcommand\n"
    out += f"Usage: {prog} [OPTIONS] COMMAND ARGS...\nCommon commands from {prog}:\n"
    for name, (purpose, _) in table.items():
        if purpose:
            out += f"   {name:<17}  {purpose}\n"
    sys.stderr.write(out)
    raise CommandError("", 0 if asked else 1)
