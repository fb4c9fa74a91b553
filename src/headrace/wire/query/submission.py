"""Jobspecs and submit requests from the options of `flux run`, `submit`, `batch` and so on.

Options are passed as an object with an attribute for each option (`job_options`). This module converts them to
parameters of `formats.spec.jobspec_build`, which makes the jobspec, and adds the environment, directory and limits of
this process.
"""

from __future__ import annotations

import errno
import math
import os

from headrace.formats.spec import jobspec_build, plain_json, rlimits
from headrace.wire.query import QueryError, job_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

    Jobspec = Dict[str, Any]
    Options = Any

URGENCIES = {"hold": 0, "default": 16, "expedite": 31}
FLAGS = {"debug": 2, "waitable": 4, "novalidate": 8}

# The default file of `flux batch --dump`.
_DUMP = "flux-{{jobid}}-dump.tgz"


def command_of(args: Options) -> List[str]:
    """The command and its arguments, without a `--` before them."""
    words: List[str] = args.command
    return words[1:] if words[:1] == ["--"] else words


class Caller:
    """The environment, directory and limits that jobs inherit from the submitting process.

    They are the same for all jobs of a command, so each is determined only once. `warn` is called with a message for
    each variable that is omitted.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._inherited: Optional[Dict[str, str]] = None
        self._environments: Dict[Tuple[str, ...], Tuple[Dict[str, str], Dict[str, str]]] = {}
        self._limits: Dict[Tuple[str, ...], Dict[str, int]] = {}
        self._directory = ""

    def environment(self, rules: Sequence[str]) -> Tuple[Dict[str, str], Dict[str, str]]:
        """(variables, variables whose value the shell expands) by the rules of --env.

        Do not change the result.
        """
        key = tuple(rules)
        if key not in self._environments:
            self._environments[key] = self._apply(rules)
        return self._environments[key]

    def _apply(self, rules: Sequence[str]) -> Tuple[Dict[str, str], Dict[str, str]]:
        if self._inherited is None:
            self._inherited = _text_variables(self.warn)
        if not rules:
            # The same result as `envrules` without rules, but without its import: nearly all submissions have no rules.
            variables = dict(self._inherited)
            variables.pop("FLUX_PROXY_REMOTE", None)
            return variables, {}
        from headrace.formats.spec import envrules

        return envrules.apply(rules, self._inherited)

    def limits(self, rules: Sequence[str]) -> Dict[str, int]:
        """Soft limits by the rules of --rlimit. Do not change the result. Raises ValueError."""
        key = tuple(rules)
        if key not in self._limits:
            self._limits[key] = rlimits.collect(rules)
        return self._limits[key]

    def directory(self) -> str:
        """The current directory. Raises QueryError if it was removed."""
        self._directory = self._directory or _working_directory()
        return self._directory


def task_jobspec(args: Options, caller: Caller) -> Jobspec:
    """The jobspec of a command's tasks. Raises ValueError with a message for users."""
    command = command_of(args)
    if not command:
        raise QueryError("job command and arguments are missing")
    per_node, per_core = args.tasks_per_node, args.tasks_per_core
    if args.cores is not None or per_node is not None or per_core is not None or args.gpus_per_node:
        _check_per_resource(args)
        kind = "node" if per_node is not None else "core" if per_core is not None else None
        count = per_node if per_node is not None else per_core
        jobspec = jobspec_build.per_resource(
            command,
            ncores=args.cores,
            nnodes=args.nodes,
            per_resource_type=kind,
            per_resource_count=count,
            gpus_per_node=args.gpus_per_node,
            exclusive=args.exclusive,
            **_parameters(args, caller),
        )
    else:
        # With a number of nodes alone, the job has one task on each node, and the nodes are exclusive.
        exclusive = args.exclusive or (bool(args.nodes) and not args.ntasks)
        jobspec = jobspec_build.from_command(
            command,
            num_tasks=args.ntasks or max(args.nodes or 1, 1),
            cores_per_task=args.cores_per_task or 1,
            gpus_per_task=args.gpus_per_task or None,
            num_nodes=args.nodes,
            exclusive=exclusive,
            **_parameters(args, caller),
        )
    if args.shape:
        from headrace.formats.spec import shape

        jobspec["resources"] = shape.parse(args.shape, jobspec_build.SLOT_LABEL)
    finish(jobspec, args, caller.warn)
    return jobspec


