"""TrainJobs whose Jobs are clusters, under Kubeflow Trainer and JobSet of each version that is tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from foreign_sets import TRAINJOBS, Sets, cluster_id, labelled, replicated
from kubecluster.errors import KubeError
from patience import until
from peers import stock_runtimes

from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.flux_jobs.read.options import ANNOTATION
from sizes import SOAK

Object = dict[str, Any]

pytestmark = pytest.mark.soak

OURS = "headrace-distributed"
WORDS = ["", "two words", 'it\'s "quoted"', "a\nb", "$(GREETING) $$(GREETING) $GREETING", "*", "\\n", "--x=y"]
ARRIVED = ["", "two words", 'it\'s "quoted"', "a\nb", "hello $(GREETING) $GREETING", "*", "\\n", "--x=y"]


@pytest.fixture
def trains(sets: Sets, image: Callable[[str], str]) -> Callable[..., None]:
    """Make a TrainJob of our runtime whose command runs in Debian."""

    def make(name: str, command: list[str], runtime: str = OURS, **more: Any) -> None:
        spec = more.pop("spec", {})
        sets.trainjob(name, runtime, trainer={"image": image("debian"), "command": command, **more}, **spec)

    return make


def test_ranks_and_exit_codes_go_all_the_way_up(sets: Sets, trains: Callable[..., None]) -> None:
    trains("ranks", ["flux", "getattr", "rank"], numNodes=3)
    trains("fails", ["sh", "-c", "exit 3"], numNodes=2)
    done = sets.condition(TRAINJOBS, "ranks", "Complete")
    assert done["reason"] == "AllJobsCompleted"
    (status,) = sets.get(TRAINJOBS, "ranks")["status"]["jobsStatus"]
    assert (status["name"], status["succeeded"], status["failed"], status["active"]) == ("node", 1, 0, 0)
    assert sorted(sets.log("ranks-node-0").splitlines()) == ["0", "1", "2"]
    sets.condition(TRAINJOBS, "fails", "Failed")
    assert sets.exit_code("fails-node-0") == 3


def test_words_arrive_as_they_are(sets: Sets, trains: Callable[..., None]) -> None:
    greeting = [{"name": "GREETING", "value": "hello"}]
    trains("words", ["printf", "[%s]\\n"], args=WORDS, env=greeting)
    sets.condition(TRAINJOBS, "words", "Complete")
    assert sets.log("words-node-0") == "".join(f"[{word}]\n" for word in ARRIVED)


def test_processes_are_those_of_the_trainjob(sets: Sets, trains: Callable[..., None]) -> None:
    """Only a torch policy would bring their number into the pod; a runtime without a policy has none."""
    say = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK"
    trains("procs", ["sh", "-c", say], numNodes=2, numProcPerNode=2)
    sets.condition(TRAINJOBS, "procs", "Complete")
    assert sorted(sets.log("procs-node-0").splitlines()) == [
        f"{rank} of 4, {rank % 2} of 2 on {rank // 2}" for rank in range(4)
    ]


def test_under_a_torch_policy_a_launcher_runs_once_a_node(sets: Sets, trains: Callable[..., None]) -> None:
    say = "echo $PET_NODE_RANK of $PET_NNODES with $PET_NPROC_PER_NODE, $FLUX_TASK_RANK"
    trains("torch", ["sh", "-c", say], "headrace-torch", numNodes=2, numProcPerNode=2)
    sets.condition(TRAINJOBS, "torch", "Complete")
    assert sorted(sets.log("torch-node-0").splitlines()) == [f"{rank} of 2 with 2, {rank}" for rank in range(2)]


def test_a_trainjob_that_lasts_too_long_takes_its_cluster_with_it(sets: Sets, trains: Callable[..., None]) -> None:
    """The deadline came with Trainer 2.2."""
    if not sets.trainer.has_flux:
        with pytest.raises(KubeError, match="activeDeadlineSeconds"):
            trains("late", ["sleep", "600"], spec={"activeDeadlineSeconds": 5})
        return
    trains("late", ["sleep", "600"], spec={"activeDeadlineSeconds": 5})
    assert sets.condition(TRAINJOBS, "late", "Failed")["reason"] == "DeadlineExceeded"
    until(lambda: sets.pods("late-node-0") == [] and not sets.secrets())


def test_what_a_trainjob_lacks_is_its_runtimes(sets: Sets, image: Callable[[str], str]) -> None:
    command = ["sh", "-c", "echo $(flux getattr size) $WORLD_SIZE"]
    sets.runtime("whole", labelled(replicated("node", image("debian"), command, 1)), policy={"numNodes": 2})
    sets.trainjob("bare", "whole", "TrainingRuntime")
    sets.trainjob("single", "whole", "TrainingRuntime", trainer={"numNodes": 1})
    sets.condition(TRAINJOBS, "bare", "Complete")
    assert sets.log("bare-node-0").splitlines() == ["2 2", "2 2"]
    sets.condition(TRAINJOBS, "single", "Complete")
    assert sets.log("single-node-0").splitlines() == ["1 1"]


def test_a_trainjob_is_suspended_and_resumed(sets: Sets, trains: Callable[..., None]) -> None:
    trains("halts", ["flux", "getattr", "size"], numNodes=2, spec={"suspend": True})
    sets.condition(TRAINJOBS, "halts", "Suspended")
    job = sets.job("halts-node-0")
    assert cluster_id(job) and sets.pods("halts-node-0") == []
    sets.patch(TRAINJOBS, "halts", {"suspend": False})
    sets.condition(TRAINJOBS, "halts", "Complete")
    assert cluster_id(sets.job("halts-node-0")) == cluster_id(job)
    assert sets.log("halts-node-0").split() == ["2", "2"]


def test_initializers_run_before_the_cluster(sets: Sets, image: Callable[[str], str]) -> None:
    """Both find their files in a volume of the runtime, as with Trainer's own runtimes."""
    folder = {"name": "initializer", "hostPath": {"path": f"/tmp/{sets.namespace}", "type": "DirectoryOrCreate"}}
    mount = [{"name": "initializer", "mountPath": "/workspace"}]
    first = replicated("dataset-initializer", image("debian"), ["sh", "-c", "echo $STORAGE_URI > /workspace/it"], 1)
    step = replicated("node", image("debian"), ["cat", "/workspace/it"], 1)
    for job, name in ((first, "dataset-initializer"), (step, "node")):
        pod = job["template"]["spec"]["template"]["spec"]
        pod.update(volumes=[folder], nodeName="node-0")
        pod["containers"][0].update(name=name, volumeMounts=mount)
    first["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}}
    depends = [{"name": "dataset-initializer", "status": "Complete"}]
    sets.runtime("prepared", first, {**labelled(step), "dependsOn": depends})
    sets.trainjob(
        "reads", "prepared", "TrainingRuntime", initializer={"dataset": {"storageUri": "hf://some/thing"}}, trainer={}
    )
    sets.condition(TRAINJOBS, "reads", "Complete")
    assert sets.log("reads-node-0").strip() == "hf://some/thing"
    assert not cluster_id(sets.job("reads-dataset-initializer-0"))


def overridden(version: str) -> Object:
    """A node selector for the Job `node`, in the words of a version of Trainer."""
    pod = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    target = {"targetJobs": [{"name": "node"}]}
    if version.startswith("2.0."):
        return {"podSpecOverrides": [{**target, **pod}]}
    if version.startswith("2.1."):
        return {"podTemplateOverrides": [{**target, "spec": pod}]}
    return patched({"spec": {"template": {"spec": pod}}})


def patched(template: Object) -> Object:
    """A patch of the template of the Job `node` (Trainer 2.2 and later)."""
    jobs = [{"name": "node", "template": template}]
    return {
        "runtimePatches": [
            {"manager": "example.org/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        ]
    }


def test_overrides_of_each_version_reach_the_cluster(sets: Sets, trains: Callable[..., None]) -> None:
    trains("placed", ["flux", "getattr", "size"], numNodes=2, spec=overridden(sets.trainer.version))
    sets.condition(TRAINJOBS, "placed", "Complete")
    assert {pod["spec"]["nodeSelector"]["kubernetes.io/os"] for pod in sets.pods("placed-node-0")} == {"linux"}
    assert sets.log("placed-node-0").split() == ["2", "2"]


def test_a_trainjob_without_the_label_stays_as_trainer_makes_it(sets: Sets, trains: Callable[..., None]) -> None:
    sets.trainer.apply(stock_runtimes(sets.trainer)["torch-distributed"])
    trains("plain", ["sh", "-c", "echo $PET_NODE_RANK of $PET_NNODES"], "torch-distributed", numNodes=2)
    sets.condition(TRAINJOBS, "plain", "Complete")
    job = sets.job("plain-node-0")
    assert not cluster_id(job) and sets.secrets() == {}
    assert "initContainers" not in job["spec"]["template"]["spec"]
    assert sets.log("plain-node-0") == "0 of 2\n"


def test_a_patch_makes_a_cluster_of_a_runtime_that_trainer_brings(sets: Sets, trains: Callable[..., None]) -> None:
    """Before 2.2 a TrainJob cannot label the Job of its runtime."""
    name = "torch-distributed"
    sets.trainer.apply(stock_runtimes(sets.trainer)[name])
    metadata = {"labels": {LABEL_KEY: LABEL_VALUE}, "annotations": {ANNOTATION: "{run: node}"}}
    patch = patched({"metadata": metadata})
    say = ["sh", "-c", "echo $(flux getattr size) $PET_NODE_RANK"]
    if not sets.trainer.has_flux:
        with pytest.raises(KubeError, match="runtimePatches"):
            trains("stock", say, name, numNodes=2, spec=patch)
        return
    trains("stock", say, name, numNodes=2, spec=patch)
    sets.condition(TRAINJOBS, "stock", "Complete")
    assert sorted(sets.log("stock-node-0").splitlines()) == ["2 0", "2 1"]


TRAINING = """
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
steps = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(100 + rank)
samples, wanted = torch.randn(64, 8), torch.randn(64, 1)
for _ in range(20):
    steps.zero_grad()
    loss = torch.nn.functional.mse_loss(model(samples), wanted)
    loss.backward()
    steps.step()
total = loss.detach().clone()
dist.all_reduce(total)
print(f"rank {rank} of {dist.get_world_size()} with {os.environ['LOCAL_RANK']}: {total.item():.6f}", flush=True)
"""


@pytest.mark.skipif(not SOAK, reason="an image of 0.9 GB: make soak")
def test_data_parallel_training_by_python_and_by_torchrun(sets: Sets, image: Callable[[str], str]) -> None:
    """Two nodes with two processes each, which average their gradients: the loss is the same, whoever starts them."""
    python = ["python3", "-c", TRAINING]
    sizes = {"numNodes": 2, "numProcPerNode": 2, "image": image("torch")}
    sets.trainjob("python", OURS, trainer={**sizes, "command": python})
    sets.trainjob("launcher", "headrace-torch", trainer={**sizes, "command": ["torchrun", "--no_python", *python]})
    losses = set()
    for name in ("python", "launcher"):
        sets.condition(TRAINJOBS, name, "Complete")
        said = [line.partition(": ") for line in sets.log(f"{name}-node-0").splitlines() if line.startswith("rank ")]
        assert sorted(who for who, _, _ in said) == [f"rank {rank} of 4 with {rank % 2}" for rank in range(4)]
        losses.update(loss for _, _, loss in said)
    assert len(losses) == 1
