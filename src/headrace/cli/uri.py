"""`flux uri`: the URI of an instance, found from a job id, a process id or another scheduler's job."""

from __future__ import annotations

import os
import subprocess

from headrace.cli.arguments import Parser
from headrace.cli.errors import CommandError
from headrace.cli.instances import job_uri, reachable, to_local, to_remote
from headrace.spec import jobid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

PREFIX = "flux-uri: ERROR: "


def _parser() -> Parser:
    parser = Parser("flux-uri", description="Resolve a target to the URI of a Flux instance")
    add = parser.add_argument
    add("--remote", action="store_true", help="Print the ssh form")
    add("--local", action="store_true", help="Print the local form")
    add("--wait", action="store_true", help="Wait until the job has published its URI")
    add("target", metavar="TARGET", help="JOBID, JOBID/JOBID, pid:N, slurm:JOBID or a URI")
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


def resolve(target: str, wait: bool = False, connectable: bool = True) -> str:
    """The URI of a target, in the form to connect to unless told otherwise. Raises CommandError."""
    scheme, colon, rest = target.partition(":")
    if not colon:
        uri = _jobs(target, wait)
    elif scheme in ("local", "ssh"):
        uri = target
    elif scheme == "jobid":
        uri = _jobs(rest, wait)
    elif scheme == "pid":
        uri = _process(rest)
    elif scheme == "slurm":
        uri = _slurm(rest)
    else:
        raise CommandError(f"No plugin for URI scheme {scheme}")
    return reachable(uri) if connectable else uri


def _jobs(path: str, wait: bool) -> str:
    """The URI of the instance that job JOBID runs; JOBID/JOBID goes down through instances."""
    from headrace.client.handle import Handle

    uri = ""
    for text in [part for part in path.split("/") if part]:
        if text == "..":
            uri = Handle(uri or None).attr_get("parent-uri")
            continue
        try:
            job = jobid.parse(text)
        except ValueError:
            raise CommandError(f"{path} is not a valid Flux jobid") from None
        handle = Handle(reachable(uri) if uri else None)
        if wait:
            _wait_for_uri(handle, job, text)
        uri = job_uri(handle, job, text)
    if not uri:
        raise CommandError(f"{path} is not a valid Flux jobid")
    return uri


def _wait_for_uri(handle: Any, job: int, text: str) -> None:
    from headrace.spec.eventlog import decode_line

    call = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0})
    for answer in call:
        event: Any = decode_line(answer["event"])
        if event.name == "memo" and "uri" in event.context:
            return
    raise CommandError(f"{text}: the job ended without publishing a URI")


def _process(text: str) -> str:
    """FLUX_URI of a process; for a broker's own process that of its instance, which its children carry."""
    pid = text.partition("?")[0]
    if not pid.isdigit():
        raise CommandError(f"{text} is not a process id")
    for candidate in [*_children(pid), pid]:
        uri = _environment(candidate, strict=candidate == pid).get("FLUX_URI")
        if uri:
            return uri
    raise CommandError(f"PID {pid} doesn't seem to have a FLUX_URI")


def _environment(pid: str, strict: bool) -> Dict[str, str]:
    path = f"/proc/{pid}/environ"
    try:
        with open(path, "rb") as file:
            entries = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError as exc:
        if not strict:
            return {}
        raise CommandError(f"{exc.strerror}: '{path}'") from None
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def _children(pid: str) -> List[str]:
    """Children of a process that is a broker; none for other processes."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            if "broker" not in file.read():
                return []
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return file.read().split()
    except OSError:
        return []


def _slurm(text: str) -> str:
    """The instance that was started by srun in a Slurm job, found by asking one of its processes."""
    script = "for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ 2>/dev/null | grep ^FLUX_URI= && break; done"
    argv = ["srun", "--overlap", f"--jobid={text}", "-n1", "-N1", "sh", "-c", script]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    except OSError as exc:
        raise CommandError(f"slurm: {exc.strerror}: '{argv[0]}'") from None
    line = done.stdout.decode().strip()
    if not line.startswith("FLUX_URI="):
        raise CommandError(f"Unable to resolve a Flux URI in Slurm job {text}")
    return line[9:]
