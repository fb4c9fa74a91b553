"""`flux bulksubmit`: submits a job for each combination of arguments, like GNU parallel.

`bulksubmit CMD {} ::: a b ::: 1 2` submits every combination of the lists. `:::+` pairs the elements of a list with
those of the previous one; a shorter list is repeated. `::::` reads a list from files. Replacement strings are `{}`,
`{N}`, their path forms `{./}` `{.//}` `{.%}` `{./%}`, `{.NAME}` for the result of `--define=NAME=CODE`, `{seq}` (from
0), `{seq1}` (from 1) and `{cc}`, which is replaced last.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.submit import options
from headrace.cli.submit.submit import add_bulk, copies_of
from headrace.wire.query import job_options, submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Dict, Iterator, List, Tuple

PREFIX = "flux-bulksubmit: ERROR: "

_REPLACEMENT = re.compile(r"\{(\d*)(?:\.(//|/%|/|%|[A-Za-z_]\w*))?\}|\{(seq1?|cc)\}|(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")
_SEPARATORS = (":::", ":::+", "::::", "::::+")
_PATH_FORMS: Dict[str, Callable[[str], str]] = {
    "/": os.path.basename,
    "//": os.path.dirname,
    "%": lambda path: os.path.splitext(path)[0],
    "/%": lambda path: os.path.splitext(os.path.basename(path))[0],
}
# Options that --dry-run prints with their short name; all others have their long name.
_SHORT = {
    "queue": "-q",
    "ntasks": "-n",
    "nodes": "-N",
    "cores_per_task": "-c",
    "gpus_per_task": "-g",
    "time_limit": "-t",
    "setopt": "-o",
}
_SIZES = ("ntasks", "nodes", "cores_per_task", "gpus_per_task", "time_limit")
# Arguments of the command line as a whole, not of a single job.
_NOT_OF_A_JOB = (
    "command",
    "dry_run",
    "shuffle",
    "sep",
    "define",
    "wait",
    "watch",
    "progress",
    "jps",
    "quiet",
    "verbose",
)


def _parser() -> Parser:
    parser = Parser(
        "flux-bulksubmit",
        usage="flux bulksubmit [OPTIONS...] COMMAND [ARGS...]",
        error_prog="flux bulksubmit",
        description="Submit many jobs",
    )
    # Sizes may have replacement strings, so they are converted to numbers only after replacement.
    options.add_options(parser, "bulksubmit", counts_as_text=True)
    add_bulk(parser)
    parser.add_argument("--shuffle", action="store_true", help="Submit in random order")
    parser.add_argument("--sep", metavar="S", help="Split input from files at S (default: newlines; none: white space)")
    parser.add_argument(
        "--define", metavar="NAME=CODE", action="append", help="Define {.NAME} as a Python expression of the input x"
    )
    options.add_command(parser)
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    command, lists = _split(submission.command_of(args), args)
    combinations = list(enumerate(_combinations(lists)))
    if args.shuffle:
        random.shuffle(combinations)
    definitions = dict(_definition(text) for text in args.define or [])
    given = [word for word in argv if word not in _SEPARATORS]
    filled = _filled(args, command, combinations, definitions)
    if args.dry_run:
        for one in filled:
            print(" ".join(["bulksubmit: submit", *_shown(one), *one.command]))
        return 0
    if not given:
        raise CommandError("job command and arguments are missing")
    from headrace.cli.submit.submitter import Submitter

    return Submitter(args, "flux-bulksubmit").run(_jobs(filled))


def _shown(args: Namespace) -> List[str]:
    """A job's options for --dry-run: sizes first, repeatable options as one list."""
    words = []
    for name in sorted(vars(args), key=_place):
        value = getattr(args, name)
        if name in _NOT_OF_A_JOB or value is None or value is False or (name == "urgency" and value == "default"):
            continue
        option = _option(name)
        words.append(option.rstrip("=") if value is True else f"{option}{value}")
    return words


def _place(name: str) -> int:
    return _SIZES.index(name) if name in _SIZES else len(_SIZES)


def _option(name: str) -> str:
    return _SHORT.get(name, f"--{name.replace('_', '-')}=")


