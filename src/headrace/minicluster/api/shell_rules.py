"""Rules for shell text: text that no shell can parse is refused before pods start. Pure.

The parts are checked as they are joined in `plan`, because a quote may begin in one part and end in the next.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from headrace.k8s.objects.problems import Problem

from .fields import Commands, Container, MiniCluster
from .plan import initial_program, job_lines, mode_of, one_line
from .shell_text import Mode

# The path and the text of a field.
_Part = tuple[str, str]
# The expansions in an unquoted here-document, and the characters that a backslash escapes there.
_REPLACED = re.compile(r"(?<!\\)(\\\\)*[$`]")
_ESCAPED = re.compile(r"\\(\n|[\\$`])")
_QUOTES = "'\""
_BEFORE_COMMENT = frozenset(" \t\n;|&()<>")
# Commands after which a shell does not read the following lines.
_ENDS = re.compile(r"\b(exit|exec|return)\b")
_CASE = re.compile(r"\bcase\b")
_SHOWN = 24
# Characters that neither open nor close anything.
_PLAIN = re.compile(r"[^\\'\"$(){}`#<]+")


def check_shell_texts(cluster: MiniCluster) -> Iterator[Problem]:
    """Problems with unclosed quotes in the texts that Headrace's shells run."""
    containers = cluster.spec.containers
    if len(containers) > 1 and sum(one.run_flux for one in containers) != 1:
        return
    for index, one in enumerate(containers):
        path = f"spec.containers[{index}]"
        if one is cluster.runner:
            yield from _check_runner(cluster, path)
        elif not one.no_wrap_entrypoint:
            yield from _check_sidecar(one, path)


def _check_runner(cluster: MiniCluster, path: str) -> Iterator[Problem]:
    runner = cluster.runner
    commands = runner.commands or Commands()
    yield from _check_around(cluster, commands, f"{path}.commands")
    mode = mode_of(cluster)
    if mode is Mode.INTERACTIVE:
        return
    prefix = (f"{path}.commands.prefix", commands.prefix)
    flags = ("spec.flux.optionFlags", cluster.flux.option_flags)
    submit = ("spec.flux.submitCommand", cluster.flux.submit_command)
    command = (f"{path}.command", runner.command)
    program = initial_program(cluster)
    if mode is Mode.LAUNCHER:
        yield from _check(program, prefix, command)
    elif mode is Mode.SUBMIT:
        yield from _check(program, prefix, submit, flags, command)
    else:
        yield from _check(program, prefix)
        yield from _check(flags[1], flags)
        yield from _check(_batch(runner), command)


def _check_around(cluster: MiniCluster, commands: Commands, path: str) -> Iterator[Problem]:
    """Check the texts before and after the brokers, of the lead and of followers."""
    spec = cluster.spec
    first = [(f"{path}.init", commands.init), (f"{path}.pre", commands.pre)]
    lead, worker = (f"{path}.brokerPre", commands.broker_pre), (f"{path}.workerPre", commands.worker_pre)
    last = (f"{path}.post", commands.post)
    found = list(_check_lines(*first, lead, last))
    if not found and (max(spec.size, spec.max_size) > 1 or spec.groups):
        found = list(_check_lines(*first, worker, last))
    yield from found


def _check_sidecar(container: Container, path: str) -> Iterator[Problem]:
    commands = container.commands or Commands()
    before = [(f"{path}.commands.init", commands.init), (f"{path}.commands.servicePre", commands.service_pre)]
    yield from _check_lines(
        *before, (f"{path}.commands.post", commands.post), (f"{path}.command", one_line(container.command))
    )


def _batch(container: Container) -> str:
    """The text that the shell of a batch parses; "" if it depends on the values of variables."""
    text = container.command if container.batch_raw else "\n".join(line for _, line in job_lines(container.command))
    return "" if _REPLACED.search(text) else _ESCAPED.sub(lambda found: found[1].strip("\n"), text)


def _check_lines(*parts: _Part) -> Iterator[Problem]:
    yield from _check("\n".join(text for _, text in parts), *parts)


def _check(joined: str, *parts: _Part) -> Iterator[Problem]:
    """A problem if `joined` leaves a quote open.

    It names the first part that also leaves a quote open by itself.
    """
    if not open_quote(joined):
        return
    for path, text in parts:
        found: OpenQuote | None = open_quote(text)
        if found:
            yield Problem(path, f"is not valid shell text: {found}")
            return


class OpenQuote(NamedTuple):
    """A quote that is never closed: its line (from 1), and the beginning of its text."""

    line: int
    excerpt: str

    def __str__(self) -> str:
        return f"the quote that begins in line {self.line} is never closed: {self.excerpt}"


@functools.lru_cache(maxsize=128)
def open_quote(text: str) -> OpenQuote | None:
    """The quote that `text` leaves open; None if all quotes are closed, or if that cannot be determined.

    Cached, because each reconcile needs it.
    """
    constructs = _open_constructs(text)
    opened = [at for closer, at in constructs if closer in _QUOTES]
    if not opened or ("$(" in text and _CASE.search(text)):
        return None
    if _ENDS.search(text[: text.rfind("\n", 0, opened[0]) + 1]):
        return None
    at = opened[-1]
    line, more, _ = text[at:].partition("\n")
    excerpt = f"{line[:_SHOWN]}..." if more or len(line) > _SHOWN else line
    return OpenQuote(text.count("\n", 0, at) + 1, excerpt)


def _open_constructs(text: str) -> list[tuple[str, int]]:
    """The open constructs at the end of `text`, outermost first, as closing character and position.

    Empty if they cannot be determined.
    """
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        plain = _PLAIN.match(text, at)
        if plain:
            at = plain.end()
            continue
        character, pair = text[at], text[at : at + 2]
        closer = opened[-1][0] if opened else ""
        if character == closer:
            opened.pop()
        elif closer == "'":
            pass
        elif character == "\\":
            at += 1
        elif _is_beyond(text[at : at + 3], closer):
            return []
        elif pair in ("$(", "${"):
            opened.append((")" if pair == "$(" else "}", at))
            at += 1
        elif character == "(" and closer == ")":
            opened.append((")", at))
        elif character == '"' or (character == "'" and closer != '"'):
            opened.append((character, at))
        elif character == "#" and closer in ("", ")") and (at == 0 or text[at - 1] in _BEFORE_COMMENT):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        at += 1
    return opened


def _is_beyond(ahead: str, closer: str) -> bool:
    """Whether `ahead` (three characters) begins with a construct that this parser does not handle.

    Quotes follow other rules in these constructs, or rules that differ between shells.
    """
    if closer != '"' and ahead[:2] in ("<<", "$'"):
        return True
    return ahead[0] == "`" or ahead == "$((" or (closer == "}" and ahead[0] in _QUOTES)
