"""The phases of a MiniCluster (`status.phase`)."""

from __future__ import annotations

PENDING = "Pending"
STARTING = "Starting"
RUNNING = "Running"
SUSPENDED = "Suspended"
FINISHED = "Finished"
FAILED = "Failed"
INVALID = "Invalid"
