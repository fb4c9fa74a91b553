"""Reads an experiment's file, and files of flux-cloud. Pure, but for `load`, which reads the file itself."""

from __future__ import annotations

from .load import read
from .problems import InvalidExperiment

__all__ = ["InvalidExperiment", "read"]
