"""What the KVS and the job-info service hold of one job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional

from flux.job.ids import to_id
from flux.kvs import KVSDir
from headrace.spec import jobid

if TYPE_CHECKING:
    from flux.core.handle import Flux

_DECODE, _CURRENT = 1, 2
_OBJECTS = ("jobspec", "R")


def job_kvs(flux_handle: Flux, jobid_: Any) -> KVSDir:
    """The job's directory in the KVS."""
    return KVSDir(flux_handle, jobid.encode(to_id(jobid_), "kvs"))


def job_kvs_guest(flux_handle: Flux, jobid_: Any) -> KVSDir:
    """The directory that the job itself writes to."""
    return KVSDir(flux_handle, jobid.encode(to_id(jobid_), "kvs") + ".guest")


def job_info_lookup(flux_handle: Flux, jobid_: Any, keys: Iterable[str] = ("jobspec",)) -> Any:
    """Entries of the job's directory: jobspec, R, eventlog ...; jobspec and R as objects."""
    body = {"id": to_id(jobid_), "keys": list(keys), "flags": _DECODE}
    return flux_handle.rpc("job-info.lookup", body).get()


def job_kvs_lookup(
    flux_handle: Flux,
    jobid_: Any,
    keys: Iterable[str] = ("jobspec",),
    decode: bool = True,
    original: bool = False,
    base: bool = False,
) -> Optional[Dict[str, Any]]:
    """Entries of one job with its `id`, None when there is no such job or entry.

    jobspec and R are as updates have made them: `base` leaves these out, `original` gives the jobspec as it was signed.
    They are objects unless `decode` is False.
    """
    return JobKVSLookup(flux_handle, [jobid_], keys, decode, original, base)._one(to_id(jobid_))


class JobKVSLookup:
    """Entries of several jobs; `data()` asks for all of them together. Arguments as for `job_kvs_lookup`."""

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
        """What was found, in the order of the ids; `errors` has a line for each of the others."""
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
        for key in _OBJECTS if self._decode else ():
            if isinstance(out.get(key), str):
                out[key] = json.loads(out[key])
        return out


def _signed_text(signed: str) -> str:
    """The jobspec in a signed one (RFC 39)."""
    import base64

    part = signed.split(".")[1]
    return base64.b64decode(part + "=" * (-len(part) % 4)).decode()
