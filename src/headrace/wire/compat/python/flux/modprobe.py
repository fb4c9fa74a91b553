"""`flux.modprobe`: startup and shutdown of an instance by a Python file (flux-modprobe(1)).

The file's `setup(context)` names modules to load or remove. Its functions with the decorator `@task` run before or
after these modules. The dependencies of modules are built in; modules have no configuration files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, TypeVar

import flux
from flux.util import get_treedict
from headrace.formats.spec import python_file
from headrace.formats.spec.idset import Idset

_F = TypeVar("_F", bound=Callable[..., Any])

# The modules that Flux loads at startup, in order, and the ranks that load them. Other modules are loaded after these.
_RANKS = {
    "content": "all",
    "content-files": "0",
    "content-sqlite": "0",
    "kvs": "all",
    "kvs-watch": "all",
    "resource": "all",
    "job-manager": "0",
    "job-ingest": "all",
    "job-info": "all",
    "job-list": "0",
    "barrier": "all",
    "heartbeat": "0",
    "cron": "0",
    "sched-simple": "0",
    "sched-graph": "0",
    "job-exec": "0",
}
_ORDER = list(_RANKS)
_SERVICES = {"content-backing": ("content-sqlite", "content-files"), "sched": ("sched-simple", "sched-graph")}
_TASK_ARGUMENTS = frozenset(
    ("ranks", "requires", "provides", "needs", "before", "after", "needs_attrs", "needs_config", "needs_env")
)


class Task(NamedTuple):
    """A function and its conditions.

    It runs on `ranks` ("all", an idset, ">0") if the modules and tasks that it `needs` are enabled.
    """

    name: str
    function: Callable[[Any], Any]
    ranks: str = "all"
    needs: Sequence[str] = ()
    needs_attrs: Sequence[str] = ()
    needs_config: Sequence[str] = ()
    needs_env: Sequence[str] = ()
    before: Sequence[str] = ()
    after: Sequence[str] = ()


_tasks: Dict[str, Task] = {}


def task(name: str, **options: Any) -> Callable[[_F], _F]:
    """Declare a function a task; its argument is the Context. Raises ValueError for an unknown option."""
    for option in options:
        if option not in _TASK_ARGUMENTS:
            raise ValueError(f"{name}: unknown task argument {option}")

    def add(function: _F) -> _F:
        _tasks[name] = Task(name, function, **{key: options[key] for key in Task._fields[2:] if key in options})
        return function

    return add


class Context:
    """The argument of `setup` and of tasks."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.loads: List[str] = []
        self.removals: List[str] = []
        self._data: Dict[str, Any] = {}
        self._options: Dict[str, List[str]] = {}
        self._own = threading.local()
        self.rank = self.handle.get_rank()

    @property
    def handle(self) -> flux.Flux:
        """A handle for the calling thread."""
        if not hasattr(self._own, "handle"):
            self._own.handle = flux.Flux()
        handle: flux.Flux = self._own.handle
        return handle

    def print(self, *args: Any) -> None:
        """Print a message if modprobe is verbose."""
        if self.verbose:
            print(*args, file=sys.stderr)

    def set(self, key: str, value: Any) -> None:
        self._data[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return self._data.get(key, default)

    def attr_get(self, attr: str, default: Any = None) -> Any:
        try:
            return self.handle.attr_get(attr)
        except FileNotFoundError:
            return default

    def conf_get(self, key: str, default: Any = None) -> Any:
        return get_treedict(self.handle.conf_get(), key, default)

    def getenv(self, var: str, default: Any = None) -> Any:
        return os.environ.get(var, default)

    def rpc(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        return self.handle.rpc(topic, *args, **kwargs)

    def setopt(self, module: str, options: str, overwrite: bool = False) -> None:
        """Set the arguments for loading a module, as text separated by spaces."""
        self._options[module] = ([] if overwrite else self._options.get(module, [])) + options.split()

    def getopts(self, name: str, default: Optional[List[str]] = None, also: Sequence[str] = ()) -> List[str]:
        found = [option for key in (name, *also) for option in self._options.get(key, [])]
        return found or list(default or [])

    def bash(self, command: str) -> None:
        """Run a command in bash. Raises CalledProcessError."""
        subprocess.run(["bash", "-c", command], check=True)

    def load_modules(self, modules: Sequence[str]) -> None:
        self.loads += [_module(self, name) for name in modules]

    def remove_modules(self, modules: Optional[Sequence[str]] = None) -> None:
        """Remove modules; by default all loaded modules that Flux loads at startup."""
        loaded = ModuleList(self.handle).loaded_modules
        names = [_module(self, name) for name in modules or (name for name in loaded if name in _RANKS)]
        self.removals += [name for name in names if name in loaded]


class ModuleList:
    """The modules that a broker has loaded, except built-in ones. Iterate over it to get their names."""

    def __init__(self, handle: flux.Flux) -> None:
        mods = [mod for mod in handle.rpc("module.list").get()["mods"] if mod["path"] != "builtin"]
        self.loaded_modules: List[str] = [mod["name"] for mod in mods]
        self.servicemap: Dict[str, str] = {service: mod["name"] for mod in mods for service in mod["services"]}

    def __iter__(self) -> Iterator[str]:
        return iter(self.loaded_modules)

    def lookup(self, name: str) -> Optional[str]:
        """The module that provides the service `name`; None if there is none."""
        return self.servicemap.get(name)


def _module(context: Context, name: str) -> str:
    """The module that provides a service. That of the content store depends on the configuration."""
    if name == "content-backing":
        return str(context.attr_get("content.backing-module", "content-sqlite"))
    return _SERVICES.get(name, (name,))[0]


def _includes_rank(ranks: str, rank: int) -> bool:
    if ranks == "all":
        return True
    if ranks[:1] in ("<", ">"):
        return rank < int(ranks[1:]) if ranks[0] == "<" else rank > int(ranks[1:])
    return rank in Idset.parse(ranks)


def _enabled(context: Context, modules: Sequence[str]) -> Dict[str, Task]:
    """The tasks that apply to this broker and whose `needs` are enabled modules or tasks."""
    enabled = {one.name: one for one in _tasks.values() if _applies_here(context, one)}
    while True:
        present = {*modules, *enabled}
        met = {
            one.name: one
            for one in enabled.values()
            if all(present & set(_SERVICES.get(name, (name,))) for name in one.needs)
        }
        if len(met) == len(enabled):
            return met
        enabled = met


def _applies_here(context: Context, one: Task) -> bool:
    if not _includes_rank(one.ranks, context.rank):
        return False
    for names, get in (
        (one.needs_attrs, context.attr_get),
        (one.needs_config, context.conf_get),
        (one.needs_env, context.getenv),
    ):
        if any((get(name.lstrip("!")) is None) != name.startswith("!") for name in names):
            return False
    return True


def plan(modules: Sequence[str], tasks: Mapping[str, Task]) -> List[str]:
    """Insert the tasks into the list of modules, whose order is kept. Raises ValueError for a cycle."""
    names = [*modules, *tasks]
    first: Dict[str, Set[str]] = {name: set() for name in names}
    for earlier, later in zip(modules, modules[1:]):
        first[later].add(earlier)
    for one in tasks.values():
        for name in one.before:
            for other in names if name == "*" else _SERVICES.get(name, (name,)):
                if other in first and other != one.name and "*" not in getattr(tasks.get(other), "before", ()):
                    first[other].add(one.name)
        for name in one.after:
            for other in names if name == "*" else _SERVICES.get(name, (name,)):
                if other in first and other != one.name and "*" not in getattr(tasks.get(other), "after", ()):
                    first[one.name].add(other)
    order: List[str] = []
    while len(order) < len(names):
        ready = [name for name in names if name not in order and first[name] <= set(order)]
        if not ready:
            raise ValueError(f"each of these waits for another: {', '.join(n for n in names if n not in order)}")
        order.append(ready[0])
    return order


def run_file(path: str, verbose: bool = False, dry_run: bool = False) -> int:
    """Run a file, and return the exit status.

    The run stops at the first error, which is reported with the name of the module or task.
    """
    name = "setup"
    try:
        if not path.endswith(".py"):
            raise ValueError(f"{path}: not a Python file")
        context = Context(bool(verbose))
        file = python_file.load("modprobe_rc", path)
        if hasattr(file, "setup"):
            file.setup(context)
        loads = sorted(dict.fromkeys(context.loads), key=lambda module: [*_ORDER, module].index(module))
        loads = [module for module in loads if _includes_rank(_RANKS.get(module, "all"), context.rank)]
        removals = sorted(context.removals, key=lambda module: -[*_ORDER, module].index(module))
        tasks = _enabled(context, [*loads, *ModuleList(context.handle)])
        for name in plan([*removals, *loads], tasks):
            if dry_run:
                print(name)
                continue
            context.print(name)
            if name in tasks:
                tasks[name].function(context)
            elif name in removals:
                context.rpc("module.remove", {"name": name}).get()
            else:
                services = [service for service, modules in _SERVICES.items() if name in modules]
                context.rpc("module.load", {"path": name, "args": context.getopts(name, also=services)}).get()
    except Exception as exc:
        text = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        print(f"flux-modprobe: ERROR: {name}: {text}", file=sys.stderr)
        return 1
    return 0
