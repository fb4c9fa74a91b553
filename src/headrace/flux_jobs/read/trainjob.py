"""Reads a TrainJob (trainer.kubeflow.org/v1alpha1) with its runtime as a cluster. Pure.

As in Kubeflow Trainer, the overrides of Jobs and pods are merged into the runtime's JobSet; their form depends on the
version of Trainer. Then the TrainJob's trainer is merged into the container `node` of the Job that is the step
`trainer` (by label). A number that the TrainJob lacks is taken from the runtime, and is else 1.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.problems import Problem
from headrace.k8s.objects.quantities import quantity
from headrace.minicluster.api.fields import QUANTITY

from . import runtimes
from .cluster import ForeignCluster
from .field import Field, InvalidForeign, kind_of, written
from .job import Owner, check_head, read_name
from .jobset import read_jobs
from .merging import patched, upserted
from .options import MOST_PROCS

API_VERSION = runtimes.API_VERSION
KIND = "TrainJob"
_STEP = "trainer"
_NODE = "node"
# The policies of a runtime whose command brokers can run.
_POLICIES = ("torch", "flux")
_REFUSED = {
    "mpi": "its launcher starts mpirun over ssh",
    "jax": "its processes are found by variables that Trainer sets",
    "xgboost": "its processes are found by variables that Trainer sets",
}
# The keys from a Job of the runtime to its pod template.
_PODS = ("template", "spec", "template")
# Words for a number of processes, which Trainer accepted before 2.2.
_COUNTED = ("auto", "cpu", "gpu")
# Fields of a TrainJob that concern only its controller, not the cluster.
_OTHERS = ("initializer", "suspend", "managedBy")


def read(document: Any, runtime: Any) -> ForeignCluster:
    """The cluster of a TrainJob's document and its runtime's document.

    Raises InvalidForeign with all problems. The paths of the runtime's problems begin with its kind.
    """
    job = Field(document)
    check_head(job, API_VERSION, KIND)
    base = _runtime_field(runtime, job)
    spec, policy = job["spec"], base["spec"]["mlPolicy"]
    trainer = spec["trainer"]
    _check_policy(policy)
    jobset = _overridden(base["spec"]["template"]["spec"], spec)
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
    given = _of_trainer(trainer, container)
    jobset = _trained(jobset, step, container, given, _of_job(spec["activeDeadlineSeconds"], nodes))
    job.end()
    metadata = job["metadata"]
    others = [spec[key].path for key in _OTHERS if spec[key].given]
    owner = Owner(KIND, read_name(metadata), metadata["namespace"].text(), procs, tuple(others))
    try:
        return read_jobs(jobset, owner, step["name"].text())
    except InvalidForeign as exc:
        places = {
            f"{container.path}.command": "spec.trainer.command",
            f"{step.path}.template.spec.parallelism": "spec.trainer.numNodes",
            **_places_of_variables(trainer, container, given["env"]),
        }
        raise InvalidForeign([_moved(problem, places) for problem in exc.problems]) from None


def is_step(metadata: Field) -> bool:
    """True if the metadata of a Job, or of its template, mark it as the training step of a TrainJob."""
    return metadata["labels"].mapping().get(runtimes.STEP_LABEL) == _STEP


def processes_in(document: Any, job: Any) -> int | None:
    """The number of processes on each node in a TrainJob's document; None if it has none.

    `job` is the Job that trains. Raises InvalidForeign.
    """
    containers = Field(job)["spec"]["template"]["spec"]["containers"].items()
    resources = next((one["resources"] for one in containers if one["name"].value == _NODE), Field(None))
    given = Field(document, KIND)["spec"]["trainer"]["numProcPerNode"]
    procs = _procs(given, resources)
    given.end()
    return procs


def reference(document: Any) -> str:
    """The name of the runtime to which a TrainJob refers; "" if there is none."""
    name = Field(document)["spec"]["runtimeRef"]["name"].value
    return name if isinstance(name, str) else ""


def trainer_container(runtime: Field) -> Field:
    """The container of a runtime that runs the trainer's command. Raises InvalidForeign if there is none."""
    return _node_container(_find_step(runtime["spec"]["template"]["spec"]["replicatedJobs"]))


def _runtime_field(runtime: Any, job: Field) -> Field:
    """A runtime's document, with paths that begin with its kind. Raises InvalidForeign."""
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


def _places_of_variables(trainer: Field, container: Field, merged: list[Any]) -> dict[str, str]:
    """The paths of the trainer's variables in the TrainJob, by their paths in the container.

    `merged` are the container's variables after the merge.
    """
    paths = {id(one.value): one.path for one in trainer["env"].items()}
    return {f"{container.path}.env[{index}]": paths[id(one)] for index, one in enumerate(merged) if id(one) in paths}


def _moved(problem: Problem, places: dict[str, str]) -> Problem:
    """A problem with the path at which the user gave the field."""
    for place, path in places.items():
        if problem.path == place or problem.path.startswith(f"{place}."):
            return problem._replace(path=path + problem.path[len(place) :])
    return problem


def _check_policy(policy: Field) -> None:
    for name, why in _REFUSED.items():
        if policy[name].given:
            rule = f"is not supported by brokers: {why}; a runtime without a policy, such as"
            policy[name].refuse(f"{rule} {runtimes.DISTRIBUTED}, runs the command itself")


def _parallelism(step: Field) -> int:
    return step["template"]["spec"]["parallelism"].number(1, 1)


