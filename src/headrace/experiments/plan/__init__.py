"""Which runs an experiment makes, in which order, at which cost. Pure."""

from __future__ import annotations

from .estimate import Estimate, in_total, of_cells
from .narrow import NothingLeft, narrow
from .order import plan

__all__ = ["Estimate", "NothingLeft", "in_total", "narrow", "of_cells", "plan"]
