"""`flux module`: loads, removes, lists and inspects broker modules."""

from __future__ import annotations

import errno
import json
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.eventlog_options import option_wants_color
from headrace.cli.common.getopts import Command, dispatch
from headrace.wire.client.handle import Handle
from headrace.wire.query.eventlog_format import DeltaTime, HumanTime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from headrace.cli.common.getopts import Options

PREFIX = "flux-module: "

_TABLE = {
    "list": ("List the modules of a broker and their services", None),
    "remove": ("Remove a module", None),
    # Another name of remove.
    "unload": ("", None),
    "load": ("Load a module", None),
    "reload": ("Remove a module and load it again", None),
    "stats": ("Print a module's statistics as JSON", None),
    "debug": ("Print or change a module's debug bits", None),
    "trace": ("Print the messages that modules send and receive", None),
}
_FORCE = ("f", "force", "", "Succeed if the module is not loaded")
_LIST = Command(
    "flux-module list",
    "[OPTIONS]",
    _TABLE["list"][0],
    (("l", "long", "", "Show the path of each module"),),
)
_LOAD = Command(
    "flux-module load",
    "[OPTIONS] module",
    _TABLE["load"][0],
    (("n", "name", "NAME", "Load the module under this name"), ("", "exec", "", "Run the module in its own process")),
)
_REMOVE = Command("flux-module remove", "[OPTIONS] module", _TABLE["remove"][0], (_FORCE,))
_RELOAD = Command(
    "flux-module reload",
    "[OPTIONS] module",
    _TABLE["reload"][0],
    (
        _FORCE,
        ("n", "name", "NAME", "Load the module under this name"),
        ("", "exec", "", "Run the module in its own process"),
    ),
)
_STATS = Command(
    "flux-module stats",
    "[OPTIONS] module",
    "Print a module's statistics as JSON",
    (
        ("p", "parse", "OBJNAME", "Print only one value, by its path: a.b.c"),
        ("s", "scale", "N", "Multiply the value by N"),
        ("t", "type", "int|double", "Print the value as int or double"),
        ("c", "clear", "", "Set the counters of this broker to 0"),
        ("C", "clear-all", "", "Set the counters of all brokers to 0"),
        ("R", "rusage", "[WHO]", "Print the broker's resource usage: self (default), children or thread"),
    ),
)
_DEBUG = Command(
    "flux-module debug",
    "[OPTIONS] module",
    "Print or change a module's debug bits",
    (
        ("C", "clear", "", "Turn all bits off"),
        ("S", "set", "MASK", "Set the bits to MASK"),
        ("s", "setbit", "MASK", "Turn the bits of MASK on"),
        ("c", "clearbit", "MASK", "Turn the bits of MASK off"),
    ),
)
_TRACE = Command(
    "flux-module trace",
    "[OPTIONS] [module...]",
    "Print the messages that modules send and receive",
    (
        ("f", "full", "", "Print the payloads of messages"),
        ("T", "topic", "GLOB", "Print only messages whose topic matches this pattern"),
        ("t", "type", "TYPE,...", "Print only these types, separated by commas: request, response, event, control"),
        ("H", "human", "", "Print short times, with the date when a new minute begins"),
        ("d", "delta", "", "With --human, print the time since the previous line"),
        ("L", "color", "[WHEN]", "Color the output: always, never, or auto (on a terminal)"),
    ),
)
_TYPES = {"request": 1, "response": 2, "event": 4, "control": 8}
_GLYPHS = {1: ">", 2: "<", 4: "e", 8: "c"}
_TIME, _OFF = "\033[32m", "\033[0m"
_TINTS = {"rx": "\033[36m", "tx": "\033[33m"}
_STATUS = {0: "I", 1: "R", 2: "F", 3: "X"}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-module", argv, _TABLE)
    actions: Dict[str, Callable[[List[str]], int]] = {
        "list": _list,
        "load": _load,
        "remove": _remove,
        "unload": _remove,
        "reload": _reload,
        "stats": _stats,
        "debug": _debug,
        "trace": _trace,
    }
    return actions[name](rest)


def _list(argv: List[str]) -> int:
    options = _LIST.parse(argv)
    options.need(0, 0)
    lines = ["Module                    Idle  S Sendq Recvq Service\n"]
    for mod in Handle().rpc("module.list").get()["mods"]:
        idle = mod["idle"] if mod["idle"] < 100 else "idle"
        services = ",".join(sorted(name for name in mod["services"] if name != mod["name"]))
        name = mod["path"] if options.has("long") else mod["name"]
        state = _STATUS.get(mod["status"], "?")
        lines.append(f"{name:<25} {idle:>4}  {state} {mod['sendqueue']:>5} {mod['recvqueue']:>5} {services}\n")
    sys.stdout.write("".join(lines))
    return 0


def _load(argv: List[str]) -> int:
    options = _LOAD.parse(argv, stop_early=True)
    path, *args = options.need(1)
    _load_one(Handle(), path, args, options.get("name"), options.has("exec"))
    return 0


def _wanted(path: str, args: List[str], name: str, as_process: bool) -> Dict[str, Any]:
    """The payload of `module.load`."""
    request: Dict[str, Any] = {"path": path, "args": args}
    if name:
        request["name"] = name
    if as_process:
        request["exec"] = True
    return request


