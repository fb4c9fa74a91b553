"""`resource-query`: a graph from a file, commands from standard input, results as output.

Results go to standard output or to a file. This module has only arguments, files and streams; `query_commands` runs the
commands.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from headrace.sched.graph.formats import grug, hwloc, jgf, rv1
from headrace.sched.graph.formats.export import EXPORTS
from headrace.sched.graph.formats.writers import WRITERS
from headrace.sched.graph.holdings import FILTERS
from headrace.sched.graph.model import DOMINANT, Graph, GraphError
from headrace.sched.graph.policies import POLICIES, by_name
from headrace.sched.graph.query_commands import Commands
from headrace.sched.graph.scheduler import Scheduler

_NAME = "headrace-resource-query"
_MOST_RESERVED = 2_000_000
_IB, _BANDWIDTH, _FILES, _POWER, _VIRTUAL = "ibnet", "ibnetbw", "pfs1bw", "power", "virtual1"

# Fluxion's names for sets of hierarchies (`-S`). A match walks the first of a set. As in Fluxion, the others do not
# affect the choice.
SETS: dict[str, tuple[str, ...]] = {
    "CA": (DOMINANT,),
    "IBA": (_IB,),
    "IBBA": (_BANDWIDTH,),
    "PFS1BA": (_FILES,),
    "PA": (_POWER,),
    "C+IBA": (DOMINANT, _IB),
    "C+IBBA": (DOMINANT, _BANDWIDTH),
    "C+PFS1BA": (DOMINANT, _FILES),
    "C+PA": (DOMINANT, _POWER),
    "IB+IBBA": (_IB, _BANDWIDTH),
    "C+P+IBA": (DOMINANT, _POWER, _IB),
    "VA": (_VIRTUAL,),
    "V+PFS1BA": (_VIRTUAL, _FILES),
    "ALL": (DOMINANT, _IB, _BANDWIDTH, _FILES, _POWER),
}
# A file's time stamp has the resolution of the kernel's tick, of which there are at least 100 per second.
_CLOCK_STEP_NS = 20_000_000
_READERS: dict[str, Callable[[str], Graph]] = {
    "grug": grug.read,
    "hwloc": hwloc.read,
    "jgf": jgf.read,
    "jgf_shorthand": jgf.read,
    "rv1exec": rv1.read,
    "rv1exec_force": rv1.read,
}
_OTHERS: dict[str, Callable[[str, str], Graph]] = {"grug": grug.read, "jgf": jgf.read, "jgf_shorthand": jgf.read}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog=_NAME, description="Ask a resource graph what would be given to a job.")
    p.add_argument("-L", "--load-file", required=True, help="the graph")
    p.add_argument(
        "-f", "--load-format", default="grug", choices=sorted(_READERS), help="format of the graph (default grug)"
    )
    p.add_argument(
        "-W",
        "--load-allowlist",
        default="",
        help="of an hwloc graph, the types to load, such as node,socket,core,gpu (default all)",
    )
    p.add_argument(
        "-S",
        "--match-subsystems",
        default="CA",
        help=f"the hierarchies of the graph to use, one of {', '.join(SETS)}: the first of them is walked (default CA)",
    )
    p.add_argument(
        "-P",
        "--match-policy",
        default="first",
        help=f"one of {', '.join(POLICIES)}, or put together, such as 'policy=high node_exclusive=true'",
    )
    p.add_argument(
        "-T",
        "--traverser-type",
        default="simple",
        choices=["simple", "flexible"],
        help="flexible: slots beside each other are alternatives, of which the best is chosen (default simple)",
    )
    p.add_argument("-F", "--match-format", default="simple", choices=sorted(WRITERS))
    p.add_argument(
        "-p",
        "--prune-filters",
        default="ALL:core,ALL:node",
        help="types counted per subtree, such as ALL:core,ALL:gpu (default ALL:core,ALL:node)",
    )
    p.add_argument("-g", "--graph-format", default="dot", choices=sorted(EXPORTS), help="format of -o (default dot)")
    p.add_argument(
        "-o", "--graph-output", default="", help="write the graph to this file, with its format as suffix, at the end"
    )
    p.add_argument("-t", "--test-output", default="", help="write results to this file")
    p.add_argument(
        "-r",
        "--reserve-vtx-vec",
        type=int,
        default=0,
        metavar="SIZE",
        help=f"how many vertices to expect, up to {_MOST_RESERVED}: a hint that is not needed here",
    )
    p.add_argument(
        "-e", "--elapse-time", action="store_true", help="show how large the graph is, and how long each step took"
    )
    p.add_argument("-d", "--disable-prompt", action="store_true", help="do not print a prompt")
    return p


def walked(name: str) -> str:
    """The hierarchy that a match walks for a set (in any case). Raises ValueError listing the sets."""
    found = SETS.get(name) or {known.lower(): of for known, of in SETS.items()}.get(name)
    if found is None:
        raise ValueError(f"subsystems {name!r}: must be one of {', '.join(SETS)}")
    return found[0]


def _filters(text: str) -> list[str]:
    """The counted types, each once. Raises ValueError with the part that names no type."""
    found = []
    for part in text.split(",") if text else ():
        above, _, name = part.rpartition(":")
        if not above or not name:
            raise ValueError(f"prune filter {part!r}: must be TYPE:COUNTED, such as ALL:core")
        if name not in found:
            found.append(name)
    return found or list(FILTERS)


def load(form: str, path: str, subsystem: str = DOMINANT, allow: Sequence[str] = ()) -> Graph:
    """The graph of a file, as the tree of a subsystem. Raises GraphError and OSError.

    `allow` are the types to load, for a format with an allowlist.
    """
    if form == "hwloc" and subsystem == DOMINANT:
        return hwloc.read(Path(path).read_text(), allow)
    if subsystem != DOMINANT and form not in _OTHERS:
        raise GraphError(f"format {form} has no subsystem {subsystem}: only {' and '.join(sorted(_OTHERS))} may")
    text = Path(path).read_text()
    graph = _READERS[form](text) if subsystem == DOMINANT else _OTHERS[form](text, subsystem)
    if form.startswith("jgf"):
        # Fluxion's JGF reader drops units, so none of its answers have them.
        graph.unit.clear()
    return graph


def _version(name: str) -> tuple[int, ...] | None:
    """A value that changes with a file's text.

    None if the file was changed so recently that another change could have the same time stamp.
    """
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return None
    if time.time_ns() - found.st_mtime_ns < _CLOCK_STEP_NS:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _size(graph: Graph, seconds: float) -> str:
    """The lines about a graph's size and load time."""
    vertices = list(graph.vertices())
    ranks = Counter(graph.rank[v] for v in vertices)
    trees = list(graph.hierarchies.values()) or [graph]
    values = {
        "Graph Load Time": f"{seconds:g}",
        "Vertex Count": len(vertices),
        "Edge Count": sum(len(tree.parents(v)) for tree in trees for v in vertices) + len(graph.edges),
        "by_type Key-Value Pairs": len({graph.type[v] for v in vertices}),
        "by_name Key-Value Pairs": len({graph.name(v) for v in vertices}),
        # Vertices with equal paths, such as a GPU that two drivers name, count once.
        "by_path Key-Value Pairs": sum(len(_places(tree, vertices)) for tree in trees),
    }
    lines = [f"{name}: {value}" for name, value in values.items()]
    lines += [f"number of vertices with rank {rank}: {count}" for rank, count in sorted(ranks.items())]
    return "".join(f"INFO: {line}\n" for line in lines)


