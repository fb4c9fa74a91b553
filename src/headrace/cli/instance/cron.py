"""`flux cron`: manages commands that the module `cron` runs at intervals, at dates and after events."""

from __future__ import annotations

import os
import re
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import ExactCommand, dispatch
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    from headrace.cli.common.getopts import Options

PREFIX = "flux-cron: "

_MADE = (
    ("o", "options", "OPTS", "Comma-separated timeout=SECONDS, rank=N, task-history-count=N, stop-on-failure=N"),
    ("E", "preserve-env", "", "Run with the current environment instead of the broker's"),
    ("d", "working-dir", "DIR", "Run in this directory instead of the broker's"),
)
_NAMED = (
    ("c", "count", "N", "Stop after N runs"),
    ("N", "name", "NAME", "Name the entry (default: the first word of COMMAND)"),
    *_MADE,
)
_INTERVAL = ExactCommand(
    "flux-cron interval",
    "[OPTIONS] INTERVAL COMMAND",
    "Run a command at an interval in seconds (suffixes m, h, d: minutes, hours, days)",
    (("a", "after", "INTERVAL", "Run for the first time after this time (default: INTERVAL)"), *_NAMED),
)
_EVENT = ExactCommand(
    "flux-cron event",
    "[OPTIONS] TOPIC COMMAND",
    "Run a command after events of a topic",
    (
        ("n", "nth", "N", "Run after every Nth event"),
        ("a", "after", "N", "Run for the first time after N events"),
        ("i", "min-interval", "INTERVAL", "Wait at least this time between two runs"),
        *_NAMED,
    ),
)
_TAB = ExactCommand(
    "flux-cron tab", "[OPTIONS] [FILE]", "Run commands at the times of a crontab file (default: standard input)", _MADE
)
_AT = ExactCommand("flux-cron at", "[OPTIONS] TIME COMMAND", "Run a command once, at a time that date(1) parses", _MADE)
_LIST = ExactCommand("flux-cron list", "", "List all entries")
_DUMP = ExactCommand(
    "flux-cron dump", "[OPTIONS] ID", "Print all values of an entry", (("k", "key", "KEY", "Print only this value"),)
)
_DELETE = ExactCommand(
    "flux-cron delete",
    "[OPTIONS] ID...",
    "Delete entries, after a running command has ended",
    (("k", "kill", "", "Kill a running command"),),
)
_START = ExactCommand("flux-cron start", "ID...", "Start stopped entries again")
_STOP = ExactCommand("flux-cron stop", "ID...", "Stop entries until they are started again")
_SYNC = ExactCommand(
    "flux-cron sync",
    "[OPTIONS] [TOPIC]",
    "Show or set the event that all runs wait for",
    (
        ("d", "disable", "", "Do not wait for an event"),
        ("e", "epsilon", "INTERVAL", "Do not wait if the last event was less than this time ago"),
    ),
)
_OPTIONS = ("timeout", "rank", "task-history-count", "stop-on-failure")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FIELDS = ("minute", "hour", "mday", "month", "weekday")


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-cron", argv, _TABLE)
    _RUN[name](rest)
    return 0


# -- creating entries


def _interval(argv: List[str]) -> None:
    options = _INTERVAL.parse(argv, stop_early=True)
    interval, *words = options.need(2)
    args: Dict[str, Any] = {"interval": _seconds(interval)}
    if options.has("after"):
        args["after"] = _seconds(options.get("after"))
    made = _create(Handle(), "interval", args, words, options)
    print(f"interval: cron-{made['id']} created")


def _event(argv: List[str]) -> None:
    options = _EVENT.parse(argv, stop_early=True)
    topic, *words = options.need(2)
    args: Dict[str, Any] = {"topic": topic, "nth": options.get_int("nth", 0), "after": options.get_int("after", 0)}
    if options.has("min-interval"):
        args["min_interval"] = _seconds(options.get("min-interval"))
    made = _create(Handle(), "event", args, words, options)
    print(f"event: cron-{made['id']} created")


def _tab(argv: List[str]) -> None:
    options = _TAB.parse(argv)
    (path,) = options.need(0, 1) or ["-"]
    if path == "-":
        lines = list(_crontab(sys.stdin))
    else:
        with open(path, encoding="utf-8") as file:
            lines = list(_crontab(file))
    handle = Handle()
    for fields, command in lines:
        _tell("tab", _create(handle, "datetime", {"second": 0, **fields}, [command], options))


