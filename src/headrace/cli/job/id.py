"""`flux job id`, `flux job last` and `flux job namespace`: prints job ids in different forms."""

from __future__ import annotations

import errno
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.main import parse_id
from headrace.formats.spec import jobid
from headrace.wire.client.transport import own_userid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from headrace.wire.client.handle import Handle

_ID = Command(
    "flux-job id",
    "[OPTIONS] [id ...]",
    "Print job ids in another form",
    (
        (
            "t",
            "to",
            "dec|kvs|hex|dothex|words|f58|f58plain|emoji",
            "The form: dec, hex, dothex, kvs, f58, f58plain, words or emoji",
        ),
    ),
)
_LAST = Command("flux-job last", "[N|SLICE]", "Print the ids of the jobs you submitted last")
_NAMESPACE = Command("flux-job namespace", "[id ...]", "Print the KVS namespace of each job")
_FORMS = ("dec", "kvs", "hex", "dothex", "words", "f58", "f58plain", "emoji")


def _inputs(operands: List[str]) -> List[str]:
    return operands or [line.strip() for line in sys.stdin if line.strip()]


def id(argv: List[str]) -> int:
    options = _ID.parse(argv)
    form = options.get("to", "dec")
    if form not in _FORMS:
        raise CommandError(f"Unknown to={form}")
    for text in _inputs(options.operands):
        try:
            value = jobid.parse(text)
        except ValueError:
            raise CommandError(f"{text}: malformed input") from None
        print(value if form == "dec" else jobid.encode(value, form))
    return 0


def namespace(argv: List[str]) -> int:
    for text in _inputs(_NAMESPACE.parse(argv).operands):
        print(f"job-{parse_id(text)}")
    return 0


def last(argv: List[str]) -> int:
    from headrace.wire.client.handle import Handle

    (text,) = _LAST.parse(argv).need(0, 1) or ["1"]
    if text[:1] != "[":
        if not text.isdigit() or not int(text):
            raise CommandError(f"invalid count '{text}': use a number (1 or more) or a slice such as [0:3]")
        text = f"[:{text}]"
    ids = _history(Handle(), text)
    if not ids:
        raise CommandError("job history is empty")
    sys.stdout.write("".join(f"{jobid.encode(job, 'f58')}\n" for job in ids))
    return 0


def _history(handle: Handle, text: str) -> List[int]:
    """A slice of the user's jobs, newest first.

    It is from the job manager's history, or from job-list if the job manager has no such request.
    """
    try:
        return list(handle.rpc("job-manager.history.get", {"slice": text}).get()["jobs"])
    except OSError as exc:
        if exc.errno != errno.ENOSYS:
            raise
    from headrace.formats.spec import slices
    from headrace.wire.query.listing import Query, list_jobs

    query = Query(count=0)
    query.user(str(own_userid()))
    jobs = sorted([(job["t_submit"], int(job["id"])) for job in list_jobs(handle, query, ["t_submit"])], reverse=True)
    return [job for _, job in jobs][slices.parse(text)]
