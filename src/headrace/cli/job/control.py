"""`flux job kill`, `raise`, `urgency`, `memo`, `purge`, `submit`, `cancel`: job manager requests."""

from __future__ import annotations

import errno
import json
import signal
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.main import parse_id
from headrace.formats.spec import duration, jobid
from headrace.formats.spec.job_exception import CANCEL, FATAL, SEVERITIES
from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.cli.common.getopts import Options

_KILL = Command(
    "flux-job kill",
    "[OPTIONS] ids...",
    "Send a signal to all tasks of these jobs",
    (("s", "signal", "SIG", "The signal, by name or number (default: SIGTERM)"),),
)
_RAISE = Command(
    "flux-job raise",
    "[OPTIONS] ids... [--] [message ...]",
    "Raise an exception on these jobs; severity 0 ends them",
    (
        ("s", "severity", "N", "From 0 (ends the jobs, the default) to 7 (informational)"),
        ("t", "type", "TYPE", "Type of the exception (default: cancel)"),
        ("m", "message", "NOTE", "Note for the job's eventlog"),
    ),
)
_URGENCY = Command(
    "flux-job urgency",
    "[OPTIONS] id urgency",
    "Move a job up or down its queue: 0-31, HOLD, EXPEDITE or DEFAULT",
    (("v", "verbose", "", "Print the urgency that the job had"),),
)
_MEMO = Command(
    "flux-job memo",
    "[--volatile] id key=val [key=val, ...]",
    "Attach notes to a job, which job listings can show (RFC 21 memo)",
    (("", "volatile", "", "Keep the notes in memory only; they are lost at a restart"),),
)
_PURGE = Command(
    "flux-job purge",
    "[--age-limit=FSD] [--num-limit=N] | jobid [jobid ...]",
    "Delete jobs that have ended, oldest first or by id",
    (
        ("", "age-limit", "FSD", "Delete jobs that ended longer ago than FSD"),
        ("", "num-limit", "COUNT", "Delete the oldest until COUNT ended jobs remain"),
        ("f", "force", "", "Delete the jobs instead of only counting them"),
        ("", "batch", "COUNT", "Number of jobs to delete per request (default: 50)"),
    ),
)
_SUBMIT = Command(
    "flux-job submit",
    "[OPTIONS] [jobspec]",
    "Submit jobs from a jobspec file or standard input",
    (
        ("u", "urgency", "N", "Urgency: 0-31 (default: 16), hold or expedite"),
        ("f", "flags", "FLAGS", "Submit flags, separated by commas: debug, waitable, novalidate, signed"),
        ("s", "sign-type", "TYPE", "Sign with none or munge (default: HEADRACE_SIGN_TYPE, or none)"),
    ),
)
_URGENCIES = {"hold": URGENCY_HOLD, "default": URGENCY_DEFAULT, "expedite": URGENCY_EXPEDITE}
_SUBMIT_FLAGS = {"debug": 2, "waitable": 4, "novalidate": 8}
# The flag that stays here: the input is J, a jobspec that is signed already (RFC 39).
_SIGNED = "signed"
_PURGE_BATCH = 50


def cancel(argv: List[str]) -> int:
    from headrace.cli.job.cancel import main

    return main(argv)


def signal_number(text: str) -> int:
    """A signal by number or name, with or without SIG; -1 if there is no such signal."""
    if text.isdigit():
        return int(text) if 0 < int(text) < signal.NSIG else -1
    name = text.upper()
    found = getattr(signal, name if name[:3] == "SIG" else "SIG" + name, None)
    return int(found) if isinstance(found, signal.Signals) else -1


def kill(argv: List[str]) -> int:
    options = _KILL.parse(argv)
    ids = options.need(1)
    jobs = [parse_id(text) for text in ids]
    signum = signal_option(options, "kill")
    return _for_each("kill", ids, jobs, "job-manager.kill", {"signum": signum})


def signal_option(options: Options, verb: str) -> int:
    """The number of the signal that `--signal` names, SIGTERM without it. Raises CommandError."""
    text = options.get("signal", "SIGTERM")
    signum = signal_number(text)
    if signum < 0:
        raise CommandError(f"{verb}: Invalid signal {text}")
    return signum


def _for_each(verb: str, ids: List[str], jobs: List[int], topic: str, request: Dict[str, Any]) -> int:
    """Send the request for each job, report errors, and return 1 if there was one, otherwise 0."""
    handle = Handle()
    calls = [handle.rpc(topic, {"id": job, **request}) for job in jobs]
    failed = 0
    for text, call in zip(ids, calls):
        try:
            call.get()
        except OSError as exc:
            failed = 1
            sys.stderr.write(f"flux-job: {verb} {text}: {exc.strerror}\n")
    return failed


def raise_(argv: List[str]) -> int:
    options = _RAISE.parse(argv)
    operands = options.need(1)
    split = 1
    while split < len(operands) and not options.has("message") and _is_id(operands[split]):
        split += 1
    if options.has("message"):
        split = len(operands)
    note = options.get("message", " ".join(operands[split:]))
    severity = options.get_int("severity", FATAL)
    if severity not in SEVERITIES:
        raise CommandError("Invalid severity: it must be from 0 to 7")
    request: Dict[str, Any] = {"type": options.get("type", CANCEL), "severity": severity}
    if note:
        request["note"] = note
    ids = operands[:split]
    return _for_each("raise", ids, [parse_id(text) for text in ids], "job-manager.raise", request)


