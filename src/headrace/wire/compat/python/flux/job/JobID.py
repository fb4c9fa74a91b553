"""Job ids: integers whose text form is f58."""

from __future__ import annotations

from typing import Any, Union

from headrace.formats.spec import jobid

jobid.follow_locale()


class JobID(int):
    """A job id, from any of its text forms or from a number."""

    orig: str

    def __new__(cls, value: Union[int, str]) -> JobID:
        number = jobid.parse(value) if isinstance(value, str) else int(value)
        self = super().__new__(cls, number)
        self.orig = value.orig if isinstance(value, JobID) else str(value)
        return self

    def encode(self, encoding: str = "dec") -> str:
        return jobid.encode(int(self), encoding)

    @property
    def dec(self) -> str:
        return str(int(self))

    @property
    def f58(self) -> str:
        return jobid.encode(int(self))

    @property
    def f58plain(self) -> str:
        return jobid.encode(int(self), "f58plain")

    @property
    def hex(self) -> str:
        return jobid.encode(int(self), "hex")

    @property
    def dothex(self) -> str:
        return jobid.encode(int(self), "dothex")

    @property
    def words(self) -> str:
        return jobid.encode(int(self), "words")

    @property
    def emoji(self) -> str:
        return jobid.encode(int(self), "emoji")

    @property
    def kvs(self) -> str:
        return jobid.encode(int(self), "kvs")

    def __str__(self) -> str:
        return self.f58

    def __repr__(self) -> str:
        return f"JobID({int(self)})"

    def __format__(self, spec: str) -> str:
        return format(self.f58, spec)


def id_parse(jobid_str: str) -> int:
    return int(JobID(jobid_str))


def id_encode(jobid: int, encoding: str = "f58") -> str:
    return JobID(jobid).encode(encoding)


def to_id(value: Any) -> int:
    """The number of a caller's job id in any form."""
    return int(JobID(value)) if isinstance(value, str) else int(value)
