"""Rules for the shell text of a MiniCluster: text that no shell can parse is refused before a pod starts. Pure.

The parts are checked as they are joined in `plan`, because a quote may begin in one part and end in the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.k8s.objects.problems import Problem

from .fields import Commands, Container, MiniCluster
from .mode import Mode
from .plan import initial_program, job_lines, mode_of, one_line
from .shell_quotes import OpenQuote, open_quote

# The path and the text of a field.
_Part = tuple[str, str]
# What the shell expands in an unquoted here-document, and what a backslash protects from that.
_REPLACED = re.compile(r"(?<!\\)(\\\\)*[$`]")
_ESCAPED = re.compile(r"\\(\n|[\\$`])")


def check_shell_texts(cluster: MiniCluster) -> Iterator[Problem]:
    """Problems with quotes that are never closed, in the texts that Headrace's shells run."""
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
    """The texts that run before and after the brokers, of the lead and of followers."""
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
    """The text that the shell of a batch parses; "" if it depends on values of variables."""
    text = container.command if container.batch_raw else "\n".join(line for _, line in job_lines(container.command))
    return "" if _REPLACED.search(text) else _ESCAPED.sub(lambda found: found[1].strip("\n"), text)


def _check_lines(*parts: _Part) -> Iterator[Problem]:
    yield from _check("\n".join(text for _, text in parts), *parts)


def _check(whole: str, *parts: _Part) -> Iterator[Problem]:
    """A problem if `whole` leaves a quote open and one of its parts does so by itself; it names the first of those."""
    if not open_quote(whole):
        return
    for path, text in parts:
        found: OpenQuote | None = open_quote(text)
        if found:
            yield Problem(path, f"is no shell text: {found}")
            return
