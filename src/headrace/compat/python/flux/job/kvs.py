"""The data of one job in the KVS and in the job-info service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional

from flux.job.JobID import to_id
from flux.kvs import KVSDir
from flux.rpc import RPC
from headrace.spec import jobid

if TYPE_CHECKING:
    from flux.core.handle import Flux

_CURRENT = 2
_OBJECTS = ("jobspec", "R")


def job_kvs(flux_handle: Flux, jobid_: Any) -> KVSDir:
    """The job's directory in the KVS."""
    return KVSDir(flux_handle, jobid.encode(to_id(jobid_), "kvs"))


def job_kvs_guest(flux_handle: Flux, jobid_: Any) -> KVSDir:
    """The directory to which the job itself writes."""
    return KVSDir(flux_handle, jobid.encode(to_id(jobid_), "kvs") + ".guest")


class JobInfoLookupRPC(RPC):
    """Entries of a job's directory, with its `id`."""

    def get_decode(self) -> Dict[str, Any]:
        """The entries, with jobspec and R as objects, where `get` returns text."""
        return _decoded(self.get())


def job_info_lookup(flux_handle: Flux, jobid_: Any, keys: Iterable[str] = ("jobspec",)) -> JobInfoLookupRPC:
    """Entries of the job's directory in their original form: jobspec, R, eventlog ..."""
    body = {"id": to_id(jobid_), "keys": list(keys), "flags": 0}
    return JobInfoLookupRPC(flux_handle, "job-info.lookup", body)


def job_info_update_lookup(flux_handle: Flux, jobid_: Any, key: str = "jobspec") -> JobInfoLookupRPC:
    """The job's jobspec or R with updates applied; for another key, the future's error is OSError EINVAL."""
    body: Dict[str, Any] = {"id": to_id(jobid_), "key": key, "keys": [key], "flags": _CURRENT}
    # Both services accept a key; the second refuses keys without updates, and returns objects instead of text.
    topic = "job-info.lookup" if key in _OBJECTS else "job-info.update-lookup"
    return JobInfoLookupRPC(flux_handle, topic, body)


def job_kvs_lookup(
    flux_handle: Flux,
    jobid_: Any,
    keys: Iterable[str] = ("jobspec",),
    decode: bool = True,
    original: bool = False,
    base: bool = False,
) -> Optional[Dict[str, Any]]:
    """Entries of one job with its `id`; None if there is no such job or entry.

    Updates are applied to jobspec and R: `base` omits them, `original` returns the jobspec as it was signed. Both are
    objects unless `decode` is False.
    """
    return JobKVSLookup(flux_handle, [jobid_], keys, decode, original, base)._one(to_id(jobid_))


class JobKVSLookup:
    """Entries of several jobs; `data()` requests all of them at once. Arguments are those of `job_kvs_lookup`."""

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
        self.ids = [to_id(number) for number in ids]
        self.keys = list(keys)
        self.errors: List[str] = []
        self._decode = decode
        self._original = original
        self._flags = 0 if base or original else _CURRENT

    def data(self) -> List[Dict[str, Any]]:
        """The results in the order of the ids; `errors` has a line for each id without a result."""
        out = []
        calls = [(number, self._ask(number)) for number in self.ids]
        for number, call in calls:
            try:
                out.append(self._answer(call.get()))
            except OSError as exc:
                self.errors.append(f"{jobid.encode(number)}: {exc.strerror}")
        return out

    def _one(self, number: int) -> Optional[Dict[str, Any]]:
        try:
            return self._answer(self._ask(number).get())
        except FileNotFoundError:
            return None

    def _ask(self, number: int) -> Any:
        keys = ["J" if key == "jobspec" and self._original else key for key in self.keys]
        return self.handle.rpc("job-info.lookup", {"id": number, "keys": keys, "flags": self._flags})

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
