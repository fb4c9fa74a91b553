"""The options of `flux run`, `submit`, `bulksubmit`, `batch` and `alloc`, and the jobspec that they describe.

The jobspec itself is made by headrace.spec.jobspec_build, which `import flux` uses as well; here the command line is
turned into its parameters, and the user's environment, directory and limits are added.
"""

from __future__ import annotations

import errno
import math
import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import queue_names
from headrace.spec import jobspec_build, plain_json, rlimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

    from headrace.cli.common.arguments import Parser
    from headrace.cli.common.quick_arguments import QuickParser

    Jobspec = Dict[str, Any]

URGENCIES = {"hold": 0, "default": 16, "expedite": 31}
FLAGS = {"debug": 2, "waitable": 4, "novalidate": 8}

# Where an instance of `flux batch --dump` is saved.
_DUMP = "flux-{{jobid}}-dump.tgz"


def add_common(parser: Union[Parser, QuickParser]) -> None:
    """Options of every command that submits."""
    add = parser.add_argument
    add("-q", "--queue", metavar="NAME", type=queue_names, help="Submit to a queue")
    add("-B", "--bank", metavar="BANK", help="Charge a bank")
    add("-t", "--time-limit", metavar="MIN|FSD", help="Time limit: a duration with a unit, else minutes")
    add("--urgency", metavar="N", default="default", help="0-31, hold, expedite or default (16)")
    add("--job-name", metavar="NAME", help="Name the job (default: its command)")
    add("-o", "--setopt", metavar="OPT", action="append", help="Set shell option OPT[=VALUE]")
    add("-S", "--setattr", metavar="KEY=VAL", action="append", help="Set a jobspec attribute (^KEY=FILE: JSON)")
    add("--dependency", metavar="URI", action="append", help="Depend on SCHEME:VALUE, such as afterok:JOBID")
    add("--requires", metavar="CONSTRAINT", action="append", help="Require node properties, host: or rank:")
    add("--begin-time", metavar="TIME", help="Do not start before this time")
    add("--signal", metavar="[SIG][@TIME]", help="Send a signal some time before the time limit (USR1@60s)")
    add("--taskmap", metavar="SCHEME[:VALUE]", help="Place tasks by this scheme (block, cyclic[:N], manual:MAP)")
    add("--preemptible-after", metavar="FSD", help="Allow preemption after this time")
    # All three make rules of one list, in the order given.
    add("--env", metavar="RULE", action="append", help="Change the environment (VAR=VAL, VAR, -PATTERN)")
    add("--env-remove", metavar="PATTERN", dest="env", action="append", type="-{}".format, help="Remove variables")
    add("--env-file", metavar="FILE", dest="env", action="append", type="^{}".format, help="Read rules from a file")
    add("--rlimit", metavar="RULE", action="append", help="Change resource limits (NAME=VALUE, -PATTERN, PATTERN)")
    add("--input", metavar="FILENAME|RANKS", help="Read standard input from a file, or send ours to these ranks")
    add("--output", metavar="FILENAME", help="Write standard output to a file")
    add("--error", metavar="FILENAME", help="Write standard error to a file")
    add("-l", "--label-io", action="store_true", help="Begin each line of output with its task's rank")
    add("-u", "--unbuffered", action="store_true", help="Do not buffer output by lines")
    add("--cwd", metavar="DIR", help="Run in this directory")
    add("--add-file", metavar="[NAME[:PERMS]=]ARG", action="append", help="Put a file into the jobspec")
    add("--flags", metavar="FLAGS", action="append", help="Submit flags: debug, waitable, novalidate")
    add("--debug", action="store_true", help="As --flags=debug: more events in the job's eventlog")
    add("--dry-run", action="store_true", help="Print the jobspec instead of submitting it")
    add("-v", "--verbose", action="count", default=0, help="Say more")


def add_tasks(parser: Union[Parser, QuickParser]) -> None:
    """Options that say how many tasks run on what (run, submit, bulksubmit)."""
    add = parser.add_argument
    add("-N", "--nodes", metavar="N", type=int, help="Number of nodes")
    add("-n", "--ntasks", metavar="N", type=int, help="Number of tasks")
    add("-c", "--cores-per-task", metavar="N", type=int, help="Cores of each task")
    add("-g", "--gpus-per-task", metavar="N", type=int, help="GPUs of each task")
    add("-x", "--exclusive", action="store_true", help="Allocate whole nodes")
    add("--cores", metavar="N", type=int, help="Number of cores")
    add("--tasks-per-node", metavar="N", type=int, help="Run N tasks on each node")
    add("--tasks-per-core", metavar="N", type=int, help="Run N tasks on each core")
    add("--gpus-per-node", metavar="N", type=int, help="GPUs of each node")
    add("--shape", metavar="SHAPE", help="Resources as a shape (RFC 46), such as slot=4/core=2")


