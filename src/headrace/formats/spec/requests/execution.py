"""Requests to run programs: `job-exec` (RFC 32) and its tree, `rexec` (RFC 42), shells, `barrier`."""

from __future__ import annotations

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods

_NONE = form({})
_PROCESS = {"pid?": int, "label?": str}
_SHELL = {"shell?": {"job": int, "topic": str}}
_COMMAND = {"cmdline": [str], "env": dict, "cwd?": str, "opts?": dict, "label?": str, "channels?": list}

# Requests between the exec services of the tree.
JOB_EXEC_NODE: Methods = {
    "launch": form(
        {
            "job": {"id": int, "userid": int, "ranks": [int], "jobspec": dict, "R": dict, "as_user?": bool},
            "targets": str,
        }
    ),
    "up": form({"rank": int, "ops": [{"op": str}]}),
    "down": form({"op": str, "id": int}),
    "peer": form({"ops": [{"id": int, "from": int, "data": dict}]}),
}

JOB_EXEC: Methods = {
    **JOB_EXEC_NODE,
    "start": form({"id": int, "userid": int, "jobspec": dict, "R": dict, "reattach?": bool, "requeues_left?": int}),
    "kill": form({"id": int, "signum": int}),
    "expiration": form({"id": int, "expiration": float}),
    "override": form({"jobid": int, "event": str, "status?": int}),
    "critical-ranks": form({"id": int, "ranks": str}),
}

REXEC: Methods = {
    "exec": form({"cmd": _COMMAND, "flags": int, "local_flags?": int, **_SHELL}),
    "write": form({"matchtag": int, "io": {"stream": str, "data?": str, "eof?": bool, "encoding?": str}, **_SHELL}),
    "kill": form({**_PROCESS, "signum": int, **_SHELL}),
    "list": form(_SHELL),
    "wait": form({**_PROCESS, **_SHELL}),
    "attach": form({**_PROCESS, "flags": int, **_SHELL}),
}

SHELL: Methods = {
    "stdin": form({"data?": str, "eof?": bool, "encoding?": str}),
    "kill": form({"signum": int}),
    "proctable": _NONE,
    "pty": form({"type": str, "data?": str, "winsize?": dict}),
}

BARRIER: Methods = {"enter": form({"name": str, "nprocs": int})}

_ENTRY = form({"id": int})
API: Methods = {"url": _NONE}

CRON: Methods = {
    "create": form(
        {
            **{"type": str, "name": str, "command": str, "args": dict, "environ?": dict, "cwd?": str},
            **{"repeat?": int, "rank?": int, "task-history-count?": int, "stop-on-failure?": int, "timeout?": float},
        }
    ),
    "delete": form({"id": int, "kill?": bool}),
    "list": _NONE,
    "start": _ENTRY,
    "stop": _ENTRY,
    "sync": form({"topic?": str, "disable?": bool, "sync_epsilon?": float}),
}
