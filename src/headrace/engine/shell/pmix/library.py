"""A ctypes binding of libpmix: the types of `pmix_common.h` and the functions that a server uses.

The ABI is that of libpmix.so.2 since PMIx 4.0. An older library of the same name has different structures and is
refused.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint16,
    c_uint32,
    c_void_p,
)
from typing import Any, NamedTuple

SUCCESS = 0
ERROR = -1
ERR_NOT_FOUND = -46
ERR_NOT_SUPPORTED = -47
OPERATION_SUCCEEDED = -157
RANK_WILDCARD = (1 << 32) - 2
_OLDEST = 4


class PmixError(Exception):
    """libpmix is missing, has the wrong version, or refused a call. The text is the reason."""


class Kind(NamedTuple):
    """A data type of PMIx: its number, and its field in the union of a value."""

    number: int
    field: str


BOOL = Kind(1, "flag")
STRING = Kind(3, "string")
UINT16 = Kind(13, "uint16")
UINT32 = Kind(14, "uint32")
INFO = Kind(24, "")
DATA_ARRAY = Kind(39, "array")
PROC_RANK = Kind(40, "uint32")


class Proc(Structure):
    """pmix_proc_t: a task."""

    _fields_ = [("nspace", c_char * 256), ("rank", c_uint32)]


class DataArray(Structure):
    """pmix_data_array_t."""

    _fields_ = [("type", c_uint16), ("size", c_size_t), ("array", c_void_p)]


class _Data(Union):
    # The longest member is pmix_envar_t: two pointers and a character.
    _fields_ = [
        ("flag", ctypes.c_bool),
        ("string", c_char_p),
        ("size", c_size_t),
        ("uint16", c_uint16),
        ("uint32", c_uint32),
        ("array", POINTER(DataArray)),
        ("_room", c_void_p * 3),
    ]


class Value(Structure):
    """pmix_value_t."""

    _fields_ = [("type", c_uint16), ("data", _Data)]


class Info(Structure):
    """pmix_info_t: an attribute and its value."""

    _fields_ = [("key", c_char * 512), ("flags", c_uint32), ("value", Value)]


class Attribute(NamedTuple):
    """An attribute that is passed to libpmix. The value of a DATA_ARRAY is a list of attributes."""

    key: str
    kind: Kind
    value: Any


RELEASE = CFUNCTYPE(None, c_void_p)
OP_DONE = CFUNCTYPE(None, c_int, c_void_p)
MODEX_DONE = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)
CLIENT = CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_void_p, c_void_p)
CLIENT_CONNECTED = CFUNCTYPE(c_int, POINTER(Proc), c_void_p, POINTER(Info), c_size_t, c_void_p, c_void_p)
ABORT = CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_int, c_char_p, POINTER(Proc), c_size_t, c_void_p, c_void_p)
FENCE = CFUNCTYPE(c_int, POINTER(Proc), c_size_t, POINTER(Info), c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)
DIRECT_MODEX = CFUNCTYPE(c_int, POINTER(Proc), POINTER(Info), c_size_t, c_void_p, c_void_p)
CONNECT = CFUNCTYPE(c_int, POINTER(Proc), c_size_t, POINTER(Info), c_size_t, c_void_p, c_void_p)
MODEX_REQUESTED = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)


class Module(Structure):
    """pmix_server_module_t: the functions that libpmix calls. A null function is not supported."""

    _fields_ = [
        ("client_connected", CLIENT),
        ("client_finalized", CLIENT),
        ("abort", ABORT),
        ("fence_nb", FENCE),
        ("direct_modex", DIRECT_MODEX),
        ("publish", c_void_p),
        ("lookup", c_void_p),
        ("unpublish", c_void_p),
        ("spawn", c_void_p),
        ("connect", CONNECT),
        ("disconnect", CONNECT),
        ("register_events", c_void_p),
        ("deregister_events", c_void_p),
        ("listener", c_void_p),
        ("notify_event", c_void_p),
        ("query", c_void_p),
        ("tool_connected", c_void_p),
        ("log", c_void_p),
        ("allocate", c_void_p),
        ("job_control", c_void_p),
        ("monitor", c_void_p),
        ("get_credential", c_void_p),
        ("validate_credential", c_void_p),
        ("iof_pull", c_void_p),
        ("push_stdin", c_void_p),
        ("group", c_void_p),
        ("fabric", c_void_p),
        ("client_connected2", CLIENT_CONNECTED),
        # Later versions have more functions. They are null: not supported.
        ("_later", c_void_p * 32),
    ]


class Library:
    """The library at `path`. Raises PmixError if it cannot be used."""

    def __init__(self, path: str) -> None:
        try:
            self._lib = ctypes.CDLL(path)
            self._lib.PMIx_Get_version.restype = c_char_p
            self._lib.PMIx_Error_string.restype = c_char_p
        except (OSError, AttributeError) as exc:
            raise PmixError(f"{path} cannot be used: {exc}") from None
        self.version = self._lib.PMIx_Get_version().decode(errors="replace").partition("(")[0].strip()
        number = re.search(r"[0-9]+", self.version)
        if number is None or int(number.group()) < _OLDEST:
            raise PmixError(f"{path} is {self.version}: a server needs version {_OLDEST}.0 or later")
        # Keeps arguments alive, because libpmix copies them, but not at once.
        self._kept: list[Any] = []

    def _check(self, status: int, what: str) -> None:
        if status not in (SUCCESS, OPERATION_SUCCEEDED):
            text = self._lib.PMIx_Error_string(status).decode(errors="replace")
            raise PmixError(f"{what}: {text}")

    def server_init(self, module: Module, attributes: Sequence[Attribute]) -> None:
        infos = self._infos(attributes)
        self._kept.append(module)
        self._check(self._lib.PMIx_server_init(byref(module), infos, c_size_t(len(attributes))), "PMIx_server_init")

    def register_nspace(self, nspace: str, nlocal: int, attributes: Sequence[Attribute]) -> None:
        infos = self._infos(attributes)
        name = nspace.encode()
        self._check(
            self._lib.PMIx_server_register_nspace(name, nlocal, infos, c_size_t(len(attributes)), None, None),
            "PMIx_server_register_nspace",
        )

    def register_client(self, nspace: str, rank: int, uid: int, gid: int) -> None:
        proc = Proc(nspace.encode(), rank)
        self._kept.append(proc)
        self._check(
            self._lib.PMIx_server_register_client(byref(proc), c_uint32(uid), c_uint32(gid), None, None, None),
            "PMIx_server_register_client",
        )

    def fork_environment(self, nspace: str, rank: int) -> dict[str, str]:
        """The variables by which task `rank` finds this server (PMIx_server_setup_fork)."""
        proc, env = Proc(nspace.encode(), rank), POINTER(c_char_p)()
        self._check(self._lib.PMIx_server_setup_fork(byref(proc), byref(env)), "PMIx_server_setup_fork")
        found: dict[str, str] = {}
        index = 0
        while env[index]:
            name, _, value = env[index].decode(errors="replace").partition("=")
            found[name] = value
            index += 1
        return found

    def regex(self, function: str, names: Iterable[str], separator: str) -> str:
        """Encode a list of nodes (PMIx_generate_regex) or of tasks (PMIx_generate_ppn) for libpmix."""
        out = c_char_p()
        self._check(getattr(self._lib, function)(separator.join(names).encode(), byref(out)), function)
        return (out.value or b"").decode()

    def request_modex(self, proc: Proc, done: Any) -> int:
        """Request the data that a local task has put, for `done` (MODEX_REQUESTED). Returns a status."""
        return int(self._lib.PMIx_server_dmodex_request(byref(proc), done, None))

    def _infos(self, attributes: Sequence[Attribute]) -> Any:
        infos = (Info * max(1, len(attributes)))()
        for info, attribute in zip(infos, attributes):
            info.key = attribute.key.encode()
            info.value.type = attribute.kind.number
            if attribute.kind is DATA_ARRAY:
                inner = self._infos(attribute.value)
                array = DataArray(INFO.number, len(attribute.value), ctypes.cast(inner, c_void_p))
                self._kept.append(array)
                info.value.data.array = ctypes.pointer(array)
            else:
                value = attribute.value.encode() if attribute.kind is STRING else attribute.value
                setattr(info.value.data, attribute.kind.field, value)
                self._kept.append(value)
        self._kept.append(infos)
        return infos