def add_slots(parser: Union[Parser, QuickParser]) -> None:
    """Options that say how big an instance is (batch, alloc)."""
    add = parser.add_argument
    add("-N", "--nodes", metavar="N", type=int, help="Number of nodes")
    add("-n", "--nslots", metavar="N", type=int, help="Number of slots")
    add("-c", "--cores-per-slot", metavar="N", type=int, help="Cores of each slot (default 1)")
    add("-g", "--gpus-per-slot", metavar="N", type=int, help="GPUs of each slot")
    add("-x", "--exclusive", action="store_true", help="Allocate whole nodes")
    add("--conf", metavar="CONF", action="append", help="Configure the instance: KEY=VALUE, a file, or TOML text")
    add("--dump", metavar="FILE", nargs="?", const="", help="End with an archive of the instance, for flux restore")
    add("--broker-opts", metavar="OPTS", action="append", help="Options for the instance's brokers, split at commas")


def add_command(parser: Union[Parser, QuickParser]) -> None:
    parser.add_argument("command", nargs="...", help="Command and arguments")


def command_of(args: Namespace) -> List[str]:
    """The command and its arguments, without the `--` that may set them apart."""
    words: List[str] = args.command
    return words[1:] if words[:1] == ["--"] else words


class Caller:
    """What the process that submits hands on to its jobs: its environment, directory and limits.

    They are the same for all jobs of one command line, so each is looked up once for as many jobs as there are.
    """

    def __init__(self) -> None:
        self._environments: Dict[Tuple[str, ...], Tuple[Dict[str, str], Dict[str, str]]] = {}
        self._limits: Dict[Tuple[str, ...], Dict[str, int]] = {}
        self._directory = ""

    def environment(self, rules: Sequence[str]) -> Tuple[Dict[str, str], Dict[str, str]]:
        """(variables, variables whose value the shell expands) by the rules of --env; not to be changed."""
        key = tuple(rules)
        if key not in self._environments:
            self._environments[key] = _environment(rules)
        return self._environments[key]

    def limits(self, rules: Sequence[str]) -> Dict[str, int]:
        """Soft limits by the rules of --rlimit; not to be changed. Raises ValueError."""
        key = tuple(rules)
        if key not in self._limits:
            self._limits[key] = rlimits.collect(rules)
        return self._limits[key]

    def directory(self) -> str:
        """The current directory. Raises CommandError if it was removed."""
        self._directory = self._directory or _working_directory()
        return self._directory


def task_jobspec(args: Namespace, caller: Optional[Caller] = None) -> Jobspec:
    """The jobspec of a command's tasks. Raises ValueError with what is wrong."""
    command = command_of(args)
    if not command:
        raise CommandError("job command and arguments are missing")
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
            **_parameters(args, caller or Caller()),
        )
    else:
        # Nodes without a number of tasks: one task on each, and the nodes are ours alone.
        exclusive = args.exclusive or (bool(args.nodes) and not args.ntasks)
        jobspec = jobspec_build.from_command(
            command,
            num_tasks=args.ntasks or max(args.nodes or 1, 1),
            cores_per_task=args.cores_per_task or 1,
            gpus_per_task=args.gpus_per_task or None,
            num_nodes=args.nodes,
            exclusive=exclusive,
            **_parameters(args, caller or Caller()),
        )
    if args.shape:
        from headrace.spec import shape

        jobspec["resources"] = shape.parse(args.shape, jobspec_build.SLOT_LABEL)
    finish(jobspec, args)
    return jobspec


def _check_per_resource(args: Namespace) -> None:
    """Refuse options of tasks per resource that contradict others. Raises CommandError."""
    if any((args.ntasks, args.cores_per_task, args.gpus_per_task)):
        raise CommandError(
            "Per-resource options (--cores, --tasks-per-node ...) can't be used with per-task options (-n, -c, -g)"
        )
    if args.tasks_per_node is not None and args.tasks_per_core is not None:
        raise CommandError("Do not specify both the number of tasks per node and per core")
    for option, value in (("--tasks-per-node", args.tasks_per_node), ("--tasks-per-core", args.tasks_per_core)):
        if value is not None and value < 1:
            raise CommandError(f"{option} must be >= 1")
    if args.gpus_per_node and args.nodes is None:
        raise CommandError("--gpus-per-node requires --nodes")


