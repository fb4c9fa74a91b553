"""The plan of a MiniCluster: hosts, the brokers' options, and the shell text around the brokers.

Pure. The local runner turns a plan into processes of this machine, the Kubernetes side turns it into objects. Commands
in a user's file are shell text. `command`, `prefix` and `commands` are placed where the Flux Operator places them.
`commands.script` and the lines of a batch are written through an unquoted here-document, because existing files escape
the job's variables as `\\${NAME}`. One difference from the Flux Operator is intended: the exit status is the job's, not
that of the last command.
"""

from __future__ import annotations

import functools
import shlex
import string
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from headrace.formats.spec.hostlist import Hostlist

from .fields import Bursting, Commands, LeadBroker, MiniCluster
from .shell_text import Mode

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Maximum number of characters of a configuration; thousands of hosts and queues need less.
_LARGEST_CONFIG = 64 << 10
_MOST_KEY_PARTS = 50
_KEY_CHARACTERS = string.ascii_letters + string.digits + "-_'\""
DEFAULT_OUTPUT = "/tmp/fluxout"
# The file with a batch's output, as a word for the shell.
_PRINTED = '"$FLUX_OUTPUT_DIR/flux-job.out"'
_END = "HEADRACE_END_OF_TEXT"
# Up to 256 followers are direct children of the lead, which can easily handle that many connections.
TOPOLOGY = "kary:256"


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a MiniCluster. `before` to `after` are shell text."""

    name: str
    size: int
    """The number of hosts that start."""
    hosts: str
    """A hostlist (RFC 29) of all hosts that may ever join, the lead first."""
    quorum: str
    """The broker attribute `broker.quorum`; "" waits for all brokers."""
    mode: Mode
    attrs: dict[str, str]
    """Broker attributes of all ranks."""
    config: dict[str, Any]
    """The brokers' configuration (RFC 14: TOML as an object)."""
    environment: dict[str, str]
    """Environment variables for all processes on the hosts."""
    output_dir: str
    """Where the jobs of a batch write their output."""
    working_dir: str
    """The working directory; "" is the current one."""
    strict: bool
    """Whether a failing command ends the shell text (`set -e`)."""
    quiet: bool
    """Whether only the job's output is printed."""
    timed: bool
    """Whether lines with FLUXTIME report how long each step took."""
    before: str
    """Runs on every host before its broker."""
    lead_before: str
    """Runs only on the lead, before its broker."""
    follower_before: str
    """Runs only on followers, before their brokers."""
    initial_program: str
    """Runs inside the instance; its exit status is the job's."""
    after: str
    """Runs on the lead after the instance."""


def make_plan(cluster: MiniCluster, *, with_groups: bool = False) -> Plan:
    """The plan of a valid MiniCluster; `with_groups` includes the pods of its groups as hosts."""
    runner = cluster.runner
    commands = runner.commands or Commands()
    mode = mode_of(cluster)
    output_dir = runner.logs or DEFAULT_OUTPUT
    before = [commands.init]
    if commands.script:
        before.append(_here_document("$HEADRACE_MINI_DIR/script", commands.script))
        before.append('chmod +x "$HEADRACE_MINI_DIR/script"')
    before.append(commands.pre)
    lead = [commands.broker_pre]
    if mode is Mode.BATCH:
        lead.append(f'mkdir -p "$FLUX_OUTPUT_DIR"\nrm -f {_PRINTED}')
        lead.append(_here_document("$HEADRACE_MINI_DIR/flux-job.batch", batch_script(runner.command, runner.batch_raw)))
    return Plan(
        name=cluster.name,
        size=cluster.spec.size,
        hosts=",".join([hostlist(cluster), *(group_hosts(cluster) if with_groups else ())]),
        quorum=quorum(cluster, with_groups),
        mode=mode,
        attrs=_attributes(cluster, with_groups),
        config=_config(cluster),
        environment={**runner.environment, **cluster.flux.environment},
        output_dir=output_dir,
        working_dir=runner.working_dir,
        strict=cluster.logging.strict,
        quiet=cluster.logging.quiet,
        timed=cluster.logging.timed,
        before=_lines(before),
        lead_before=_lines(lead),
        follower_before=_lines([commands.worker_pre]),
        initial_program=initial_program(cluster, with_groups=with_groups),
        after=_lines([commands.post]),
    )


def mode_of(cluster: MiniCluster) -> Mode:
    """How the command of the runFlux container is run."""
    runner = cluster.runner
    if not runner.command.strip() and not (runner.commands and runner.commands.script):
        return Mode.INTERACTIVE
    if runner.batch:
        return Mode.BATCH
    return Mode.LAUNCHER if runner.launcher else Mode.SUBMIT


def hostlist(cluster: MiniCluster) -> str:
    """All hosts that may join, as a hostlist (RFC 29): the MiniCluster's own, then those of bursting."""
    bursting = cluster.flux.bursting or Bursting()
    if bursting.hostlist:
        return bursting.hostlist
    lead = outside_lead(cluster)
    if lead:
        groups = [lead.address]
        if lead.size > 1:
            groups.append(f"{lead.name}-[1-{lead.size - 1}]" if lead.size > 2 else f"{lead.name}-[1]")
    else:
        groups = [hosts_of(cluster.name, max(cluster.spec.size, cluster.spec.max_size))]
    for index, burst in enumerate(bursting.clusters):
        groups.append(hosts_of(burst.name or f"burst-{index}", burst.size or cluster.spec.size))
    return ",".join(groups)