def _find_step(jobs: Field) -> Field:
    """The Job that trains: the Job labelled as this step, the Job named `node`, or the only Job.

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
    """The container `node` of a step. Raises InvalidForeign if there is none."""
    containers = step["template"]["spec"]["template"]["spec"]["containers"]
    named = [one for one in containers.items() if one["name"].value == _NODE]
    if not named:
        containers.refuse(f"must have a container with the name {_NODE}, which runs the trainer's command")
        containers.end()
    return named[0]


def _procs(field: Field, resources: Field) -> int | None:
    """The number of processes on each node; None if it is not given."""
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
    """The number of a node's GPUs or CPUs in its resources; 1 if there are none."""
    found = {**resources["limits"].mapping(), **resources["requests"].mapping()}
    gpus = _amount([value for name, value in found.items() if "gpu" in name.rpartition("/")[2]])
    cpus = _amount([found.get("cpu")])
    number = {"gpu": gpus, "cpu": cpus}.get(word, gpus or cpus)
    return min(max(number, 1), MOST_PROCS)


def _amount(quantities: list[Any]) -> int:
    known = [written(one) for one in quantities if isinstance(one, (str, int))]
    return int(sum(quantity(one) for one in known if QUANTITY.match(one)))


# --- merging into the runtime's template


def _of_trainer(trainer: Field, container: Field) -> dict[str, Any]:
    """The container's fields that the trainer changes."""
    found: dict[str, Any] = {key: list(trainer[key].texts()) for key in ("command", "args") if trainer[key].given}
    if trainer["image"].given:
        found["image"] = trainer["image"].text()
    if trainer["resourcesPerNode"].given:
        found["resources"] = patched(container["resources"].value, trainer["resourcesPerNode"])
    found["env"] = upserted(container["env"], trainer["env"])
    return found


def _of_job(deadline: Field, nodes: int) -> dict[str, Any]:
    """The Job's fields that the TrainJob changes."""
    found = {"parallelism": nodes, "completions": nodes}
    return {**found, "activeDeadlineSeconds": deadline.number(1, 1)} if deadline.given else found


def _trained(
    jobset: Field, step: Field, container: Field, of_container: dict[str, Any], of_job: dict[str, Any]
) -> Field:
    """A JobSet's spec with changed fields of the step's Job and of its container."""
    template = step["template"]
    pods = template["spec"]["template"]
    containers = [
        {**one.mapping(), **of_container} if one.path == container.path else one.value
        for one in pods["spec"]["containers"].items()
    ]
    pod = {**pods["spec"].mapping(), "containers": containers}
    spec = {**template["spec"].mapping(), **of_job, "template": {**pods.mapping(), "spec": pod}}
    job = {**step.mapping(), "replicas": 1, "template": {**template.mapping(), "spec": spec}}
    jobs = [job if one.path == step.path else one.value for one in jobset["replicatedJobs"].items()]
    return Field({**jobset.mapping(), "replicatedJobs": jobs}, jobset.path, jobset.problems)


def _overridden(jobset: Field, spec: Field) -> Field:
    """A JobSet's spec after the overrides, each of which is a strategic merge patch.

    They are `podSpecOverrides` (Trainer 2.0), `podTemplateOverrides` (2.1) and `runtimePatches` (2.2 and later).
    """
    jobs = jobset["replicatedJobs"].items()
    for override in spec["podSpecOverrides"].items():
        pod = {key: value for key, value in override.mapping().items() if key != "targetJobs"}
        for one in _targets(override, jobs):
            _patch_pod(one, Field(pod, override.path, override.problems))
    for override in spec["podTemplateOverrides"].items():
        for one in _targets(override, jobs):
            _patch(one, (*_PODS, "metadata"), override["metadata"])
            _patch_pod(one, override["spec"])
    for patch in spec["runtimePatches"].items():
        for change in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].items():
            template = change["template"]
            for one in _named(jobs, change["name"], "Jobs of the runtime"):
                _patch(one, ("template", "metadata"), template["metadata"])
                _patch(one, (*_PODS, "metadata"), template["spec"]["template"]["metadata"])
                _patch_pod(one, template["spec"]["template"]["spec"])
    return Field({**jobset.mapping(), "replicatedJobs": [one.value for one in jobs]}, jobset.path, jobset.problems)


def _targets(override: Field, jobs: list[Field]) -> list[Field]:
    targets = [target["name"] for target in override["targetJobs"].items()]
    return [one for name in targets for one in _named(jobs, name, "Jobs of the runtime")]


def _named(items: list[Field], name: Field, kinds: str) -> list[Field]:
    """The items with a name. It is a problem if no item has the name."""
    wanted = name.required_text()
    found = [one for one in items if one["name"].value == wanted]
    if not found and wanted:
        names = ", ".join(one["name"].text() for one in items)
        name.refuse(f"{wanted!r} is not one of the {kinds}" + (f" ({names})" if names else ", which has none"))
    return found


def _patch_pod(job: Field, patch: Field) -> None:
    """Patch the spec of a Job's pods. As in Trainer, a container that the pods lack is a problem."""
    pod = job["template"]["spec"]["template"]["spec"]
    for kind in ("containers", "initContainers"):
        for change in patch[kind].items():
            _named(pod[kind].items(), change["name"], f"{kind} of {job['name'].text()}")
    _patch(job, (*_PODS, "spec"), patch)


def _patch(job: Field, keys: tuple[str, ...], patch: Field) -> None:
    """Patch the value below `keys` in a Job."""

    def at(value: Any, keys: tuple[str, ...]) -> Any:
        if not keys:
            return patched(value, patch)
        found = value if isinstance(value, dict) else {}
        return {**found, keys[0]: at(found.get(keys[0]), keys[1:])}

    if patch.given:
        job.value = at(job.value, keys)
