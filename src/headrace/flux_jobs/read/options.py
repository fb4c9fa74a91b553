"""The options of a cluster made from a Job: the annotation `flux-framework.org/headrace-options`.

The annotation contains a map in YAML or JSON. Unknown keys and wrong values are rejected.
"""

from __future__ import annotations

import difflib
import enum

from msgspec import Struct

from headrace.minicluster.api.documents import documents
from headrace.minicluster.api.fields import MOST_PODS, QUANTITY, QUEUE_POLICIES, InvalidMiniCluster

from .field import Field, kind_of, written

ANNOTATION = "flux-framework.org/headrace-options"
# The largest number of processes on one node that a job shell supports.
MOST_PROCS = 1 << 20


class Run(enum.Enum):
    """How the command is run."""

    TASKS = "tasks"  # size * procs tasks, as one job
    NODE = "node"  # one task on each node, which starts the node's processes itself, as torchrun does
    PROGRAM = "program"  # once, as the lead's initial program


class Spread(enum.Enum):
    """Whether the pods of a cluster must be on different nodes of Kubernetes."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    NONE = "none"


class Exit(enum.Enum):
    """Whether the Job ends as its command did, or by its own policies."""

    HONEST = "honest"
    KEEP = "keep"


class Options(Struct, frozen=True, kw_only=True):
    """The options as given. The meaning of an absent option, None or "", depends on the Job."""

    container: str = ""
    run: Run | None = None
    procs_per_node: int | None = None
    interactive: bool = False
    queue_policy: str = ""
    max_size: int | None = None
    shared_memory: str = ""
    """A quantity, "none", or "" for half the memory limit."""
    spread: Spread = Spread.PREFERRED
    exit: Exit = Exit.HONEST


KEYS = (
    *("container", "run", "procsPerNode", "interactive", "queuePolicy", "maxSize", "sharedMemory", "spread"),
    "exit",
)


def read_options(annotation: Field) -> Options:
    """The options in the annotation; problems are noted with the annotation's path and the key."""
    text = annotation.text()
    if not text.strip():
        return Options()
    try:
        found, warnings = documents(text)
    except InvalidMiniCluster as exc:
        for problem in exc.problems:
            annotation.refuse(f"must be a map in YAML or JSON: {problem}")
        return Options()
    if len(found) != 1 or not isinstance(found[0], dict):
        what = f"{len(found)} documents" if len(found) != 1 else kind_of(found[0])
        annotation.refuse(f"must be a map in YAML or JSON, such as {{run: node}}, not {what}")
        return Options()
    for warning in warnings:
        annotation.refuse(warning)
    options = Field(found[0], annotation.path, annotation.problems)
    for key in found[0]:
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, 1)
            advice = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(KEYS)}"
            options[key].refuse(f"is not an option{advice}")
    return Options(
        container=options["container"].text(),
        run=Run(options["run"].choice(_values(Run), "tasks")) if options["run"].given else None,
        procs_per_node=_number(options["procsPerNode"], MOST_PROCS),
        interactive=options["interactive"].flag(),
        queue_policy=options["queuePolicy"].choice(QUEUE_POLICIES, "fcfs") if options["queuePolicy"].given else "",
        max_size=_number(options["maxSize"], MOST_PODS),
        shared_memory=_shared_memory(options["sharedMemory"]),
        spread=Spread(options["spread"].choice(_values(Spread), "preferred")),
        exit=Exit(options["exit"].choice(_values(Exit), "honest")),
    )


def _values(choices: type[enum.Enum]) -> tuple[str, ...]:
    return tuple(one.value for one in choices)


def _number(option: Field, most: int) -> int | None:
    return option.number(0, 1, most) or None


def _shared_memory(option: Field) -> str:
    value = option.value
    if value is None or value == "none":
        return value or ""
    text = written(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not QUANTITY.match(text) or text.startswith("-"):
        option.refuse(f"must be a quantity such as 1Gi, or none, not {kind_of(value)}")
        return ""
    return text
