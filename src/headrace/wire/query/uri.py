"""URIs of instances: their forms, and look-up by job, process, or job of Slurm or LSF."""

from __future__ import annotations

import errno
import os

from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import INACTIVE, PENDING
from headrace.wire.client.transport import is_this_host, split_uri
from headrace.wire.query import QueryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from headrace.wire.client.handle import Handle

# A shell script that prints the FLUX_URI of the first process that has one and whose environment matches %s.
_FIND_URI = (
    "exec 2>/dev/null; for p in /proc/[0-9]*; do e=$(tr '\\0' '\\n' <$p/environ); "
    'echo "$e" | grep -q "%s" && echo "$e" | sed -n "s/^FLUX_URI=//p" | grep . && break; done'
)


def to_local(uri: str) -> str:
    """The local:// form of a broker URI."""
    _, _, path = split_uri(uri)
    return f"local://{path}"


def to_remote(uri: str) -> str:
    """The ssh:// form of a broker URI."""
    scheme, host, path = split_uri(uri)
    return f"ssh://{host or os.uname().nodename}{path}" if scheme == "local" else uri


def reachable(uri: str) -> str:
    """The URI to connect to: the local form if the socket is on this machine, so that ssh is not needed."""
    scheme, host, path = split_uri(uri)
    if scheme == "ssh" and (is_this_host(host) or os.environ.get("FLUX_URI_RESOLVE_LOCAL")) and os.path.exists(path):
        return f"local://{path}"
    return uri


def resolve(target: str, wait: bool = False, connectable: bool = True) -> str:
    """The URI of a target; with `connectable`, in the form to connect to (`reachable`). Raises QueryError."""
    if "://" not in target and target.endswith(("?local", "?remote")):
        target, _, form = target.rpartition("?")
        return {"local": to_local, "remote": to_remote}[form](resolve(target, wait, connectable))
    scheme, colon, rest = target.partition(":")
    if not colon:
        uri = _jobs(target, wait)
    elif scheme in ("local", "ssh") and not os.environ.get("FLUX_URI_RESOLVE_LOCAL"):
        # Even an ssh URI of this host is not changed, because the user asked for ssh.
        return target
    elif scheme in ("local", "ssh"):
        uri = target
    elif scheme == "jobid":
        uri = _jobs(rest, wait)
    elif scheme == "pid":
        uri = _process(rest)
    elif scheme == "slurm":
        uri = _slurm(rest)
    elif scheme == "lsf":
        uri = _lsf(rest)
    else:
        raise QueryError(f"No plugin for URI scheme {scheme}")
    return reachable(uri) if connectable else uri


def _jobs(path: str, wait: bool) -> str:
    """The URI of the instance that the last job on a path of job ids runs.

    `JOBID/JOBID` descends from this instance, `/JOBID` from the root instance. `..` is the enclosing instance, `.` this
    instance.
    """
    from headrace.wire.client.handle import Handle, enclosing

    uri = enclosing("/") if path.startswith("/") else ""
    for text in [part for part in path.split("/") if part]:
        if text in (".", ".."):
            handle = Handle(reachable(uri) if uri else None)
            uri = _parent(handle) if text == ".." else handle.attr_get("local-uri")
            continue
        try:
            job = jobid.parse(text)
        except ValueError:
            raise QueryError(f"{path} is not a valid Flux jobid") from None
        handle = Handle(reachable(uri) if uri else None)
        if not uri and _is_job(handle, job):
            # Inside an instance, the id that the enclosing instance gave it refers to the instance itself.
            uri = to_remote(handle.attr_get("local-uri"))
            continue
        if wait:
            _wait_for_uri(handle, job, text)
        uri = job_uri(handle, job, text)
    if not uri:
        raise QueryError(f"{path} is not a valid Flux jobid")
    return uri


def _is_job(handle: Any, job: int) -> bool:
    """True if the instance is this job of the enclosing instance, and has no job with this id itself."""
    own = _unless_missing(lambda: handle.attr_get("jobid"))
    if own is None or jobid.parse(own) != job:
        return False
    return _unless_missing(handle.rpc("job-list.list-id", {"id": job, "attrs": ["state"]}).get) is None


def _unless_missing(ask: Callable[[], Any]) -> Any:
    """The result of `ask`, None if it fails with ENOENT."""
    try:
        return ask()
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        return None


def _parent(handle: Any) -> str:
    """The URI of the enclosing instance, or of this instance if there is none."""
    return str(_unless_missing(lambda: handle.attr_get("parent-uri")) or handle.attr_get("local-uri"))


def _wait_for_uri(handle: Any, job: int, text: str) -> None:
    from headrace.formats.spec.eventlog import decode_line

    call = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0})
    for answer in call:
        event: Any = decode_line(answer["event"])
        if event.name == "memo" and "uri" in event.context:
            return
    raise QueryError(f"{text}: the job ended without publishing a URI")


