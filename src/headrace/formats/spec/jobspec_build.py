"""Builders of version 1 job specifications (RFC 25) for the command line and for ``import flux``.

Both use these functions, so the same parameters result in the same jobspec. Keys are in the order in which Flux writes
them. Wrong arguments raise ValueError or TypeError with Flux's messages, which scripts compare and users know. The
functions depend on their arguments only: callers pass environment, working directory and limits.
"""

from __future__ import annotations

from headrace.formats.spec import duration as duration_

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

    Jobspec = Dict[str, Any]

# The label of task slots (RFC 14) that all commands use.
SLOT_LABEL = "task"


def from_command(
    command: Sequence[str],
    num_tasks: int = 1,
    cores_per_task: int = 1,
    gpus_per_task: Optional[int] = None,
    num_nodes: Optional[int] = None,
    exclusive: bool = False,
    **attributes: Any,
) -> Jobspec:
    """Make the jobspec of ``num_tasks`` tasks, each in its own slot, on ``num_nodes`` nodes if given.

    ``attributes`` are the parameters of with_attributes. Raises ValueError, TypeError.
    """
    jobspec = _resources_and_tasks(command, num_tasks, cores_per_task, gpus_per_task, num_nodes, exclusive)
    return with_attributes(jobspec, **attributes)


def per_resource(
    command: Sequence[str],
    ncores: Optional[int] = None,
    nnodes: Optional[int] = None,
    per_resource_type: Optional[str] = None,
    per_resource_count: Optional[int] = None,
    gpus_per_node: Optional[int] = None,
    exclusive: bool = False,
    **attributes: Any,
) -> Jobspec:
    """Make the jobspec of a request for cores and nodes, with tasks counted per node or core by the shell.

    With ``ncores`` alone, there are this many slots of one core. With ``nnodes``, there is one slot on each node, which
    has an equal share of the cores, or the whole node without ``ncores``. ``attributes`` are the parameters of
    with_attributes. Raises ValueError.
    """
    _check_per_resource(ncores, nnodes, per_resource_type, per_resource_count, gpus_per_node)
    slot_cores = 1
    if nnodes is None:
        nslots = ncores or 1
    else:
        nslots = nnodes
        if ncores is None:
            exclusive = True
        else:
            if ncores < nnodes:
                raise ValueError("number of cores cannot be less than nnodes")
            if ncores % nnodes:
                raise ValueError("number of cores must be evenly divisible by node count")
            slot_cores = ncores // nnodes
    jobspec = _resources_and_tasks(command, nslots, slot_cores, gpus_per_node, nnodes, exclusive)
    options: Dict[str, Any] = {}
    if per_resource_type is not None:
        options["per-resource"] = {"type": per_resource_type, "count": per_resource_count}
    return with_attributes(jobspec, shell=options, **attributes)


def from_nest_command(
    command: Sequence[str],
    num_slots: int = 1,
    cores_per_slot: int = 1,
    gpus_per_slot: Optional[int] = None,
    num_nodes: Optional[int] = None,
    broker_opts: Optional[Sequence[str]] = None,
    exclusive: bool = False,
    conf: Optional[Mapping[str, Any]] = None,
    **attributes: Any,
) -> Jobspec:
    """Make the jobspec of an instance with ``command`` as initial program (``flux alloc``).

    There is a broker on each node. ``conf`` becomes the instance's configuration. ``attributes`` are the parameters of
    with_attributes. Raises ValueError, TypeError.
    """
    opts = [] if broker_opts is None else list(broker_opts)
    if conf is not None:
        opts.insert(0, "-c{{tmpdir}}/conf.json")
    jobspec = with_attributes(
        _resources_and_tasks(
            ["flux", "broker", *opts, *command], num_slots, cores_per_slot, gpus_per_slot, num_nodes, exclusive
        ),
        # Each node gets one broker, whatever the number of slots. MPI and exit-timeout are for parallel programs.
        shell={"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"},
        **attributes,
    )
    if conf is not None:
        add_file(jobspec, "conf.json", dict(conf))
    return jobspec


def from_batch_command(
    script: str,
    jobname: str,
    args: Optional[Sequence[str]] = None,
    num_slots: int = 1,
    cores_per_slot: int = 1,
    gpus_per_slot: Optional[int] = None,
    num_nodes: Optional[int] = None,
    broker_opts: Optional[Sequence[str]] = None,
    exclusive: bool = False,
    conf: Optional[Mapping[str, Any]] = None,
    **attributes: Any,
) -> Jobspec:
    """Make the jobspec of an instance that runs a batch script (``flux batch``).

    The text of the script is stored in the jobspec. Raises ValueError if the script does not start with ``#!``.
    """
    if not script.startswith("#!"):
        raise ValueError(f"{jobname} does not appear to start with '#!'")
    jobspec = from_nest_command(
        ["{{tmpdir}}/script", *(args or [])],
        num_slots,
        cores_per_slot,
        gpus_per_slot,
        num_nodes,
        broker_opts,
        exclusive,
        conf,
        **{"name": jobname, **attributes},
    )
    add_file(jobspec, "script", script, perms=0o700)
    return jobspec


