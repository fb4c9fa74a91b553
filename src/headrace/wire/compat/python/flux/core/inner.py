"""`flux.core.inner`: the functions of the C bindings that programs use, written in Python.

`ffi.NULL` stands for no handle, no jobspec or no callback. `ffi.new` makes the one-element arrays in which the
functions of `raw` return a number. `raw` has the four functions that convert job states and results (RFC 21, 43) to
names and back.
"""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Union

from headrace.formats.spec.job_state import STATE_MASKS
from headrace.wire.query import job_info

_UNKNOWN = "(unknown)"
_UNKNOWN_SHORT = "?"

_MASKS = {mask: name.upper() for name, mask in STATE_MASKS.items()}


def _new(cdecl: str, init: Any = None) -> List[Any]:
    """An array for `cdecl`, "TYPE [N]" or "TYPE *": N elements or one, each 0 unless `init` has values."""
    length = cdecl.partition("[")[2].rstrip(" ]")
    values = [0] * (int(length) if length else 1)
    given = list(init) if isinstance(init, (list, tuple)) else [] if init is None else [init]
    values[: len(given)] = given
    return values


ffi = SimpleNamespace(NULL=None, new=_new)


def _text(value: Union[str, bytes]) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _name(number: int, fmt: Union[str, bytes, None], long: Mapping[int, str], short: Mapping[int, str]) -> bytes:
    form = _text(fmt or "L")[:1]
    name = short.get(number, _UNKNOWN_SHORT) if form in ("s", "S") else long.get(number, _UNKNOWN)
    return (name.lower() if form in ("s", "l") else name).encode()


def _number(name: Union[str, bytes], out: Any, *tables: Mapping[int, str]) -> int:
    """Store the number of a name, in upper or lower case, in `out[0]`. Raises OSError(EINVAL)."""
    numbers: Dict[str, int] = {known: number for table in tables for number, known in table.items()}
    text = _text(name)
    known = text.upper()
    if known not in numbers or text not in (known, known.lower()):
        raise OSError(errno.EINVAL, f"{os.strerror(errno.EINVAL)}: no such name: {text!r}")
    if out is not None:
        out[0] = numbers[known]
    return 0


def _job_statetostr(state: int, fmt: Union[str, bytes, None] = None) -> bytes:
    """The name of a job state; `fmt` is "L" (RUN), "S" (R), "l" (run) or "s" (r)."""
    return _name(state, fmt, job_info.STATES, job_info.STATES_SINGLE)


def _job_resulttostr(result: int, fmt: Union[str, bytes, None] = None) -> bytes:
    """The name of a job's result; `fmt` as for states."""
    return _name(result, fmt, job_info.RESULTS, job_info.RESULTS_SHORT)


def _job_strtostate(name: Union[str, bytes], out: Any) -> int:
    """Store the number of a state, or of PENDING, RUNNING or ACTIVE, in `out[0]`. Raises OSError(EINVAL)."""
    return _number(name, out, job_info.STATES, job_info.STATES_SINGLE, _MASKS)


def _job_strtoresult(name: Union[str, bytes], out: Any) -> int:
    """Store the number of a result in `out[0]`. Raises OSError(EINVAL)."""
    return _number(name, out, job_info.RESULTS, job_info.RESULTS_SHORT)


raw = SimpleNamespace(
    flux_job_statetostr=_job_statetostr,
    flux_job_resulttostr=_job_resulttostr,
    flux_job_strtostate=_job_strtostate,
    flux_job_strtoresult=_job_strtoresult,
)
