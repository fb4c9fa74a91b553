"""The driver behind `flux` and `headrace`: finds and runs a command, and reports its errors.

Both names are one implementation. A command is a module of this package with `main(argv) -> int` and a PREFIX for its
error lines. It is imported only when it is run, so that no command pays for the imports of another. A name that is not
in COMMANDS is looked up as the program `flux-NAME` in FLUX_EXEC_PATH, then in PATH.
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

# command: (module of this package, its line in the help)
COMMANDS = {
    "R": ("resource.r", "encode, decode and combine resource sets"),
    "account": ("account.main", "manage banks, users and their limits, and show usage and fair share"),
    "account-fairshare-emulate": ("account.fairshare_emulate", "compute fair share for banks and users in a file"),
    "account-fetch-job-records": ("account.usage_programs", "copy the records of jobs that have ended to the database"),
    "account-priority-update": ("account.priority_update", "send the accounting database to the policy mf_priority"),
    "account-service": ("account.service", "serve the accounting database to flux account"),
    "account-update-db": ("account.update_db", "update the accounting database to this version's tables"),
    "account-update-fshare": ("account.usage_programs", "compute the fair share of all users"),
    "account-update-usage": ("account.usage_programs", "add the jobs in the accounting database to usage"),
    "admin": ("instance.shutdown", "register commands to run at the end of an instance"),
    "alloc": ("submit.alloc", "allocate resources and start an interactive instance on them"),
    "api": ("api.main", "serve the instance to scripts and browsers over HTTP"),
    "archive": ("store.archive", "store files in the key-value store and extract them"),
    "batch": ("submit.batch", "submit a script that runs in its own instance"),
    "broker": ("instance.start", "run one broker"),
    "bulksubmit": ("submit.bulksubmit", "submit many jobs from lists of arguments"),
    "cancel": ("job.cancel", "cancel jobs"),
    "config": ("config", "show and change the instance's configuration"),
    "content": ("store.content", "store and load blobs"),
    "cron": ("instance.cron", "run commands at set times, at intervals and after events"),
    "dmesg": ("messages.dmesg", "show the broker's log"),
    "doctor": ("doctor", "check this machine and the current instance for problems"),
    "dump": ("store.dump", "write the key-value store, which holds all jobs, to an archive"),
    "env": ("installation", "print or run with the environment of this installation"),
    "event": ("messages.event", "publish and watch events"),
    "exec": ("instance.exec", "run a command on brokers"),
    "experiment": ("experiment.main", "run experiments from one file, with repeated runs and a report"),
    "fluxqueue": ("fluxqueue.main", "run, install or inspect the job queue of a Kubernetes cluster"),
    "getattr": ("instance.attr", "show a broker attribute"),
    "hostlist": ("hostlist", "combine and inspect lists of hosts"),
    "ion-resource": ("resource.graph", "query and change the graph of the graph scheduler"),
    "job": ("job.main", "act on jobs"),
    "jobs": ("jobs.main", "list jobs"),
    "jobtap": ("jobtap", "load and remove plugins of the job manager"),
    "keygen": ("keygen", "create a certificate for a configured instance"),
    "kvs": ("kvs.main", "read and write the key-value store"),
    "logger": ("messages.logger", "append to the broker's log"),
    "lsattr": ("instance.attr", "list broker attributes"),
    "metrics-api": ("metrics_api", "serve an instance's metrics to Kubernetes autoscalers"),
    "mini": ("mini.main", "check MiniCluster files, run them here or on Kubernetes"),
    "modprobe": ("modprobe", "load the modules and run the tasks that files configure"),
    "module": ("module", "load, remove and inspect broker modules"),
    "multi-prog": ("submit.multi_prog", "run the program that a file names for this task"),
    "operator": ("operator", "run, install or remove the Kubernetes operator for MiniClusters"),
    "overlay": ("overlay", "show the tree of brokers"),
    "pgrep": ("jobs.pgrep", "list jobs by a pattern of their names"),
    "ping": ("messages.ping", "measure a round trip to a service"),
    "pkill": ("jobs.pkill", "cancel jobs by a pattern of their names"),
    "pmi": ("instance.pmi", "test a process management server"),
    "proxy": ("proxy.main", "run a command with the environment of another instance"),
    "pstree": ("jobs.pstree", "show jobs, and the jobs of nested instances, as a tree"),
    "python": ("installation", "run the Python of this installation"),
    "queue": ("queue.main", "list and control queues"),
    "relay": ("instance.relay", "connect standard input and output to a broker (the far end of ssh)"),
    "resource": ("resource.main", "list, drain and undrain resources"),
    "resource-query": ("resource.graph", "match job specifications against a resource graph"),
    "restore": ("store.restore", "load an archive of flux dump into the key-value store"),
    "run": ("submit.run", "run a job and follow its output"),
    "setattr": ("instance.attr", "change a broker attribute"),
    "shutdown": ("instance.shutdown", "stop an instance"),
    "simulate": ("simulate.main", "simulate queue policies with the jobs of a trace"),
    "start": ("instance.start", "start an instance"),
    "startlog": ("instance.startlog", "list when the instance was started and how it ended"),
    "submit": ("submit.submit", "submit jobs"),
    "top": ("top.main", "watch jobs and resources on a screen"),
    "train": ("train", "run Kubernetes Jobs, JobSets and TrainJobs without Kubernetes"),
    "update": ("job.update", "change a submitted job"),
    "uptime": ("instance.uptime", "show how long the instance has been running"),
    "uri": ("instance.uri", "find the URI of an instance"),
    "version": ("installation", "show versions"),
    "watch": ("job.watch", "follow the output of many jobs"),
}

# Commands of Flux that Headrace does not have; the error for one of them says so.
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

# The name by which this process was started, for usage and errors: `flux` or `headrace`.
_program = "flux"
_USAGE = """Usage: {0} [OPTIONS] COMMAND ARGS
  -h, --help             Print this text and end
  -p, --parent           Run COMMAND in the instance that this one is a job of
  -r, --root             Run COMMAND in the outermost instance
  -v, --verbose          Print the search paths and the program of COMMAND
  -V, --version          Print versions

