"""The rows of the accounting database: each table as a struct with the types, defaults and bounds of its columns.

The tables are those of flux-accounting (schema 38), so their names, columns and defaults are interface. SQLite accepts
any value in any column, so values are checked here, before they are stored: an error names table, column and value.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Dict, Tuple, Type, Union, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from headrace.sched.accounting.priority import Weights
from headrace.sched.accounting.usage import Decay, ResourceWeights
from headrace.sched.accounting.values import UNLIMITED, Settings

__all__ = [
    "DEFAULT_CONFIG",
    "DEFAULT_WEIGHTS",
    "FACTORS",
    "TABLES",
    "UNKNOWN_USER",
    "Association",
    "Bank",
    "Config",
    "Factor",
    "HalfLife",
    "Job",
    "LastJob",
    "Period",
    "Project",
    "Queue",
    "Value",
    "columns",
    "default",
    "names",
    "value",
]

# The id of a user who has no account on this machine (RFC 12).
UNKNOWN_USER = 4294967295

Value = Union[int, float, str]

_Limit = Annotated[int, Meta(ge=0, le=UNLIMITED)]
_Signed = Annotated[int, Meta(ge=-UNLIMITED, le=UNLIMITED)]
_Flag = Annotated[int, Meta(ge=0, le=1)]
_UserId = Annotated[int, Meta(ge=0, le=UNKNOWN_USER)]
# Seconds since the epoch.
_Time = Annotated[int, Meta(ge=0, le=1 << 53)]
_Amount = Annotated[float, Meta(ge=0.0, le=1e300)]
_Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
_Weight = Annotated[float, Meta(ge=-1e15, le=1e15)]
_Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
# A name that occurs in lists separated by commas.
_Word = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f,\s]*$")]
_Words = Annotated[str, Meta(max_length=65535, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Association(Struct, frozen=True):
    """A user in a bank. `queues` and `projects` are lists separated by commas; no queues means all of them."""

    creation_time: _Time
    username: _Name
    bank: _Name
    default_bank: _Name
    mod_time: _Time = 0
    active: _Flag = 1
    userid: _UserId = 65534
    shares: _Limit = 1
    job_usage: _Amount = 0.0
    fairshare: _Fraction = 0.5
    max_running_jobs: _Limit = 5
    max_active_jobs: _Limit = 7
    max_nodes: _Limit = UNLIMITED
    max_cores: _Limit = UNLIMITED
    queues: _Words = ""
    projects: _Words = "*"
    default_project: _Word = "*"
    max_sched_jobs: _Limit = UNLIMITED


class Bank(Struct, frozen=True):
    """A bank; the parent of the root bank is ""."""

    bank_id: _Limit
    bank: _Name
    shares: _Limit
    active: _Flag = 1
    parent_bank: Annotated[str, Meta(max_length=255)] = ""
    job_usage: _Amount = 0.0
    priority: _Weight = 0.0
    ignore_older_than: _Time = 0


class Queue(Struct, frozen=True):
    """A queue with the limits of each association in it, and of all together. `max_time_per_job` is in minutes."""

    queue: _Word
    min_nodes_per_job: _Limit = 1
    max_nodes_per_job: _Limit = 1
    max_time_per_job: _Limit = 60
    priority: _Signed = 0
    max_running_jobs: _Limit = 100
    max_nodes_per_assoc: _Limit = UNLIMITED
    max_sched_jobs: _Limit = UNLIMITED
    max_sched_nodes_per_assoc: _Limit = UNLIMITED
    max_sched_cores_per_assoc: _Limit = UNLIMITED
    max_nodes: _Limit = UNLIMITED
    max_cores: _Limit = UNLIMITED


class Project(Struct, frozen=True):
    project_id: _Limit
    project: _Word
    usage: _Amount = 0.0


class Factor(Struct, frozen=True):
    """The weight of a term of a job's priority."""

    factor: _Name
    weight: _Signed


class Config(Struct, frozen=True):
    key: _Name
    value: _Words


