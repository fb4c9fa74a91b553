"""The shell options (flux-shell(1)), checked before tasks start so that no misspelt value is ignored.

If a known option has an invalid value, the job fails, or a warning is logged if the job can run without the option. A
warning is also logged for an unknown option, which a plugin might use in Flux. Options of one subject (signal,
affinity, task map) are parsed in the file of that subject.
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.engine.process.spawn import LIMITS
from headrace.formats.spec import duration
from headrace.formats.spec.idset import Idset, IdsetError

from . import affinity, torch

_EXIT_TIMEOUT = 30.0
_REXEC_GRACE = 60.0
_PTY = {"ranks", "capture", "interactive"}
_BUFFERS = {"none", "line"}
_INPUTS = {"service", "file"}
_MODES = {"truncate", "append"}
_OUTPUTS = {"kvs", "term", "file"}
# Options of flux-core's shell that are not supported. A job with one of _MISSED is refused, a job with one of _SPARED
# runs without it.
_MISSED = ("coprocess", "initrc", "stage-in", "stop-tasks-in-exec", "userrc")
_SPARED = ("hwloc", "input.limit", "rexec", "sysmon")
_STREAM = ("buffer.type", "label", "path", "type")
_STREAMS = tuple(f"{stream}.{key}" for stream in ("stdout", "stderr") for key in _STREAM)
# All known options, with the keys of options that are objects; () for other options.
_KNOWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_MISSED, "coprocess-kill-timeout", "hwloc", "mpi", "rexec", "sysmon"), ()),
    **dict.fromkeys(("cpu-affinity", "env-expand", "exit-on-error", "exit-timeout", "gpu-affinity", "nosetpgrp"), ()),
    **dict.fromkeys(("per-resource", "pmi", "pty", "rexec-shutdown-timeout", "rlimit", "signal", "taskmap"), ()),
    **dict.fromkeys(("literal-args", torch.OPTION), ()),
    "input": ("batch-timeout", "limit", "stdin.path", "stdin.type"),
    "oom": ("adjust",),
    "output": ("batch-timeout", "client.hwm", "client.lwm", "limit", "mode", *_STREAMS),
    "pmi-simple": ("exchange.k", "nomap"),
    "verbose": (),
}
_NAMES = {f"{name}.{key}" if key else name for name, keys in _KNOWN.items() for key in keys or [""]}
# Options that are objects, and options that are numbers, where true and false mean 1 and 0.
_OBJECTS = ("input", "input.stdin", "oom", "output", "output.client", "output.stderr", "output.stdout", "pmi-simple")
_NUMBERS = (
    "exit-on-error",
    "literal-args",
    "nosetpgrp",
    "pmi-simple.nomap",
    "pty.capture",
    "pty.interactive",
    "verbose",
)
# The names of PMI implementations, and the implementation used for each. PMI-1 also serves PMI-2 clients via PMI_FD.
_PMI = {"simple": "simple", "pmi1": "simple", "pmi2": "simple", "pmix": "pmix", "off": "", "none": ""}
# MPI implementations for which Flux's shell has scripts that set the environment, and "none". Here, tasks do not need
# such scripts.
_MPI = ("intel", "mvapich", "none", "openmpi", "spectrum")
_INFINITY = resource.RLIM_INFINITY
_encode = msgspec.msgpack.Encoder().encode


class OptionError(ValueError):
    """An option with which the job cannot run. The text names it."""


# The options that last passed the check without warnings. Similar jobs mostly have the same options.
_right = b""


def check(options: Mapping[str, Any]) -> list[str]:
    """Warnings about options. Raises OptionError for an option with which the job cannot run."""
    global _right
    try:
        known = _encode(options)
    except OverflowError:
        # An option has a number that msgpack cannot encode. It is out of range for any option.
        return _check(options)
    if known == _right:
        return []
    warnings = _check(options)
    if not warnings:
        _right = known
    return warnings


def _check(options: Mapping[str, Any]) -> list[str]:
    _check_types(options)
    exit_timeout(options)
    pty_ranks(options)
    templates(options)
    oom_adjust(options)
    rexec_grace(options)
    _check_input(options.get("input"))
    for key in _MISSED:
        if options.get(key):
            raise OptionError(f"shell option {key} is not supported by Headrace")
    warnings = [f"shell option {key} is unknown to Headrace and has no effect" for key in _unknown(options)]
    warnings += [f"shell option {key} has no effect in Headrace" for key in _SPARED if _value(options, key)]
    warnings += affinity.wrong(options)
    unknown = [name for name in _pmi_names(options) if name not in _PMI]
    if unknown and not pmi_methods(options):
        warnings.append(f"pmi={','.join(unknown)} is not offered, tasks get none: known are {', '.join(_PMI)}")
    # A name may contain a version: NAME@VERSION.
    unknown = [name for name in (options.get("mpi") or "none").split(",") if name.partition("@")[0] not in _MPI]
    if unknown:
        warnings.append(f"mpi={','.join(unknown)} has no effect: known are {', '.join(_MPI)}")
    return [*warnings, *_limits(options.get("rlimit")), *_output(options.get("output"))]


def _value(options: Mapping[str, Any], name: str) -> Any:
    """The value of an option by its dotted name; None if it is not set."""
    found: Any = options
    for key in name.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _unknown(options: Mapping[str, Any], above: str = "") -> list[str]:
    """The dotted names of unknown options."""
    unknown = []
    for key, value in options.items():
        name = above + key
        if name in _NAMES or value is None:
            continue
        if isinstance(value, dict) and any(known.startswith(name + ".") for known in _NAMES):
            unknown += _unknown(value, name + ".")
        else:
            unknown.append(name)
    return unknown


def _check_types(options: Mapping[str, Any]) -> None:
    """Raise OptionError if an option has the wrong type."""
    for name in _OBJECTS:
        value = _value(options, name)
        if value is not None and not isinstance(value, dict):
            keys = sorted(known[len(name) + 1 :] for known in _NAMES if known.startswith(name + "."))
            raise OptionError(f"invalid {name}={value}: write {name}.KEY, with one of {', '.join(keys)}")
    for name in _NUMBERS:
        value = _value(options, name)
        if value is not None and not isinstance(value, int):
            raise OptionError(f"invalid {name}={value}: must be a whole number")
    pmi = options.get("pmi")
    if pmi is not None and not isinstance(pmi, str):
        raise OptionError(f"invalid pmi={pmi}: must be a list of {', '.join(_PMI)}")
    mpi = options.get("mpi")
    if mpi is not None and not isinstance(mpi, str):
        raise OptionError(f"invalid mpi={mpi}: must be a list of {', '.join(_MPI)}")
    pty = options.get("pty")
    if pty is not None and not isinstance(pty, (int, dict)):
        known = ", ".join(sorted(_PTY))
        raise OptionError(f"invalid pty={pty}: must be a whole number, or pty.KEY with one of {known}")


def exit_timeout(options: Mapping[str, Any]) -> float | None:
    """Seconds that other tasks may run after the first exit; None for no limit. Raises OptionError."""
    option = options.get("exit-timeout", _EXIT_TIMEOUT)
    if option == "none":
        return None
    try:
        if isinstance(option, bool):
            raise ValueError
        seconds = float(option) if isinstance(option, (int, float)) else duration.parse(str(option))
        if not seconds >= 0:
            raise ValueError
        return None if seconds == float("inf") else seconds
    except (ValueError, OverflowError):
        raise OptionError(f"exit-timeout={option} is not a valid Flux standard duration") from None


def oom_adjust(options: Mapping[str, Any]) -> int | None:
    """The tasks' `oom_score_adj` (proc(5)); None for the broker's value. Raises OptionError."""
    option = options.get("oom")
    if option is None:
        return None
    value = option.get("adjust")
    if isinstance(value, bool) or not isinstance(value, int) or not -1000 <= value <= 1000:
        raise OptionError(f"invalid oom.adjust={value}: must be a number from -1000 to 1000")
    return value


def _pmi_names(options: Mapping[str, Any]) -> list[str]:
    return str(options.get("pmi", "simple,pmix")).split(",")


def pmi_methods(options: Mapping[str, Any]) -> set[str]:
    """The PMI implementations in the option `pmi`: `simple` (PMI-1), `pmix`, or by default both."""
    return {_PMI[name] for name in _pmi_names(options) if _PMI.get(name)}


def pmi_map(options: Mapping[str, Any]) -> bool:
    """True if tasks can read the task map by PMI. False with `pmi-simple.nomap`."""
    option = options.get("pmi-simple")
    return not (isinstance(option, dict) and option.get("nomap"))


def templates(options: Mapping[str, Any]) -> Mapping[str, str]:
    """The variables whose values are templates (`env-expand`). Raises OptionError."""
    option = options.get("env-expand", {})
    if not isinstance(option, dict) or not all(isinstance(value, str) for value in option.values()):
        raise OptionError("env-expand must be an object of variables and their templates, which are strings")
    return option


def interactive_pty(options: Mapping[str, Any]) -> bool:
    """True if clients may attach to the terminal of the first task."""
    option = options.get("pty")
    return isinstance(option, dict) and bool(option.get("interactive"))


def pty_ranks(options: Mapping[str, Any]) -> Idset | None:
    """The tasks that get a terminal; None for all. Raises OptionError."""
    option = options.get("pty")
    if not isinstance(option, dict):
        return None if option else Idset()
    unknown = set(option) - _PTY
    if unknown:
        raise OptionError(f"invalid pty option: {', '.join(sorted(unknown))}: known are {', '.join(sorted(_PTY))}")
    ranks = str(option.get("ranks", "0" if option.get("interactive") else "all"))
    if ranks == "all":
        return None
    try:
        wanted = Idset.parse(ranks)
    except IdsetError as exc:
        raise OptionError(f"invalid pty option: ranks={ranks}: {exc}") from None
    return wanted | Idset([0]) if option.get("interactive") else wanted


def check_pty_ranks(options: Mapping[str, Any], ntasks: int) -> None:
    """Raise OptionError if a terminal is requested for a task that the job does not have."""
    option = options.get("pty")
    if not isinstance(option, dict) or "ranks" not in option:
        return
    wanted, everyone = pty_ranks(options), Idset(range(ntasks))
    if wanted is not None and wanted - everyone:
        there = f"are {everyone}" if ntasks > 1 else "are only task 0"
        raise OptionError(f"invalid pty option: ranks={option['ranks']}: the tasks of this job {there}")


def pty_added(options: Mapping[str, Any]) -> bool:
    """True if the first task gets a terminal only because clients may attach to it."""
    option = options.get("pty")
    if not (isinstance(option, dict) and option.get("interactive")) or option.get("ranks", "all") == "all":
        return False
    return 0 not in Idset.parse(str(option["ranks"]))


def rexec_grace(options: Mapping[str, Any]) -> float:
    """Seconds that `flux exec --jobid` processes may outlive the job's tasks. Raises OptionError."""
    option = options.get("rexec-shutdown-timeout", _REXEC_GRACE)
    try:
        return duration.parse(str(option))
    except ValueError:
        raise OptionError(f"rexec-shutdown-timeout={option} is not a valid Flux standard duration") from None


