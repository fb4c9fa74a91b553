"""Reads a TrainJob (trainer.kubeflow.org/v1alpha1) with its runtime as a cluster. Pure.

As Kubeflow Trainer does, the TrainJob's trainer is put into the Job of its runtime's JobSet that is the step `trainer`
(by label), into the container `node`, and then the overrides of Jobs and pods, whose form depends on the version of
Trainer. A number that the TrainJob lacks is the runtime's, then 1.
"""

from __future__ import annotations

from typing import Any

from ..fields import QUANTITY
from ..object_rules import quantity
from ..problems import Problem
from . import runtimes
from .cluster import ForeignCluster
from .field import Field, InvalidForeign, kind_of, written
from .job import Owner, check_head, read_name
from .jobset import read_jobs
from .options import MOST_PROCS

API_VERSION = runtimes.API_VERSION
KIND = "TrainJob"
_STEP = "trainer"
_NODE = "node"
# The policies of a runtime under which its command is one that brokers can run.
_POLICIES = ("torch", "flux")
_REFUSED = {
    "mpi": "its launcher starts mpirun over ssh",
    "jax": "its processes are found by variables that Trainer sets",
    "xgboost": "its processes are found by variables that Trainer sets",
}
# Words that stand for a number of processes before Trainer 2.2.
_COUNTED = ("auto", "cpu", "gpu")
# Of a TrainJob's fields, those that its controller acts on, and that do not concern the cluster.
_OTHERS = ("initializer", "suspend", "managedBy")


def read(document: Any, runtime: Any) -> ForeignCluster:
    """The cluster of a TrainJob's document and its runtime's. Raises InvalidForeign with all problems; those of the
    runtime have paths that begin with its kind.
    """
    job = Field(document)
    check_head(job, API_VERSION, KIND)
    base = _runtime_field(runtime, job)
    spec, policy = job["spec"], base["spec"]["mlPolicy"]
    trainer = spec["trainer"]
    _check_policy(policy)
    jobset = _own_jobs(base["spec"]["template"]["spec"])
    jobs = jobset["replicatedJobs"].items()
    step = _find_step(jobset["replicatedJobs"])
    container = _node_container(step)
    job.end()
    nodes = trainer["numNodes"].number(policy["numNodes"].number(_parallelism(step), 1), 1)
    resources = trainer["resourcesPerNode"]
    if not resources.given:
        resources = container["resources"]
    procs = _procs(trainer["numProcPerNode"], resources)
    for name in _POLICIES:
        procs = procs or _procs(policy[name]["numProcPerNode"], resources)
    _merge_trainer(trainer, spec["activeDeadlineSeconds"], step, container, nodes)
    _apply_overrides(spec, jobs)
    job.end()
    metadata = job["metadata"]
    others = [spec[key].path for key in _OTHERS if spec[key].given]
    owner = Owner(KIND, read_name(metadata), metadata["namespace"].text(), procs, tuple(others))
    try:
        return read_jobs(jobset, owner, step["name"].text())
    except InvalidForeign as exc:
        raise InvalidForeign([_in_trainer(problem, trainer, step, container) for problem in exc.problems]) from None


def is_step(metadata: Field) -> bool:
    """Whether a Job with these metadata, or with a template that has them, is the step of a TrainJob that trains."""
    return metadata["labels"].mapping().get(runtimes.STEP_LABEL) == _STEP


def processes_in(document: Any, job: Any) -> int | None:
    """Processes on each node as a TrainJob's document says, None if it does not; `job` is the Job that trains.

    Raises InvalidForeign.
    """
    containers = Field(job)["spec"]["template"]["spec"]["containers"].items()
    resources = next((one["resources"] for one in containers if one["name"].value == _NODE), Field(None))
    given = Field(document, KIND)["spec"]["trainer"]["numProcPerNode"]
    procs = _procs(given, resources)
    given.end()
    return procs


def reference(document: Any) -> str:
    """The name of the runtime that a TrainJob refers to, "" if there is none."""
    name = Field(document)["spec"]["runtimeRef"]["name"].value
    return name if isinstance(name, str) else ""


def trainer_container(runtime: Field) -> Field:
    """The container of a runtime that runs what the trainer says. Raises InvalidForeign if there is none."""
    return _node_container(_find_step(runtime["spec"]["template"]["spec"]["replicatedJobs"]))


