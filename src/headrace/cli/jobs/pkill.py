"""`flux pkill`: cancels jobs whose names match a pattern, or whose ids are in a range."""

from __future__ import annotations

import sys

from headrace.cli.common.arguments import Parser
from headrace.cli.jobs.pgrep import add_selection, matching
from headrace.formats.spec.job_exception import CANCEL, FATAL
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-pkill: ERROR: "


def _parser() -> Parser:
    parser = Parser("flux-pkill", description="Cancel jobs by a pattern of their names or a range of ids")
    parser.add_argument("--wait", action="store_true", help="Wait until the jobs have ended")
    add_selection(parser, "Cancel")
    return parser


def main(argv: List[str]) -> int:
    args = _parser().parse_args(argv)
    handle = Handle()
    found = matching(handle, args, [])
    if not found:
        return 1
    calls = [handle.rpc("job-manager.raise", {"id": job.id, "type": CANCEL, "severity": FATAL}) for job in found]
    canceled = []
    for job, call in zip(found, calls):
        try:
            call.get()
            canceled.append(job.id)
        except OSError as exc:
            sys.stderr.write(f"flux-pkill: ERROR: {job.get('id.f58')}: cancel: {exc.strerror}\n")
    if args.wait:
        _wait(handle, canceled)
    sys.stderr.write(f"flux-pkill: INFO: Canceled {len(canceled)} job{'' if len(canceled) == 1 else 's'}\n")
    return int(len(canceled) < len(found))


def _wait(handle: Handle, ids: List[int]) -> None:
    """Wait until the eventlogs of the jobs end, which is after their last event, `clean`."""
    calls = [handle.stream("job-info.eventlog-watch", {"id": id, "path": "eventlog", "flags": 0}) for id in ids]
    for call in calls:
        for _ in call:
            pass
