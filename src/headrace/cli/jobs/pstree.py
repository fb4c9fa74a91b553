"""`flux pstree`: shows running jobs as a tree; the jobs of a nested instance are below it."""

from __future__ import annotations

import sys
from shutil import get_terminal_size

from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import job_id
from headrace.cli.jobs.columns import ask_instances, columns, visible
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import RUN
from headrace.wire.client.handle import Handle
from headrace.wire.client.transport import own_userid
from headrace.wire.query import job_info
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_ids, list_jobs
from headrace.wire.query.uri import reachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    from headrace.wire.query.format import Format

PREFIX = "flux-pstree: ERROR: "

_RESOURCES = "".join(
    f" {{instance.resources.{part}.n{kind}:>5}}" for kind in ("nodes", "cores", "gpus") for part in ("all", "allocated")
)
# Columns before the tree, by the name for --details.
DETAILS = {
    "default": "{id.f58:>12} {username:<8.8} {status_abbrev:>2.2} {ntasks:>6h} {nnodes:>6h} {runtime!F:>8h}",
    "resources": "{id.f58:>12}" + _RESOURCES,
    "progress": "{id.f58:>12} {ntasks:>6h} {instance.stats.total:>6} {instance.progress!P:>5} "
    "{instance.utilization!P:>5} {instance.gpu_utilization!P:>5} {runtime!H:>10}",
    "stats": "{id.f58:>12} {instance.stats:^25} {runtime!H:>10}",
}
# Connectors: beside the subtree of a node with further siblings, at such a node, at the last sibling, beside the
# subtree of the last sibling.
_BOX = ("│   ", "├── ", "└── ", "    ")
_COMPACT = ("│ ", "├─", "└─", "  ")
_ASCII = ("|   ", "|-- ", "`-- ", "    ")

_ACTIVE_AND_ENDED = "pending,running,inactive"
# Width of lines if neither COLUMNS nor a terminal gives one.
_WIDTH = 132


class Node:
    """A job in the tree: details, label, nodes below it, and the number of identical jobs."""

    __slots__ = ("below", "count", "details", "label")

    def __init__(self, label: str, details: str = "") -> None:
        self.label = label
        self.details = details
        self.count = 1
        self.below: List[Node] = []

    def add(self, nodes: List[Node], combine: bool) -> None:
        """Add nodes below this one. With `combine`, leaves with the same details and label become one node."""
        alike: Dict[Tuple[str, str], Node] = {}
        for node in nodes:
            first = alike.setdefault((node.details, node.label), node) if combine and not node.below else node
            if first is node:
                self.below.append(node)
            else:
                first.count += 1


def lines_of(node: Node, style: Tuple[str, str, str, str], indent: str = "", connector: str = "") -> Iterator[str]:
    """The lines of a node and its subtree."""
    label = node.label if node.count == 1 else f"{node.count}*[{node.label}]"
    yield f"{node.details}{indent}{connector}{label}"
    past, tee, elbow, blank = style
    # The indentation of the subtree shows whether further siblings of the node follow.
    if connector:
        indent += past if connector == tee else blank
    for one in node.below:
        yield from lines_of(one, style, indent, elbow if one is node.below[-1] else tee)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"'{text}' must be yes or no")
    return text == "yes"


def _parser() -> Parser:
    parser = Parser("flux-pstree", description="Show jobs, and the jobs of nested instances, as a tree")
    add = parser.add_argument
    add("-a", "--all", action="store_true", help="Show jobs in all states")
    add("-c", "--count", metavar="N", type=int, default=1000, help="Show N jobs of each instance (default: 1000)")
    add("-f", "--filter", metavar="STATE|RESULT", help="Show jobs with these states or results (default: running)")
    add("-x", "--extended", action="store_true", help="Print details of each job before the tree")
    add("-l", "--long", action="store_true", help="Do not truncate lines to the width of the terminal")
    add("-L", "--level", metavar="N", type=int, default=999, help="Show N levels of nested instances")
    add("-p", "--parent-ids", action="store_true", help="Show the id in the label of a job that is an instance")
    add("-n", "--no-header", action="store_true", help="Print no header above the details")
    add("-X", "--no-combine", action="store_true", help="Do not combine jobs with the same label")
    add("-o", "--label", metavar="FORMAT", help="The label of a job (default: {name})")
    add("--parent-label", metavar="FORMAT", help="The label of a job that is an instance")
    add("--detail-format", metavar="FORMAT", help="Columns to print before the tree")
    add("-d", "--details", metavar="NAME", help=f"Print these details of each job: {', '.join(DETAILS)}")
    add("-C", "--compact", action="store_true", help="Indent less")
    add("--ascii", action="store_true", help="Draw the tree with ASCII characters")
    add(
        "--skip-root",
        metavar="[yes|no]",
        type=_yes_or_no,
        help="Leave this instance out of the tree (default: yes with details or JOBIDs, otherwise no)",
    )
    add("jobids", metavar="JOBID", type=job_id, nargs="*", help="Show these jobs")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    if args.jobids and (args.all or args.filter or args.count != 1000):
        sys.stderr.write("flux-pstree: WARNING: filtering options ignored with jobid list\n")
    if args.ascii and args.compact:
        raise CommandError("Choose only one of --ascii, --compact")
    tree = _Tree(args)
    skip_root = bool(tree.details or args.jobids) if args.skip_root is None else args.skip_root
    handle = Handle()
    root = Node(".") if skip_root else tree.node_of(_own_job(handle), True)
    tree.fill(root, handle, 0, skip_root, args.jobids)
    style = _COMPACT if args.compact else _ASCII if args.ascii else _BOX
    width = 0 if args.long else get_terminal_size((_WIDTH, 25)).columns
    if tree.details and not args.no_header:
        print(tree.details.header())
    for node in root.below if skip_root else [root]:
        for line in lines_of(node, style):
            print(f"{line[: width - 1]}+" if width and len(line) > width else line)
    return 0


