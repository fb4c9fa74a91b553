"""`flux restore --instance`: adds the keys and jobs of an archive to this instance.

Jobs are sent to the job manager, which continues them. All KVS keys are restored except those that describe this
instance's own resources. Keys that a client had committed in a job's directory are committed there again.
"""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.store.archive_reader import PREFIX, Restore, link, names_of, opened
from headrace.formats.spec import jobid, treeobj
from headrace.formats.spec.requests.jobs import JOB_EXISTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo
    from typing import Any, Dict, List, Optional

    from headrace.cli.common.getopts import Options
    from headrace.cli.store.archive_reader import Tree
    from headrace.wire.client.handle import Handle

# Keys of a job that the job manager stores (RFC 16).
_JOB_KEYS = frozenset({"J", "jobspec", "R", "eventlog", "guest.exec.eventlog", "guest.output", "guest.input"})
# Number of names in the path of a job's directory: `job`, and four for its id.
_DEPTH = 5
# Keys that describe this instance's own nodes.
_OWN = frozenset({"resource.R", "resource.eventlog"})
# Number of jobs, and of their bytes, in one request.
_JOBS, _BYTES = 100, 1 << 20


def restore_instance(handle: Handle, options: Options, path: str) -> int:
    """Restore the archive at `path`; returns 1 if some jobs could not be restored."""
    restore = _Instance(handle, options)
    with opened(path) as tar:
        restore.read(tar)
    return restore.finish()


class _Instance:
    def __init__(self, handle: Handle, options: Options) -> None:
        self._handle = handle
        self._options = options
        self._values = Restore(handle, options)
        self._limit = options.get_size("size-limit", 0)
        self._tree: Tree = {}
        # Other objects in the directories of jobs, by key.
        self._over: Dict[str, Dict[str, Any]] = {}
        self._jobs: List[Dict[str, Any]] = []
        self._size = 0
        self._count = 0
        self._known = 0
        self._wrong = 0

    def read(self, tar: TarFile) -> None:
        for member in tar:
            names = names_of(member.name)
            key = ".".join(names)
            if not names or not (member.isreg() or member.issym()) or key in _OWN:
                continue
            if self._limit and member.size > self._limit:
                print(f"{PREFIX}{key} size {member.size} exceeds {self._limit} limit, skipping", file=sys.stderr)
                continue
            if self._options.has("verbose"):
                print("/".join(names), file=sys.stderr)
            job = _job_of(names)
            rest = ".".join(names[_DEPTH:])
            if job is not None and rest in _JOB_KEYS and member.isreg():
                self._job_value(job, rest, _data(tar, member).decode("utf-8", "surrogateescape"))
                continue
            obj = link(member.linkname) if member.issym() else self._values.value(_data(tar, member))
            if job is not None:
                self._over[key] = obj
            else:
                self._values.put(self._tree, names, obj)

    def _job_value(self, job: int, key: str, text: str) -> None:
        if not self._jobs or self._jobs[-1]["id"] != job:
            if len(self._jobs) >= _JOBS or self._size >= _BYTES:
                self._send(final=False)
            self._jobs.append({"id": job, "data": {}})
        self._jobs[-1]["data"][key] = text
        self._size += len(text)

    def _send(self, final: bool) -> None:
        jobs, self._jobs, self._size = self._jobs, [], 0
        try:
            answer = self._handle.rpc("job-manager.restore", {"jobs": jobs, "final": final}).get()
        except OSError as exc:
            raise CommandError(f"error restoring jobs: {exc.strerror}") from None
        self._count += len(jobs) - len(answer["errors"])
        for id, text in answer["errors"]:
            if text == JOB_EXISTS:
                self._known += 1
            else:
                self._wrong += 1
                print(f"{PREFIX}job {jobid.encode(id)} is not restored: {text}", file=sys.stderr)

    def finish(self) -> int:
        """Store the keys, and then let the jobs continue, because they may read the keys."""
        ops = []
        for name, entry in self._tree.items():
            is_object = isinstance(entry.get("ver"), int)
            obj = entry if is_object else treeobj.dirref(self._values.directory(entry))
            ops.append({"key": name, "flags": 0, "dirent": obj})
        ops += [{"key": key, "flags": 0, "dirent": obj} for key, obj in self._over.items()]
        self._values.settle()
        try:
            if ops:
                self._handle.rpc("kvs.commit", {"namespace": "primary", "flags": 0, "ops": ops}).get()
        except OSError as exc:
            raise CommandError(f"error writing to the KVS: {exc.strerror}") from None
        self._send(final=True)
        if not self._options.has("quiet"):
            known = f", {self._known} already existed" if self._known else ""
            print(f"{PREFIX}restored {self._count} jobs{known}", file=sys.stderr)
        return 1 if self._wrong else 0


def _job_of(names: List[str]) -> Optional[int]:
    if len(names) <= _DEPTH or names[0] != "job":
        return None
    try:
        return jobid.parse(".".join(names[1:_DEPTH]))
    except ValueError:
        return None


def _data(tar: TarFile, member: TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file is not None else b""
