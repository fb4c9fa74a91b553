"""`flux queue list`: queues with their state, default and maximum time limits, and job size limits."""

from __future__ import annotations

from headrace.cli.common.arguments import queues_named
from headrace.cli.common.named_formats import Formats, layout_of, show
from headrace.wire.client.handle import NODEID_ANY, Handle
from headrace.wire.query.color import stdout_colored
from headrace.wire.query.queue_policy import policy_value, seconds, status_of
from headrace.wire.query.resource_sets import SchedulerResources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Callable, Dict

_START = "?:{queuem:<8.8} {color_enabled}{enabled:>2}{color_off} {color_started}{started:>2}{color_off} "
_LIMITS = "{limits.range.nnodes:>10} {limits.range.ncores:>10} {limits.range.ngpus:>10}"
FORMATS = {
    "default": _START + "{defaults.timelimit!F:>8} {limits.timelimit!F:>8} " + _LIMITS,
    "policy": "?:{queuem:<8.8} {defaults.timelimit!F:>8} {limits.timelimit!F:>8} " + _LIMITS,
    "nodes": _START + "{nnodes:>6} {up.nnodes:>6} {allocated.nnodes:>6} {free.nnodes:>6}",
}
_PURPOSES = {
    "default": "Default flux-queue list format string",
    "policy": "flux-queue list with policy limits only",
    "nodes": "Show queue status plus all/up/allocated/free nodes",
}
_KINDS = ("nnodes", "ncores", "ngpus")
_HEADINGS = {
    "queue": "QUEUE",
    "queuem": "QUEUE",
    "submission": "SUBMIT",
    "scheduling": "SCHED",
    "enabled": "EN",
    "started": "ST",
    "enabled.ascii": "EN",
    "started.ascii": "ST",
    "is_started": "STARTED",
    "is_enabled": "ENABLED",
    "color_enabled": "",
    "color_started": "",
    "color_off": "",
    "defaults.timelimit": "TDEFAULT",
    "limits.timelimit": "TLIMIT",
    **{f"limits.range.{kind}": kind.upper() for kind in _KINDS},
    **{f"limits.min.{kind}": "MIN" + kind[1:].upper() for kind in _KINDS},
    **{f"limits.max.{kind}": "MAX" + kind[1:].upper() for kind in _KINDS},
    **{kind: kind.upper() for kind in _KINDS},
    **{f"{part}.{kind}": part.upper()[:5] for part in ("all", "up", "down", "allocated", "free") for kind in _KINDS},
}
_GREEN, _RED, _OFF = "\033[01;32m", "\033[01;31m", "\033[0;0m"
_INFINITE = float("inf")
_DEFAULTS = ("defaults", "system")


class _Queue:
    """A queue's configuration, status and resources.

    With `capped`, a queue without a maximum job size shows the size of its resources instead.
    """

    def __init__(
        self, name: str, config: Any, status: Any, resources: SchedulerResources, colored: bool, capped: bool
    ) -> None:
        self.name = name
        self.config = config
        self.status = status
        self.resources = resources
        self.colored = colored
        self.capped = capped
        policy = config.get("policy", {})
        own = config.get("queues", {}).get(name, {}).get("policy", {}) if name else {}
        self.policies = [own, policy]

    def get(self, field: str) -> Any:
        head, _, rest = field.partition(".")
        if head == "limits":
            return self._limit(rest)
        if head in ("all", "up", "down", "allocated", "free"):
            return self.resources.count(head, rest, self.name)
        if head in _KINDS:
            return self.resources.count("all", head, self.name)
        fields: Dict[str, Callable[[], Any]] = {
            "queue": lambda: self.name,
            "queuem": lambda: self.name + ("*" if self.name and self.name == self._default_queue() else ""),
            "submission": lambda: "enabled" if self.status["enable"] else "disabled",
            "scheduling": lambda: "started" if self.status["start"] else "stopped",
            "enabled": lambda: _mark(self.status["enable"]),
            "started": lambda: _mark(self.status["start"]),
            "enabled.ascii": lambda: "y" if self.status["enable"] else "n",
            "started.ascii": lambda: "y" if self.status["start"] else "n",
            "is_enabled": lambda: str(self.status["enable"]),
            "is_started": lambda: str(self.status["start"]),
            "color_enabled": lambda: self._color(self.status["enable"]),
            "color_started": lambda: self._color(self.status["start"]),
            "color_off": lambda: _OFF if self.colored else "",
            "defaults.timelimit": lambda: seconds(policy_value(self.policies, "jobspec", *_DEFAULTS, "duration")),
        }
        return fields[field]()

    def _color(self, good: bool) -> str:
        return (_GREEN if good else _RED) if self.colored else ""

    def _default_queue(self) -> Any:
        return self.config.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {}).get("queue")

    def _limit(self, field: str) -> Any:
        if field == "timelimit":
            return seconds(policy_value(self.policies, "limits", "duration"))
        which, _, kind = field.partition(".")
        # -1 means no limit.
        least = max(policy_value(self.policies, "limits", "job-size", "min", kind) or 0, 0)
        most = policy_value(self.policies, "limits", "job-size", "max", kind)
        if most is None or most == -1:
            most = self.resources.count("all", kind, self.name) if self.capped else _INFINITE
        if which == "range":
            return f"{least}-{most}"
        return least if which == "min" else most


def _mark(good: bool) -> str:
    return "✔" if good else "✗"


def list_queues(args: Namespace) -> int:
    layout = layout_of(args.format, Formats("flux-queue", FORMATS, _PURPOSES, "list", ("list",)), _HEADINGS)
    if layout is None:
        return 0
    handle = Handle()
    config_call = handle.rpc("config.get")
    resources = SchedulerResources(handle.rpc("resource.sched-status", nodeid=0))
    config = config_call.get()
    resources.configure(config)
    names = sorted(config.get("queues", {})) or [""]
    if args.queue:
        names = queues_named(args.queue, names)
    colored = stdout_colored(args.color)
    calls = [(name, status_of(handle, name, NODEID_ANY)) for name in names]
    # A format string (not a format's name) shows limits as they are configured.
    capped = "{" not in args.format
    queues = [_Queue(name, config, call.get(), resources, colored, capped) for name, call in calls]
    show(layout, [queue.get for queue in queues], args.no_header)
    return 0
