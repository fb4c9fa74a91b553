"""Builds the job of a Flux instance (RFC 14) from a call of `TrainerClient.train`. Pure.

The call becomes a TrainJob, which is read as everywhere in Headrace. The job contains the function as a file (RFC 37),
so that nodes need not share a file system, and a record from which it can be shown as a TrainJob.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kubeflow.common.constants import UNKNOWN
from kubeflow.trainer.constants import constants
from kubeflow.trainer.types import types
from msgspec import Struct, convert, structs, to_builtins

from headrace.flux_jobs.read import running, trainjob
from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.flux_jobs.read.field import InvalidForeign
from headrace.flux_jobs.read.options import Run
from headrace.formats.spec import jobspec_build
from headrace.k8s.objects.problems import Problem
from headrace.k8s.objects.quantities import quantity
from headrace.minicluster.api.fields import QUANTITY

from . import with_packages
from .function import program_text

# The record's key in `attributes.user` of a jobspec.
RECORD = "trainjob"
_PROGRAM = "trainer_func.py"
_INSTALLER = "with_packages.py"
_REQUIREMENTS = "requirements.txt"
# The package indexes of the SDK's default, which applies if neither the user nor this variable names others.
_DEFAULT_URLS = [] if os.environ.get("DEFAULT_PIP_INDEX_URLS") else types.CustomTrainer(func=print).pip_index_urls
# Names of resources that are case-insensitive, and short names, as in the SDK.
_LOWER = ("cpu", "memory", "gpu", "storage", "ephemeral-storage")
# Resources that every process needs.
_NEEDED = ("cpu", "memory")
_ALIASES = {"gpu": constants.GPU_LABEL, "storage": "ephemeral-storage"}
# The SDK's names for fields of a TrainJob.
_FIELDS = {
    "spec.trainer.numNodes": "num_nodes",
    "spec.trainer.numProcPerNode": "resources_per_node",
    "metadata.name": "name",
}
# The path of a variable of a TrainJob's trainer.
_VARIABLE = re.compile(r"spec\.trainer\.env\[([0-9]+)\]")


class Record(Struct, frozen=True, kw_only=True):
    """A TrainJob as its job's jobspec records it."""

    name: str
    runtime: dict[str, Any]
    """The document of its runtime."""
    created: float
    """Seconds since 1970-01-01 UTC."""
    nodes: int
    procs: int
    """Processes on each node."""
    tasks: int
    """Tasks of the job on each node: one that starts the processes, or one for each process."""
    device: str
    """"gpu", "cpu", or the SDK's word for neither."""
    hosts: str
    """The common prefix of the nodes' names, which end with an index."""


class Built(NamedTuple):
    """A job, with its cluster and jobspec.

    `not_applied` are parts of the request that have no effect without Kubernetes. `unresolved` are variables with names
    of pods that have no address.
    """

    cluster: ForeignCluster
    jobspec: dict[str, Any]
    not_applied: list[str]
    unresolved: list[str]


class Place(NamedTuple):
    """The place where the job will run.

    `variables` and `cwd` are the caller's. With `local`, brokers of this machine run the job; `environment` is then the
    folder of its Python environment for additional packages.
    """

    variables: Mapping[str, str]
    cwd: str
    local: bool
    environment: str = ""