def outside_lead(cluster: MiniCluster) -> LeadBroker | None:
    """The lead of another MiniCluster that this one joins (`bursting.leadBroker`); None without."""
    lead = cluster.flux.bursting.lead_broker if cluster.flux.bursting else None
    return lead if lead and lead.address else None


def hosts_outside(cluster: MiniCluster) -> int:
    """The number of hosts outside this MiniCluster that its lead waits for before it runs a job."""
    if cluster.flux.bursting is None or outside_lead(cluster) or quorum(cluster, with_groups=True):
        return 0
    bursting, own = cluster.flux.bursting, max(cluster.spec.size, cluster.spec.max_size)
    if bursting.hostlist:
        return _count_others(bursting.hostlist, cluster.name, own)
    sizes: dict[str, int] = {cluster.name: own}
    for index, burst in enumerate(bursting.clusters):
        name = burst.name or f"burst-{index}"
        sizes[name] = max(sizes.get(name, 0), burst.size or cluster.spec.size)
    return sum(sizes.values()) - own


@functools.lru_cache(maxsize=256)
def _count_others(hosts: str, name: str, own: int) -> int:
    """The number of hosts in a hostlist except NAME-0 to NAME-(own - 1).

    Cached, because each reconcile needs it.
    """
    return sum(not _is_own(host, name, own) for host in set(Hostlist.parse(hosts)))


def _is_own(host: str, name: str, size: int) -> bool:
    index = host[len(name) + 1 :]
    return host.startswith(f"{name}-") and index.isdigit() and str(int(index)) == index and int(index) < size


def hosts_of(name: str, size: int) -> str:
    """`size` hosts of a cluster as a hostlist."""
    return f"{name}-[0-{size - 1}]" if size > 1 else f"{name}-[0]"


def group_hosts(cluster: MiniCluster) -> list[str]:
    """The hosts of each group that may ever join, as hostlists."""
    return [hosts_of(f"{cluster.name}-{one.name}", max(one.size, one.max_size)) for one in cluster.spec.groups]


def nodes_of(cluster: MiniCluster, with_groups: bool) -> int:
    """The number of brokers that start."""
    return cluster.spec.size + sum(one.size for one in cluster.spec.groups if with_groups)


def quorum(cluster: MiniCluster, with_groups: bool = False) -> str:
    """The number of brokers at which the instance is ready; "" for all."""
    spec = cluster.spec
    groups = spec.groups if with_groups else []
    if spec.min_size:
        return str(spec.min_size + sum(one.size for one in groups))
    all_start = spec.max_size in (0, spec.size) and all(one.max_size in (0, one.size) for one in groups)
    return "" if all_start else str(nodes_of(cluster, with_groups))


def node_flags(cluster: MiniCluster, with_groups: bool = False) -> list[str]:
    """The options of `flux submit` for the job's nodes and tasks."""
    size, tasks = nodes_of(cluster, with_groups), cluster.spec.tasks
    if tasks == 0:
        return [f"-N{size}"]
    return [f"-N{size}", f"-n{tasks}"] if tasks >= size else [f"-n{tasks}"]


def job_lines(lines: str) -> Iterator[tuple[int, str]]:
    """The jobs of a batch, each with the number of its first line, from 0.

    Empty lines and comments are not jobs, but they are counted, because the Flux Operator numbers output files by all
    lines. A line that ends with a backslash continues on the next line.
    """
    texts = lines.split("\n")
    begun, first = "", 0
    for index, text in enumerate(texts):
        first = first if begun else index
        line, begun = begun + text.strip(), ""
        if line.startswith("#"):
            continue
        if line.endswith("\\"):
            begun = line[:-1]
            if index + 1 < len(texts):
                continue
            line = begun
        if line.strip():
            yield first, line


def batch_script(lines: str, raw: bool) -> str:
    """The script of a batch: `lines` unchanged (`raw`), or a submission of each line followed by a wait.

    Each submitted line has an output file of its own.
    """
    # Users write the lines for bash. The script runs in bash if the shell that writes it is bash, otherwise in sh.
    head = "#!${BASH:-/bin/sh}"
    if raw:
        return f"{head}\n{lines}"
    out = [head]
    for index, line in job_lines(lines):
        files = f"--error=${{FLUX_OUTPUT_DIR}}/job-{index}.err --output=${{FLUX_OUTPUT_DIR}}/job-{index}.out"
        out.append(f"flux submit --flags=waitable {files} {line}")
    # `flux queue drain` also waits for jobs that have not started yet. `flux job wait` is last, because its status
    # shows whether all jobs succeeded.
    return "\n".join([*out, "flux queue drain", "flux jobs -a", "flux job wait --all"]) + "\n"