def _process(text: str) -> str:
    """The URI of a process's instance: its own socket if it is a broker, otherwise its FLUX_URI."""
    pid = text
    if not pid.isdigit():
        raise QueryError(f"{text} is not a process id")
    if _is_follower(pid):
        # The FLUX_URI in the environment of a broker names the enclosing instance, not the broker's own.
        raise QueryError(f"PID {pid} is a flux-broker and no child found")
    uri = _broker_uri(pid) or _environment(pid).get("FLUX_URI")
    if not uri:
        raise QueryError(f"PID {pid} doesn't seem to have a FLUX_URI")
    return uri


def _is_follower(pid: str) -> bool:
    """True for a broker of a rank other than 0, which has no initial program to find the instance by."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            broker, _, rank = file.read().strip().rpartition("-")
    except OSError:
        return False
    return broker == "flux-broker" and rank.isdigit() and rank != "0"


def _environment(pid: str) -> Dict[str, str]:
    path = f"/proc/{pid}/environ"
    try:
        with open(path, "rb") as file:
            entries = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError as exc:
        raise QueryError(f"{exc.strerror}: '{path}'") from None
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def _broker_uri(pid: str) -> str:
    """The URI of the broker socket on which a process listens, "" if there is none."""
    folder = f"/proc/{pid}/fd"
    inodes = set()
    try:
        for name in os.listdir(folder):
            kind, bracket, inode = os.readlink(f"{folder}/{name}").partition("[")
            if kind == "socket:" and bracket:
                inodes.add(inode[:-1])
        with open("/proc/net/unix") as file:
            for line in file:
                # Num RefCount Protocol Flags Type St Inode Path; the flag 0x10000 is set for a listening socket.
                fields = line.split(None, 7)
                if len(fields) == 8 and fields[6] in inodes and int(fields[3], 16) & 0x10000:
                    path = fields[7].rstrip("\n")
                    if os.path.basename(path).startswith("local"):
                        return f"local://{path}"
    except (OSError, ValueError):
        # The process is another user's, or has ended. The caller gets the error when it reads the environment.
        pass
    return ""


def _slurm(text: str) -> str:
    """The URI of an instance that srun started in a Slurm job, from one of the job's processes.

    The process may be on this or another host.
    """
    for line in _output("scontrol", "listpids", text).splitlines()[1:]:
        pid = line.split()[0]
        try:
            uri = _environment(pid).get("FLUX_URI") if pid.isdigit() and int(pid) > 1 else None
        except QueryError:
            continue
        if uri:
            return to_remote(uri)
    printed = _output("srun", "--overlap", f"--jobid={text}", "-n1", "-N1", "sh", "-c", _FIND_URI % "")
    if not printed.strip() and not _output("squeue", "-h", "-j", text, "-o", "%N").strip():
        raise QueryError(f"unable to query nodelist for Slurm job {text}")
    return _uri_in_output(printed, "Slurm", text)


def _lsf(text: str) -> str:
    """The URI of an instance in an LSF job, from a process of the job on the job's first host."""
    if not text.isdigit():
        raise QueryError(f"{text} is not an LSF job id")
    query = os.environ.get("CSM_ALLOCATION_QUERY", "/opt/ibm/csm/bin/csm_allocation_query")
    _, _, nodes = _output(query, "-j", text).partition("compute_nodes:")
    hosts = [line.split()[1] for line in nodes.splitlines() if line.strip().startswith("- ")]
    if not hosts:
        raise QueryError(f"No compute nodes found for LSF job {text}")
    script = _FIND_URI % f"^LSB_JOBID={text}$"
    return _uri_in_output(_output(os.environ.get("FLUX_SSH", "ssh"), hosts[0], script), "LSF", text)


def _output(*argv: str) -> str:
    """The output of another scheduler's command, "" if the command is missing or fails."""
    import subprocess

    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.decode("utf-8", "replace")


def _uri_in_output(printed: str, scheduler: str, text: str) -> str:
    uri = printed.strip()
    if not uri:
        raise QueryError(f"Unable to resolve a Flux URI in {scheduler} job {text}")
    return to_remote(uri)


def job_uri(handle: Handle, number: int, shown: str) -> str:
    """The URI that running job `number` published. Raises QueryError if the job runs no instance."""
    try:
        job: Any = handle.rpc("job-list.list-id", {"id": number, "attrs": ["state", "annotations"]}).get()["job"]
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise QueryError(f"jobid {shown} not found") from None
        raise
    if job["state"] == INACTIVE:
        raise QueryError(f"jobid {shown} is not running")
    uri = job.get("annotations", {}).get("user", {}).get("uri")
    if not uri:
        if job["state"] & PENDING:
            raise QueryError(f"jobid {shown} has not started")
        raise QueryError(f"{shown}: URI not found")
    return str(uri)
