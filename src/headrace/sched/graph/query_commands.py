"""The commands of `resource-query`, line by line, without files or terminals: text in, text out.

Sites use Fluxion's `resource-query` to try out graphs and policies. Scripts compare its output byte by byte, so wording
and spacing here are an interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.formats.spec.constraint import ConstraintError
from headrace.formats.spec.constraint import validate as validate_constraint
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.sched.graph import find, jobspec_text, update
from headrace.sched.graph.formats import jgf
from headrace.sched.graph.formats.writers import Writer, pretty_simple, simple
from headrace.sched.graph.formats.writers import jgf as write_jgf
from headrace.sched.graph.labels import labels_of
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.request import JobRequest, Request, has_alternatives
from headrace.sched.graph.scheduler import Scheduler
from headrace.sched.graph.selection import Selection
from headrace.sched.graph.usage import Allocation, SpanConflictError

# Maximum number of files whose requests are cached.
_MAX_REQUESTS = 1000
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
    "without_allocating_extend": "without_allocating_extend",
    "wae": "without_allocating_extend",
}


# The match formats that list vertices, unlike R (RFC 20), which lists resources.
_OF_VERTICES = (simple, pretty_simple, write_jgf)


class _Job(NamedTuple):
    """A job as the commands report it.

    `seconds` is the duration of its match, `file` the file of its jobspec. `inside` are the types of its vertices whose
    contents also count as its own in Fluxion (`_shown_inside`); None for all.
    """

    state: str
    at: int
    file: str
    seconds: float
    inside: frozenset[str] | None = None


class Commands:
    """A graph, its scheduler, and the numbers of the jobs.

    `out` gets results and `err` errors. `say`, if given, gets the answers about jobs, files and commands instead of
    `out`. `open_file` returns a file's text. `version` returns a value that changes with the file, or None if a change
    may go unnoticed. Without `flexible`, requests with alternatives are refused. With `timed`, `say` gets the time of
    each match.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        writer: Writer,
        out: Callable[[str], Any],
        err: Callable[[str], Any],
        open_file: Callable[[str], str],
        say: Callable[[str], Any] | None = None,
        *,
        version: Callable[[str], object] = lambda name: None,
        flexible: bool = True,
        timed: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.graph: Graph = scheduler.graph
        self.writer = writer
        self.out = out
        self.err = err
        self.open_file = open_file
        self.version = version
        # The last request of each file, with the file's version and the graph's generation when it was read.
        self._requests: dict[str, tuple[object, int, JobRequest]] = {}
        self.say = out if say is None else say
        self.flexible = flexible
        self.timed = timed
        self.next_jobid = 1
        self.types = self._types()
        # Every job that got resources, by id.
        self.jobs: dict[int, _Job] = {}
        self.times: list[float] = []

    def run(self, line: str) -> bool:
        """Run one command line; returns False to quit."""
        words = line.split()
        if not words or words[0].startswith("#"):
            return True
        name, arguments = words[0], words[1:]
        if name in ("quit", "q"):
            return False
        command = _COMMANDS.get(name)
        if command is None:
            # Fluxion prints nothing here.
            self.err(f"ERROR: unknown command: {name} (help lists all)\n")
        else:
            command(self, arguments)
        return True

    def _types(self) -> frozenset[str]:
        found = {"slot", "xor_slot", "node", "core", "gpu"}
        return self.graph.types().union(found, *(tree.types() for tree in self.graph.others))

    def _text(self, name: str) -> str | None:
        """The text of a file; None, after an error message, if it cannot be opened."""
        try:
            return self.open_file(name)
        except (OSError, UnicodeDecodeError):
            self.err(f"ERROR: can't open {name}\n")
            return None

    # match

    def match(self, words: list[str]) -> None:
        if len(words) != 2:
            self.err("ERROR: malformed command\n")
        elif words[0] not in _MATCH:
            self.err(f"ERROR: unknown subcmd {words[0]}\n")
        else:
            self._match_file(_MATCH[words[0]], words[1])

    def multi_match(self, words: list[str]) -> None:
        if len(words) < 3:
            self.err("ERROR: malformed command\n")
        elif words[0] not in _MATCH:
            self.err(f"ERROR: unknown subcmd {words[0]}\n")
        else:
            # The first request that gets nothing ends the command.
            all(self._match_file(_MATCH[words[0]], name) for name in words[1:])

    def _match_file(self, operation: str, name: str) -> bool:
        """Match the request in a file; False if it gets nothing."""
        request = self._request(name)
        return True if request is None else self._match(operation, request, name)

    def _request(self, name: str) -> JobRequest | None:
        # The version is read before the text: if the file changes in between, the next call sees another version.
        version, generation = self.version(name), self.scheduler.generation
        known = self._requests.get(name)
        if known is not None and version is not None and known[:2] == (version, generation):
            return known[2]
        text = self._text(name)
        if text is None:
            return None
        try:
            request = jobspec_text.read(text, self.graph)
        except jobspec_text.ERRORS as exc:
            self.err(f"ERROR: {name}: {exc}\n")
            return None
        if len(self._requests) >= _MAX_REQUESTS:
            self._requests.clear()
        self._requests[name] = version, generation, request
        return request

    def _refusal(self, request: JobRequest) -> str | None:
        """Why a request is refused without a match; None if it is accepted."""
        if not self.flexible and has_alternatives(request.resources):
            return "several slots beside each other, or an xor_slot, need the flexible traverser (-T flexible)"
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

    def _match(self, operation: str, request: JobRequest, name: str) -> bool:
        scheduler, jobid, now = self.scheduler, self.next_jobid, 0
        refusal = self._refusal(request)
        if refusal is not None:
            self.err(f"match_allocate: ERROR: Jobspec error for {jobid}: {refusal}\n")
            # As recorded from Fluxion: satisfiable unless a match has shown otherwise, and there was no match.
            if operation == "satisfiability":
                self.out(f"{RULE}INFO: Satisfiable request\n{RULE}")
            else:
                self._print_none(jobid, False)
            return False
        begin = time.perf_counter()
        if operation == "satisfiability":
            outcome = scheduler.satisfiable(request)
            self.out(f"{RULE}INFO: {'Uns' if outcome.unsatisfiable else 'S'}atisfiable request\n{RULE}")
            self._tell_cost(time.perf_counter() - begin)
            return not outcome.unsatisfiable
        if operation in ("allocate", "without_allocating"):
            outcome = scheduler.allocate(jobid, request, now)
        elif operation == "allocate_with_satisfiability":
            outcome = scheduler.allocate(jobid, request, now, check_satisfiable=True)
        else:
            outcome = scheduler.reserve(jobid, request, now)
        seconds = time.perf_counter() - begin
        keep = not operation.startswith("without")
        if keep and outcome.allocation is not None:
            self._note(outcome.allocation, name, seconds, self._shown_inside(request))
        if outcome.allocation is not None:
            found = outcome.allocation
            shown = found
            if self.writer in _OF_VERTICES:
                shown = found._replace(selection=found.selection.without_inside(self._shown_inside(request)))
            shown.selection.labels = labels_of(shown.selection, request)
            if not keep:
                scheduler.cancel(jobid)
            if operation == "without_allocating_extend":
                shown = shown._replace(end=scheduler.free_until(found))
            self._print(shown, None if keep else "MATCHED", seconds)
        else:
            self._print_none(jobid, outcome.unsatisfiable, seconds)
        if keep:
            self.next_jobid += 1
        return outcome.allocation is not None

    def _shown_inside(self, request: JobRequest) -> frozenset[str]:
        """The types whose vertices are shown with their contents.

        These are the types that the request or the policy makes exclusive. The contents of a slot are exclusive, too,
        but Fluxion shows only the requested ones.
        """
        found = set(self.scheduler.policy.whole)
        stack = list(request.resources)
        while stack:
            item = stack.pop()
            stack.extend(item.with_)
            if item.exclusive:
                found.add(item.type)
        return frozenset(found)

    def _tell_cost(self, seconds: float) -> None:
        if self.timed and seconds:
            self.say(f"INFO: ELAPSE={seconds:f}\n")

    def _note(self, allocation: Allocation, name: str, seconds: float, inside: frozenset[str] | None = None) -> None:
        state = "RESERVED" if allocation.reserved else "ALLOCATED"
        self.jobs[allocation.jobid] = _Job(state, allocation.start, name, seconds, inside)
        self.times.append(seconds)

    def _print(self, allocation: Allocation, state: str | None = None, seconds: float = 0.0) -> None:
        if state is None:
            state = "RESERVED" if allocation.reserved else "ALLOCATED"
        at = "Now" if allocation.start == 0 else str(allocation.start)
        # Vertices that a job holds in other hierarchies are not shown; Fluxion does not show them either.
        shown = self.writer(self.graph, allocation) if allocation.selection.graph is self.graph else ""
        self.out(f"{shown}{RULE}INFO: JOBID={allocation.jobid}\nINFO: RESOURCES={state}\nINFO: SCHEDULED AT={at}\n")
        self._tell_cost(seconds)
        self.out(RULE)

    def _print_none(self, jobid: int, unsatisfiable: bool, seconds: float = 0.0) -> None:
        lasting = "INFO: Unsatisfiable request\n" if unsatisfiable else ""
        self.out(f"{RULE}INFO: No matching resources found\n{lasting}INFO: JOBID={jobid}\n")
        self._tell_cost(seconds)
        self.out(RULE)

    # update, cancel

    def update(self, words: list[str]) -> None:
        if len(words) != 6:
            self.err("ERROR: malformed command\n")
            return
        operation, form, name, jobid_text, at_text, duration_text = words
        if operation not in ("allocate", "reserve"):
            self.err(f"ERROR: unknown subcmd {operation}\n")
            return
        if form not in update.FORMATS:
            self.err(f"ERROR: unsupported reader {form}\n")
            return
        text = self._text(name)
        if text is None:
            return
        try:
            jobid, at, duration = int(jobid_text), int(at_text), int(duration_text)
        except ValueError:
            self.err("ERROR: malformed command\n")
            return
        if jobid in self.scheduler.jobs:
            self.err("ERROR: existing Jobid \n")
            return
        if at < 0 or duration <= 0:
            self.err(f"ERROR: invalid time ({at}, {duration})\n")
            return
        begin = time.perf_counter()
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
            self._note(allocation, name, time.perf_counter() - begin)
            self._print(allocation)
        self.next_jobid = max(self.next_jobid, jobid + 1)

    def cancel(self, words: list[str]) -> None:
        if not 1 <= len(words) <= 2 or not words[0].isdecimal():
            self.err("ERROR: malformed command\n")
            return
        jobid = int(words[0])
        if jobid not in self.scheduler.jobs:
            self.err(f"ERROR: nonexistent job {words[0]}\n")
            return
        held = self.scheduler.jobs[jobid].selection
        self.scheduler.cancel(jobid)
        self.jobs[jobid] = self.jobs[jobid]._replace(state="CANCELED")
        if words[1:] == ["stats"]:
            self._tell_given_back("CANCEL", held)

    def _tell_given_back(self, what: str, selection: Selection) -> None:
        """Print the number of released vertices; Fluxion prints the number that it visits for the release."""
        count = len(selection.items)
        self.out(f'{RULE}INFO: {what} PREORDER COUNT="{count}"\nINFO: {what} POSTORDER COUNT="{count}"\n{RULE}')

    def partial_cancel(self, words: list[str]) -> None:
        if not 3 <= len(words) <= 4 or not words[0].isdecimal():
            self.err("ERROR: malformed command\n")
            return
        jobid, form = int(words[0]), words[1]
        if form not in update.FORMATS:
            self.err(f"ERROR: unsupported reader {form}\n")
            return
        text = self._text(words[2])
        if text is None:
            return
        allocation = self.scheduler.jobs.get(jobid)
        if allocation is None:
            self.err(f"ERROR: nonexistent job {jobid}\n")
            return
        if allocation.reserved:
            self.err("ERROR: reservations not currently supported by partial cancel\n")
            return
        try:
            freed = update.freed(self.graph, form, text)
            if form != "rv1exec":
                inside = self.jobs[jobid].inside
                named = allocation.selection if inside is None else allocation.selection.without_inside(inside)
                held = {item.vertex: item.exclusive for item in named.items}
                for item in freed.items:
                    if item.exclusive and not held.get(item.vertex):
                        what = "is shared, not held exclusively," if item.vertex in held else "is not held"
                        raise GraphError(f"{freed.graph.path(item.vertex)}: {what} by job {jobid}")
        except ValueError as exc:
            self.err(f"ERROR: {exc}\nERROR: error encountered while removing job {jobid}\n")
            return
        self.scheduler.release(jobid, freed)
        if words[3:] == ["stats"]:
            self._tell_given_back("PARTIAL CANCEL", freed)
        if jobid not in self.scheduler.jobs:
            self.jobs[jobid] = self.jobs[jobid]._replace(state="CANCELED")

    # the graph itself

    def attach(self, words: list[str]) -> None:
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        text = self._text(words[0])
        if text is None:
            return
        try:
            part = jgf.read(text)
            if part.path(part.root) != self.graph.path(self.graph.root):
                raise GraphError(
                    f"{part.path(part.root)}: is another root of {part.subsystem} beside "
                    f"{self.graph.path(self.graph.root)}"
                )
            self.scheduler.grow(part)
        except GraphError as exc:
            self.err(f"ERROR: can't attach JGF subgraph \nERROR: {exc}\n")
        self.types = self._types()

    def remove(self, words: list[str]) -> None:
        if len(words) != 2:
            self.err("ERROR: malformed command\n")
            return
        target, by_path = words
        if by_path not in ("true", "false"):
            self.err("ERROR: invalid path boolean input \n")
            return
        try:
            if by_path == "true":
                roots = self.graph.find_path(target.rstrip("/"))
                if not roots:
                    raise GraphError(f"{target}: not in the graph")
                lost = self.scheduler.prune(roots, take=True)
            else:
                lost = self.scheduler.shrink(Idset.parse(target).bits, take=True)
            for jobid in lost.ended:
                self.jobs[jobid] = self.jobs[jobid]._replace(state="CANCELED")
        except IdsetError:
            self.err("ERROR: failed to decode ranks.\n")
        except ValueError as exc:
            self.err(f"ERROR: can't remove subgraph \nERROR: {exc}\n")

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
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        jobid = int(words[0]) if words[0].isdecimal() else 0
        if jobid in self.jobs:
            self._print_job(jobid)
        else:
            self.say(f"ERROR: jobid doesn't exist: {words[0]}\n")

    def list_jobs(self, words: list[str]) -> None:
        for jobid in sorted(self.jobs):
            self._print_job(jobid)

    def _print_job(self, jobid: int) -> None:
        state, at, name, seconds, _ = self.jobs[jobid]
        self.say(f"INFO: {jobid}, {state}, {at}, {name}, {seconds:g}\n")

    def stat(self, words: list[str]) -> None:
        if words:
            self.err("ERROR: malformed command\n")
            return
        times = self.times or [0.0]
        self.say(
            f"INFO: Num. of Jobs Matched: {len(self.jobs)}\nINFO: Min. Match Time: {min(times):g}\n"
            f"INFO: Max. Match Time: {max(times):g}\nINFO: Avg. Match Time: {sum(times) / len(times):g}\n"
        )

    def cat(self, words: list[str]) -> None:
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        text = self._text(words[0])
        if text is not None:
            end = "" if text.endswith("\n") or not text else "\n"
            self.say(f"{text}{end}INFO: Jobspec in {words[0]}\n")

    def set_property(self, words: list[str]) -> None:
        usage = "Incorrect input format. \nPlease use `set-property <resource> PROPERTY=VALUE`.\n"
        if len(words) != 2:
            self.err("ERROR: malformed command\n")
            return
        path, setting = words
        vertices = self.graph.find_path(path)
        key, _, value = setting.partition("=")
        if not (key and value):
            self.out(usage)
        elif not vertices:
            self.out(f"Couldn't find path {path} in resource graph.\n")
        else:
            for v in vertices:
                self.scheduler.set_property(v, key, value)

    def get_property(self, words: list[str]) -> None:
        if len(words) != 1:
            self.err("ERROR: malformed command\n")
            return
        vertices = self.graph.find_path(words[0])
        if not vertices:
            self.out(f"Could not find path {words[0]} in resource graph.\n")
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
        found = [c for c in _LIST if len(words) != 1 or words[0] in (c.name, c.short)]
        for name, short, _, note in found:
            self.say(f"INFO: {name} ({short}) -- {note}\n")
        if not found:
            self.say(f"ERROR: unknown command: {words[0]}\n")


