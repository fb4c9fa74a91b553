"""`flux.resource`: resource sets, and the scheduler's state of the resources."""

from __future__ import annotations

from flux.resource.journal import ResourceJournalConsumer
from flux.resource.list import SchedResourceList, resource_list
from flux.resource.ResourceSet import ResourceSet
from flux.resource.Rlist import Rlist
from flux.resource.status import resource_status

__all__ = ["ResourceJournalConsumer", "ResourceSet", "Rlist", "SchedResourceList", "resource_list", "resource_status"]