# -- changing a jobspec under construction --------------------------------------------------------


def with_attributes(
    jobspec: Jobspec,
    *,
    duration: Union[float, str, None] = None,
    environment: Optional[Mapping[str, Optional[str]]] = None,
    env_expand: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    rlimits: Optional[Mapping[str, int]] = None,
    name: Optional[str] = None,
    input: Optional[str] = None,
    output: Optional[str] = None,
    error: Optional[str] = None,
    label_io: bool = False,
    unbuffered: bool = False,
    queue: Optional[str] = None,
    bank: Optional[str] = None,
    shell: Optional[Mapping[str, Any]] = None,
) -> Jobspec:
    """Set the attributes that all builders accept, and return the jobspec.

    ``duration`` is seconds or an RFC 23 string. Without ``environment`` the key is omitted. ``shell`` contains shell
    options that the builder itself sets. Raises ValueError, TypeError.
    """
    system = jobspec["attributes"]["system"]
    if duration is not None:
        set_duration(jobspec, duration)
    if environment is not None:
        system["environment"] = dict(environment)
    if cwd is not None:
        system["cwd"] = cwd
    if name is not None:
        system["job"] = {"name": name}
    if input is not None:
        set_shell_option(jobspec, "input.stdin", {"type": "file", "path": input})
    for stream, path in (("stdout", output), ("stderr", error)):
        # Without a file, output goes to the KVS. "none" and "kvs" mean the same.
        if path is not None and path not in {"none", "kvs"}:
            set_shell_option(jobspec, f"output.{stream}", {"type": "file", "path": path})
            if label_io:
                set_shell_option(jobspec, f"output.{stream}.label", True)
    if unbuffered:
        set_shell_option(jobspec, "output.stdout.buffer.type", "none")
        set_shell_option(jobspec, "output.stderr.buffer.type", "none")
    for key, value in (shell or {}).items():
        set_shell_option(jobspec, key, value)
    if env_expand:
        set_shell_option(jobspec, "env-expand", dict(env_expand))
    if rlimits:
        set_shell_option(jobspec, "rlimit", dict(rlimits))
    if queue is not None:
        system["queue"] = queue
    if bank is not None:
        system["bank"] = bank
    return jobspec


def set_attribute(jobspec: Jobspec, key: str, value: Any) -> None:
    """Set an attribute by its dotted key, as ``--setattr`` does; missing objects on its path are created.

    ``user.x``, ``system.x`` and ``.x`` are keys below ``attributes``, ``attributes.x`` is the full key, and any other
    key is below ``attributes.system``. Raises ValueError for an empty part, or for a non-object on the path.
    """
    if key.startswith("."):
        path = ["attributes", *key[1:].split(".")]
    elif key.startswith(("user.", "system.")):
        path = ["attributes", *key.split(".")]
    elif key.startswith("attributes."):
        path = key.split(".")
    else:
        path = ["attributes", "system", *key.split(".")]
    if not all(path):
        raise ValueError(f"attribute key '{key}' has an empty part")
    node = jobspec
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            from headrace.formats.spec import plain_json

            shown = value if isinstance(value, str) else plain_json.dumps(value)
            raise ValueError(f"failed to set {'.'.join(path)} to {shown}: '{part}' is already set to a value")
    node[path[-1]] = value


def set_shell_option(jobspec: Jobspec, key: str, value: Any = 1) -> None:
    """Set a shell option by its dotted key, as ``-o`` does; raises ValueError as set_attribute does."""
    set_attribute(jobspec, f"attributes.system.shell.options.{key}", value)


def add_file(jobspec: Jobspec, path: str, content: Any, perms: int = 0o600) -> None:
    """Store a file (RFC 37) in the jobspec by name: text, bytes, or a JSON value; raises ArchiveError."""
    from headrace.formats.spec import archive

    files = jobspec["attributes"]["system"].setdefault("files", {})
    files[path] = archive.entry(content, perms)


def set_duration(jobspec: Jobspec, value: Union[float, str]) -> None:
    """Set the time limit, in seconds or as an RFC 23 string, 0 for none; raises ValueError, TypeError."""
    jobspec["attributes"]["system"]["duration"] = _seconds(value)


# -- parsing values of command line options -------------------------------------------------------


def parse_setting(text: str) -> Tuple[str, Any]:
    """Parse ``KEY[=VALUE]`` of ``--setattr`` and ``-o``: JSON, otherwise a string; 1 without a value.

    ``^KEY=FILE`` takes the value from a JSON file. Raises ValueError, or OSError if the file cannot be read.
    """
    import json

    key, equals, value = text.partition("=")
    if key.startswith("^"):
        if not value:
            raise ValueError(f"{text}: '^KEY' needs the name of a JSON file: ^KEY=FILE")
        with open(value, encoding="utf-8") as file:
            try:
                return key[1:], json.load(file)
            except (ValueError, RecursionError) as exc:
                raise ValueError(f"{value}: not JSON: {exc}") from None
    if not key:
        raise ValueError(f"{text!r}: a key is missing before '='")
    if not equals:
        return key, 1
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def parse_signal(text: str) -> Dict[str, Any]:
    """Parse ``[SIG][@TIME]`` of ``--signal`` into {signum, timeleft}; default SIGUSR1 60 s before the end.

    Raises ValueError.
    """
    name, _, when = text.partition("@")
    timeleft = 60.0
    if when:
        try:
            timeleft = duration_.parse(when)
        except ValueError:
            raise ValueError(f"--signal: invalid Flux standard duration '{when}': use one such as 10s or 5m") from None
    return {"signum": signal_number(name or "USR1"), "timeleft": timeleft}


