"""Where jobs of the SDK run, and which runtimes there are."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class HeadraceBackendConfig(BaseModel):
    """The configuration of a `TrainerClient` whose jobs run on Headrace.

    uri: the instance whose jobs they are, as `flux proxy` takes it; None starts brokers on this machine for each job.
    statedir: a folder that keeps local jobs, so that other Python processes find them, and they go on without this one.
        With None, jobs end with this process. An instance keeps its jobs itself.
    runtimes: files of runtimes (ClusterTrainingRuntime, TrainingRuntime), or such documents, in addition to those that
        Headrace brings.

    Raises ValueError for both a uri and a statedir.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str | None = None
    statedir: str | os.PathLike[str] | None = None
    runtimes: tuple[str | os.PathLike[str] | dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _check_place(self) -> HeadraceBackendConfig:
        if self.uri is not None and self.statedir is not None:
            raise ValueError("uri and statedir exclude each other: an instance keeps its jobs itself")
        return self