class Job(Struct, frozen=True):
    """A job that has ended. Times are seconds since the epoch, durations seconds; `id` is the decimal job id."""

    id: _Name
    userid: _UserId
    t_submit: _Amount
    t_run: _Amount
    t_inactive: _Amount
    ranks: str
    R: str
    jobspec: str
    project: str = ""
    bank: str = ""
    requested_duration: _Amount = 0.0
    actual_duration: _Amount = 0.0


class LastJob(Struct, frozen=True):
    """When the last job ended whose usage an association has been charged."""

    username: _Name
    userid: _UserId
    bank: _Name
    last_job_timestamp: _Amount = 0.0


class Period(Struct, frozen=True):
    """An association's usage in a period; period 0 is the present one."""

    username: _Name
    userid: _UserId
    bank: _Name
    period: _Limit
    value: _Amount = 0.0


class HalfLife(Struct, frozen=True):
    """When the present period of a cluster ends."""

    cluster: _Name = "cluster"
    end_half_life_period: _Amount = 0.0


TABLES: Dict[str, Type[Struct]] = {
    "association_table": Association,
    "bank_table": Bank,
    "queue_table": Queue,
    "project_table": Project,
    "priority_factor_weight_table": Factor,
    "config_table": Config,
    "jobs": Job,
    "job_usage_factor_table": LastJob,
    "job_usage_per_association_table": Period,
    "t_half_life_period_table": HalfLife,
}

# The terms of a job's priority and their weights, in the order of listings.
DEFAULT_WEIGHTS: Dict[str, int] = msgspec.structs.asdict(Weights())
FACTORS = tuple(DEFAULT_WEIGHTS)

_DECAY, _RESOURCES = Decay(), ResourceWeights()
# The settings of a new database, in the order of listings. None of them can be deleted.
DEFAULT_CONFIG = {
    "priority_usage_reset_period": f"{_DECAY.priority_usage_reset_period:.0f}",
    "priority_decay_half_life": f"{_DECAY.priority_decay_half_life:.0f}",
    "decay_factor": str(_DECAY.decay_factor),
    **{f"{resource}_weight": str(weight) for resource, weight in msgspec.structs.asdict(_RESOURCES).items()},
    "deny_unknown_queues": "true" if Settings().deny_unknown_queues else "false",
}

# The columns whose place in the table is not that of their fields: fields without a default come first in a struct.
_ORDER = {
    "association_table": ("creation_time", "mod_time", "active", "username", "userid", "bank", "default_bank"),
    "bank_table": ("bank_id", "bank", "active", "parent_bank", "shares"),
}


def columns(table: str) -> Tuple[str, ...]:
    """The columns of a table, in their order."""
    first = _ORDER.get(table, ())
    return first + tuple(name for name in TABLES[table].__struct_fields__ if name not in first)


def default(table: str, column: str) -> Value:
    """The value of a column to which an edit resets it. Raises ValueError for a column without one."""
    struct = TABLES[table]
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__)))
    if column not in defaults:
        raise ValueError(f"{table}: {column} has no default, please specify a value")
    found: Value = defaults[column]
    return found


def value(table: str, column: str, given: Any) -> Value:
    """A value as it is stored in a column; numbers may be given as text.

    Raises ValueError, which names table, column and value, for another type and for a value out of bounds.
    """
    kind = _types(table)[column]
    try:
        found: Value = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"{table}: {column}: {_shown(given)} is not {_described(kind)}") from None
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(f"{table}: {column}: {_shown(given)} is not {_described(kind)}")
    return found


def names(text: str) -> Tuple[str, ...]:
    """The names of a list separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


_known_types: Dict[str, Dict[str, Any]] = {}


def _types(table: str) -> Dict[str, Any]:
    if table not in _known_types:
        _known_types[table] = get_type_hints(TABLES[table], include_extras=True)
    return _known_types[table]


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."


def _described(kind: Any) -> str:
    """What a column takes, for an error."""
    base, *metas = get_args(kind) or (kind,)
    meta = metas[0] if metas else None
    if base is str:
        if kind is _Word:
            return "a name (without spaces and commas)"
        return "a name of 1 to 255 characters" if meta is not None and meta.min_length else "text in one line"
    number = "a whole number" if base is int else "a number"
    return number if meta is None else f"{number} from {meta.ge} to {meta.le}"