def _crontab(lines: Any) -> Iterator[Tuple[Dict[str, str], str]]:
    """The calendar fields and the command of each line; comments and empty lines are skipped.

    Raises CommandError.
    """
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text:
            continue
        words = text.split(None, len(_FIELDS))
        if len(words) <= len(_FIELDS):
            raise CommandError(
                f"Failed to process crontab line: {line.strip()} (line {number} lacks a field or a command)"
            )
        yield dict(zip(_FIELDS, words)), words[-1]


def _at(argv: List[str]) -> None:
    options = _AT.parse(argv, stop_early=True)
    text, *words = options.need(2)
    date = time.localtime(_date(text))
    args = {
        **{"second": date.tm_sec, "minute": date.tm_min, "hour": date.tm_hour, "mday": date.tm_mday},
        **{"month": date.tm_mon - 1, "year": date.tm_year - 1900},
    }
    _tell("at", _create(Handle(), "datetime", args, words, options, repeat=1))


def _date(text: str) -> float:
    """Seconds since the epoch, parsed by date(1), or if that fails like the dates of other commands."""
    import subprocess

    from headrace.wire.query import when

    try:
        done = subprocess.run(
            ["date", "+%s", f"--date={text}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
        return float(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        pass
    try:
        return when.parse_future(text)
    except when.WhenError:
        raise CommandError(f"Failed to parse datetime arg: '{text}'") from None


def _create(
    handle: Handle, kind: str, args: Dict[str, Any], words: List[str], options: Options, repeat: int = 0
) -> Dict[str, Any]:
    command = " ".join(words)
    request: Dict[str, Any] = {"type": kind, "args": args, "command": command}
    request["name"] = options.get("name") or (command.split() or [""])[0]
    if options.has("working-dir"):
        request["cwd"] = options.get("working-dir")
    if repeat or options.has("count"):
        request["repeat"] = repeat or options.get_int("count", 0)
    if options.has("preserve-env"):
        request["environ"] = dict(os.environ)
    for text in [text for given in options.get_list("options") for text in given.split(",")]:
        name, _, value = text.partition("=")
        if name not in _OPTIONS:
            raise CommandError(f"-o {text}: unknown option, known are {', '.join(_OPTIONS)}")
        try:
            request[name] = float(value) if name == "timeout" else int(value)
        except ValueError:
            raise CommandError(f"-o {text}: '{value}' is not a number") from None
    made: Dict[str, Any] = handle.rpc("cron.create", request).get()
    return made


def _tell(name: str, entry: Dict[str, Any]) -> None:
    wakeup = entry["typedata"]["next_wakeup"]
    date = time.strftime("%c", time.localtime(wakeup))
    print(f"{name}: cron-{entry['id']} created: scheduled in {wakeup - time.time():.3f}s at {date}")


def _seconds(text: str) -> float:
    """Parse a duration with the units of Flux's cron, in lower or upper case. Raises CommandError."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smhdSMHD]?)", text)
    if match is None:
        raise CommandError(f"Invalid duration '{text}'")
    return float(match.group(1)) * _UNITS[match.group(2).lower()]


# -- showing and changing entries


def _entries(handle: Handle) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = handle.rpc("cron.list", {}).get()["entries"]
    return found


def _list(argv: List[str]) -> None:
    _LIST.parse(argv).need(0, 0)
    layout = "{:>6} {:<15} {:<8} {:>9} {:>18}  {:<18}"
    print(layout.format("ID", "CMD/NAME", "STATE", "#RUNS", "LASTRUN", "STATUS"))
    now = time.time()
    for entry in _entries(Handle()):
        tasks = entry["tasks"]
        last, status = "None", "None"
        if tasks:
            begins = [task["start-time"] for task in tasks[:2] if "start-time" in task]
            last = _ago(now - begins[0]) if begins else "None"
            status = _status(tasks[0])
        count = str(entry["stats"]["count"])
        runs = f"{count}/{entry['repeat']}" if entry["repeat"] > 0 else count
        state = "Stopped" if entry["stopped"] else "Active"
        print(layout.format(entry["id"], entry["name"], state, runs, last, status).rstrip())


def _status(task: Dict[str, Any]) -> str:
    if task["state"] == "Failed":
        return "Exec-Error" if task["code"] == 127 else f"Failed:rc={task['code']}"
    return "Success" if task["state"] == "Exited" else str(task["state"])


def _ago(seconds: float) -> str:
    if seconds < 0:
        return "in the future"
    if seconds < 2:
        return "a second ago"
    if seconds < 90:
        return f"{seconds:.0f} seconds ago"
    minutes = seconds / 60
    if minutes < 90:
        return "a minute ago" if minutes < 2 else f"{minutes:.0f} minutes ago"
    hours = minutes / 60
    if hours < 36:
        return f"{hours:.1f} hours ago"
    days = hours / 24
    if days < 14:
        return f"{days:.1f} days ago"
    return f"{days / 7:.0f} weeks ago" if days < 70 else f"{days / 30:.0f} months ago"


def _dump(argv: List[str]) -> None:
    options = _DUMP.parse(argv)
    (number,) = _ids(options.need(1, 1))
    for entry in _entries(Handle()):
        if entry["id"] == number:
            for key, value in _values(entry):
                if not options.has("key"):
                    print(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {_text(value)}")
                elif options.get("key") == key:
                    print(_text(value))
            return
    raise CommandError(f"cron-{number}: No such cron entry found")


def _values(entry: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    for key, value in entry.items():
        if key == "tasks":
            for number, task in enumerate(value, 1):
                for name, each in task.items():
                    yield f"task.{number}.{name}", each
        elif isinstance(value, dict):
            for name, each in value.items():
                yield f"{key}.{name}", each
        else:
            yield key, value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.14g}" if isinstance(value, float) else str(value)


def _delete(argv: List[str]) -> None:
    options = _DELETE.parse(argv)
    ids = _ids(options.need(1))
    handle = Handle()
    for number in ids:
        entry = handle.rpc("cron.delete", {"id": number, "kill": options.has("kill")}).get()
        print(f"Removed cron-{number}: {entry['name']}{_last(entry['tasks'])}")


def _last(tasks: List[Dict[str, Any]]) -> str:
    """The part of an entry's line about its last task."""
    if not tasks or "start-time" not in tasks[0]:
        return ""
    begin, end, now = tasks[0]["start-time"], tasks[0].get("end-time"), time.time()
    if end is None:
        return f" still running. Started {_ago(now - begin)}"
    return f" last ran {_ago(now - end)} for {_length(end - begin)}"


def _length(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if seconds > unit:
            return f"{seconds / unit:.3f}{name}"
    return f"{seconds * 1000:.2f}ms"


def _start(argv: List[str]) -> None:
    ids = _ids(_START.parse(argv).need(1))
    _each(ids, "cron.start", "Started")


def _stop(argv: List[str]) -> None:
    ids = _ids(_STOP.parse(argv).need(1))
    _each(ids, "cron.stop", "Stopped")


def _each(ids: List[int], topic: str, done: str) -> None:
    handle = Handle()
    for number in ids:
        handle.rpc(topic, {"id": number}).get()
        print(f"{done} cron-{number}")


def _ids(texts: List[str]) -> List[int]:
    """Parse the ids of entries, with or without the prefix `cron-`. Raises CommandError."""
    found = []
    for text in texts:
        digits = text[len("cron-") :] if text.startswith("cron-") else text
        if not (digits.isascii() and digits.isdigit()):
            raise CommandError(f"'{text}' is not the id of an entry, such as 1")
        found.append(int(digits))
    return found


def _sync(argv: List[str]) -> None:
    options = _SYNC.parse(argv)
    topics = options.need(0, 1)
    request: Dict[str, Any] = {}
    if options.has("disable"):
        request["disable"] = True
    elif topics:
        request["topic"] = topics[0]
    if options.has("epsilon"):
        request["sync_epsilon"] = _seconds(options.get("epsilon"))
    answer = Handle().rpc("cron.sync", request).get()
    if answer.get("sync_disabled"):
        print("sync: sync disabled.")
    else:
        print(f'sync: sync to event "{answer["sync_event"]}" epsilon={answer["sync_epsilon"]:.3f}s.')


_RUN = {
    "interval": _interval,
    "event": _event,
    "tab": _tab,
    "at": _at,
    "list": _list,
    "dump": _dump,
    "delete": _delete,
    "start": _start,
    "stop": _stop,
    "sync": _sync,
}
_COMMANDS = (_INTERVAL, _EVENT, _TAB, _AT, _LIST, _DUMP, _DELETE, _START, _STOP, _SYNC)
_TABLE = {name: (command.purpose, command) for name, command in zip(_RUN, _COMMANDS)}