def _is_id(text: str) -> bool:
    """True if an operand after the first is another job id, and not a word of the note.

    A lowercase word such as "foo" counts as a word, although it could be a job id in ASCII. Few job ids have neither
    digits nor capitals.
    """
    return text[:1] == "ƒ" or (text[:1] == "f" and _parses(text) and not (text.isalpha() and text.islower()))


def _parses(text: str) -> bool:
    try:
        jobid.parse(text)
    except ValueError:
        return False
    return True


def urgency(argv: List[str]) -> int:
    options = _URGENCY.parse(argv)
    text, value = options.need(2, 2)
    job = parse_id(text)
    try:
        number = _URGENCIES[value.lower()] if value.lower() in _URGENCIES else int(value)
    except ValueError:
        _URGENCY.usage_error()
    try:
        old = Handle().rpc("job-manager.urgency", {"id": job, "urgency": number}).get()["old_urgency"]
    except OSError as exc:
        raise CommandError(f"{text}: {exc.strerror}") from None
    if options.has("verbose"):
        shown = {0: "job held", 31: "job expedited"}.get(old, str(old))
        sys.stderr.write(f"old urgency: {shown}\n")
    return 0


def memo(argv: List[str]) -> int:
    options = _MEMO.parse(argv)
    operands = options.need(2)
    job = parse_id(operands[0])
    entries: Dict[str, Any] = {}
    for pair in operands[1:]:
        key, sep, value = pair.partition("=")
        if not sep:
            raise CommandError(f"memo: no value for key {key}")
        text = sys.stdin.read() if value == "-" else value
        try:
            _put(entries, key, json.loads(text))
        except ValueError:
            _put(entries, key, text)
    request = {"id": job, "volatile": options.has("volatile"), "memo": entries}
    try:
        Handle().rpc("job-manager.memo", request).get()
    except OSError as exc:
        raise CommandError(f"memo: {exc.strerror}") from None
    return 0


def _put(table: Dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested tables, which are created if they do not exist."""
    *parents, last = path.split(".")
    for name in parents:
        inner = table.get(name)
        if not isinstance(inner, dict):
            inner = table[name] = {}
        table = inner
    table[last] = value


def purge(argv: List[str]) -> int:
    options = _PURGE.parse(argv)
    handle = Handle()
    force = options.has("force")
    if options.operands:
        request: Dict[str, Any] = {"jobs": [parse_id(text) for text in options.operands], "force": force}
        return _tell_purge(handle, _purge(handle, "job-manager.purge-id", request), force)
    batch = options.get_int("batch", _PURGE_BATCH)
    num_limit = options.get_int("num-limit", -1)
    if options.has("num-limit") and num_limit < 0:
        raise CommandError(f"num limit must be >= 0, not {num_limit}")
    request = {
        "age_limit": duration.parse(options.get("age-limit")) if options.has("age-limit") else -1.0,
        "num_limit": num_limit,
        "batch": batch,
        "force": force,
    }
    total = count = _purge(handle, "job-manager.purge", request)
    while force and count == batch:
        count = _purge(handle, "job-manager.purge", request)
        total += count
    return _tell_purge(handle, total, force)


def _purge(handle: Handle, topic: str, request: Dict[str, Any]) -> int:
    """Send a request; returns the number of jobs that it purged, or would purge. Raises CommandError."""
    try:
        return int(handle.rpc(topic, request, 0).get()["count"])
    except OSError as exc:
        raise CommandError(f"purge: {exc.strerror}") from None


def _tell_purge(handle: Handle, count: int, force: bool) -> int:
    inactive = handle.rpc("job-manager.stats-get", nodeid=0).get()["inactive_jobs"]
    if force:
        print(f"purged {count} inactive jobs, {inactive} remaining")
    else:
        print(f"use --force to purge {count} of {inactive} inactive jobs")
    return 0


def submit(argv: List[str]) -> int:
    """Submit a jobspec from a file or standard input; with `--flags=signed`, a signed one."""
    from headrace.wire.query.signing import sign

    options = _SUBMIT.parse(argv)
    operands = options.need(0, 1)
    if operands and operands[0] != "-":
        with open(operands[0]) as file:
            text = file.read()
    else:
        text = sys.stdin.read()
    flags, signed = 0, False
    for name in [name for given in options.get_list("flags") for name in given.split(",")]:
        if name == _SIGNED:
            signed = True
        elif name in _SUBMIT_FLAGS:
            flags |= _SUBMIT_FLAGS[name]
        else:
            raise CommandError(f"unknown flag: {name}")
    mechanism = options.get("sign-type", "")
    if signed and mechanism:
        raise CommandError("--sign-type: the jobspec is signed already, with --flags=signed")
    given = options.get("urgency", "default").lower()
    try:
        number = _URGENCIES[given] if given in _URGENCIES else int(given)
    except ValueError:
        raise CommandError(f"invalid urgency '{given}'") from None
    j = text.strip() if signed else sign(text, mechanism=mechanism)
    request = {"J": j, "urgency": number, "flags": flags}
    try:
        print(jobid.encode(Handle().rpc("job-ingest.submit", request).get()["id"], "f58"))
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise
        raise CommandError(str(exc.strerror)) from None
    return 0