'{0} help COMMAND' shows what a command does and its options.
"""


def flux(argv: Optional[List[str]] = None) -> int:
    """Run a command line and return its exit status.

    Without one, run this process's own and end the process.
    """
    return _main("flux", argv)


def _main(program: str, argv: Optional[List[str]]) -> int:
    global _program
    _program = program
    if argv is not None:
        return _run(list(argv))
    return _end(_run(sys.argv[1:]))


def _end(status: int) -> int:
    """End this process with `status`; if other threads run, return `status` instead.

    The process exits without the interpreter's shutdown, which destroys each module and object: 18 % of the CPU time of
    a short command.
    """
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return status
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # An error of stdout was reported when the command ended; an error of stderr cannot be reported anywhere.
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
        return _report(f"{_program}: ", exc)
    except BrokenPipeError:
        _abandon_stdout()
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as exc:
        # The driver's own help could not be written. Errors of commands are reported in run_command.
        return _report(f"{_program}: ", CommandError(str(exc.strerror or exc)))


def headrace(argv: Optional[List[str]] = None) -> int:
    """Run a command line as `flux` does, but with this name, and `--version` alone prints Headrace's version."""
    if (sys.argv[1:] if argv is None else argv) in (["-V"], ["--version"]):
        print(f"headrace {__version__}")
        return 0
    return _main("headrace", argv)


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
                f"{_program}: unrecognized option '{option}'\nTry `{_program} --help' for more information.", bare=True
            )
    if not args:
        sys.stderr.write(_USAGE.format(_program))
        return 1
    command_environment.prepare(os.environ, args[0])
    if verbose:
        command_environment.show()
    if hops:
        command_environment.retarget(hops)
    return run_command(args[0], args[1:], verbose)


def run_command(name: str, argv: List[str], verbose: bool = False) -> int:
    """Run command `name`; an error becomes a line with the command's prefix on stderr and an exit status."""
    if name == "help" and argv and argv[0][:1] != "-":
        status = _manual_page(argv[0]) if len(argv) == 1 else None
        return run_command(argv[0], [*argv[1:], "--help"], verbose) if status is None else status
    if name == "help":
        sys.stdout.write(_USAGE.format(_program) + "\n" + _command_list())
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
        # Flush here, so that a write error such as a full disk is reported with the command's prefix.
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
    """The text of an OSError that the command did not handle."""
    from headrace.formats.spec.os_error import text_of

    if not str(exc.strerror).startswith("Unable to connect to Flux"):
        return refusal(exc) if "ERROR" in prefix else text_of(exc)
    if "FLUX_URI" in os.environ or not sys.stderr.isatty():
        return str(exc.strerror)
    return f"{exc.strerror}\nflux: no instance found: start one with `flux start`, or set FLUX_URI to a running one"


def _status(main: Callable[..., int], args: List[Any]) -> int:
    """Run a command and return its status, also if argparse ends it with SystemExit."""
    try:
        return int(main(*args))
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        raise


def _be_interruptible() -> None:
    """Restore the default action of SIGINT.

    A shell without job control starts `command &` with SIGINT ignored.
    """
    from headrace.formats.spec.stdlib_parts import signal

    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Commands that wait for jobs. SIGINT ends them even if a shell without job control started them with SIGINT ignored.
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

# Modules of several commands; their `main` gets the name of the command as a second argument.
_SHARED = (
    "account.usage_programs",
    "installation",
    "instance.attr",
    "instance.shutdown",
    "instance.start",
    "resource.graph",
)


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
    """Point stdout at /dev/null, so that the interpreter's last flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null, so that no socket or file gets their descriptors."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            # open(2) returns the lowest free descriptor, which is `fd`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _load(name: str, entry: Tuple[str, str]) -> Any:
    full = f"headrace.cli.{entry[0]}"
    try:
        __import__(full)
    except ModuleNotFoundError as exc:
        # `exc.name` is the first missing package on the path to the module. Any other name is a missing dependency.
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
    text = f"'{name}' is not a {_program} command.  See '{_program} --help'"
    from headrace.cli.common import suggestions

    close = suggestions.similar(name, {*COMMANDS, *ABSENT, *suggestions.programs(folders)})
    if close:
        text += f"\n\nThe most similar command{'s are' if len(close) > 1 else ' is'}\n"
        text += "\n".join(f"\t{other}" for other in close)
    raise CommandError(text)


def _manual_page(topic: str) -> Optional[int]:
    """Show the manual page of a topic with man(1) and return its status; None without such a page.

    With FLUX_IGNORE_NO_DOCS set it always returns None, so that the command's own help is shown.
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
    """Lines of the help from the files that match a shell pattern.

    Each file is a JSON list of objects with category, command and description.
    """
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