def slot_parameters(args: Namespace) -> Dict[str, Any]:
    """How big an instance is, as the builders of batch and alloc take it. Raises CommandError without a size."""
    if not args.nslots and not args.nodes:
        raise CommandError("Number of slots to allocate must be specified")
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
        **_parameters(args, Caller()),
    }


def _configuration(texts: Sequence[str]) -> Dict[str, Any]:
    """The configuration that all --conf options make together, later ones winning. Raises CommandError."""
    from headrace.cli.common.conf_option import merge

    return merge(texts) if texts else {}


def _parameters(args: Namespace, caller: Caller) -> Dict[str, Any]:
    """What every builder takes: the caller's environment, directory and limits, and the plain options."""
    environment, expand = caller.environment(args.env or ())
    by_rank = args.input is not None and is_ranks(args.input)
    return {
        "duration": time_limit(args.time_limit),
        "environment": environment,
        "env_expand": expand,
        "cwd": args.cwd if args.cwd is not None else caller.directory(),
        "rlimits": caller.limits(args.rlimit or ()),
        "name": args.job_name,
        "input": None if by_rank else args.input,
        "output": args.output,
        "error": args.error,
        "label_io": args.label_io,
        "unbuffered": args.unbuffered,
        "queue": args.queue,
        "bank": args.bank,
    }


def _environment(rules: Sequence[str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """(variables, variables whose value the shell expands) of the job."""
    _drop_variables_that_are_no_text()
    if not rules:
        # What no rules make, without reading the file of rules: nearly every submission comes this way.
        variables = dict(os.environ)
        variables.pop("FLUX_PROXY_REMOTE", None)
        return variables, {}
    from headrace.spec import envrules

    return envrules.apply(rules, os.environ)


def _drop_variables_that_are_no_text() -> None:
    """A jobspec is JSON, which has no bytes outside UTF-8: such a variable of ours is told of once and left out."""
    if b"".join([*os.environb, *os.environb.values()]).isascii():
        return
    for name, value in list(os.environ.items()):
        if not _is_text(name + value):
            sys.stderr.write(f"warning: environment variable {name} is not UTF-8 text and is left out of the job\n")
            del os.environ[name]


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_input_by_rank(args: Namespace, command: str) -> None:
    """Raise CommandError where `--input` names task ranks and nobody stays to send them input."""
    if args.input is not None and is_ranks(args.input):
        raise CommandError(f"per-task input not supported for {command}")


def is_ranks(text: str) -> bool:
    """Whether `--input` names task ranks rather than a file."""
    return text == "all" or (bool(text) and all(char in "0123456789,-" for char in text))


def _working_directory() -> str:
    """The user's own name for the directory (PWD) where that is the same one, else its real path."""
    logical = os.environ.get("PWD", "")
    try:
        if logical and os.path.samefile(logical, "."):
            return logical
    except OSError:
        pass
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise CommandError("the current directory was removed: change to another, or give one with --cwd") from None


def time_limit(text: Any) -> Any:
    """The value of --time-limit in a form that the builders take: a number alone counts minutes."""
    if text is None:
        return None
    try:
        minutes = float(text)
    except ValueError:
        return text
    return minutes * 60 if math.isfinite(minutes) else text


def finish(jobspec: Jobspec, args: Namespace) -> None:
    """Add what the builders do not know: signal, shell options, dependencies, constraints, attributes and files."""
    if args.signal:
        jobspec_build.set_shell_option(jobspec, "signal", jobspec_build.parse_signal(args.signal))
    if args.taskmap:
        scheme, _, value = args.taskmap.partition(":")
        jobspec_build.set_shell_option(jobspec, "taskmap", {"scheme": scheme, "value": value})
    for text in args.setopt or []:
        key, value = jobspec_build.parse_setting(text)
        jobspec_build.set_shell_option(jobspec, key, value)
    dependencies = [_dependency(text) for text in args.dependency or []]
    if args.begin_time:
        from headrace.query.when import parse_future

        dependencies.append(_dependency(f"begin-time:{parse_future(args.begin_time)}"))
    system = jobspec["attributes"]["system"]
    if dependencies:
        system["dependencies"] = dependencies
    if args.requires:
        system["constraints"] = _constraint(args.requires)
    if args.preemptible_after:
        from headrace.spec import duration

        system["preemptible-after"] = duration.parse(args.preemptible_after)
    for text in args.setattr or []:
        try:
            key, value = jobspec_build.parse_setting(text)
            jobspec_build.set_attribute(jobspec, key, value)
        except ValueError as exc:
            raise ValueError(f"--setattr: {exc}") from None
    for text in args.add_file or []:
        _add_file(jobspec, text)


def _dependency(text: str) -> Dict[str, Any]:
    from headrace.spec import dependency

    parsed = dependency.parse(text)
    if parsed["scheme"] == "after":
        sys.stderr.write("dependency scheme 'after' is deprecated, use 'afterstart'\n")
    return parsed


def _constraint(texts: Sequence[str]) -> Any:
    from headrace.spec import constraint

    whole = texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)
    try:
        return constraint.parse(whole)
    except constraint.ConstraintSyntaxError as exc:
        raise CommandError(f"--requires='{whole}': {exc}") from None


def _add_file(jobspec: Jobspec, text: str) -> None:
    """`[NAME[:PERMS]=]ARG`: ARG is the path of a file, or content: several lines, or one in which `\\n` ends lines."""
    from headrace.spec import archive

    name, equals, value = text.partition("=")
    if not equals or "\n" in name:
        name, value = "", text
    if "\n" not in value and "\\n" in value:
        # Escapes are read as in Python; characters outside Latin-1 are escaped first, so that they come out unchanged.
        try:
            value = value.encode("latin-1", "backslashreplace").decode("unicode_escape")
        except UnicodeDecodeError as exc:
            raise CommandError(f"--add-file={text[:60]}: {exc.reason}") from None
    name, perms = _permissions(name)
    if "\n" in value and not name:
        raise CommandError("--add-file: file name missing: use NAME=CONTENT")
    name = name or os.path.basename(value.rstrip("/"))
    try:
        archive.check_path(name, f"--add-file={text[:60]}")
    except archive.ArchiveError as exc:
        raise CommandError(f"{exc}; NAME={value[:60]} gives it another") from None
    if "\n" in value:
        jobspec_build.add_file(jobspec, name, value, perms or 0o600)
        return
    if os.path.isdir(value):
        raise CommandError(f"--add-file: {os.strerror(errno.EISDIR)}: '{value}'")
    entry = archive.entry_from_path(value)
    if perms:
        entry["mode"] = (entry["mode"] & ~0o7777) | perms
    jobspec["attributes"]["system"].setdefault("files", {})[name] = entry


def _permissions(name: str) -> Tuple[str, int]:
    """NAME and PERMS of `NAME:PERMS`, 0 without; a colon before anything but an octal number is part of the name."""
    base, colon, octal = name.rpartition(":")
    if colon and octal and all(digit in "01234567" for digit in octal):
        return base, int(octal, 8)
    return name, 0


def submit_flags(args: Namespace) -> int:
    """The flags of job-ingest.submit (RFC 21). Raises CommandError."""
    flags = FLAGS["debug"] if args.debug else 0
    for name in [name for text in args.flags or [] for name in text.split(",")]:
        if name not in FLAGS:
            raise CommandError(f"--flags: Unknown flag {name}")
        flags |= FLAGS[name]
    return flags


def urgency(args: Namespace) -> int:
    """The urgency (RFC 30); the broker checks the range. Raises CommandError if it is no number or name."""
    text = str(args.urgency).lower()
    if text in URGENCIES:
        return URGENCIES[text]
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"invalid urgency '{args.urgency}': use 0-31, hold, expedite or default") from None


