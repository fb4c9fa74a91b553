"""`flux uri`: the URI of an instance, found from a job id, a process id or another scheduler's job."""

from __future__ import annotations

import errno
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
    add("target", metavar="TARGET", help="JOBID, JOBID/JOBID, /, .., pid:N, slurm:JOBID or a URI")
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
    """The URI of the instance that job JOBID runs; JOBID/JOBID goes down through instances, `/JOBID` from the root,
    `..` is the enclosing instance and `.` this one."""
    from headrace.client.handle import Handle

    uri = _root() if path.startswith("/") else ""
    for text in [part for part in path.split("/") if part]:
        if text in (".", ".."):
            handle = Handle(reachable(uri) if uri else None)
            uri = _parent(handle) if text == ".." else handle.attr_get("local-uri")
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


def _parent(handle: Any) -> str:
    """The URI of the enclosing instance, this one's where there is none."""
    try:
        return str(handle.attr_get("parent-uri"))
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        return str(handle.attr_get("local-uri"))


def _root() -> str:
    from headrace.client.handle import Handle

    uri = ""
    while True:
        handle = Handle(reachable(uri) if uri else None)
        if _parent(handle) == handle.attr_get("local-uri"):
            return _parent(handle)
        uri = _parent(handle)


def _wait_for_uri(handle: Any, job: int, text: str) -> None:
    from headrace.spec.eventlog import decode_line

    call = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0})
    for answer in call:
        event: Any = decode_line(answer["event"])
        if event.name == "memo" and "uri" in event.context:
            return
    raise CommandError(f"{text}: the job ended without publishing a URI")


def _process(text: str) -> str:
    """The instance of a process: the one it serves if it is a broker, else that of its FLUX_URI."""
    pid = text.partition("?")[0]
    if not pid.isdigit():
        raise CommandError(f"{text} is not a process id")
    uri = _broker_uri(pid) or _environment(pid).get("FLUX_URI")
    if not uri:
        raise CommandError(f"PID {pid} doesn't seem to have a FLUX_URI")
    return uri


def _environment(pid: str) -> Dict[str, str]:
    path = f"/proc/{pid}/environ"
    try:
        with open(path, "rb") as file:
            entries = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError as exc:
        raise CommandError(f"{exc.strerror}: '{path}'") from None
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def _broker_uri(pid: str) -> str:
    """The address of the broker's socket that a process listens on, "" if it does not."""
    folder = f"/proc/{pid}/fd"
    inodes = set()
    try:
        for name in os.listdir(folder):
            kind, bracket, inode = os.readlink(f"{folder}/{name}").partition("[")
            if kind == "socket:" and bracket:
                inodes.add(inode[:-1])
        with open("/proc/net/unix") as file:
            for line in file:
                # Num RefCount Protocol Flags Type St Inode Path; 10000 are the flags of a socket that listens.
                fields = line.split(None, 7)
                if len(fields) == 8 and fields[6] in inodes and int(fields[3], 16) & 0x10000:
                    path = fields[7].rstrip("\n")
                    if os.path.basename(path).startswith("local"):
                        return f"local://{path}"
    except (OSError, ValueError):
        # Another user's process, or one that ended: its environment will say so.
        pass
    return ""


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
