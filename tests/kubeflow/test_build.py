"""The job that a trainer of the SDK becomes: size, command, files, variables, and what is refused."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from instance import clean_env
from kubeflow.trainer import CustomTrainer
from training_samples import own

from headrace.formats.spec.jobspec import validate
from headrace.kubeflow.build import Built, Place, build, read_record
from headrace.kubeflow.catalog import Catalog
from headrace.kubeflow.function import program_text


def train() -> None:
    pass


def built(runtime: str | None = None, *, environment: str = "", local: bool = True, **trainer: Any) -> Built:
    place = Place({"HOME": "/h", "WORD": "outer"}, "/work", local, environment)
    found = build("t1", Catalog([own("own")]).document(runtime), CustomTrainer(func=train, **trainer), place, 5.0)
    validate(found.jobspec)
    return found


def system(found: Built) -> Any:
    return found.jobspec["attributes"]["system"]


def command(found: Built) -> Any:
    return found.jobspec["tasks"][0]["command"]


def test_a_function_is_a_file_of_the_job_that_each_process_runs() -> None:
    found = built(num_nodes=2, resources_per_node={"cpu": 3})
    assert command(found) == [sys.executable, "{{tmpdir}}/trainer_func.py"]
    assert "def train() -> None:" in system(found)["files"]["trainer_func.py"]["data"]
    options = system(found)["shell"]["options"]
    assert "literal-args" not in options and options["torch"] == 1
    assert options["per-resource"] == {"type": "node", "count": 3}
    assert (options["gpu-affinity"], system(found)["cwd"]) == ("off", "/work")
    assert found.jobspec["resources"][0]["count"] == 2
    assert system(built(local=False))["shell"]["options"]["gpu-affinity"] == "off"


def test_torchs_policy_has_torchrun_start_the_processes() -> None:
    found = built("headrace-torch", num_nodes=2, resources_per_node={"gpu": 4})
    assert command(found) == [sys.executable, "-m", "torch.distributed.run", "{{tmpdir}}/trainer_func.py"]
    assert system(found)["shell"]["options"]["per-resource"] == {"type": "node", "count": 1}
    assert system(found)["environment"]["PET_NPROC_PER_NODE"] == "4"


def test_the_function_of_the_example_is_a_program_by_itself() -> None:
    train = runpy.run_path(str(Path(__file__).parents[2] / "examples/training/ddp.py"))["train"]
    assert "DistributedDataParallel" in program_text(train, None)


def test_torchrun_is_one_task_a_node_also_behind_the_installer() -> None:
    """In a runtime that does not say so."""
    for packages in (None, ["a"]):
        found = built("own", packages_to_install=packages)
        assert command(found)[-3:] == ["-m", "torch.distributed.run", "{{tmpdir}}/trainer_func.py"]
        assert system(found)["shell"]["options"]["per-resource"] == {"type": "node", "count": 1}


@pytest.mark.parametrize(
    ("resources", "procs", "device"),
    [
        (None, 1, "Unknown"),
        ({}, 1, "Unknown"),
        ({"gpu": 2, "cpu": 8}, 2, "gpu"),
        ({"GPU": "2", "CPU": "8"}, 2, "gpu"),
        ({"nvidia.com/gpu": 3}, 3, "gpu"),
        ({"amd.com/gpu": 3}, 3, "gpu"),
        ({"gpu": 0, "cpu": 8}, 8, "cpu"),
        ({"cpu": "2500m"}, 2, "cpu"),
        ({"cpu": 2.5}, 2, "cpu"),
        ({"cpu": "500m"}, 1, "Unknown"),
        ({"memory": "10Gi"}, 1, "Unknown"),
    ],
)
def test_processes_are_gpus_or_else_cpus_or_one(resources: Any, procs: int, device: str) -> None:
    found = built(resources_per_node=resources)
    record = read_record(found.jobspec)
    assert record is not None
    assert (found.cluster.procs, record.procs, record.device) == (procs, procs, device)


def test_what_the_trainer_leaves_open_is_the_runtimes() -> None:
    found = built("own")
    assert (found.cluster.size, found.cluster.procs) == (3, 2)
    assert built("own", num_nodes=1, resources_per_node={"cpu": 1}).cluster.size == 1
    assert built("own", num_nodes=1, resources_per_node={"cpu": 1}).cluster.procs == 1


def test_variables_are_the_callers_and_the_trainers_above() -> None:
    found = built(env={"WORD": "inner", "TEXT": "$(WORD) {{id}}"})
    environment = system(found)["environment"]
    assert (environment["HOME"], environment["WORD"], environment["TEXT"]) == ("/h", "inner", "inner {{id}}")
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert system(built(env={"PYTHONUNBUFFERED": ""}))["environment"]["PYTHONUNBUFFERED"] == ""


def test_packages_are_installed_by_the_first_process() -> None:
    found = built(packages_to_install=["a>=1", "b[c]"], environment="/jobs/t1/environment")
    installer = ["{{tmpdir}}/with_packages.py", "/jobs/t1/environment", "{{tmpdir}}/requirements.txt"]
    assert command(found) == [sys.executable, *installer, "{{tmpdir}}/trainer_func.py"]
    assert system(found)["files"]["requirements.txt"]["data"] == "a>=1\nb[c]\n"
    found = built("headrace-torch", packages_to_install=["a"], pip_index_urls=["https://x", "https://y"])
    assert command(found)[2:] == [
        "{{tmpdir}}/environment",
        "{{tmpdir}}/requirements.txt",
        *("-m", "torch.distributed.run"),
        "{{tmpdir}}/trainer_func.py",
    ]
    requirements = "--index-url https://x\n--extra-index-url https://y\na\n"
    assert system(found)["files"]["requirements.txt"]["data"] == requirements


def test_the_index_of_the_sdks_variable_is_the_users() -> None:
    text = """
