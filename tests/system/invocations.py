"""Which options of which commands the tests use: every command line in their text, tables and recordings.

A line is read as its command reads it: the operands of a command that runs another program end its options, an
option's value is no option, and `-abc` is three of them. So an option counts only for the command that gets it.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.cli.common.getopts import Command

# Commands whose operands are the command line of another program.
RUNNERS = {"alloc", "batch", "bulksubmit", "env", "exec", "pmi exec", "proxy", "run", "start", "submit"}
# What ends a command in a shell line.
END = re.compile(r"&&|\|\||[;|&\n()`]")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
QUOTES = "'\""
DRIVERS = {"flux", "headrace", "FLUX", "HEADRACE", "{FLUX}"}
# What tests call to run a command, and the command that the words of the call are of.
CALLS = {"flux": [], "start": ["start"], "mini": ["mini"], "proxied": ["proxy"]}


class Options(NamedTuple):
    """A command's options: the long name (or only name) of each spelling, and the spellings that need a value."""

    names: Mapping[str, str]
    valued: frozenset[str]


def of_command(command: Command) -> Options:
    names, valued = {}, set()
    for short, long, metavar, _ in command.options:
        if long != "help":
            for spelling in [f"-{short}"] * bool(short) + [f"--{long}"]:
                names[spelling] = f"--{long}"
                if metavar and not metavar.startswith("["):
                    valued.add(spelling)
    return Options(names, frozenset(valued))


def of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Options]]:
    """(program, options) of a parser and those of its subcommands."""
    names, valued = {}, set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from of_parser(one)
        elif action.dest != "help":
            for spelling in action.option_strings:
                names[spelling] = max(action.option_strings, key=len)
                if action.nargs is None or (isinstance(action.nargs, int) and action.nargs > 0):
                    valued.add(spelling)
    yield parser.prog, Options(names, frozenset(valued))


def used(command: str, words: Sequence[str], options: Options) -> Iterator[str]:
    """The options among the words after a command's name."""
    pos = 0
    while pos < len(words):
        word = words[pos]
        pos += 1
        if word == "--" or (command in RUNNERS and not word.startswith("-")):
            return
        if word.startswith("--"):
            given, equals, _ = word.partition("=")
            near = [given] if given in options.names else [name for name in options.names if name.startswith(given)]
            if len(near) == 1:
                yield options.names[near[0]]
                pos += near[0] in options.valued and not equals
        elif word.startswith("-"):
            for at, letter in enumerate(word[1:], 2):
                name = f"-{letter}"
                if name not in options.names:
                    break
                yield options.names[name]
                if name in options.valued:
                    pos += at == len(word)
                    break


def in_words(words: Sequence[str], known: Mapping[str, Options]) -> Iterator[tuple[str, str]]:
    """(command, option) for the words after `flux`."""
    for count in (3, 2, 1):
        command = " ".join(words[:count])
        if len(words) >= count and command in known:
            yield from ((command, option) for option in used(command, words[count:], known[command]))
            # A group's own options may stand before the command: flux pmi -v barrier.
            rest = next((words[at:] for at in range(count, len(words)) if not words[at].startswith("-")), [])
            if rest and f"{command} {rest[0]}" in known:
                yield from in_words([*words[:count], *rest], known)
            return


def in_text(text: str, known: Mapping[str, Options]) -> Iterator[tuple[str, str]]:
    """(command, option) for every `flux` of a shell line."""
    while inner := SUBSTITUTION.search(text):
        yield from in_text(inner[1], known)
        text = text[: inner.start()] + "{}" + text[inner.end() :]
    for part in END.split(text):
        words = part.split()
        for at, word in enumerate(words):
            if word.strip(QUOTES).rpartition("/")[2] in DRIVERS:
                rest = words[at + 1 :]
                if word[0] in QUOTES:
                    # A line for another shell ends with its quote.
                    ends = [end for end, last in enumerate(rest, 1) if last.endswith(word[0])]
                    rest = rest[: ends[0]] if ends else rest
                yield from in_words([one.replace("'", "").replace('"', "") for one in rest], known)


def in_source(text: str, known: Mapping[str, Options]) -> Iterator[tuple[str, str]]:
    """(command, option) for the command lines of a Python source: in its strings, in lists and calls of words.

    Calls are those of a fixture `flux(...)` and of a command's `main([...])`. Docstrings run nothing.
    """
    tree = ast.parse(text)
    families = _families(tree)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)) and id(node) not in silent:
            for string in _strings(node):
                yield from in_text(string, known)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Call)):
            words = _words(node, families)
            for at, word in enumerate(words):
                if word.rpartition("/")[2] in DRIVERS:
                    yield from in_words(words[at + 1 :], known)


def _families(tree: ast.AST) -> dict[str, str]:
    """Name in the text: family of each module of commands that it imports, such as {"bulk": "job"}."""
    return {
        one.asname or one.name: str(node.module).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headrace.cli.")
        for one in node.names
    }


def _words(node: ast.expr, families: dict[str, str]) -> list[str]:
    """The words of a list, or of a call with the command that it calls in front."""
    if not isinstance(node, ast.Call):
        return list(_strings(node))
    words = [word for arg in node.args for word in _strings(arg)]
    if isinstance(node.func, ast.Name) and node.func.id in CALLS:
        # A fixture's first argument may be the environment.
        return ["flux", *CALLS[node.func.id], *words["{}" in words[:1] :]]
    if isinstance(node.func, ast.Name) and node.func.id in DRIVERS:
        # The entry point: headrace(["mini", "manifests"]).
        return [node.func.id, *words]
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        # bulk.cancelall([...]) of the family job, update.main([...])
        module, function = node.func.value.id, node.func.attr.replace("_", "-")
        if function == "main":
            return ["flux", module.replace("_", "-"), *words]
        return ["flux", families.get(module, module), function, *words]
    return words


def _strings(node: ast.expr) -> Iterator[str]:
    """The texts of an expression, in order, with {} for what is computed."""
    if isinstance(node, ast.Constant):
        yield node.value if isinstance(node.value, str) else "{}"
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(value.value) if isinstance(value, ast.Constant) else _name(value) for value in node.values)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from _strings(item)
    elif isinstance(node, ast.Starred):
        yield from _strings(node.value)
    elif isinstance(node, ast.BinOp):
        yield from _strings(node.left)
        yield from _strings(node.right)
    else:
        yield _name(node)


def _name(node: ast.AST) -> str:
    value = node.value if isinstance(node, ast.FormattedValue) else node
    return value.id if isinstance(value, ast.Name) and value.id in DRIVERS else "{}"
