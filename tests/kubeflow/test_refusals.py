"""What brokers cannot do is refused by the name that the SDK has for it, with what would do."""

from __future__ import annotations

from typing import Any

import pytest
from kubeflow.trainer import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    HuggingFaceDatasetInitializer,
    Initializer,
    S3ModelInitializer,
    TorchTuneConfig,
)
from kubeflow.trainer.options import (
    ActiveDeadlineSeconds,
    Annotations,
    Labels,
    Name,
    RuntimePatch,
    TrainerArgs,
    TrainerCommand,
)

from headrace.kubeflow import HeadraceBackendConfig, TrainerClient


def train() -> None:
    pass


@pytest.fixture
def client() -> TrainerClient:
    return TrainerClient(HeadraceBackendConfig())


CUSTOM = CustomTrainer(train)


@pytest.mark.parametrize(
    ("given", "named", "instead"),
    [
        (
            {"trainer": CustomTrainerContainer("mine:1")},
            "CustomTrainerContainer needs Kubernetes for its image mine:1",
            "CustomTrainer(func=...)",
        ),
        (
            {"trainer": BuiltinTrainer(TorchTuneConfig())},
            "BuiltinTrainer needs Kubernetes",
            "packages_to_install=['torchtune']",
        ),
        ({"trainer": train}, "trainer: must be a CustomTrainer, not function", ""),
        (
            {"initializer": Initializer(dataset=HuggingFaceDatasetInitializer("hf://a/b"))},
            "initializer.dataset: HuggingFaceDatasetInitializer needs Kubernetes",
            "fetch hf://a/b in the training function",
        ),
        (
            {"initializer": Initializer(model=S3ModelInitializer("s3://a/b"))},
            "initializer.model: S3ModelInitializer needs Kubernetes",
            "fetch s3://a/b in the training function",
        ),
        (
            {"options": [Name("a"), Labels({"a": "b"})]},
            "Labels option is not compatible with HeadraceBackend",
            "; instead: Name(...), which gives",
        ),
        (
            {"options": [Annotations({"a": "b"})]},
            "Annotations option is not compatible",
            "; instead: Name(...), which gives",
        ),
        (
            {"options": [ActiveDeadlineSeconds(3)]},
            "ActiveDeadlineSeconds option is not compatible",
            "; instead: delete_job, when wait_for_job_status(timeout",
        ),
        ({"options": [TrainerCommand(["a"])]}, "TrainerCommand option is not compatible", "CustomTrainer(func=...)"),
        ({"options": [TrainerArgs(["a"])]}, "TrainerArgs option is not compatible", "func_args"),
        ({"options": [RuntimePatch()]}, "RuntimePatch option is not compatible", "HeadraceBackendConfig(runtimes=...)"),
        (
            {"options": [lambda spec, _trainer, _backend: spec.update(spec=1)]},
            "function needs Kubernetes",
            "runtimes=...",
        ),
        ({"options": [Name(3)]}, "Name: must be text, not 3", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_needs_kubernetes_is_refused(
    given: dict[str, Any], named: str, instead: str, client: TrainerClient
) -> None:
    with pytest.raises(ValueError) as caught:
        client.train(**{"trainer": CUSTOM, **given})
    assert str(caught.value).startswith(named) and instead in str(caught.value)
    assert client.list_jobs() == []


def test_without_anything_to_run_it_is_refused(client: TrainerClient) -> None:
    with pytest.raises(ValueError, match="trainer: is required"):
        client.train(initializer=Initializer())