from kubeflow.trainer import CustomTrainer
from headrace.kubeflow.build import _requirements
print(_requirements(CustomTrainer(print, packages_to_install=["a"])), end="")
"""
    env = clean_env(DEFAULT_PIP_INDEX_URLS="https://x,https://y")
    done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "--index-url https://x\n--extra-index-url https://y\na\n"


def test_the_record_says_what_the_job_is() -> None:
    found = built("own", num_nodes=2, resources_per_node={"cpu": 2})
    record = read_record(found.jobspec)
    assert record is not None
    assert (record.name, record.created, record.nodes, record.procs, record.tasks) == ("t1", 5.0, 2, 2, 1)
    assert (record.runtime, record.hosts) == (own("own"), "t1-node-0")
    for other in (None, {}, {"attributes": {}}, {"attributes": {"user": {"trainjob": {"name": 3}}}}):
        assert read_record(other) is None


def test_what_does_not_apply_is_named() -> None:
    found = built(image="mine", resources_per_node={"cpu": 1, "memory": "1Gi", "storage": "1Gi"})
    resources = ["resources_per_node['memory']", "resources_per_node['ephemeral-storage']"]
    assert found.not_applied == ["image", *resources]
    assert built().not_applied == []


def test_names_of_the_jobs_pods_are_this_machine_or_are_named() -> None:
    env = {"FIRST": "t1-node-0-0.t1:80", "OTHER": "t1-node-0-5.t1"}
    local, distant = built(env=env), built(env=env, local=False)
    assert system(local)["environment"]["FIRST"] == "127.0.0.1:80"
    assert local.unresolved == ["OTHER (t1-node-0-5.t1)"]
    assert system(distant)["environment"]["FIRST"] == "t1-node-0-0.t1:80"
    assert distant.unresolved == ["FIRST (t1-node-0-0.t1)", "OTHER (t1-node-0-5.t1)"]


@pytest.mark.parametrize(
    ("trainer", "rule"),
    [
        ({"num_nodes": 0}, "num_nodes: must be 1 or more, not 0"),
        ({"num_nodes": -1}, "num_nodes: must be 1 or more"),
        ({"num_nodes": 2.5}, "num_nodes: must be a whole number"),
        ({"num_nodes": True}, "num_nodes: must be a whole number"),
        ({"num_nodes": 1 << 40}, "num_nodes: must be "),
        ({"resources_per_node": {"cpu": "many"}}, r"resources_per_node\['cpu'\]: must be a quantity"),
        ({"resources_per_node": {"gpu": -1}}, r"resources_per_node\['gpu'\]: must be a quantity"),
        ({"resources_per_node": {"gpu": True}}, r"resources_per_node\['gpu'\]: must be a quantity"),
        ({"resources_per_node": ["cpu"]}, "resources_per_node: must be a dict"),
        ({"resources_per_node": {"cpu": 0}}, r"resources_per_node\['cpu'\]: must be more than 0"),
        ({"resources_per_node": {"gpu": 1, "CPU": "0m"}}, r"resources_per_node\['CPU'\]: must be more than '0m'"),
        ({"resources_per_node": {"memory": "0Gi"}}, r"resources_per_node\['memory'\]: must be more than '0Gi'"),
        ({"env": {"A": 1}}, r"^env\['A'\]: name and value must be texts, the value is 1$"),
        ({"env": {"A": None}}, r"^env\['A'\]: name and value must be texts"),
        ({"env": {3: "1"}}, r"^env\[3\]: name and value must be texts"),
        ({"env": {"": "1"}}, r"^env\[''\]: must be the name of a variable, not empty$"),
        ({"env": {"A": "\0"}}, r"^env\['A'\]: must not contain the character NUL$"),
        ({"env": {"B": "1", "A=B": "1"}}, r"^env\['A=B'\]: 'A=B' is not a valid name of a variable"),
        ({"env": {"JOB_COMPLETION_INDEX": "1"}}, r"^env\['JOB_COMPLETION_INDEX'\]: "),
        ({"env": {"FLUX_QUEUE_POLICY": "lifo"}}, r"^env\['FLUX_QUEUE_POLICY'\]: FLUX_QUEUE_POLICY must be one of"),
        ({"env": ["A"]}, "env: must be a dict"),
        ({"packages_to_install": "numpy"}, "packages_to_install: must be a list of texts"),
        ({"packages_to_install": ["a", " "]}, "packages_to_install: must be a list of texts"),
        ({"packages_to_install": ["a"], "pip_index_urls": "https://x"}, "pip_index_urls: must be a list of texts"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(trainer: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        built(**trainer)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("Capital", "name: "), ("a_b", "name: "), ("../x", "name: "), ("", "name: is required"), ("x" * 60, "name: ")],
)
def test_a_name_that_no_host_can_have_is_refused(name: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        build(name, Catalog(()).document(None), CustomTrainer(func=train), Place({}, "/", True), 5.0)
    assert len(str(caught.value).splitlines()) == 1


def test_without_a_trainer_it_is_the_runtimes_command() -> None:
    place = Place({}, "/", False)
    words = ["echo", "{{id}}", "a  b"]
    runtime = own("own", container={"command": words})
    found = build("t1", runtime, None, place, 5.0)
    assert command(found) == words
    options = system(found)["shell"]["options"]
    assert (options["literal-args"], options["gpu-affinity"]) == (1, "per-task")
    rule = r"^trainer: is required, such as CustomTrainer\(func=...\), as the runtime own has no command of its own$"
    with pytest.raises(ValueError, match=rule):
        build("t1", own("own"), None, place, 5.0)


@pytest.mark.parametrize(
    ("runtime", "rule"),
    [
        (own("own", mpi={}), "mlPolicy.mpi: is not supported by brokers"),
        (own("own", options="{interactive: true}"), "Runtime own is interactive"),
        (own("own", options="{unknown: 1}"), "unknown: is not an option"),
    ],
)
def test_a_runtime_that_cannot_run_functions_is_refused(runtime: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        build("t1", runtime, CustomTrainer(func=train), Place({}, "/", True), 5.0)