def build(name: str, runtime: Any, trainer: types.CustomTrainer | None, place: Place, created: float) -> Built:
    """The job of a trainer or, without one, of the runtime's own command.

    Raises ValueError with a line for each problem.
    """
    given: dict[str, Any] = {}
    files: dict[str, str] = {}
    resources: dict[str, str] = {}
    if trainer is not None:
        resources = _resources(trainer.resources_per_node)
        files = {_PROGRAM: program_text(trainer.func, trainer.func_args)}
        given = {
            "command": _command(trainer, runtime, place.environment or "{{tmpdir}}/environment"),
            "numNodes": trainer.num_nodes,
            "env": _variables(trainer.env),
            "resourcesPerNode": {"limits": resources} if resources else None,
            # "auto" stands for the number of GPUs or CPUs of a node, if it requests any.
            "numProcPerNode": "auto" if _device(resources) else None,
        }
        if trainer.packages_to_install:
            files[_INSTALLER] = Path(with_packages.__file__).read_text(encoding="utf-8")
            files[_REQUIREMENTS] = _requirements(trainer)
    cluster = _read(name, runtime, {key: value for key, value in given.items() if value is not None})
    if trainer is not None and _has_torch(runtime) and cluster.options.run is None:
        cluster = structs.replace(cluster, run=Run.NODE)
    base = {"PYTHONUNBUFFERED": "1", **place.variables}
    # Functions are written for torchrun, whose processes see all GPUs of a node and choose one by LOCAL_RANK.
    shares_gpus = trainer is None and not place.local
    jobspec = running.jobspec(cluster, base, place.cwd, gpus=shares_gpus, local=place.local)
    if trainer is not None:
        _expand_words(jobspec, cluster, place.local)
    for path, text in files.items():
        jobspec_build.add_file(jobspec, path, text)
    record = Record(
        name=name,
        runtime=runtime,
        created=created,
        nodes=cluster.size,
        procs=cluster.procs,
        tasks=max(cluster.tasks // cluster.size, 1),
        device=_device(resources) or UNKNOWN,
        hosts=cluster.parts[0].job,
    )
    jobspec_build.set_attribute(jobspec, f"user.{RECORD}", to_builtins(record))
    unresolved = running.unresolved(cluster, local=place.local)
    return Built(cluster, jobspec, _not_applied(cluster, trainer, resources), unresolved)


def _expand_words(jobspec: dict[str, Any], cluster: ForeignCluster, local: bool) -> None:
    """Let the job shell expand templates in the command.

    The command is ours, and refers to the job's files by a template.
    """
    system = jobspec["attributes"]["system"]
    system["shell"]["options"].pop("literal-args", None)
    if cluster.run is Run.PROGRAM:
        # The job shell does not expand templates in a script.
        jobspec["tasks"][0]["command"][-1:] = running.words(cluster, local=local)
        del system["files"]["script"]


def read_record(jobspec: Any) -> Record | None:
    """The record in a jobspec; None if the job is not a TrainJob of the SDK."""
    user = jobspec.get("attributes", {}).get("user") if isinstance(jobspec, dict) else None
    found = user.get(RECORD) if isinstance(user, dict) else None
    try:
        return convert(found, Record) if found is not None else None
    except ValueError:
        return None


def _read(name: str, runtime: Any, trainer: dict[str, Any]) -> ForeignCluster:
    reference = {"name": runtime["metadata"]["name"], "kind": runtime["kind"]}
    spec = {"runtimeRef": reference, **({"trainer": trainer} if trainer else {})}
    document = {
        "apiVersion": trainjob.API_VERSION,
        "kind": trainjob.KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        cluster = trainjob.read(document, runtime)
    except InvalidForeign as exc:
        variables = [one["name"] for one in trainer.get("env", ())]
        raise InvalidForeign([_of_sdk(problem, reference["name"], variables) for problem in exc.problems]) from None
    if cluster.interactive:
        raise ValueError(
            f"Runtime {reference['name']} is interactive: an instance without a job, which runs no function"
        )
    return cluster


def _of_sdk(problem: Problem, runtime: str, variables: list[str]) -> Problem:
    """A problem with a TrainJob's field as a problem with the SDK's argument.

    `variables` are the names in `env`.
    """
    if problem.path == "spec.trainer.command":
        # With a function, this module sets the command.
        rule = f"is required, such as CustomTrainer(func=...), as the runtime {runtime} has no command of its own"
        return Problem("trainer", rule)
    variable = _VARIABLE.match(problem.path)
    if variable:
        return Problem(f"env[{variables[int(variable[1])]!r}]", problem.rule)
    for path, name in _FIELDS.items():
        if problem.path == path or problem.path.startswith((f"{path}.", f"{path}[")):
            return Problem(name + problem.path[len(path) :], problem.rule)
    return problem


def _command(trainer: types.CustomTrainer, runtime: Any, environment: str) -> list[str]:
    """The command by which a node or a process runs the function.

    As in the SDK, torchrun runs it if the runtime has torch's policy.
    """
    program = [f"{{{{tmpdir}}}}/{_PROGRAM}"]
    if _has_torch(runtime):
        program = ["-m", "torch.distributed.run", *program]
    if not trainer.packages_to_install:
        return [sys.executable, *program]
    return [sys.executable, f"{{{{tmpdir}}}}/{_INSTALLER}", environment, f"{{{{tmpdir}}}}/{_REQUIREMENTS}", *program]


def _has_torch(runtime: Any) -> bool:
    policy = runtime["spec"].get("mlPolicy")
    return isinstance(policy, dict) and policy.get("torch") is not None


def _requirements(trainer: types.CustomTrainer) -> str:
    """A requirements file for pip.

    It names an index only if the trainer has other indexes than the SDK's default; otherwise pip's own configuration
    counts.
    """
    packages, urls = trainer.packages_to_install or [], trainer.pip_index_urls or []
    for field, value in (("packages_to_install", packages), ("pip_index_urls", urls)):
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            raise ValueError(f"{field}: must be a list of texts, not {value!r}")
    options = [] if urls == _DEFAULT_URLS else ["--index-url", *["--extra-index-url"] * (len(urls) - 1)]
    lines = [f"{option} {url}" for option, url in zip(options, urls)]
    return "".join(f"{line}\n" for line in [*lines, *packages])


def _variables(env: Mapping[str, str] | None) -> list[dict[str, Any]] | None:
    if env is None:
        return None
    if not isinstance(env, Mapping):
        raise ValueError(f"env: must be a dict of variables, not {env!r}")
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"env[{name!r}]: name and value must be texts, the value is {value!r}")
    return [{"name": name, "value": value} for name, value in env.items()]


def _resources(given: Mapping[str, Any] | None) -> dict[str, str]:
    """The resources of a node by their names in Kubernetes, as the SDK converts them. Raises ValueError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"resources_per_node: must be a dict of resources, not {given!r}")
    found = {}
    for key, value in given.items():
        text = str(value)
        if isinstance(value, bool) or not QUANTITY.match(text) or text.startswith("-"):
            raise ValueError(f"resources_per_node[{key!r}]: must be a quantity such as 2, 500m or 10Gi, not {value!r}")
        name = str(key)
        name = name.lower() if name.lower() in _LOWER or name.lower().startswith("mig-") else name
        if name in _NEEDED and not quantity(text):
            raise ValueError(f"resources_per_node[{key!r}]: must be more than {value!r}, as each node needs some")
        found[_ALIASES.get(name, f"nvidia.com/{name}" if name.startswith("mig-") else name)] = text
    return found


def _device(resources: Mapping[str, str]) -> str:
    """The device that determines the number of a node's processes; "" if there is neither a GPU nor a CPU."""
    for device in ("gpu", "cpu"):
        names = [name for name in resources if device in name.rpartition("/")[2]]
        if any(quantity(resources[name]) >= 1 for name in names):
            return device
    return ""


def _not_applied(
    cluster: ForeignCluster, trainer: types.CustomTrainer | None, resources: Mapping[str, str]
) -> list[str]:
    """Parts without effect outside of Kubernetes: of the request, by the SDK's names, then of the runtime."""
    image = ["image"] if trainer is not None and trainer.image else []
    others = [f"resources_per_node[{name!r}]" for name in resources if not _device({name: "1"})]
    container = (".image", ".resources")
    return image + others + [path for path in running.not_applied(cluster) if not path.endswith(container)]
