"""The driver behind `flux` and `headrace`: find the command, run it, and turn what went wrong into a line and a status.

Both names are one implementation. A command is a module of this room with `main(argv) -> int` and a PREFIX for its
error lines; it is imported only when it is run, so that no command pays for another. What is not in the table is
looked for as `flux-NAME` in FLUX_EXEC_PATH, then in PATH.
"""

from __future__ import annotations

import os
import sys

from headrace import __version__
from headrace.cli.common import command_environment, encodings
from headrace.cli.common.errors import CommandError, refusal
from headrace.formats.spec import jobid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

# command: (module of this package, what it does)
COMMANDS = {
    "R": ("resource.r", "encode, decode and combine resource sets"),
    "admin": ("instance.shutdown", "have commands run at the end of an instance"),
    "alloc": ("submit.alloc", "start an instance of its own on an allocation, interactively"),
    "api": ("api.main", "serve the instance to scripts and to browsers"),
    "archive": ("store.archive", "keep files in the key value store"),
    "batch": ("submit.batch", "submit a script that runs in an instance of its own"),
    "broker": ("instance.start", "run one broker"),
    "bulksubmit": ("submit.bulksubmit", "submit many jobs from lists of arguments"),
    "cancel": ("job.cancel", "cancel jobs"),
    "config": ("config", "show and change the instance's configuration"),
    "content": ("store.content", "store and load blobs"),
    "cron": ("instance.cron", "run commands at set times, at intervals and after events"),
    "dmesg": ("messages.dmesg", "show the broker's log"),
    "doctor": ("doctor", "say what is wrong with this machine or instance"),
    "dump": ("store.dump", "write the key value store, and with it all jobs, to an archive"),
    "env": ("installation", "print or run with the environment of this installation"),
    "event": ("messages.event", "publish and watch events"),
    "exec": ("instance.exec", "run a command on brokers"),
    "fluxqueue": ("fluxqueue.main", "run the queue in which all pods of a Kubernetes cluster wait"),
    "getattr": ("instance.attr", "show a broker attribute"),
    "hostlist": ("hostlist", "combine and inspect lists of hosts"),
    "ion-resource": ("resource.graph", "ask the graph scheduler what it knows"),
    "job": ("job.main", "act on jobs"),
    "jobs": ("jobs.main", "list jobs"),
    "keygen": ("keygen", "make a certificate for a configured instance"),
    "kvs": ("kvs.main", "read and write the key value store"),
    "logger": ("messages.logger", "append to the broker's log"),
    "lsattr": ("instance.attr", "list broker attributes"),
    "metrics-api": ("metrics_api", "serve an instance's numbers to autoscalers of Kubernetes"),
    "mini": ("mini.main", "check MiniCluster files, run them here, use them on Kubernetes"),
    "modprobe": ("modprobe", "load modules and run tasks as a file says"),
    "module": ("module", "load, remove and inspect broker modules"),
    "multi-prog": ("submit.multi_prog", "run the program that a file names for this task"),
    "operator": ("operator", "run the operator that makes MiniClusters of pods on Kubernetes"),
    "overlay": ("overlay", "show the tree of brokers"),
    "pgrep": ("jobs.pgrep", "list jobs by a pattern of their names"),
    "ping": ("messages.ping", "measure a round trip to a service"),
    "pkill": ("jobs.pkill", "cancel jobs by a pattern of their names"),
    "pmi": ("instance.pmi", "test a process management server"),
    "proxy": ("proxy.main", "run a command with the environment of another instance"),
    "pstree": ("jobs.pstree", "show jobs as a tree, with those of instances"),
    "python": ("installation", "run the Python of this installation"),
    "queue": ("queue.main", "list and control queues"),
    "relay": ("instance.relay", "connect standard input and output to a broker (the far end of ssh)"),
    "resource": ("resource.main", "list, drain and undrain resources"),
    "resource-query": ("resource.graph", "match job specifications against a resource graph"),
    "restore": ("store.restore", "put an archive of flux dump into the key value store"),
    "run": ("submit.run", "run a job and follow its output"),
    "setattr": ("instance.attr", "change a broker attribute"),
    "shutdown": ("instance.shutdown", "stop an instance"),
    "simulate": ("simulate.main", "try queue policies on a machine with the jobs of a trace"),
    "start": ("instance.start", "start an instance"),
    "startlog": ("instance.startlog", "list when the instance was started and how it ended"),
    "submit": ("submit.submit", "submit jobs"),
    "top": ("top.main", "watch jobs and resources on a screen"),
    "train": ("train", "run Jobs, JobSets and TrainJobs of Kubernetes without it"),
    "update": ("job.update", "change a submitted job"),
    "uptime": ("instance.uptime", "show how long the instance has been running"),
    "uri": ("instance.uri", "find the URI of an instance"),
    "version": ("installation", "show versions"),
    "watch": ("job.watch", "follow the output of many jobs"),
}

