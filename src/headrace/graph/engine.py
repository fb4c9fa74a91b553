"""The commands of `resource-query`, line by line, without files or terminals: text in, text out.

Fluxion's `resource-query` is how sites try out graphs and policies; scripts compare its output byte by byte, so
wording and spacing here are an interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import yaml

from headrace.graph import find, update
from headrace.graph.model import Graph
from headrace.graph.request import JobRequest, Request, RequestError, parse_jobspec
from headrace.graph.scheduler import Outcome, Scheduler
from headrace.graph.usage import Allocation, SpanConflictError
from headrace.graph.writers import Writer
from headrace.spec.constraint import ConstraintError
from headrace.spec.constraint import validate as validate_constraint

RULE = "INFO: =============================\n"

_MATCH = {
    "allocate": "allocate",
    "a": "allocate",
    "allocate_with_satisfiability": "allocate_with_satisfiability",
    "as": "allocate_with_satisfiability",
    "allocate_orelse_reserve": "allocate_orelse_reserve",
    "aor": "allocate_orelse_reserve",
    "satisfiability": "satisfiability",
    "sat": "satisfiability",
    "without_allocating": "without_allocating",
    "wa": "without_allocating",
    "without_allocating_future": "without_allocating_future",
    "waf": "without_allocating_future",
}


class Engine:
    """A graph, its scheduler, and the numbering of jobs.

    `out` takes results, `err` messages; `open_file` gives a file's text.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        writer: Writer,
        out: Callable[[str], Any],
        err: Callable[[str], Any],
        open_file: Callable[[str], str],
        known_types: Iterable[str] = (),
    ) -> None:
        self.scheduler = scheduler
        self.graph: Graph = scheduler.graph
        self.writer = writer
        self.out = out
        self.err = err
        self.open_file = open_file
        self.next_jobid = 1
        self.types = self.graph.types() | frozenset(known_types) | {"slot", "xor_slot", "node", "core", "gpu"}

    def run(self, line: str) -> bool:
        """Run one command line; False when it asks to quit."""
        words = line.split()
        if not words or words[0].startswith("#"):
            return True
        name, arguments = words[0], words[1:]
        if name in ("quit", "q"):
            return False
        command = _COMMANDS.get(name)
        if command is not None:
            command(self, arguments)
        return True

    # match

    def match(self, words: list[str]) -> None:
        if len(words) != 2 or words[0] not in _MATCH:
            self.err("ERROR: malformed command\n")
            return
        operation = _MATCH[words[0]]
        request = self._request(words[1])
        if request is None:
            return
        self._match(operation, request)

    def multi_match(self, words: list[str]) -> None:
        if len(words) < 2 or words[0] not in _MATCH:
            self.err("ERROR: malformed command\n")
            return
        for name in words[1:]:
            self.match([words[0], name])

    def _request(self, name: str) -> JobRequest | None:
        try:
            text = self.open_file(name)
        except OSError:
            self.err(f"ERROR: can't open {name}\n")
            return None
        try:
            return parse_jobspec(_load_yaml(text))
        except (RequestError, yaml.YAMLError, RecursionError) as exc:
            self.err(f"ERROR: {name}: {exc}\n")
            return None

    def _refusal(self, request: JobRequest) -> str | None:
        """Why a request cannot even be tried."""
        stack: list[Request] = list(request.resources)
        while stack:
            item = stack.pop()
            if item.type not in self.types:
                return 'Value of "type" must be a resource type known to fluxion'
            stack.extend(item.with_)
        if request.constraint:
            try:
                validate_constraint(request.constraint)
            except ConstraintError as exc:
                return str(exc)
        return None

    def _match(self, operation: str, request: JobRequest) -> None:
        scheduler, jobid, now = self.scheduler, self.next_jobid, 0
        refusal = self._refusal(request)
        if refusal is not None:
            self.err(f"match_allocate: ERROR: Jobspec error for {jobid}: {refusal}\n")
            if operation == "satisfiability":
                self.out(f"{RULE}INFO: Satisfiable request\n{RULE}")
            else:
                self._print_none(jobid, False)
            return
        if operation == "satisfiability":
            outcome = scheduler.satisfiable(request)
            self.out(f"{RULE}INFO: {'Uns' if outcome.unsatisfiable else 'S'}atisfiable request\n{RULE}")
            return
        if operation in ("allocate", "without_allocating"):
            outcome = scheduler.allocate(jobid, request, now)
        elif operation == "allocate_with_satisfiability":
            outcome = scheduler.allocate(jobid, request, now, check_satisfiable=True)
        else:
            outcome = scheduler.reserve(jobid, request, now)
        keep = not operation.startswith("without")
        if outcome.allocation is not None:
            self._print(outcome.allocation, None if keep else "MATCHED")
            if not keep:
                scheduler.cancel(jobid)
        else:
            self._print_outcome(outcome, jobid)
        if keep:
            self.next_jobid += 1

    def _print(self, allocation: Allocation, state: str | None = None) -> None:
        if state is None:
            state = "RESERVED" if allocation.reserved else "ALLOCATED"
        at = "Now" if allocation.start == 0 else str(allocation.start)
        self.out(
            f"{self.writer(self.graph, allocation)}{RULE}INFO: JOBID={allocation.jobid}\n"
            f"INFO: RESOURCES={state}\nINFO: SCHEDULED AT={at}\n{RULE}"
        )

    def _print_outcome(self, outcome: Outcome, jobid: int) -> None:
        self._print_none(jobid, outcome.unsatisfiable)

    def _print_none(self, jobid: int, unsatisfiable: bool) -> None:
        lasting = "INFO: Unsatisfiable request\n" if unsatisfiable else ""
        self.out(f"{RULE}INFO: No matching resources found\n{lasting}INFO: JOBID={jobid}\n{RULE}")

    # update, cancel

    def update(self, words: list[str]) -> None:
        if len(words) != 6 or words[0] not in ("allocate", "reserve"):
            self.err("ERROR: malformed command\n")
            return
        _, form, name, jobid_text, at_text, duration_text = words
        try:
            jobid, at, duration = int(jobid_text), int(at_text), int(duration_text)
        except ValueError:
            self.err("ERROR: malformed command\n")
            return
        if jobid in self.scheduler.jobs:
            self.err("ERROR: existing Jobid \n")
            return
        try:
            text = self.open_file(name)
        except OSError:
            self.err(f"ERROR: can't open {name}\n")
            return
        try:
            selection = update.read(self.graph, form, text)
            allocation = self.scheduler.add(jobid, selection, at, at + duration, at > 0)
        except SpanConflictError as exc:
            self.err("ERROR: traverser run () returned error \n")
            self.err(f"ERROR: update_vtx_plan: can't add span into {self.graph.name(exc.vertex)}.\n")
            self._print_none(jobid, False)
        except ValueError as exc:
            self.err(f"ERROR: traverser run () returned error \nERROR: {exc}\n")
            self._print_none(jobid, False)
        else:
            self._print(allocation)
        self.next_jobid = max(self.next_jobid, jobid + 1)

    def cancel(self, words: list[str]) -> None:
        try:
            jobid = int(words[0])
            self.scheduler.cancel(jobid)
        except (IndexError, ValueError):
            self.err("ERROR: malformed command\n")
        except KeyError:
            self.err(f"ERROR: nonexistent job {words[0]}\n")

    def partial_cancel(self, words: list[str]) -> None:
        if len(words) != 3:
            self.err("ERROR: malformed command\n")
            return
        try:
            jobid = int(words[0])
            allocation = self.scheduler.jobs[jobid]
            freed = update.read(self.graph, words[1], self.open_file(words[2]))
        except KeyError:
            self.err(f"ERROR: nonexistent job {words[0]}\n")
            return
        except (OSError, ValueError) as exc:
            self.err(f"ERROR: {exc}\n")
            return
        self.scheduler.release(allocation.jobid, freed)

    # queries

    def find(self, words: list[str]) -> None:
        text = " ".join(words)
        try:
            found = find.listing(self.scheduler, text, self.writer, 0)
        except find.ExpressionError as exc:
            self.err(f"ERROR: {exc}\n")
            return
        self.out(found)
        self.out(f'{RULE}INFO: EXPRESSION="{text}"\n{RULE}')

    def info(self, words: list[str]) -> None:
        try:
            allocation = self.scheduler.jobs[int(words[0])]
        except (IndexError, ValueError):
            self.err("ERROR: malformed command\n")
            return
        except KeyError:
            self.err(f"ERROR: jobid doesn't exist: {words[0]}\n")
            return
        state = "RESERVED" if allocation.reserved else "ALLOCATED"
        self.out(f"INFO: {allocation.jobid}, {state}, {allocation.start}, {allocation.end - allocation.start}\n")

    def stat(self, words: list[str]) -> None:
        graph = self.graph
        edges = graph.count - 1 + len(graph.edges)
        self.out(f"INFO: Num. of Vertices: {graph.count}\nINFO: Num. of Edges: {edges}\n")
        self.out(f"INFO: Jobs: {len(self.scheduler.jobs)}\n")

    def set_property(self, words: list[str]) -> None:
        usage = "Incorrect input format. \nPlease use `set-property <resource> PROPERTY=VALUE`.\n"
        if len(words) != 2:
            self.err("ERROR: malformed command\n")
            return
        path, setting = words
        vertices = self.graph.find_path(path)
        key, equals, value = setting.partition("=")
        if not vertices:
            self.out(f"Couldn't find path {path} in resource graph.\n")
        elif not (key and equals and value):
            self.out(usage)
        else:
            for v in vertices:
                self.scheduler.set_property(v, key, value)

    def get_property(self, words: list[str]) -> None:
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        vertices = self.graph.find_path(words[0])
        if not vertices:
            self.out(f"Couldn't find path {words[0]} in resource graph.\n")
        for v in vertices:
            properties = self.graph.properties.get(v)
            if not properties:
                self.out(f"No properties were found for {words[0]} (vtx's uniq_id={self.graph.uniq[v]}).\n")
            else:
                self.out("".join(f"{key}={value}\n" for key, value in sorted(properties.items())))

    def set_status(self, words: list[str]) -> None:
        if len(words) != 2:
            self.err("ERROR: malformed command\n")
            return
        path, status = words
        vertices = self.graph.find_path(path)
        if not vertices:
            self.out(f"Could not find path {path} in resource graph.\n")
        elif status not in ("up", "down"):
            self.err("ERROR: unrecognized status\n")
        else:
            for v in vertices:
                self.scheduler.set_status(v, status == "up")

    def get_status(self, words: list[str]) -> None:
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        vertices = self.graph.find_path(words[0])
        if not vertices:
            self.out(f"Could not find path {words[0]} in resource graph.\n")
        for v in vertices:
            self.out(f"{words[0]} is {'up' if self.graph.up[v] else 'down'}\n")

    def help(self, words: list[str]) -> None:
        self.out("".join(f"{name}\n" for name in sorted(_COMMANDS)))


def _load_yaml(text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.MsgspecError:
            pass
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


_COMMANDS: dict[str, Callable[[Engine, list[str]], None]] = {
    "match": Engine.match,
    "m": Engine.match,
    "multi-match": Engine.multi_match,
    "update": Engine.update,
    "u": Engine.update,
    "cancel": Engine.cancel,
    "c": Engine.cancel,
    "partial-cancel": Engine.partial_cancel,
    "pc": Engine.partial_cancel,
    "find": Engine.find,
    "f": Engine.find,
    "info": Engine.info,
    "i": Engine.info,
    "stat": Engine.stat,
    "s": Engine.stat,
    "set-property": Engine.set_property,
    "p": Engine.set_property,
    "get-property": Engine.get_property,
    "e": Engine.get_property,
    "set-status": Engine.set_status,
    "get-status": Engine.get_status,
    "help": Engine.help,
    "h": Engine.help,
}
