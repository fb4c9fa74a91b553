"""The values of an experiment: what its file asks for, which runs that makes, and what came out.

`file` reads a file to an `Experiment`, `plan` turns it into a `Plan` of cells and runs, `run` carries the plan out,
`store` keeps a `Result` for each run, and `report` reads them. All values are frozen; times are seconds.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

STATES = ("completed", "failed", "timeout", "cancelled", "lost")
State = Literal["completed", "failed", "timeout", "cancelled", "lost"]

# The phases of a run, in order of time. A target reports those that it can see; each lasts until the next begins.
PHASES = ("created", "scheduled", "pulled", "ready", "program", "output", "ended", "deleted")


class Metric(Struct, frozen=True, kw_only=True):
    """A number from a run's output: the first group of the last match of `regex`, or the value at the path `json`.

    `source` is "stdout", "stderr" or a file of the run. A run that lacks a required metric has failed.
    """

    name: str
    regex: str = ""
    json: str = ""
    unit: str = ""
    source: str = "stdout"
    better: Literal["lower", "higher"] = "lower"
    required: bool = True
    line: int = 0


class Check(Struct, frozen=True, kw_only=True):
    """A run is good if it exits with `exit`, and if its standard output matches `regex` where there is one."""

    regex: str = ""
    exit: int = 0


class Target(Struct, frozen=True, kw_only=True):
    """Where cells run. `prices` are for an hour of one node, by machine ("": of any other machine).

    `up` and `down` are shell commands of the user, around all runs of this target.
    """

    name: str
    type: Literal["local", "instance", "kubernetes"] = "local"
    uri: str = ""
    context: str = ""
    namespace: str = ""
    prices: dict[str, float] = {}
    up: str = ""
    down: str = ""
    line: int = 0

    def cost(self, machine: str, node_seconds: float) -> float | None:
        """The cost of a machine's nodes, by its price or that of any machine; None without a price."""
        price = self.prices.get(machine, self.prices.get(""))
        return None if price is None else price * node_seconds / 3600


class Job(Struct, frozen=True, kw_only=True):
    """A program that an experiment runs, with the parameters of a cell filled in.

    `inputs` are copied into the folder of a run before it starts (paths relative to the experiment's file), and so are
    `templates`, in which `{{NAME}}` is replaced on the way (`file.templates`); `outputs` are patterns of files that the
    program leaves. 0 `nodes` are those of the cell, and 0 `tasks` are one for each node. `options` are options of
    `flux submit`. `minicluster` are fields of the spec of the MiniCluster that runs the job, where the first of
    `containers` is the job's own, and `manifest` is an object that Kubernetes runs instead.
    """

    name: str
    command: str = ""
    environment: dict[str, str] = {}
    working_dir: str = ""
    inputs: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: int = 0
    tasks: int = 0
    cores: int = 0
    gpus: int = 0
    options: tuple[str, ...] = ()
    image: str = ""
    minicluster: dict[str, Any] = {}
    manifest: dict[str, Any] = {}
    metrics: tuple[Metric, ...] = ()
    check: Check = Check()
    retry: int = 0
    timeout: float = 0.0
    line: int = 0


class Until(Struct, frozen=True, kw_only=True):
    """When a cell has enough runs: the 95 % interval of the metric's median is at most `relative_ci` · median wide."""

    metric: str
    relative_ci: float


class Repeats(Struct, frozen=True, kw_only=True):
    """How often a cell runs: from `least` to `most` times, after `warmup` runs that do not count."""

    least: int = 1
    most: int = 1
    until: Until | None = None
    warmup: int = 0


class Cell(Struct, frozen=True, kw_only=True):
    """A combination of job, size, machine, target and parameters. `id`, unique in the experiment, names its folder.

    `size` is in nodes. `cluster_size` is that of the Kubernetes cluster which flux-cloud would make for the cell: with
    sizes of MiniClusters in the file, it is larger than `size` where a smaller MiniCluster is run on it.
    """

    id: str
    job: Job
    target: str
    size: int
    cluster_size: int = 0
    machine: str = ""
    parameters: dict[str, str | int | float | bool] = {}
    repeats: Repeats = Repeats()

    @property
    def shape(self) -> tuple[str, int, str, str]:
        """Cells of one shape can share a sub-instance or a MiniCluster, one after the other."""
        return self.target, self.size, self.machine, self.job.image


class Budget(Struct, frozen=True, kw_only=True):
    """No run begins that would exceed it. None: no limit; 0 is a limit."""

    cost: float | None = None
    node_hours: float | None = None
    line: int = 0


class Experiment(Struct, frozen=True, kw_only=True):
    """A file, read and checked. `folder` is that of the file; `variables` are kept as written.

    `seed` is None if the file has none; the plan has one always. `notes` are what users should know of their file, each
    with its line, such as keys of flux-cloud that have no effect here.
    """

    name: str
    targets: tuple[Target, ...]
    cells: tuple[Cell, ...]
    order: Literal["interleaved", "random", "as-written"] = "interleaved"
    seed: int | None = None
    budget: Budget = Budget()
    folder: str = "."
    variables: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class Run(Struct, frozen=True, kw_only=True):
    """One run of a cell, in the folder runs/CELL/NUMBER. Numbers begin at 1; warm-up runs come first."""

    cell: str
    number: int
    warmup: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """`plan.json`: the runs in the order in which they begin, and the seed of that order.

    Of a cell that repeats `until` its interval is narrow, all runs up to `most` are listed; those that prove needless
    are left out at the time.
    """

    seed: int
    order: str
    runs: tuple[Run, ...]


class Result(Struct, frozen=True, kw_only=True):
    """What came of a run: `runs/CELL/NUMBER/result.json`, and a row of `results.sqlite`.

    `position` is the run's place in the order in which runs began, `attempt` the number of tries that the machine's
    failures made necessary. `phases` has the time (seconds since the epoch) at which each phase began. `cost` is None
    without a price.
    """

    cell: str
    number: int
    warmup: bool
    job: str
    target: str
    size: int
    machine: str
    parameters: dict[str, str | int | float | bool]
    state: State
    reason: str = ""
    exit: int | None = None
    attempt: int = 1
    position: int = 0
    started: float = 0.0
    ended: float = 0.0
    phases: dict[str, float] = {}
    metrics: dict[str, float] = {}
    nodes: str = ""
    node_seconds: float = 0.0
    cost: float | None = None