# Commands of Flux that are to be named as such where somebody tries them.
ABSENT = (
    "cgroup",
    "fortune",
    "fsck",
    "gc",
    "heaptrace",
    "housekeeping",
    "imp-exec-helper",
    "job-exec-override",
    "job-frobnicator",
    "job-validator",
    "jobtap",
    "lptest",
    "module-exec",
    "module-python-exec",
    "perilog-run",
    "post-job-event",
    "shell",
    "slurm-expiration-sync",
    "sproc",
    "terminus",
)

_USAGE = """Usage: flux [OPTIONS] COMMAND ARGS
  -h, --help             Print this text and end
  -p, --parent           Run COMMAND in the instance that this one is a job of
  -r, --root             Run COMMAND in the outermost instance
  -v, --verbose          Print the search paths and the program of COMMAND
  -V, --version          Print versions

'flux help COMMAND' shows what a command does and its options.
"""


def flux(argv: Optional[List[str]] = None) -> int:
    """Run a command line and return its exit status; without one run this process's, and end the process with it."""
    if argv is not None:
        return _run(list(argv))
    return _end(_run(sys.argv[1:]))


def _end(status: int) -> int:
    """End this process, where nothing is left to do, without the interpreter's own way out, which takes each module and
    object apart: 18 % of the CPU time of a short command. Otherwise return the status.
    """
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return status
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # What could not be written of stdout was told; for stderr there is nobody to tell.
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(status & 0xFF)


def _run(args: List[str]) -> int:
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_closed_streams()
    encodings.settle()
    try:
        status = _drive(args)
        sys.stdout.flush()
        return status
    except CommandError as exc:
        return _report("flux: ", exc)
    except BrokenPipeError:
        _abandon_stdout()
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as exc:
        # Our own help; commands are told of by run_command.
        return _report("flux: ", CommandError(str(exc.strerror or exc)))


def headrace(argv: Optional[List[str]] = None) -> int:
    """The same, under the project's own name; `--version` alone is Headrace's, not that of the commands of Flux."""
    if (sys.argv[1:] if argv is None else argv) in (["-V"], ["--version"]):
        print(f"headrace {__version__}")
        return 0
    return flux(argv)


def _drive(args: List[str]) -> int:
    hops = ""
    verbose = False
    while args and args[0][:1] == "-":
        option = args.pop(0)
        if option in ("-h", "--help"):
            args.insert(0, "help")
            break
        if option in ("-V", "--version"):
            args.insert(0, "version")
            break
        if option in ("-p", "--parent"):
            hops += "p"
        elif option in ("-r", "--root"):
            hops = "r"
        elif option in ("-v", "--verbose"):
            verbose = True
        else:
            raise CommandError(
                f"flux: unrecognized option '{option}'\nTry `flux --help' for more information.", bare=True
            )
    if not args:
        sys.stderr.write(_USAGE)
        return 1
    command_environment.prepare(os.environ, args[0])
    if verbose:
        command_environment.show()
    if hops:
        command_environment.retarget(hops)
    return run_command(args[0], args[1:], verbose)


def run_command(name: str, argv: List[str], verbose: bool = False) -> int:
    """Run command `name`; errors become its own kind of line on stderr and a status."""
    if name == "help" and argv and argv[0][:1] != "-":
        status = _manual_page(argv[0]) if len(argv) == 1 else None
        return run_command(argv[0], [*argv[1:], "--help"], verbose) if status is None else status
    if name == "help":
        sys.stdout.write(_USAGE + "\n" + _command_list())
        return 0
    entry = COMMANDS.get(name)
    if entry is None:
        return _run_external(name, argv, verbose)
    if verbose:
        sys.stderr.write(f"flux: trying to run {entry[0]} from headrace.cli\n")
    module = _load(name, entry)
    if name not in _BROKERS:
        jobid.follow_locale()
    if name in _INTERRUPTIBLE:
        _be_interruptible()
    try:
        status = _status(module.main, [argv] if entry[0] not in _SHARED else [argv, name])
        # Errors of writing, such as a full disk, are the command's, too.
        sys.stdout.flush()
        return status
    except CommandError as exc:
        return _report(_prefix(module, name), exc)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as exc:
        prefix = _prefix(module, name)
        return _report(prefix, CommandError(_text(exc, prefix) if isinstance(exc, OSError) else str(exc)))


def _text(exc: OSError, prefix: str) -> str:
    """What a command says of an error that it did not expect."""
    from headrace.formats.spec.os_error import text_of

    if not str(exc.strerror).startswith("Unable to connect to Flux"):
        return refusal(exc) if "ERROR" in prefix else text_of(exc)
    if "FLUX_URI" in os.environ or not sys.stderr.isatty():
        return str(exc.strerror)
    return f"{exc.strerror}\nflux: no instance is here: `flux start` begins one, FLUX_URI names one that runs"


def _status(main: Callable[..., int], args: List[Any]) -> int:
    """The status of a command: argparse, which shows help and refuses arguments, ends it by SystemExit."""
    try:
        return int(main(*args))
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        raise