def signal_number(name: str) -> int:
    """Return the number of a signal given as ``USR1``, ``SIGUSR1`` or ``10``; raises ValueError."""
    import signal as signal_

    if name.startswith("-") and name[1:].isdigit():
        raise ValueError(f"signal must be > 0, not {name}")
    try:
        if name.isdigit():
            return int(signal_.Signals(int(name)))
        upper = name.upper()
        return int(signal_.Signals[upper if upper.startswith("SIG") else "SIG" + upper])
    except (KeyError, ValueError):
        raise ValueError(f"signal '{name}' is invalid: use a name such as USR1 or a number") from None


# -- internal -------------------------------------------------------------------------------------


def _resources_and_tasks(
    command: Sequence[str],
    ntasks: int,
    cores: int,
    gpus: Optional[int],
    nnodes: Optional[int],
    exclusive: bool,
) -> Jobspec:
    _check_command(command)
    if not _positive(ntasks):
        raise ValueError("task count must be a integer >= 1")
    if not _positive(cores):
        raise ValueError("cores per task must be an integer >= 1")
    if gpus not in (None, 0) and not _positive(gpus):
        raise ValueError("gpus per task must be an integer >= 0")
    if nnodes is not None and not _positive(nnodes):
        raise ValueError("node count must be an integer >= 1 (if set)")
    if nnodes is None and exclusive:
        raise ValueError("exclusive can only be set with a node count")
    if nnodes is not None and nnodes > ntasks:
        raise ValueError("node count must not be greater than task count")

    inner: List[Dict[str, Any]] = [{"type": "core", "count": cores}]
    if gpus:
        inner.append({"type": "gpu", "count": gpus})
    # If tasks do not divide evenly among nodes, every node still gets the same number of slots, and some stay empty.
    nslots = ntasks if nnodes is None else -(-ntasks // nnodes)
    even = nnodes is None or ntasks % nnodes == 0
    root: Dict[str, Any] = {"type": "slot", "count": nslots, "with": inner, "label": SLOT_LABEL}
    if nnodes is not None:
        slot = root
        root = {"type": "node", "count": nnodes}
        if exclusive:
            root["exclusive"] = True
        root["with"] = [slot]
    count = {"per_slot": 1} if even else {"total": ntasks}
    return {
        "resources": [root],
        "tasks": [{"command": list(command), "slot": SLOT_LABEL, "count": count}],
        "attributes": {"system": {"duration": 0}},
        "version": 1,
    }


def _check_command(command: Sequence[str]) -> None:
    if isinstance(command, (str, bytes)) or not hasattr(command, "__len__"):
        raise TypeError("command must be a list or tuple of strings")
    if not command:
        raise TypeError("command array cannot have length of zero")
    if not all(isinstance(word, str) for word in command):
        raise TypeError("command must be a list of strings")


def _check_per_resource(
    ncores: Optional[int],
    nnodes: Optional[int],
    kind: Optional[str],
    count: Optional[int],
    gpus_per_node: Optional[int],
) -> None:
    if ncores is None and nnodes is None:
        raise ValueError("must specify node or core count with per_resource")
    if ncores is not None and not _positive(ncores):
        raise ValueError("ncores must be an integer >= 1")
    if nnodes is not None and not _positive(nnodes):
        raise ValueError("nnodes must be an integer >= 1")
    if (kind is None) != (count is None):
        raise ValueError("must specify both or neither of per_resource_type and per_resource_count")
    if kind not in {None, "node", "core"}:
        raise ValueError(f"per_resource_type must be node or core, not {kind}")
    if count is not None and not _positive(count):
        raise ValueError("per_resource_count must be an integer >= 1")
    if gpus_per_node not in (None, 0) and not _positive(gpus_per_node):
        raise ValueError("gpus_per_node must be an integer >= 0")
    if gpus_per_node is not None and nnodes is None:
        raise ValueError("gpus_per_node must be specified with a node count")


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _seconds(value: Union[float, str]) -> float:
    if isinstance(value, str):
        try:
            seconds = duration_.parse(value)
        except ValueError:
            raise ValueError("invalid Flux standard duration") from None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("duration must be a number of seconds or a duration string")
    else:
        seconds = float(value)
    if seconds < 0:
        raise ValueError("duration must not be negative")
    # RFC 14 has no infinite duration; 0 means no limit.
    return 0.0 if seconds == float("inf") else seconds