def _places(tree: Graph, vertices: list[int]) -> set[tuple[int, str]]:
    """The places of vertices in a hierarchy: the parent and the name of each."""
    return {(parent, tree.name(v)) for v in vertices if tree.has(v) for parent in tree.parents(v) or [-1]}


def main(argv: Sequence[str] | None = None, stdin: TextIO = sys.stdin) -> int:
    """Run the command; returns the exit status."""
    args = parser().parse_args(argv)
    try:
        policy = by_name(args.match_policy)
    except ValueError as exc:
        print(f"{_NAME}: match policy: {exc}", file=sys.stderr)
        return 1
    try:
        subsystem = walked(args.match_subsystems)
        filters = _filters(args.prune_filters)
    except ValueError as exc:
        print(f"{_NAME}: {exc}", file=sys.stderr)
        return 1
    if args.load_allowlist and args.load_format != "hwloc":
        # Fluxion's readers of these formats ignore the allowlist as well.
        print(f"{_NAME}: WARN: format {args.load_format} has no allowlist: all types are loaded", file=sys.stderr)
    if not 0 <= args.reserve_vtx_vec <= _MOST_RESERVED:
        print(f"{_NAME}: WARN: out of range specified for --reserve-vtx-vec: {args.reserve_vtx_vec}", file=sys.stderr)
    begin = time.perf_counter()
    try:
        graph = load(args.load_format, args.load_file, subsystem, list(filter(None, args.load_allowlist.split(","))))
    except OSError as exc:
        print(f"{_NAME}: ERROR: can't open {args.load_file}: {exc.strerror}", file=sys.stderr)
        return 1
    except (GraphError, UnicodeDecodeError) as exc:
        detail = f"unpack_rank: error splitting hostname={exc.host}; " if isinstance(exc, rv1.HostError) else str(exc)
        print(
            f"{_NAME}: Runtime error: resource_query_t: ERROR: {detail}\nERROR: error generating resources\n",
            file=sys.stderr,
        )
        return 1
    if args.elapse_time:
        print(_size(graph, time.perf_counter() - begin), end="")
    with contextlib.ExitStack() as stack:
        out: TextIO = stack.enter_context(open(args.test_output, "w")) if args.test_output else sys.stdout
        engine = Commands(
            Scheduler(graph, policy, filters),
            WRITERS[args.match_format],
            out.write,
            sys.stderr.write,
            lambda name: Path(name).read_text(),
            sys.stdout.write,
            version=_version,
            flexible=args.traverser_type == "flexible",
            timed=args.elapse_time,
        )
        prompt = "" if args.disable_prompt or not stdin.isatty() else "resource-query> "
        while True:
            print(prompt, end="", flush=True)
            line = stdin.readline()
            if not line or not engine.run(line):
                break
        if args.graph_output:
            text = EXPORTS[args.graph_format](graph)
            Path(f"{args.graph_output}.{args.graph_format}").write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
