"""Starts the broker of a pod as a fork of the runner, and reports its states.

The runner imports the broker's modules before it forks the first broker. So a pod starts only one interpreter, and each
later start of a broker costs only a fork.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, NoReturn

from ...api.pod_plan import PodPlan
from ...api.shell_text import Mode
from .place import Place

# Environment variable with the arguments of a broker under a wrapper, as JSON.
_WRAPPED = "HEADRACE_POD_BROKER"
# Exit code of a follower's broker after a signal has ended its lead: EX_TEMPFAIL of sysexits.h.
EXIT_LEAD_SIGNALED = 75
# How long a broker that ends waits for its children: a child may hang although its connection is alive.
SHUTDOWN_TIMEOUT = "20s"
# The states in which a broker is part of its instance.
UP = ("quorum", "run", "cleanup")


def attributes(plan: PodPlan, place: Place, statedir: bool) -> dict[str, str]:
    """The broker attributes (flux-broker-attributes(7)) of a pod."""
    attrs = {
        "broker.shutdown-timeout": SHUTDOWN_TIMEOUT,
        **plan.attrs,
        "rundir": f"{place.config}/run/flux",
        "rundir-cleanup": "0",
    }
    attrs["config.path"] = f"{place.config}/etc/flux/config"
    if statedir and place.rank == 0:
        attrs["statedir"] = f"{place.config}/var/lib/flux"
        attrs.update(archive_attributes(plan.archive, attrs["statedir"]))
    if place.rank:
        attrs["broker.exit-restart"] = str(EXIT_LEAD_SIGNALED)
    if not plan.disable_socket:
        attrs["local-uri"] = f"local://{place.socket}"
    if Mode(plan.mode) is Mode.INTERACTIVE:
        attrs["broker.rc2_none"] = "1"
    return attrs


def archive_attributes(path: str, statedir: str) -> dict[str, str]:
    """The broker attributes for an instance whose state is kept in the MiniCluster's `archive.path`."""
    if not path:
        return {}
    attrs = {"content.dump": path}
    # If an earlier broker of this pod has left a statedir, that is newer than the archive.
    if os.path.exists(path) and not os.path.isdir(f"{statedir}/jobs"):
        attrs["content.restore"] = path
    return attrs


def preload(size: int) -> None:
    """Import the modules of a broker, without creating a thread, loop or ZeroMQ context."""
    from headrace.engine.broker.launch import preload as brokers

    brokers.preload(size > 1)


def fork_broker(
    attrs: dict[str, str], config: dict[str, Any], command: list[str], report: int, wrapper: list[str]
) -> int:
    """Start the broker and return its pid.

    The broker writes the name of each state that it enters as a line to the descriptor `report`. `wrapper`, if not
    empty, is a command that runs the broker as a program of its own.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if wrapper:
            _be_wrapped(wrapper, attrs, command, report)
        _be_broker(dict(attrs), config, command, report)
    return pid


def _be_wrapped(wrapper: list[str], attrs: dict[str, str], command: list[str], report: int) -> NoReturn:
    """Execute the wrapper, which runs the broker."""
    import json

    from .environment import own_command

    try:
        os.set_inheritable(report, True)
        env = {**os.environ, _WRAPPED: json.dumps({"attrs": attrs, "command": command, "report": report})}
        os.execvpe(wrapper[0], [*wrapper, *own_command(), "broker"], env)
    except OSError as exc:
        print(f"headrace-pod: spec.flux.wrap: {wrapper[0]}: {exc.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def be_wrapped_broker() -> int:
    """Entry point of `headrace-pod broker`, which a wrapper (`spec.flux.wrap`) runs.

    Becomes the broker and does not return. Returns exit status 2 if it was not called by a wrapper.
    """
    import json

    text = os.environ.pop(_WRAPPED, "")
    if not text:
        print("headrace-pod broker: only the runner may call this, with the program of spec.flux.wrap", file=sys.stderr)
        return 2
    start = json.loads(text)
    os.set_inheritable(start["report"], False)
    preload(2)
    from headrace.formats.config import files as config_files

    _be_broker(start["attrs"], config_files.load(start["attrs"]["config.path"]), start["command"], start["report"])


def _be_broker(attrs: dict[str, str], config: dict[str, Any], command: list[str], report: int) -> NoReturn:
    """Run the broker in this process, and exit."""
    from headrace.engine.broker.launch import launch
    from headrace.engine.broker.launch.options import LaunchError, LaunchOptions

    code = 1
    try:
        options = LaunchOptions(
            attrs=attrs,
            config=config,
            config_path=attrs["config.path"],
            command=command,
            on_state=lambda state: _report(report, state),
        )
        code = launch.start_here(options)
    except LaunchError as exc:
        print(f"headrace-pod: {exc}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _report(fd: int, state: str) -> None:
    os.write(fd, state.encode() + b"\n")