def print_jobspec(jobspec: Jobspec) -> None:
    sys.stdout.write(_encode(jobspec) + "\n")


def _encode(jobspec: Jobspec) -> str:
    """The jobspec as JSON. Raises CommandError for bytes that are not UTF-8 (RFC 14 has only text)."""
    text = _dump(jobspec)
    if "\\udc" in text:
        for number, word in enumerate(jobspec["tasks"][0]["command"]):
            if not _is_text(word):
                what = f"argument {number} of the command" if number else "the command"
                raise CommandError(f"{what} ({ascii(os.fsencode(word))[1:]}) is not UTF-8 text: a job's must be")
        for name, value in jobspec["attributes"]["system"].items():
            if not _is_text(plain_json.dumps(value)):
                raise CommandError(f"{name} of the job is not UTF-8 text: {_dump(value)}")
    return text


def _dump(value: Any) -> str:
    """What json.dumps makes of it."""
    return plain_json.dumps(value, (", ", ": "), ensure_ascii=True)


def encode_request(jobspec: Jobspec, args: Namespace) -> bytes:
    """The payload of job-ingest.submit. J is base64 and dots, in which JSON has nothing to escape: it is not looked
    through once more.
    """
    from headrace.query.signing import sign

    j = sign(_encode(jobspec)).encode("ascii")
    return b'{"J":"%s","urgency":%d,"flags":%d}\0' % (j, urgency(args), submit_flags(args))