def _split(words: List[str], args: Namespace) -> Tuple[List[str], List[Tuple[bool, List[str]]]]:
    """The command, and the input lists as (True if linked to the previous list, values)."""
    command: List[str] = []
    lists: List[Tuple[bool, List[str]]] = []
    separator = ""
    for word in words:
        if word in _SEPARATORS:
            separator = word
            lists.append((word.endswith("+"), []))
        elif not separator:
            command.append(word)
        elif separator.startswith("::::"):
            lists[-1][1].extend(_lines(word, args.sep))
        else:
            lists[-1][1].append(word)
    if not lists:
        lists.append((False, _lines("-", args.sep)))
    return command or ["{}"], lists


def _lines(path: str, separator: Any) -> List[str]:
    if path == "-":
        text = sys.stdin.read()
    else:
        with open(path, encoding="utf-8") as file:
            try:
                text = file.read()
            except ValueError as exc:
                raise CommandError(f"{path}: {exc}") from None
    if separator is not None and separator.lower() == "none":
        return text.split()
    return [line.rstrip("\n") for line in (text.split(separator) if separator else text.splitlines()) if line.strip()]


def _combinations(lists: List[Tuple[bool, List[str]]]) -> List[List[str]]:
    """All combinations of the lists, the first list varying slowest; linked lists vary together."""
    columns: List[List[List[str]]] = []
    for linked, values in lists:
        if linked and columns:
            columns[-1] = [[*have, value] for have, value in zip(columns[-1], itertools.cycle(values))]
        else:
            columns.append([[value] for value in values])
    result: List[List[str]] = [[]]
    for column in columns:
        result = [have + values for have in result for values in column]
    return result


def _definition(text: str) -> Tuple[str, Any]:
    name, sep, code = text.partition("=")
    if not sep:
        raise CommandError(f"--define: '{text}' is not NAME=CODE")
    try:
        return name, compile(code, f"--define={name}", "eval")
    except SyntaxError as exc:
        raise CommandError(f"--define={text}: {exc.msg}: write a Python expression of x") from None


def _fill(word: str, values: List[str], seq: int, definitions: Dict[str, Any], copies: bool, where: str) -> str:
    """Replace the replacement strings in `word`. With `copies`, `{cc}` is kept for a later replacement.

    Raises CommandError that names `where`, the option or "command" that the word belongs to.
    """

    def replace(match: Any) -> str:
        number, form, name, unknown = match.groups()
        if unknown:
            raise CommandError(f"Replacement key '{unknown}' not found in {where}: '{word}'")
        if name == "cc":
            return "{cc}" if copies else ""
        if name:
            return str(seq + (name == "seq1"))
        index = int(number) if number else 0
        if index >= len(values):
            raise CommandError(f"Invalid replacement {match.group(0)} in {where}: there are only {len(values)} inputs")
        value = values[index]
        if not form:
            return value
        if form in _PATH_FORMS:
            return _PATH_FORMS[form](value)
        if form in definitions:
            try:
                return str(eval(definitions[form], {"x": value, "os": os, "re": re}))
            except Exception as exc:
                raise CommandError(f"--define={form}: {type(exc).__name__}: {exc} (x is {value!r})") from None
        raise CommandError(f"{match.group(0)}: {form} is not defined: use --define={form}=CODE")

    return _REPLACEMENT.sub(replace, word)


def _filled(
    args: Namespace, command: List[str], combinations: List[Tuple[int, List[str]]], definitions: Dict[str, Any]
) -> Iterator[Namespace]:
    """The arguments of each job, with the replacement strings replaced."""
    import copy

    copies = bool(args.cc or args.bcc)
    for seq, values in combinations:
        one = copy.copy(args)
        for name, value in vars(args).items():
            where = _option(name).strip("=")
            if isinstance(value, str):
                setattr(one, name, _fill(value, values, seq, definitions, copies, where))
            elif isinstance(value, list) and name not in ("command", "define"):
                setattr(one, name, [_fill(word, values, seq, definitions, copies, where) for word in value])
        one.command = [_fill(word, values, seq, definitions, copies, "command") for word in command]
        yield one


def _jobs(filled: Iterator[Namespace]) -> Iterator[Tuple[Namespace, Callable[[], Dict[str, Any]]]]:
    numbers = [option.name for option in job_options.OPTIONS if option.kind == job_options.COUNT]
    caller = options.caller()
    for one in filled:
        for name in numbers:
            text = getattr(one, name, None)
            if text is not None:
                try:
                    setattr(one, name, int(text))
                except ValueError:
                    raise CommandError(f"--{name.replace('_', '-')}: invalid int value: '{text}'") from None
        yield from copies_of(one, caller)
