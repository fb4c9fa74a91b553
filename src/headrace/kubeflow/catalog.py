"""The training runtimes that jobs of the SDK may name: Headrace's own and those of the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from kubeflow.common.constants import UNKNOWN
from kubeflow.trainer.constants import constants
from kubeflow.trainer.types import types

from headrace.flux_jobs.read import runtimes
from headrace.flux_jobs.read.field import Field
from headrace.flux_jobs.read.load import kind_of_document, load_runtimes
from headrace.flux_jobs.read.trainjob import trainer_container

from .jobs import NotFoundError

_DEVICES = (
    *((name, name.partition("/")[2]) for name in (constants.GPU_LABEL, constants.TPU_LABEL)),
    (constants.NPU_LABEL, "npu"),
    (constants.CPU_LABEL, constants.CPU_LABEL),
)


class Catalog:
    """The documents of runtimes, by name.

    `given` are files or documents; they take precedence over Headrace's own. Raises ValueError for an invalid runtime.
    """

    def __init__(self, given: Iterable[str | os.PathLike[str] | dict[str, Any]]) -> None:
        # The SDK's default runtime starts the function once for each process, and so does this one: it needs no
        # torchrun.
        default = _named(runtimes.BUILT_IN[runtimes.DISTRIBUTED], constants.DEFAULT_TRAINING_RUNTIME, "torch")
        self._documents: dict[str, Any] = {constants.DEFAULT_TRAINING_RUNTIME: default, **runtimes.BUILT_IN}
        for one in given:
            for document in _documents(one):
                runtime = runtime_of(document)
                self._documents[runtime.name] = document

    def __iter__(self) -> Iterator[Any]:
        return iter(self._documents.values())

    def document(self, runtime: str | types.Runtime | None) -> Any:
        """The document of a runtime; None stands for the SDK's default. Raises NotFoundError."""
        name = constants.DEFAULT_TRAINING_RUNTIME if runtime is None else getattr(runtime, "name", runtime)
        if not isinstance(name, str) or name not in self._documents:
            known = ", ".join(self._documents)
            raise NotFoundError(
                f"Runtime {name!r} not found: there are {known}; HeadraceBackendConfig(runtimes=...) adds others"
            )
        return self._documents[name]


def runtime_of(document: Any) -> types.Runtime:
    """A runtime's document as a runtime of the SDK. Raises ValueError."""
    field = Field(document, kind_of_document(document) or "runtime")
    if kind_of_document(document) not in runtimes.KINDS:
        field.refuse(f"must be a {' or '.join(runtimes.KINDS)}")
        field.end()
    name = field["metadata"]["name"].required_text()
    policy = field["spec"]["mlPolicy"]
    framework = field["metadata"]["labels"][constants.RUNTIME_FRAMEWORK_LABEL].text(UNKNOWN)
    container = trainer_container(field)
    nodes = policy["numNodes"].number(1, 1)
    device, count = _device(container["resources"]["limits"], nodes)
    image = container["image"].text()
    field.end()
    builtin = framework == types.TORCH_TUNE
    trainer = types.RuntimeTrainer(
        trainer_type=types.TrainerType.BUILTIN_TRAINER if builtin else types.TrainerType.CUSTOM_TRAINER,
        framework=framework,
        image=image,
        num_nodes=nodes,
        device=device,
        device_count=count,
    )
    trainer.set_command(("torchrun",) if policy["torch"].given else ("python",))
    return types.Runtime(name=name, trainer=trainer, kind=types.RuntimeKind(kind_of_document(document)))


def _device(limits: Field, nodes: int) -> tuple[str, str]:
    """The device of a container, and the number of devices on all nodes."""
    for resource, device in _DEVICES:
        amount = limits.mapping().get(resource)
        if amount is not None:
            text = str(amount)
            return device, str(int(text) * nodes) if text.isascii() and text.isdigit() else text
    return UNKNOWN, UNKNOWN


def _named(document: Any, name: str, framework: str) -> Any:
    """The runtime with another name and framework label."""
    labels = {**document["metadata"]["labels"], constants.RUNTIME_FRAMEWORK_LABEL: framework}
    return {**document, "metadata": {**document["metadata"], "name": name, "labels": labels}}


def _documents(given: str | os.PathLike[str] | dict[str, Any]) -> list[Any]:
    """The documents of one item of `HeadraceBackendConfig.runtimes`. Raises ValueError."""
    if isinstance(given, dict):
        return [given]
    path = os.fspath(given)
    try:
        with open(path, encoding="utf-8") as file:
            found = load_runtimes(file.read())
    except OSError as exc:
        raise ValueError(f"runtimes: {path}: {exc.strerror}") from None
    except ValueError as exc:
        raise ValueError(f"runtimes: {path}: {exc}") from None
    if not found:
        raise ValueError(f"runtimes: {path}: has no {' or '.join(runtimes.KINDS)}")
    return found