def _check_input(option: Any) -> None:
    spec = (option or {}).get("stdin")
    if spec is None:
        return
    kind = spec.get("type", "service")
    if str(kind) not in _INPUTS:
        raise OptionError(f"invalid input type specified: {kind}: must be service or file")
    if kind == "file" and not spec.get("path"):
        raise OptionError("path for stdin file input not specified")


def _limits(option: Any) -> list[str]:
    if option is None:
        return []
    if not isinstance(option, dict):
        raise OptionError(f"invalid rlimit option: {option!r} is not an object")
    wrong = []
    for name, value in option.items():
        number = LIMITS.get(name)
        if number is None or not isinstance(value, int) or not (value == _INFINITY or 0 <= value < 1 << 63):
            raise OptionError(f"invalid rlimit option: {name}={value}")
        hard = _hard_limit(number)
        if hard != _INFINITY and (value == _INFINITY or value > hard):
            wrong.append(f"{name} exceeds current max, raising value to hard limit {hard}")
    return wrong


@functools.cache
def _hard_limit(number: int) -> int:
    return resource.getrlimit(number)[1]


def _output(option: Any) -> list[str]:
    wrong = []
    mode = option.get("mode", "truncate") if isinstance(option, dict) else "truncate"
    if str(mode) not in _MODES:
        wrong.append(f"ignoring invalid output.mode={mode}")
    for stream in ("stdout", "stderr"):
        spec = option.get(stream) if isinstance(option, dict) else None
        if not isinstance(spec, dict):
            continue
        target = spec.get("type", "kvs")
        if str(target) not in _OUTPUTS:
            raise OptionError(f"invalid output type specified: {target}: must be kvs, term or file")
        if target == "file" and not spec.get("path"):
            raise OptionError(f"path for {stream} file output not specified")
        buffer = spec.get("buffer")
        kind = buffer.get("type") if isinstance(buffer, dict) else None
        if kind is not None and str(kind) not in _BUFFERS:
            wrong.append(f"invalid buffer type specified: {kind}")
    return wrong
