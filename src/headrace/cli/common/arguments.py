"""Argument parsers and argument types of the commands that Flux writes in Python, on argparse."""

from __future__ import annotations

import argparse
import os
import re
import sys

from headrace.cli.common import suggestions
from headrace.cli.common.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Container, List, NoReturn, Optional, Tuple


_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """An argument parser named `flux-COMMAND` whose help has options and texts in two columns.

    Abbreviated long options are rejected, as in flux-core: an abbreviation breaks when a similar option is added.
    `context` names the source of arguments that are not from the command line; an error shows it instead of the usage.
    """

    context = ""

    def __init__(self, prog: str, usage: Optional[str] = None, error_prog: Optional[str] = None, **kwargs: Any) -> None:
        self._error_prog = error_prog or prog
        self._used = False
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(prog=prog, usage=usage, formatter_class=_Formatter, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Tuple[Any, List[str]]:
        self._used = True
        return super().parse_known_args(args, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own method ignores errors of writing.
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message += self._suggestion(message[len(_UNKNOWN) :])
        if self.context:
            raise CommandError(f"{self.context}: {message}", 2)
        self.print_usage(sys.stderr)
        self.exit(2, f"{self._error_prog}: error: {message}\n")

    def _suggestion(self, words: str) -> str:
        """A hint with options similar to the first unknown one in `words`, "" if there are none."""
        unknown = [word for word in words.split() if word[:2] == "--"]
        name = unknown[0][2:].partition("=")[0] if unknown else ""
        close = suggestions.similar(name, self._long_options()) if name else []
        return f" (did you mean {' or '.join('--' + option for option in close)}?)" if close else ""

    def _long_options(self) -> List[str]:
        """The long options, without hyphens, of this parser and of the subcommand that the command line named."""
        names: List[str] = []
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    names += parser._long_options() if parser._used else []
            elif action.help != argparse.SUPPRESS:
                names += [option[2:] for option in action.option_strings if option[:2] == "--"]
        return names


class BrokerParser(Parser):
    """The parser of `flux start` and `flux broker`.

    Errors, exit statuses and abbreviations are as in the C commands.
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            f"flux {command}",
            usage=f"flux {command} [OPTIONS] [COMMAND...]",
            error_prog=f"flux-{command}",
            allow_abbrev=True,
        )

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message = f"unrecognized option '{message[len(_UNKNOWN) :].split(maxsplit=1)[0]}'"
        hint = f"Try `{self._error_prog} --help' for more information."
        raise CommandError(f"{self._error_prog}: {message}\n{hint}", bare=True)


def subcommands(parser: Parser) -> Callable[..., Parser]:
    """Make the parser require a COMMAND (`args.command`); returns a function that adds one.

    The function takes the subcommand's name, help text and operands, and returns its parser.
    """
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, text: str, *operands: str) -> Parser:
        one = commands.add_parser(name, prog=f"{parser.prog} {name}", description=text, help=text)
        for operand in operands:
            one.add_argument(operand, metavar=operand.upper())
        return one

    return command


class _Formatter(argparse.HelpFormatter):
    """A help formatter with a fixed column for texts.

    argparse makes one for every option, so the terminal's width is determined once, and without importing shutil.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=40, width=_width())


_known_width = 0


def _width() -> int:
    global _known_width
    if not _known_width:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (ValueError, OSError):
            columns = 0
        _known_width = (columns or 80) - 2
    return _known_width


def port(text: str) -> int:
    """Parse a port number. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text[:6]) < 1 << 16):
        raise argparse.ArgumentTypeError(f"'{text}' is not a port (a number from 0 to 65535)")
    return int(text)


def address(text: str) -> str:
    """Check HOST:PORT, or :PORT for all of the machine's addresses.

    An IPv6 address as HOST is in brackets.

    "" is accepted, too. Raises ArgumentTypeError.
    """
    host, colon, number = text.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    if text and (not colon or (":" in host and not is_ipv6)):
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT (try 127.0.0.1:4242, [::1]:4242 or :4242)")
    if text:
        port(number)
    return text


def replicas(text: str) -> int:
    """Parse a number of replicas, 1 or more. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of replicas (1 or more)")
    return int(text)


def between(smallest: int, largest: int) -> Callable[[str], int]:
    """The type of a whole number from `smallest` to `largest`; its errors are ArgumentTypeErrors."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = smallest - 1
        if not smallest <= found <= largest:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {smallest} to {largest}")
        return found

    return number


def object_name(text: str) -> str:
    """Check NAME or KIND/NAME of a Kubernetes object; NAME is a subdomain of RFC 1123.

    KIND/ without a name passes here: the code that knows the kinds rejects it. Raises ArgumentTypeError.
    """
    return text if text.endswith("/") else _named(text, text.rpartition("/")[2])


def optional_name(text: str) -> str:
    """Check the name of a Kubernetes object (a subdomain of RFC 1123), or "" for none.

    Raises ArgumentTypeError.
    """
    return text and _named(text, text)


def _named(text: str, name: str) -> str:
    """Return `text` if `name`, a part of it, is a valid object name. Raises ArgumentTypeError."""
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(name) > 253 or not re.fullmatch(rf"{label}(\.{label})*", name):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid name: use a-z, 0-9, - and ., with a letter or digit at both ends"
        )
    return text


def namespace(text: str) -> str:
    """Check the name of a Kubernetes namespace (a label of RFC 1123). Raises ArgumentTypeError."""
    if len(text) > 63 or not re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid name of a namespace: use at most 63 of a-z, 0-9 and -, with no - at either end"
        )
    return text


def queues_named(texts: List[str], known: Container[str]) -> List[str]:
    """The queues of `--queue=NAME,...`, an option that may be repeated.

    Raises CommandError for an unknown queue.
    """
    names = [name for text in texts for name in text.split(",")]
    for name in names:
        if name not in known:
            raise CommandError(f"No such queue: {name}")
    return names
