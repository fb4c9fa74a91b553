"""`flux uri`: finds the URI of an instance by job id, process id or another scheduler's job."""

from __future__ import annotations

import os
from argparse import RawDescriptionHelpFormatter

from headrace.cli.common.arguments import Parser
from headrace.wire.query.uri import resolve, to_local, to_remote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-uri: ERROR: "


_SCHEMES = """Supported resolver schemes:
  jobid   a job of this instance, or JOBID/JOBID for a job of that job (the default scheme)
  pid     a process id
  slurm   a Slurm job that runs an instance
  lsf     an LSF job that runs an instance
"""


def _parser() -> Parser:
    parser = Parser("flux-uri", description="Resolve a target to the URI of a Flux instance", epilog=_SCHEMES)
    parser.formatter_class = RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--remote", action="store_true", help="Print the ssh form")
    add("--local", action="store_true", help="Print the local form")
    add("--wait", action="store_true", help="Wait until the job has published its URI")
    add(
        "target",
        metavar="TARGET",
        help="JOBID, JOBID/JOBID, /, .., SCHEME:TARGET or a URI; append ?local or ?remote for that form",
    )
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    uri = resolve(args.target, wait=args.wait, connectable=False)
    if args.remote:
        uri = to_remote(uri)
    elif args.local or os.environ.get("FLUX_URI_RESOLVE_LOCAL"):
        uri = to_local(uri)
    print(uri)
    return 0