def _be_interruptible() -> None:
    """Have SIGINT end this command where a shell without job control, which starts `command &` with SIGINT ignored,
    has started it."""
    from headrace.formats.spec.stdlib_parts import signal

    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Commands that wait for jobs. SIGINT ends them even where a shell without job control started them with it ignored.
_INTERRUPTIBLE = (
    "alloc",
    "batch",
    "bulksubmit",
    "cancel",
    "jobs",
    "queue",
    "resource",
    "run",
    "submit",
    "top",
    "update",
    "watch",
)

# Commands that become brokers.
_BROKERS = ("broker", "start")

# Modules that serve several commands are told which one was meant.
_SHARED = ("installation", "instance.attr", "instance.shutdown", "instance.start", "resource.graph")


def _prefix(module: Any, name: str) -> str:
    prefix: str = getattr(module, "PREFIX", "flux-{name}: ERROR: ")
    return prefix.replace("{name}", name)


def _report(prefix: str, exc: CommandError) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _abandon_stdout()
    if exc.text:
        try:
            sys.stderr.write(exc.text + "\n" if exc.bare else f"{prefix}{exc.text}\n")
        except OSError:
            pass
    return exc.status


def _abandon_stdout() -> None:
    """Point stdout at /dev/null so that the interpreter's last flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """Give streams that our caller closed /dev/null, so that no socket or file takes their numbers."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _load(name: str, entry: Tuple[str, str]) -> Any:
    full = f"headrace.cli.{entry[0]}"
    try:
        __import__(full)
    except ModuleNotFoundError as exc:
        # The name of the first package of the path that is missing.
        if not f"{full}.".startswith(f"{exc.name}."):
            raise
        raise CommandError(f"'{name}' is not available in this version of Headrace") from None
    return sys.modules[full]


def _run_external(name: str, argv: List[str], verbose: bool) -> int:
    if "/" in name:
        try:
            os.execv(name, [name, *argv])
        except OSError as exc:
            raise CommandError(f"{name}: {exc.strerror}", 127 if isinstance(exc, FileNotFoundError) else 126) from None
    folders = (os.environ.get("FLUX_EXEC_PATH", "") + ":" + os.environ.get("PATH", "")).split(":")
    for folder in [folder for folder in folders if folder]:
        # A Python program needs no `#!` line: it gets the interpreter that can import flux.
        for program in ([sys.executable, f"{folder}/flux-{name}.py"], [f"{folder}/flux-{name}"]):
            if os.access(program[-1], os.R_OK | os.X_OK) and not os.path.isdir(program[-1]):
                if verbose:
                    sys.stderr.write(f"flux: trying to exec {' '.join(program)}\n")
                os.execv(program[0], [*program, *argv])
    if name in ABSENT:
        raise CommandError(f"'{name}' is a Flux command that Headrace does not have yet")
    text = f"'{name}' is not a flux command.  See 'flux --help'"
    from headrace.cli.common import suggestions

    close = suggestions.similar(name, {*COMMANDS, *ABSENT, *suggestions.programs(folders)})
    if close:
        text += f"\n\nThe most similar command{'s are' if len(close) > 1 else ' is'}\n"
        text += "\n".join(f"\t{other}" for other in close)
    raise CommandError(text)


def _manual_page(topic: str) -> Optional[int]:
    """Show the manual page of a command, or of a topic, as man(1) does, and give its status; None where there is none.

    With FLUX_IGNORE_NO_DOCS our own help is shown in any case.
    """
    if os.environ.get("FLUX_IGNORE_NO_DOCS"):
        return None
    import subprocess

    page = f"flux-{topic}"
    try:
        found = subprocess.run(["man", "-w", page], capture_output=True, check=False)
        return None if found.returncode else subprocess.run(["man", page], check=False).returncode
    except OSError:
        # A machine without man(1).
        return None


def _command_list() -> str:
    text = "Commands:\n" + "".join(f"   {name:<17}  {text}\n" for name, (_, text) in COMMANDS.items())
    return text + _added_commands(os.environ.get("FLUX_CMDHELP_PATTERN", ""))


def _added_commands(pattern: str) -> str:
    """What the files that match a shell pattern, JSON lists of category, command and description, add to the help."""
    if not pattern:
        return ""
    import glob
    import json

    categories: Dict[str, str] = {}
    titles: Dict[str, str] = {}
    for path in sorted(glob.glob(pattern)):
        with open(path, encoding="utf-8") as file:
            for entry in json.load(file):
                if "command" not in entry:
                    # A category.
                    titles[entry.get("name", "")] = entry.get("description", "")
                    continue
                line = f"   {entry['command']:<17}  {entry['description']}\n"
                categories[entry["category"]] = categories.get(entry["category"], "") + line
    heads = {name: titles.get(name) or f"Common commands from flux-{name}:" for name in categories}
    return "".join(f"\n{heads[name]}\n{lines}" for name, lines in categories.items())