class _Tree:
    """The selection and the display of jobs by the options. Raises CommandError, FormatError, QueryError."""

    def __init__(self, args: Namespace) -> None:
        self.label = columns(args.label or ("{name}:{status_abbrev}" if args.all else "{name}"))
        parents = args.parent_label or args.label or "{name}"
        self.parent_label = columns(f"{{id.f58}} {parents}" if args.parent_ids else parents)
        self.details: Optional[Format] = None
        if args.extended or args.details or args.detail_format:
            name = args.details or "default"
            if name not in DETAILS and not args.detail_format:
                raise CommandError(f"Unknown --details format '{name}'")
            self.details = columns(args.detail_format or DETAILS[name])
        self._names = [*self.label.names, *self.parent_label.names, *(self.details.names if self.details else ())]
        self._attrs = job_info.attributes_for([*self._names, "uri", "state", "userid"])
        self._filter = _ACTIVE_AND_ENDED if args.all else args.filter or "running"
        self._count = args.count
        self._level = args.level
        self._combine = not args.no_combine
        # Reject an invalid filter before any request is sent.
        self._query(self._filter)

    def _query(self, states: str) -> Query:
        query = Query(count=self._count)
        query.user(str(own_userid()))
        query.filter(states)
        return query

    def node_of(self, job: JobInfo, is_parent: bool) -> Node:
        ask_instances(self._names, [job])
        get = visible(job)
        label = (self.parent_label if is_parent else self.label).row(get)
        return Node(label, f"{self.details.row(get)} " if self.details else "")

    def fill(self, node: Node, handle: Handle, level: int, skip_root: bool, ids: List[int]) -> None:
        """Add the jobs of the instance of `handle` below its node; with `ids`, only these jobs."""
        if level > self._level:
            return
        # Without the root, only running jobs are at the top level, because the root would be a running job.
        states = "running" if skip_root and not level else self._filter
        found = _named(handle, ids, self._attrs) if ids else list_jobs(handle, self._query(states), self._attrs)
        now = 0.0
        nodes = []
        for raw in found:
            job = JobInfo(raw, now)
            now = job.now
            uri = job.get("uri") if raw.get("state") == RUN else ""
            one = self.node_of(job, bool(uri))
            if uri:
                self._below(one, uri, level + 1, skip_root)
            nodes.append(one)
        node.add(nodes, self._combine)

    def _below(self, node: Node, uri: str, level: int, skip_root: bool) -> None:
        """Add the jobs of another instance.

        An instance that has ended, or that accepts only its owner, is skipped.
        """
        if level > self._level:
            return
        try:
            handle = Handle(reachable(uri))
        except OSError:
            return
        try:
            self.fill(node, handle, level, skip_root, [])
        except OSError:
            pass
        finally:
            handle.close()


def _named(handle: Handle, ids: List[int], attrs: List[str]) -> Iterator[Dict[str, Any]]:
    """The jobs with these ids. An unknown id is reported on stderr."""
    for wanted, job in zip(ids, list_ids(handle, ids, attrs)):
        if job is None:
            sys.stderr.write(f"JobID {jobid.encode(wanted, 'f58')} unknown\n")
        else:
            yield job.raw


class _Root(JobInfo):
    """An instance that is not a job of another instance; its id is shown as a dot."""

    __slots__ = ()

    def get(self, name: str) -> Any:
        return "." if name.partition(".")[0] == "id" else super().get(name)


def _own_job(handle: Handle) -> JobInfo:
    """This instance as a job: its job in the parent instance, or values from its own attributes."""
    size = int(handle.attr_get("size"))
    ranks = f"0-{size - 1}"
    try:
        number = jobid.parse(handle.attr_get("jobid"))
        with Handle(reachable(handle.attr_get("parent-uri"))) as parent:
            (job,) = list_ids(parent, [number], ["all"])
            if job is not None:
                job.raw["ranks"] = ranks
                return job
    except OSError:
        pass
    uri = handle.attr_get("local-uri")
    raw: Dict[str, Any] = {
        "id": 0,
        "state": RUN,
        "name": ".",
        "ntasks": size,
        "nnodes": size,
        "ranks": ranks,
        "nodelist": handle.attr_get("hostlist"),
        "userid": int(handle.attr_get("security.owner")),
        "annotations": {"user": {"uri": uri}},
    }
    try:
        raw["t_run"] = float(handle.attr_get("broker.starttime"))
    except OSError:
        # The broker has no start time before it is in state RUN.
        pass
    return _Root(raw)