def initial_program(cluster: MiniCluster, *, with_groups: bool = False) -> str:
    """The shell text that runs inside the instance, on the lead; "" if users run commands themselves."""
    mode = mode_of(cluster)
    if mode is Mode.INTERACTIVE:
        return ""
    runner = cluster.runner
    commands = runner.commands or Commands()
    flux = cluster.flux
    flags = [*node_flags(cluster, with_groups), flux.option_flags.strip(), "-vvv" if cluster.logging.debug else ""]
    flags = [flag for flag in flags if flag]
    prefix = " ".join(commands.prefix.split("\n")).strip()
    if mode is Mode.BATCH:
        return _batch_program(prefix, flags, cluster.logging.quiet)
    command = '"$HEADRACE_MINI_DIR/script"' if commands.script else one_line(runner.command)
    if mode is Mode.LAUNCHER:
        return f"{prefix} {command}".strip() + "\n"
    # `flux submit` leaves a job's standard input open for `flux job attach`. Nothing is attached here, so a program
    # that reads its standard input would wait forever.
    submit = flux.submit_command.strip() or "flux submit --input=/dev/null"
    return " ".join([prefix, submit, *flags, "--quiet --watch", command]).strip() + "\n"


def one_line(command: str) -> str:
    """Join the lines of a command as the Flux Operator does: line ends separate words.

    Quoted text is not changed. Lines that begin with `#` are removed.
    """
    out: list[str] = []
    quote = ""
    for line in command.strip().split("\n"):
        if not quote and line.lstrip().startswith("#"):
            continue
        out += ["\n" if quote else " ", line]
        characters = iter(line)
        for character in characters:
            if character == "\\" and quote != "'":
                next(characters, None)
            elif character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote = character
        if not quote and line.endswith("\\"):
            # The line continues on the next line.
            out[-1] = line[:-1]
    return "".join(out).strip()


def _batch_program(prefix: str, flags: list[str], quiet: bool) -> str:
    """Shell text that submits the batch, waits for it, and prints its output even if a job failed."""
    words = ["flux batch", *flags, f"--flags=waitable --output={_PRINTED}", '"$HEADRACE_MINI_DIR/flux-job.batch"']
    run = f"{prefix} sh -c {shlex.quote(' '.join(words) + ' && flux job wait --all')}".strip()
    if quiet:
        return f"{run} > /dev/null\n"
    return f"{run}\nresult=$?\n[ ! -f {_PRINTED} ] || cat {_PRINTED}\n(exit $result)\n"


def _attributes(cluster: MiniCluster, with_groups: bool) -> dict[str, str]:
    flux = cluster.flux
    level = 0 if cluster.logging.quiet else flux.log_level
    attrs = {"log-stderr-level": str(level), "log-stderr-mode": "local", "tbon.topo": flux.topology or TOPOLOGY}
    if flux.connect_timeout:
        attrs["tbon.connect_timeout"] = flux.connect_timeout
    if cluster.logging.zeromq:
        attrs["tbon.zmqdebug"] = "1"
    if quorum(cluster, with_groups):
        attrs["broker.quorum"] = quorum(cluster, with_groups)
    return attrs


@functools.lru_cache(maxsize=64)
def given_config(text: str) -> dict[str, Any]:
    """The tables of a `brokerConfig`.

    Raises ValueError (tomllib.TOMLDecodeError for text that is not TOML). Cached, because each reconcile needs them.
    Callers must not change the result.
    """
    if len(text) > _LARGEST_CONFIG:
        raise ValueError(f"has {len(text)} characters, at most {_LARGEST_CONFIG} are read")
    if _longest_key(text) > _MOST_KEY_PARTS:
        # The parser's memory grows with the square of the number of parts of a key.
        raise ValueError(f"a key has more than {_MOST_KEY_PARTS} parts")
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return tables


def _longest_key(text: str) -> int:
    """An upper bound for the parts of a key in TOML text: the longest run of words joined by dots."""
    longest = run = 0
    for part in text.split("."):
        run = run + 1 if part and not part.strip(" \t").strip(_KEY_CHARACTERS) else 1
        longest = max(longest, run)
    return longest + 1


def placement_of(config: dict[str, Any]) -> list[str]:
    """The tables that place brokers and define resources. The program that starts the brokers sets them."""
    return [name for name in config if name in ("bootstrap", "resource")]


def _config(cluster: MiniCluster) -> dict[str, Any]:
    """The brokers' configuration without the tables of `placement_of`."""
    flux = cluster.flux
    if flux.broker_config:
        given = given_config(flux.broker_config)
        return {key: table for key, table in given.items() if key not in placement_of(given)}
    policy = (flux.scheduler.queue_policy if flux.scheduler else "") or "fcfs"
    access = {"allow-guest-user": True, "allow-root-owner": True}
    return {"access": access, "sched-fluxion-qmanager": {"queue-policy": policy}}


def _here_document(path: str, text: str) -> str:
    # The here-document is unquoted, so the shell expands variables at this point unless they are escaped.
    return f'cat > "{path}" <<{_END}\n{text.rstrip()}\n{_END}'


def _lines(texts: list[str]) -> str:
    return "".join(text.rstrip() + "\n" for text in texts if text.strip())