def _check_per_resource(args: Options) -> None:
    """Raise QueryError if options for tasks per resource conflict with other options."""
    if any((args.ntasks, args.cores_per_task, args.gpus_per_task)):
        raise QueryError(
            "Per-resource options (--cores, --tasks-per-node ...) can't be used with per-task options (-n, -c, -g)"
        )
    if args.tasks_per_node is not None and args.tasks_per_core is not None:
        raise QueryError("Do not specify both the number of tasks per node and per core")
    for option, value in (("--tasks-per-node", args.tasks_per_node), ("--tasks-per-core", args.tasks_per_core)):
        if value is not None and value < 1:
            raise QueryError(f"{option} must be >= 1")
    if args.gpus_per_node and args.nodes is None:
        raise QueryError("--gpus-per-node requires --nodes")


def slot_parameters(args: Options, caller: Caller) -> Dict[str, Any]:
    """The parameters for the builders of batch and alloc. Raises QueryError if the size is missing."""
    if not args.nslots and not args.nodes:
        raise QueryError("Number of slots to allocate must be specified")
    conf = _configuration(args.conf or [])
    options = [word for text in args.broker_opts or [] for word in text.split(",")]
    if args.dump is not None:
        options.append(f"-Scontent.dump={args.dump or _DUMP}")
    return {
        "num_slots": args.nslots or args.nodes,
        "cores_per_slot": args.cores_per_slot or 1,
        "gpus_per_slot": args.gpus_per_slot or None,
        "num_nodes": args.nodes,
        "exclusive": args.exclusive or not args.nslots,
        "broker_opts": options,
        "conf": conf,
        **_parameters(args, caller),
    }


def _configuration(texts: Sequence[str]) -> Optional[Dict[str, Any]]:
    """The merged configuration of all --conf options; a later option overrides. Raises QueryError."""
    from headrace.wire.query.conf_option import merge

    return merge(texts) if texts else None


def _parameters(args: Options, caller: Caller) -> Dict[str, Any]:
    """The parameters of every builder: environment, directory, limits, and the plain options."""
    parameters = {option.builder: getattr(args, option.name) for option in job_options.BUILT}
    parameters["environment"], parameters["env_expand"] = caller.environment(args.env or ())
    parameters["rlimits"] = caller.limits(args.rlimit or ())
    parameters["duration"] = time_limit(args.time_limit)
    if args.cwd is None:
        parameters["cwd"] = caller.directory()
    if args.input is not None and is_ranks(args.input):
        parameters["input"] = None
    return parameters


def _text_variables(warn: Callable[[str], None]) -> Dict[str, str]:
    """The environment without variables that are not UTF-8, which JSON cannot represent.

    Calls `warn` for each omitted variable.
    """
    variables = dict(os.environ)
    if not b"".join([*os.environb, *os.environb.values()]).isascii():
        for name in [name for name, value in variables.items() if not _is_text(name + value)]:
            warn(f"warning: environment variable {name} is not UTF-8 text and is left out of the job")
            del variables[name]
    return variables


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_bytes(text: str) -> bool:
    """True if each surrogate in a string is an undecodable byte of an argument or a variable (PEP 383)."""
    return all(not "\ud800" <= letter <= "\udfff" or "\udc80" <= letter <= "\udcff" for letter in text)


def is_ranks(text: str) -> bool:
    """True if the value of `--input` names task ranks, not a file."""
    return text == "all" or (bool(text) and all(char in "0123456789,-" for char in text))


def _working_directory() -> str:
    """The current directory as the shell names it (PWD), or its real path if PWD is another directory."""
    logical = os.environ.get("PWD", "")
    try:
        if logical and os.path.samefile(logical, "."):
            return logical
    except OSError:
        pass
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise QueryError("the current directory was removed: change to another, or give one with --cwd") from None


def time_limit(text: Any) -> Any:
    """Convert the value of --time-limit for the builders: a number without a unit is in minutes."""
    if text is None:
        return None
    try:
        minutes = float(text)
    except ValueError:
        return text
    return minutes * 60 if math.isfinite(minutes) else text


