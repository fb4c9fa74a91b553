"""The data of one job in the KVS and in the job-info service."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional

from flux.future import WaitAllFuture
from flux.job.JobID import JobID, to_id
from flux.kvs import KVSDir
from flux.rpc import RPC

if TYPE_CHECKING:
    from flux.core.handle import Flux

_CURRENT = 2
_OBJECTS = ("jobspec", "R")


def job_kvs(flux_handle: Flux, jobid: Any) -> KVSDir:
    """The job's directory in the KVS."""
    return KVSDir(flux_handle, JobID(jobid).kvs)


def job_kvs_guest(flux_handle: Flux, jobid: Any) -> KVSDir:
    """The directory to which the job itself writes."""
    return KVSDir(flux_handle, JobID(jobid).kvs + ".guest")


class JobInfoLookupRPC(RPC):
    """Entries of a job's directory, with its `id`."""

    jobid: JobID

    def get_decode(self) -> Dict[str, Any]:
        """The entries, with jobspec and R decoded; `get` returns them as text."""
        return _decoded(self.get())


def job_info_lookup(
    flux_handle: Flux, jobid: Any, keys: Iterable[str] = ("jobspec",), flags: int = 0
) -> JobInfoLookupRPC:
    """Entries of the job's directory: jobspec, R, eventlog ...; without `flags`, in their original form."""
    rpc = JobInfoLookupRPC(flux_handle, "job-info.lookup", {"id": to_id(jobid), "keys": list(keys), "flags": flags})
    rpc.jobid = JobID(jobid)
    return rpc


def job_info_update_lookup(flux_handle: Flux, jobid: Any, key: str = "jobspec") -> JobInfoLookupRPC:
    """The job's jobspec or R with updates applied; for another key, the future's error is OSError EINVAL."""
    body: Dict[str, Any] = {"id": to_id(jobid), "key": key, "keys": [key], "flags": _CURRENT}
    # Both services accept a key; the second refuses keys without updates, and returns objects instead of text.
    topic = "job-info.lookup" if key in _OBJECTS else "job-info.update-lookup"
    return JobInfoLookupRPC(flux_handle, topic, body)


def job_kvs_lookup(
    flux_handle: Flux,
    jobid: Any,
    keys: Iterable[str] = ("jobspec",),
    decode: bool = True,
    original: bool = False,
    base: bool = False,
) -> Optional[Dict[str, Any]]:
    """Entries of one job with its `id`; None if there is no such job or entry.

    Updates are applied to jobspec and R. `base` omits them, `original` returns the jobspec as it was signed. Jobspec
    and R are objects unless `decode` is False.
    """
    return JobKVSLookup(flux_handle, [jobid], keys, decode, original, base)._one(to_id(jobid))


class JobKVSLookupFuture(WaitAllFuture):
    """Entries of several jobs; `errors` has a line for each job whose lookup failed."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: List[str] = []

    def get(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """The entries that were found; waits for all lookups."""
        self.wait_for()
        found = []
        self.errors.clear()
        for child in self.children:
            try:
                found.append(child.get())
            except OSError as exc:
                missing = exc.errno == errno.ENOENT
                self.errors.append(f"JobID {child.jobid.orig} unknown" if missing else f"rpc: {exc.strerror}")
        return found

    def get_decode(self) -> List[Dict[str, Any]]:
        """Like `get`, with jobspec and R as objects."""
        return [_decoded(answer) for answer in self.get()]


class JobKVSLookup:
    """Entries of several jobs; `data()` requests all of them at once.

    Arguments are those of `job_kvs_lookup`.
    """

    def __init__(
        self,
        flux_handle: Flux,
        ids: Iterable[Any] = (),
        keys: Iterable[str] = ("jobspec",),
        decode: bool = True,
        original: bool = False,
        base: bool = False,
    ) -> None:
        self.handle = flux_handle
        self.ids = [JobID(number) for number in ids]
        self.keys = list(keys)
        self.errors: List[str] = []
        self._decode = decode
        self._original = original
        self._flags = 0 if base or original else _CURRENT

    def data(self) -> List[Dict[str, Any]]:
        """The results in the order of the ids; `errors` has a line for each id without a result."""
        future = self.fetch_data()
        out = [self._answer(answer) for answer in future.get()]
        self.errors = future.errors
        return out

    def fetch_data(self) -> JobKVSLookupFuture:
        """Request the entries and return at once."""
        future = JobKVSLookupFuture()
        for number in self.ids:
            future.push(self._ask(number))
        return future

    def _one(self, number: int) -> Optional[Dict[str, Any]]:
        try:
            return self._answer(self._ask(JobID(number)).get())
        except FileNotFoundError:
            return None

    def _ask(self, number: JobID) -> JobInfoLookupRPC:
        keys = ["J" if key == "jobspec" and self._original else key for key in self.keys]
        return job_info_lookup(self.handle, number, keys, self._flags)

    def _answer(self, answer: Dict[str, Any]) -> Dict[str, Any]:
        out = dict(answer)
        if self._original and "J" in out and "J" not in self.keys:
            out["jobspec"] = _signed_text(out.pop("J"))
        return _decoded(out) if self._decode else out


def _decoded(answer: Dict[str, Any]) -> Dict[str, Any]:
    return {key: json.loads(value) if key in _OBJECTS else value for key, value in answer.items()}


def _signed_text(signed: str) -> str:
    """The jobspec in a signed one (RFC 39)."""
    import base64

    part = signed.split(".")[1]
    return base64.b64decode(part + "=" * (-len(part) % 4)).decode()