def _load_one(handle: Handle, path: str, args: List[str], name: str, as_process: bool) -> None:
    request = _wanted(path, args, name, as_process)
    try:
        handle.rpc("module.load", request).get()
    except OSError as exc:
        raise CommandError(f"load {path}: {exc.strerror}") from None


def _remove(argv: List[str]) -> int:
    options = _REMOVE.parse(argv)
    (name,) = options.need(1, 1)
    _remove_one(Handle(), name, options.has("force"))
    return 0


def _remove_one(handle: Handle, name: str, force: bool) -> None:
    try:
        handle.rpc("module.remove", {"name": name}).get()
    except OSError as exc:
        if not (force and exc.errno == 2):
            raise CommandError(f"remove {name}: {exc.strerror}") from None


def _reload(argv: List[str]) -> int:
    options = _RELOAD.parse(argv, stop_early=True)
    path, *args = options.need(1)
    handle = Handle()
    request = {**_wanted(path, args, options.get("name"), options.has("exec")), "force": options.has("force")}
    try:
        handle.rpc("module.reload", request).get()
        return 0
    except OSError as exc:
        if exc.errno != errno.ENOSYS:
            text = str(exc.strerror)
            raise CommandError(text if text.startswith("remove ") else f"load {path}: {text}") from None
    # Flux's brokers do not have this request: remove and load the module with two requests.
    name = options.get("name") or path.rpartition("/")[2].partition(".")[0]
    _remove_one(handle, name, options.has("force"))
    _load_one(handle, path, args, options.get("name"), options.has("exec"))
    return 0


def _stats(argv: List[str]) -> int:
    options = _STATS.parse(argv)
    (name,) = options.need(1, 1)
    handle = Handle()
    try:
        if options.has("clear-all"):
            handle.publish(f"{name}.stats-clear")
            handle.attr_get("size")
            return 0
        if options.has("clear"):
            handle.rpc(f"{name}.stats-clear").get()
            return 0
        if options.has("rusage"):
            answer = handle.rpc(f"{name}.rusage", {"who": options.get("rusage") or "self"}).get()
        else:
            answer = handle.rpc(f"{name}.stats-get").get()
    except OSError as exc:
        raise CommandError(f"{name}: {exc.strerror}") from None
    found: Any = answer
    for key in [key for key in options.get("parse").split(".") if key]:
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        raise CommandError(f"`{options.get('parse')}' not found in response")
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        found = _converted(found, options)
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 0


def _converted(number: float, options: Options) -> float:
    """Convert a number by `--scale` and `--type`. Raises CommandError."""
    if options.has("scale"):
        try:
            number *= float(options.get("scale"))
        except ValueError:
            raise CommandError(f"--scale: not a number: {options.get('scale')}") from None
    kind = options.get("type", "int" if isinstance(number, int) else "double")
    if kind not in ("int", "double"):
        raise CommandError(f"--type: unknown type {kind}: use int or double")
    return int(number) if kind == "int" else float(number)


def _debug(argv: List[str]) -> int:
    options = _DEBUG.parse(argv)
    (name,) = options.need(1, 1)
    for option, op in (("clear", "clr"), ("set", "set"), ("setbit", "setbit"), ("clearbit", "clrbit")):
        if options.has(option):
            mask = 0xFFFFFFFF if option == "clear" else options.get_int(option, 0)
            request = {"op": op, "flags": mask}
            break
    else:
        request = {"op": "setbit", "flags": 0}
    print(f"{Handle().rpc(f'{name}.debug', request).get()['flags']:#x}")
    return 0


def _trace(argv: List[str]) -> int:
    options = _TRACE.parse(argv)
    names = options.need(0)
    if options.has("delta") and not options.has("human"):
        raise CommandError("--delta can only be used with --human")
    request: Dict[str, Any] = {"names": names, "full": options.has("full"), "topic_glob": options.get("topic", "*")}
    if options.has("type"):
        request["typemask"] = 0
        for kind in options.get("type").split(","):
            if kind not in _TYPES:
                raise CommandError(f"--type: unknown message type {kind}: use {', '.join(_TYPES)}")
            request["typemask"] |= _TYPES[kind]
    human = (DeltaTime() if options.has("delta") else HumanTime()) if options.has("human") else None
    colored = option_wants_color(options)
    for entry in Handle().stream("module.trace", request):
        sys.stdout.write(_traced(entry, human, colored))
        # So that a reader of the output sees each message at once.
        sys.stdout.flush()
    return 0


def _traced(entry: Dict[str, Any], human: Optional[HumanTime], colored: bool) -> str:
    """Format a message: `TIME MODULE rx|tx >|<|e|c TOPIC [SIZE]`.

    With --full, a second line has the payload.
    """
    stamp = entry["timestamp"]
    when = human.show(stamp) if human is not None else f"{stamp:.6f}"
    status = f" {errno.errorcode.get(entry['errnum'], entry['errnum'])}" if entry.get("errnum") else ""
    glyph = _GLYPHS.get(entry["type"], "?")
    what = f"{entry['prefix']} {glyph}"
    if colored:
        when, what = f"{_TIME}{when}{_OFF}", f"{_TINTS.get(entry['prefix'], '')}{what}{_OFF}"
    line = f"{when} {entry['name']} {what} {entry['topic']} [{entry['payload_size']}]{status}\n"
    if entry.get("payload") is not None:
        line += json.dumps(entry["payload"], ensure_ascii=False) + "\n"
    return line
