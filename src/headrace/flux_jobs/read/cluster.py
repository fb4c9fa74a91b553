"""A cluster made from a Job, JobSet or TrainJob, for every way of running it. Frozen data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from headrace.minicluster.api.pod_plan import FOREIGN_FOLDER

from .options import Options, Run

LABEL_KEY = "flux-framework.org/headrace"
LABEL_VALUE = "cluster"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
# The variable with the number of processes on each node, for torchrun.
PROCS_VARIABLE = "PET_NPROC_PER_NODE"

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")

# The container and volumes that Headrace adds to a cluster's pods on Kubernetes, the mount paths, and the ports of
# broker and channel.
OUR_CONTAINER = "headrace-view"
OUR_VOLUMES = ("headrace-view", "headrace-cluster", "headrace-shm", "headrace-image")
OUR_MOUNTS = ("/mnt/flux", FOREIGN_FOLDER)


class Source(Struct, frozen=True):
    """The source of a variable's value (`valueFrom`): the field's name, and its reference as text."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


class Variable(Struct, frozen=True):
    """A variable of the container, with a value whose references are not yet expanded, or a source."""

    name: str
    value: str = ""
    source: Source | None = None


class Part(Struct, frozen=True):
    """The pods of one Job: hosts `JOB-0` to `JOB-(size - 1)`, and at most `max_size` of them."""

    job: str
    size: int
    max_size: int


class ForeignCluster(Struct, frozen=True, kw_only=True):
    """A Job, JobSet or TrainJob as a cluster.

    `name` and `kind` are those of the object that the user created. The first part has the lead. `job` is the document
    of the Job that is the cluster, as its owner would create it. `path` is the place in the user's document from which
    the Job's fields were read.
    """

    kind: str
    name: str
    namespace: str
    parts: tuple[Part, ...]
    procs: int
    """Processes on each node."""
    argv: tuple[str, ...]
    """Command and arguments as given, with references; empty if interactive."""
    environment: tuple[Variable, ...]
    """In the order in which references are resolved; a later variable of the same name wins."""
    container: str
    """The name of the container with the command."""
    run: Run
    subdomain: str
    """The Service that gives the pods their names; "" for none."""
    interactive: bool
    queue_policy: str
    options: Options
    job: dict[str, Any]
    path: str
    others: tuple[str, ...] = ()
    """The paths of fields above the Job that do not concern the cluster, such as other Jobs of a JobSet."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def max_size(self) -> int:
        return sum(part.max_size for part in self.parts)

    @property
    def tasks(self) -> int:
        """The number of tasks of the job."""
        return self.size * self.procs if self.run is Run.TASKS else self.size if self.run is Run.NODE else 1

    def variables(self, look_up: Callable[[Source], str | None]) -> dict[str, str]:
        """The container's variables as the kubelet makes them.

        `look_up` returns the value of a source; variables with the value None are omitted. As with Trainer, a launcher
        that starts the processes of its node gets their number.
        """
        found: dict[str, str] = {}
        for one in self.environment:
            value = expand(one.value, found) if one.source is None else look_up(one.source)
            if value is not None:
                found[one.name] = value
        # A word, such as "auto", is left to the launcher, which determines the number itself.
        if self.run is Run.NODE and found.get(PROCS_VARIABLE, "1").isdigit():
            found[PROCS_VARIABLE] = str(self.procs)
        return found

    @property
    def node_variables(self) -> list[str]:
        """The names of variables whose values differ between pods."""
        one, other = self.variables(_in_a_pod), self.variables(lambda source: "")
        return [name for name, value in one.items() if other[name] != value]

    def words(self, variables: dict[str, str]) -> list[str]:
        """The argv with its references to `variables` expanded."""
        return [expand(word, variables) for word in self.argv]


def _in_a_pod(source: Source) -> str:
    """A value for sources that differ between pods; "" for others."""
    return "1" if source.kind in ("fieldRef", "resourceFieldRef") else ""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its references `$(NAME)` to `variables` expanded, as the kubelet does.

    The kubelet expands the words and variables of a container (core/v1 Container, `command` and `env[].value`). `$$` is
    a dollar sign, so `$$(NAME)` is the text `$(NAME)`. A reference to an unknown variable, or without a closing
    parenthesis, is not changed.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)