class _Command(NamedTuple):
    name: str
    short: str
    run: Callable[[Commands, list[str]], None]
    note: str


_KINDS = "SUBCOMMAND: allocate, allocate_with_satisfiability, allocate_orelse_reserve, satisfiability"
_LIST = (
    _Command(
        "match", "m", Commands.match, f"allocate the requested resources to a job: match SUBCOMMAND JOBSPEC ({_KINDS})"
    ),
    _Command(
        "multi-match", "M", Commands.multi_match, "the same for several: multi-match SUBCOMMAND JOBSPEC JOBSPEC..."
    ),
    _Command(
        "update",
        "u",
        Commands.update,
        "enter the resources of a job: update allocate|reserve jgf|jgf_shorthand|rv1exec FILE ID START SECONDS",
    ),
    _Command("attach", "j", Commands.attach, "add nodes to the graph: attach JGF"),
    _Command("remove", "r", Commands.remove, "take them out, also from jobs: remove PATH true, or remove RANKS false"),
    _Command("find", "f", Commands.find, "list what matches: find status=up and sched-now=free and property=KEY ..."),
    _Command("cancel", "c", Commands.cancel, "free all that a job holds: cancel ID [stats]"),
    _Command(
        "partial-cancel",
        "pc",
        Commands.partial_cancel,
        "free some of it: partial-cancel ID jgf|jgf_shorthand|rv1exec FILE [stats]",
    ),
    _Command("set-property", "p", Commands.set_property, "set-property PATH KEY=VALUE"),
    _Command("get-property", "g", Commands.get_property, "show all properties: get-property PATH"),
    _Command("set-status", "t", Commands.set_status, "set-status PATH up|down"),
    _Command("get-status", "e", Commands.get_status, "get-status PATH"),
    _Command("list", "l", Commands.list_jobs, "show all jobs: list"),
    _Command("info", "i", Commands.info, "show a job: info ID"),
    _Command("stat", "s", Commands.stat, "show how many matches there were and how long they took: stat"),
    _Command("cat", "a", Commands.cat, "show a file: cat JOBSPEC"),
    _Command("help", "h", Commands.help, "show commands: help [COMMAND]"),
    _Command("quit", "q", lambda _engine, _words: None, "end: quit"),
)
_COMMANDS = {word: command.run for command in reversed(_LIST) for word in (command.name, command.short)}