def _runtime_field(runtime: Any, job: Field) -> Field:
    """A runtime's document; its paths begin with its kind. Raises InvalidForeign."""
    kind = runtime.get("kind") if isinstance(runtime, dict) else None
    known = isinstance(kind, str) and kind in runtimes.KINDS
    field = Field(runtime, kind if known and isinstance(kind, str) else "runtime", job.problems)
    if not isinstance(runtime, dict):
        field.refuse("must be a mapping with apiVersion, kind, metadata and spec")
        field.end()
    field["apiVersion"].choice((API_VERSION,), "")
    if not known:
        field["kind"].refuse(f"must be one of {', '.join(runtimes.KINDS)}, not {kind_of(kind)}")
    return field


def _own_jobs(spec: Field) -> Field:
    """A copy of a JobSet's spec whose Jobs, pods and containers may be changed."""

    def own(value: Any, *keys: str) -> Any:
        """Copies of the mappings on a path."""
        if not isinstance(value, dict):
            return value
        copy = dict(value)
        if keys:
            copy[keys[0]] = own(copy.get(keys[0]), *keys[1:])
        else:
            for key in ("containers", "initContainers"):
                if isinstance(copy.get(key), list):
                    copy[key] = [own_container(one) for one in copy[key]]
        return copy

    def own_container(value: Any) -> Any:
        return dict(value) if isinstance(value, dict) else value

    jobs = [own(one.value, "template", "spec", "template", "spec") for one in spec["replicatedJobs"].items()]
    return Field({**spec.mapping(), "replicatedJobs": jobs}, spec.path, spec.problems)


def _in_trainer(problem: Problem, trainer: Field, step: Field, container: Field) -> Problem:
    """A problem of what the trainer says, at the trainer's field."""
    places = {
        f"{container.path}.command": "spec.trainer.command",
        f"{step.path}.template.spec.parallelism": "spec.trainer.numNodes",
    }
    # The trainer's variables come after those that are kept of the runtime's.
    given, merged = trainer["env"].items(), container["env"].items()
    places |= {ours.path: one.path for ours, one in zip(merged[len(merged) - len(given) :], given)}
    for place, path in places.items():
        if problem.path == place or problem.path.startswith(f"{place}."):
            return problem._replace(path=path + problem.path[len(place) :])
    return problem


def _check_policy(policy: Field) -> None:
    for name, why in _REFUSED.items():
        if policy[name].given:
            rule = f"is no policy for brokers, since {why}; a runtime without a policy, such as"
            policy[name].refuse(f"{rule} {runtimes.DISTRIBUTED}, runs the command itself")


def _parallelism(step: Field) -> int:
    return step["template"]["spec"]["parallelism"].number(1, 1)


def _find_step(jobs: Field) -> Field:
    """The Job that trains: the one that is labelled as this step, the one with the name `node`, or the only one.

    Raises InvalidForeign if there is none.
    """
    found = jobs.items()
    marked = [one for one in found if is_step(one["template"]["metadata"])]
    marked = marked or [one for one in found if len(found) == 1 or one["name"].value == _NODE]
    if not marked:
        jobs.refuse(f"must have a Job with the label {runtimes.STEP_LABEL}: {_STEP} in its template")
        jobs.end()
    marked[0]["name"].required_text()
    return marked[0]


def _node_container(step: Field) -> Field:
    """Raises InvalidForeign if there is none."""
    containers = step["template"]["spec"]["template"]["spec"]["containers"]
    named = [one for one in containers.items() if one["name"].value == _NODE]
    if not named:
        containers.refuse(f"must have a container with the name {_NODE}, which runs what the trainer says")
        containers.end()
    return named[0]


def _procs(field: Field, resources: Field) -> int | None:
    """Processes on each node, None if it is not given."""
    value = field.value
    if value is None:
        return None
    if isinstance(value, str):
        if value in _COUNTED:
            return _counted(value, resources)
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            field.refuse(f"must be a number or one of {', '.join(_COUNTED)}, not {value!r}")
            return None
        return Field(int(value), field.path, field.problems).number(1, 1, MOST_PROCS)
    return field.number(1, 1, MOST_PROCS)


