"""The options of a job, each declared once: name, type, bounds, help, and the jobspec key.

`OPTIONS` is used by the commands (`cli.submit.options` adds the options to their parsers), by `submission` (which
builds the jobspec from them), by the Python bindings (`flux.job.JobspecV1`), by `/v2`, and by the form of the web
pages. An option that sets one key of the jobspec needs a row here and no other code.

Rows are plain objects with slots, because importing `typing` and `dataclasses` takes longer than `flux submit` takes to
parse its arguments.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NoReturn, Optional, Tuple

# The commands that submit tasks, and those that submit an instance.
TASKS = ("run", "submit", "bulksubmit")
SLOTS = ("batch", "alloc")
EVERY = (*TASKS, *SLOTS)

# Kinds of values. They determine how text of a command line, JSON values and form fields are converted.
TEXT = "text"
NAME = "name"  # 1 to 255 bytes
QUEUE = "queue"  # the name of a queue
COUNT = "count"  # an integer, at least `least`
FLAG = "flag"
DIRECTORY = "directory"
LIMIT = "limit"  # a time limit: a duration; a number is minutes on command lines and in forms, seconds in JSON
DURATION = "duration"  # RFC 23
MOMENT = "moment"  # a future point in time
URGENCY = "urgency"  # RFC 30
SIGNAL = "signal"
TASKMAP = "taskmap"
CONSTRAINT = "constraint"  # RFC 35
DEPENDENCIES = "dependencies"  # RFC 26
SETTINGS = "settings"  # keys with values
ENVIRONMENT = "environment"  # rules on command lines; variables by name elsewhere
OPTIONAL_FILE = "optional file"  # the path may be omitted


def _fill(row: object, fields: Dict[str, Any]) -> None:
    for name in row.__slots__:  # type: ignore[attr-defined]
        object.__setattr__(row, name, fields[name])


class Web:
    """An option as a field of `/v2` and, with a `label`, of the web form that submits a job."""

    __slots__ = ("description", "hint", "initial", "label", "name", "resubmit")
    name: str
    # The description in the OpenAPI document.
    description: str
    # True if the value may be changed when a job is resubmitted.
    resubmit: bool
    # In the form: the field's label, a hint below the field, and its initial value.
    label: str
    hint: str
    initial: str

    def __init__(
        self, name: str, description: str, *, resubmit: bool = False, label: str = "", hint: str = "", initial: str = ""
    ) -> None:
        _fill(self, locals())

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to {name}: the options of jobs are constant")


class Option:
    """An option of a job. `web` is None if the option is neither in `/v2` nor in the form."""

    __slots__ = (
        "builder",
        "commands",
        "default",
        "flags",
        "help",
        "keyword",
        "kind",
        "least",
        "metavar",
        "name",
        "prefix",
        "repeats",
        "sets",
        "web",
    )
    # The name of the attribute of the parsed arguments.
    name: str
    # The flags on command lines, short before long; empty for an option that commands do not have.
    flags: Tuple[str, ...]
    kind: str
    help: str
    metavar: str
    commands: Tuple[str, ...]
    # True if the option may be given several times; its value is then a list.
    repeats: bool
    default: Optional[str]
    # The prefix of each value, for an option that appends to the list of another one (`--env-remove=A` is `--env=-A`).
    prefix: str
    # The least value of a COUNT.
    least: int
    # The dotted key below attributes.system that the option sets.
    sets: str
    # The parameter of the builders (formats.spec.jobspec_build) for the value; the builders set the key.
    builder: str
    # The keyword argument of JobspecV1.apply_options and of the bindings' builders.
    keyword: str
    web: Optional[Web]

    def __init__(
        self,
        name: str,
        flags: str = "",
        *,
        kind: str = TEXT,
        help: str = "",
        metavar: str = "",
        commands: Tuple[str, ...] = EVERY,
        repeats: bool = False,
        default: Optional[str] = None,
        prefix: str = "",
        least: int = 1,
        sets: str = "",
        builder: str = "",
        keyword: str = "",
        web: Optional[Web] = None,
    ) -> None:
        _fill(self, {**locals(), "flags": tuple(flags.split())})

    __setattr__ = Web.__setattr__


OPTIONS = (
    Option(
        "queue",
        "-q --queue",
        kind=QUEUE,
        metavar="NAME",
        help="Submit to a queue",
        sets="queue",
        builder="queue",
        web=Web("queue", "The queue (default: the instance's)", resubmit=True, label="Queue"),
    ),
    Option(
        "bank",
        "-B --bank",
        kind=NAME,
        metavar="BANK",
        help="Charge a bank",
        sets="bank",
        builder="bank",
        web=Web(
            "bank",
            "The bank (default: the user's, with accounting)",
            resubmit=True,
            label="Bank",
            hint="Empty: your default bank.",
        ),
    ),
    Option(
        "project",
        kind=NAME,
        commands=(),
        sets="project",
        web=Web(
            "project",
            "The project (default: the user's, with accounting)",
            resubmit=True,
            label="Project",
            hint="Empty: your default project.",
        ),
    ),
    Option(
        "time_limit",
        "-t --time-limit",
        kind=LIMIT,
        metavar="MIN|FSD",
        help="Time limit: a duration with a unit, else minutes",
        sets="duration",
        builder="duration",
        keyword="time_limit",
        web=Web(
            "duration",
            "Time limit: seconds, or such as 30m; 0: none (default)",
            resubmit=True,
            label="Time limit",
            hint="Minutes, or with a unit: 90s, 30m, 2h, 1d. Empty: the queue's.",
        ),
    ),
    Option(
        "urgency",
        "--urgency",
        kind=URGENCY,
        metavar="N",
        help="0-31, hold, expedite or default (16)",
        default="default",
        web=Web(
            "urgency",
            "How soon: 0 to 31, hold, default (16) or expedite",
            resubmit=True,
            label="Urgency",
            hint="0 to 31; empty: 16. hold waits until it is raised. More than 16 is for the owner.",
        ),
    ),
    Option(
        "job_name",
        "--job-name",
        kind=NAME,
        metavar="NAME",
        help="Name the job (default: its command)",
        sets="job.name",
        builder="name",
        web=Web("name", "The job's name (default: that of the command)", resubmit=True, label="Name"),
    ),
    Option(
        "setopt",
        "-o --setopt",
        kind=SETTINGS,
        metavar="OPT",
        help="Set shell option OPT[=VALUE]",
        repeats=True,
        keyword="shell_options",
        web=Web("options", "Shell options by name, as -o has them"),
    ),
    Option(
        "setattr",
        "-S --setattr",
        kind=SETTINGS,
        metavar="KEY=VAL",
        help="Set a jobspec attribute (^KEY=FILE: JSON)",
        repeats=True,
        keyword="attributes",
        web=Web("attributes", "Attributes by key, as --setattr has them", resubmit=True),
    ),
    Option(
        "dependency",
        "--dependency",
        kind=DEPENDENCIES,
        metavar="URI",
        help="Depend on SCHEME:VALUE, such as afterok:JOBID",
        repeats=True,
        sets="dependencies",
        keyword="dependency",
        web=Web(
            "dependencies",
            "What the job waits for: SCHEME:VALUE, or objects of RFC 26",
            label="Dependencies",
            hint="What the job waits for, one a line: afterok:JOBID, afterany:JOBID, begin-time:TIMESTAMP, singleton.",
        ),
    ),
    Option(
        "requires",
        "--requires --require",
        kind=CONSTRAINT,
        metavar="CONSTRAINT",
        help="Require node properties, host: or rank:",
        repeats=True,
        sets="constraints",
        keyword="requires",
    ),
    Option(
        "begin_time",
        "--begin-time",
        kind=MOMENT,
        metavar="TIME",
        help="Do not start before this time",
        sets="dependencies",
    ),
    Option(
        "signal",
        "--signal",
        kind=SIGNAL,
        metavar="[SIG][@TIME]",
        help="Send a signal some time before the time limit (USR1@60s)",
        sets="shell.options.signal",
        keyword="signal",
    ),
    Option(
        "taskmap",
        "--taskmap",
        kind=TASKMAP,
        metavar="SCHEME[:VALUE]",
        help="Place tasks by this scheme (block, cyclic[:N], manual:MAP)",
        sets="shell.options.taskmap",
        keyword="taskmap",
    ),
    Option(
        "preemptible_after",
        "--preemptible-after",
        kind=DURATION,
        metavar="FSD",
        help="Allow preemption after this time",
        sets="preemptible-after",
    ),
    # The next three options append to one list of rules, in the order given.
    Option(
        "env",
        "--env",
        kind=ENVIRONMENT,
        metavar="RULE",
        help="Change the environment (VAR=VAL, VAR, -PATTERN)",
        repeats=True,
        builder="environment",
        keyword="env",
        web=Web(
            "env",
            "Variables of the environment, besides HOME, USER, LOGNAME and PATH",
            label="Environment",
            hint="A variable a line: NAME=VALUE. HOME, USER, LOGNAME and PATH are set.",
        ),
    ),
    Option(
        "env", "--env-remove", kind=ENVIRONMENT, metavar="PATTERN", help="Remove variables", repeats=True, prefix="-"
    ),
    Option(
        "env", "--env-file", kind=ENVIRONMENT, metavar="FILE", help="Read rules from a file", repeats=True, prefix="^"
    ),
    Option(
        "rlimit",
        "--rlimit",
        metavar="RULE",
        help="Change resource limits (NAME=VALUE, -PATTERN, PATTERN)",
        repeats=True,
        builder="rlimits",
        keyword="rlimit",
    ),
    Option(
        "input",
        "--input",
        metavar="FILENAME|RANKS",
        help="Read standard input from a file, or send ours to these ranks",
        builder="input",
    ),
    Option("output", "--output", metavar="FILENAME", help="Write standard output to a file", builder="output"),
    Option("error", "--error", metavar="FILENAME", help="Write standard error to a file", builder="error"),
    Option(
        "label_io",
        "-l --label-io",
        kind=FLAG,
        help="Begin each line of output with its task's rank",
        builder="label_io",
    ),
    Option("unbuffered", "-u --unbuffered", kind=FLAG, help="Do not buffer output by lines", builder="unbuffered"),
    Option(
        "cwd",
        "--cwd",
        kind=DIRECTORY,
        metavar="DIR",
        help="Run in this directory",
        sets="cwd",
        builder="cwd",
        web=Web(
            "cwd",
            "Working directory (default: the service's)",
            resubmit=True,
            label="Directory",
            hint="Empty: {directory}",
        ),
    ),
    Option(
        "add_file",
        "--add-file",
        metavar="[NAME[:PERMS]=]ARG",
        help="Put a file into the jobspec",
        repeats=True,
        keyword="add_file",
    ),
    # The size of a job. The jobspec's resources depend on the combination of these options.
    Option(
        "nodes",
        "-N --nodes",
        kind=COUNT,
        metavar="N",
        help="Number of nodes",
        web=Web("nodes", "Nodes that the tasks are spread over", label="Nodes", hint="Empty: any number."),
    ),
    Option(
        "ntasks",
        "-n --ntasks",
        kind=COUNT,
        metavar="N",
        help="Number of tasks",
        commands=TASKS,
        web=Web("tasks", "Tasks (default: 1, or one on each node)", label="Tasks", initial="1"),
    ),
    Option(
        "cores_per_task",
        "-c --cores-per-task",
        kind=COUNT,
        metavar="N",
        help="Cores of each task",
        commands=TASKS,
        web=Web("cores_per_task", "Cores of each task (default: 1)", label="Cores of each task", initial="1"),
    ),
    Option(
        "gpus_per_task",
        "-g --gpus-per-task",
        kind=COUNT,
        metavar="N",
        help="GPUs of each task",
        commands=TASKS,
        least=0,
        web=Web("gpus_per_task", "GPUs of each task", label="GPUs of each task", initial="0"),
    ),
    Option("nslots", "-n --nslots", kind=COUNT, metavar="N", help="Number of slots", commands=SLOTS),
    Option(
        "cores_per_slot",
        "-c --cores-per-slot",
        kind=COUNT,
        metavar="N",
        help="Cores of each slot (default 1)",
        commands=SLOTS,
    ),
    Option(
        "gpus_per_slot",
        "-g --gpus-per-slot",
        kind=COUNT,
        metavar="N",
        help="GPUs of each slot",
        commands=SLOTS,
        least=0,
    ),
    Option(
        "exclusive",
        "-x --exclusive",
        kind=FLAG,
        help="Allocate whole nodes",
        web=Web("exclusive", "Whole nodes", label="Whole nodes, for this job alone"),
    ),
    Option("cores", "--cores", kind=COUNT, metavar="N", help="Number of cores", commands=TASKS),
    Option(
        "tasks_per_node", "--tasks-per-node", kind=COUNT, metavar="N", help="Run N tasks on each node", commands=TASKS
    ),
    Option(
        "tasks_per_core", "--tasks-per-core", kind=COUNT, metavar="N", help="Run N tasks on each core", commands=TASKS
    ),
    Option(
        "gpus_per_node", "--gpus-per-node", kind=COUNT, metavar="N", help="GPUs of each node", commands=TASKS, least=0
    ),
    Option(
        "shape", "--shape", metavar="SHAPE", help="Resources as a shape (RFC 46), such as slot=4/core=2", commands=TASKS
    ),
    Option(
        "conf",
        "--conf",
        metavar="CONF",
        help="Configure the instance: KEY=VALUE, a file, or TOML text",
        commands=SLOTS,
        repeats=True,
    ),
    Option(
        "dump",
        "--dump",
        kind=OPTIONAL_FILE,
        metavar="FILE",
        help="End with an archive of the instance, for flux restore",
        commands=SLOTS,
    ),
    Option(
        "broker_opts",
        "--broker-opts --broker-opt",
        metavar="OPTS",
        help="Options for the instance's brokers, split at commas",
        commands=SLOTS,
        repeats=True,
    ),
)

# Options that the builders set, and options that submission.finish sets.
BUILT = tuple(option for option in OPTIONS if option.builder)
SET = tuple(option for option in OPTIONS if option.sets and not option.builder)