def finish(jobspec: Jobspec, args: Options, warn: Callable[[str], None]) -> None:
    """Add the options that the builders do not handle: single keys, --setopt, --setattr and files.

    `warn` is called with a message for a deprecated value. Raises ValueError with a message for users.
    """
    values: Dict[str, Any] = {}
    for option in job_options.SET:
        given = getattr(args, option.name, None)
        if given:
            read = _READERS.get(option.kind)
            value = read(given, warn) if read is not None else given
            # --dependency and --begin-time append to the same list.
            values[option.sets] = values.get(option.sets, []) + value if isinstance(value, list) else value
    for key, value in values.items():
        jobspec_build.set_attribute(jobspec, f"attributes.system.{key}", value)
    for text in args.setopt or []:
        key, value = jobspec_build.parse_setting(text)
        jobspec_build.set_shell_option(jobspec, key, value)
    for text in args.setattr or []:
        try:
            key, value = jobspec_build.parse_setting(text)
            jobspec_build.set_attribute(jobspec, key, value)
        except ValueError as exc:
            raise ValueError(f"--setattr: {exc}") from None
    for text in args.add_file or []:
        _add_file(jobspec, text)


def _signal(text: str, _warn: Callable[[str], None]) -> Dict[str, Any]:
    return jobspec_build.parse_signal(text)


def _taskmap(text: str, _warn: Callable[[str], None]) -> Dict[str, str]:
    scheme, _, value = text.partition(":")
    return {"scheme": scheme, "value": value}


def _duration(text: str, _warn: Callable[[str], None]) -> float:
    from headrace.formats.spec import duration

    return duration.parse(text)


def _dependencies(texts: Sequence[str], warn: Callable[[str], None]) -> List[Dict[str, Any]]:
    return [_dependency(text, warn) for text in texts]


def _begin_time(text: str, warn: Callable[[str], None]) -> List[Dict[str, Any]]:
    from headrace.wire.query.when import parse_future

    return [_dependency(f"begin-time:{parse_future(text)}", warn)]


def _dependency(text: str, warn: Callable[[str], None]) -> Dict[str, Any]:
    from headrace.formats.spec import dependency

    parsed = dependency.parse(text)
    if parsed["scheme"] == "after":
        warn("dependency scheme 'after' is deprecated, use 'afterstart'")
    return parsed


def _constraint(texts: Sequence[str], _warn: Callable[[str], None]) -> Any:
    from headrace.formats.spec import constraint

    expression = texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)
    try:
        return constraint.parse(expression)
    except constraint.ConstraintSyntaxError as exc:
        raise QueryError(f"--requires='{expression}': {exc}") from None


# Functions that convert the text of an option to its value in the jobspec, by kind. Other kinds are not converted.
_READERS = {
    job_options.SIGNAL: _signal,
    job_options.TASKMAP: _taskmap,
    job_options.DURATION: _duration,
    job_options.DEPENDENCIES: _dependencies,
    job_options.MOMENT: _begin_time,
    job_options.CONSTRAINT: _constraint,
}


def _add_file(jobspec: Jobspec, text: str) -> None:
    """Add a file, given as `[NAME[:PERMS]=]ARG`.

    ARG is the file's content if it contains a newline or the escape `\\n`, otherwise the path of a file to read.
    """
    from headrace.formats.spec import archive

    name, equals, value = text.partition("=")
    if not equals or "\n" in name:
        name, value = "", text
    if "\n" not in value and "\\n" in value:
        # Escapes are decoded as in Python. Characters outside Latin-1 are escaped before, so they do not change.
        try:
            value = value.encode("latin-1", "backslashreplace").decode("unicode_escape")
        except UnicodeDecodeError as exc:
            raise QueryError(f"--add-file={text[:60]}: {exc.reason}") from None
    name, perms = _permissions(name)
    if "\n" in value and not name:
        raise QueryError("--add-file: file name missing: use NAME=CONTENT")
    name = name or os.path.basename(value.rstrip("/"))
    try:
        archive.check_path(name, f"--add-file={text[:60]}")
    except archive.ArchiveError as exc:
        raise QueryError(f"{exc}; use NAME={value[:60]} to give it another name") from None
    if "\n" in value:
        jobspec_build.add_file(jobspec, name, value, perms or 0o600)
        return
    if os.path.isdir(value):
        raise QueryError(f"--add-file: {os.strerror(errno.EISDIR)}: '{value}'")
    entry = archive.entry_from_path(value)
    if perms:
        entry["mode"] = (entry["mode"] & ~0o7777) | perms
    jobspec["attributes"]["system"].setdefault("files", {})[name] = entry