def _counted(word: str, resources: Field) -> int:
    """The GPUs of a node, or its CPUs, as resources say; 1 if they do not."""
    found = {**resources["limits"].mapping(), **resources["requests"].mapping()}
    gpus = _amount([value for name, value in found.items() if "gpu" in name.rpartition("/")[2]])
    cpus = _amount([found.get("cpu")])
    number = {"gpu": gpus, "cpu": cpus}.get(word, gpus or cpus)
    return min(max(number, 1), MOST_PROCS)


def _amount(quantities: list[Any]) -> int:
    known = [written(one) for one in quantities if isinstance(one, (str, int))]
    return int(sum(quantity(one) for one in known if QUANTITY.match(one)))


# --- what is put into the runtime's template


def _merge_trainer(trainer: Field, deadline: Field, step: Field, container: Field, nodes: int) -> None:
    for key in ("command", "args"):
        if trainer[key].given:
            container.mapping()[key] = list(trainer[key].texts())
    if trainer["image"].given:
        container.mapping()["image"] = trainer["image"].text()
    if trainer["resourcesPerNode"].given:
        container.mapping()["resources"] = trainer["resourcesPerNode"].mapping()
    _merge_named(container, "env", trainer["env"])
    spec = step["template"]["spec"].mapping()
    spec["parallelism"] = spec["completions"] = nodes
    if deadline.given:
        spec["activeDeadlineSeconds"] = deadline.number(1, 1)
    step.mapping()["replicas"] = 1


def _merge_named(target: Field, key: str, items: Field) -> None:
    """Add items that have names to a list; one of the same name replaces the one that is there."""
    given = items.items()
    if not given:
        return
    names = [item["name"].required_text() for item in given]
    kept = [item.value for item in target[key].items() if item["name"].value not in names]
    target.mapping()[key] = kept + [item.value for item in given]


def _apply_overrides(spec: Field, jobs: list[Field]) -> None:
    """Apply `podSpecOverrides` (Trainer 2.0), `podTemplateOverrides` (2.1) and `runtimePatches` (2.2 and later)."""
    for override in spec["podSpecOverrides"].items():
        for one in _targets(override, jobs):
            _override_pod(one["template"]["spec"]["template"], override)
    for override in spec["podTemplateOverrides"].items():
        for one in _targets(override, jobs):
            pod = one["template"]["spec"]["template"]
            _merge_metadata(pod, override["metadata"])
            _override_pod(pod, override["spec"])
    for patch in spec["runtimePatches"].items():
        patched = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].items()
        for change in patched:
            for one in _named(jobs, change["name"]):
                template = change["template"]
                _merge_metadata(one["template"], template["metadata"])
                pod = one["template"]["spec"]["template"]
                _merge_metadata(pod, template["spec"]["template"]["metadata"])
                _override_pod(pod, template["spec"]["template"]["spec"])


def _targets(override: Field, jobs: list[Field]) -> list[Field]:
    return [one for target in override["targetJobs"].items() for one in _named(jobs, target["name"])]


def _named(jobs: list[Field], name: Field) -> list[Field]:
    wanted = name.required_text()
    found = [one for one in jobs if one["name"].value == wanted]
    if not found and wanted:
        names = ", ".join(one["name"].text() for one in jobs)
        name.refuse(f"{wanted!r} is no Job of the runtime; there are: {names}")
    return found


def _merge_metadata(target: Field, metadata: Field) -> None:
    for key in ("labels", "annotations"):
        if metadata[key].given:
            merged = {**target["metadata"][key].mapping(), **metadata[key].mapping()}
            target.mapping()["metadata"] = {**target["metadata"].mapping(), key: merged}


def _override_pod(pod: Field, override: Field) -> None:
    spec = pod["spec"]
    for key, value in override.mapping().items():
        if key in ("containers", "initContainers"):
            for change in override[key].items():
                _override_container(spec[key], change)
        elif key in ("volumes", "imagePullSecrets"):
            _merge_named(spec, key, override[key])
        elif key in ("tolerations", "schedulingGates"):
            spec.mapping()[key] = [item.value for item in (*spec[key].items(), *override[key].items())]
        elif key != "targetJobs":
            spec.mapping()[key] = value


def _override_container(containers: Field, change: Field) -> None:
    wanted = change["name"].required_text()
    for one in containers.items():
        if one["name"].value == wanted:
            _merge_named(one, "env", change["env"])
            if change["volumeMounts"].given:
                mounts = [item.value for item in (*one["volumeMounts"].items(), *change["volumeMounts"].items())]
                one.mapping()["volumeMounts"] = mounts
