"""Which fields of a MiniCluster one machine cannot honour: images, volumes, the pods' own settings, network.

The local runner lists them once, so that nobody believes a limit or a mount that is not there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .fields import MiniCluster, Record

# Honoured by the local runner, as attribute paths below the record; a name covers what lies under it.
_SPEC = frozenset({"size", "tasks", "interactive", "cleanup", "logging", "flux", "containers", "services", "min_size"})
_FLUX = frozenset(
    {
        "broker_config",
        "connect_timeout",
        "environment",
        "log_level",
        "option_flags",
        "scheduler",
        "submit_command",
        "topology",
    }
)
_RUNNER = frozenset(
    {"name", "run_flux", "command", "commands", "working_dir", "environment", "launcher", "batch", "batch_raw", "logs"}
)


def not_applied(cluster: MiniCluster) -> list[str]:
    """Paths of the fields that are given and have no effect on one machine, in the order of the schema."""
    spec = cluster.spec
    found = []
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        if container is cluster.runner:
            found += list(_given(container, _RUNNER, path))
        else:
            found.append(f"{path} ({container.name})")
    found += [f"spec.services[{index}] ({one.name})" for index, one in enumerate(spec.services)]
    found += list(_given(spec, _SPEC, "spec"))
    if spec.flux:
        found += list(_given(spec.flux, _FLUX, "spec.flux"))
    if cluster.logging.zeromq:
        found.append("spec.logging.zeromq")
    return found


def _given(record: Record, honoured: frozenset[str], path: str) -> Iterator[str]:
    for one in msgspec.structs.fields(record):
        value = getattr(record, one.name)
        if one.name not in honoured and value != _default(one) and value is not None:
            yield f"{path}.{one.encode_name}"


def _default(one: msgspec.structs.FieldInfo) -> Any:
    if one.default_factory is not msgspec.NODEFAULT:
        return one.default_factory()
    return one.default