def _permissions(name: str) -> Tuple[str, int]:
    """(NAME, PERMS) of `NAME:PERMS`; 0 without PERMS.

    A colon that no octal number follows is part of the name.
    """
    base, colon, octal = name.rpartition(":")
    if colon and octal and all(digit in "01234567" for digit in octal):
        return base, int(octal, 8)
    return name, 0


def submit_flags(args: Options) -> int:
    """The flags of job-ingest.submit (RFC 21). Raises QueryError."""
    flags = FLAGS["debug"] if args.debug else 0
    for name in [name for text in args.flags or [] for name in text.split(",")]:
        if name not in FLAGS:
            raise QueryError(f"--flags: Unknown flag {name}")
        flags |= FLAGS[name]
    return flags


def urgency(args: Options) -> int:
    """The urgency (RFC 30); the broker checks its range.

    Raises QueryError if it is not a number or a name.
    """
    text = str(args.urgency).lower()
    if text in URGENCIES:
        return URGENCIES[text]
    try:
        return int(text)
    except ValueError:
        raise QueryError(f"invalid urgency '{args.urgency}': use 0-31, hold, expedite or default") from None


def jobspec_text(jobspec: Jobspec) -> str:
    """Encode the jobspec, valid or not, as JSON.

    Raises QueryError for bytes that are not UTF-8 (RFC 14 is text).
    """
    text = _dump(jobspec)
    # `\ud...` is either a lone surrogate, which stands for such a byte (PEP 383), or part of a pair, which is text.
    if "\\ud" in text:
        for path, word in _strings(jobspec, ()):
            if not _is_text(word):
                raise QueryError(_not_text(jobspec, path, word))
    return text


def _strings(value: Any, path: Tuple[Any, ...]) -> Iterator[Tuple[Tuple[Any, ...], str]]:
    """Yield (path, string) for all strings in a value, including keys.

    A path consists of keys and indices.
    """
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield path, str(key)
            yield from _strings(inner, (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from _strings(inner, (*path, place))


def _not_text(jobspec: Jobspec, path: Tuple[Any, ...], word: str) -> str:
    if path[:3] == ("tasks", 0, "command") and len(path) == 4:
        what = f"argument {path[3]} of the command" if path[3] else "the command"
        shown = ascii(word.encode("utf-8", "surrogateescape"))[1:] if _is_bytes(word) else ascii(word)
        return f"{what} ({shown}) is not UTF-8 text: a job's must be"
    if path[:2] == ("attributes", "system") and path[2:] not in ((), ("job",)):
        name = path[3] if path[2] == "job" else path[2]
        return f"{name} of the job is not UTF-8 text: {_dump(jobspec['attributes']['system'][path[2]])}"
    return f"{'.'.join(map(str, path)) or 'the jobspec'} is not UTF-8 text: {_dump(word)}"


def _dump(value: Any) -> str:
    """Encode a value in the format of json.dumps."""
    return plain_json.dumps(value, (", ", ": "), ensure_ascii=True)


def encode_request(jobspec: Jobspec, args: Options) -> bytes:
    """The payload of job-ingest.submit."""
    return jobspec_request(jobspec, urgency(args), submit_flags(args))


def jobspec_request(
    jobspec: Jobspec, urgency: int = URGENCIES["default"], flags: int = 0, userid: Optional[int] = None
) -> bytes:
    """The payload of job-ingest.submit; `userid` is the user of the job (signing.sign)."""
    from headrace.wire.query.signing import sign

    # J consists of base64 and dots, which JSON does not escape, so it is inserted without another pass over it.
    j = sign(jobspec_text(jobspec), userid).encode("ascii")
    return b'{"J":"%s","urgency":%d,"flags":%d}\0' % (j, urgency, flags)
