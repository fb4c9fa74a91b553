"""Options of `flux submit`, `flux batch` and `flux alloc` as keywords for the jobspec builders.

The options are interpreted by the same functions as for the commands.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import TYPE_CHECKING, Any, Dict

from flux.job.batch_config import BatchConfig
from headrace.wire.query import job_options

if TYPE_CHECKING:
    from flux.job.Jobspec import JobspecV1

# The builders' parameters for the size and configuration of an instance.
BUILDER_SIZE = ("num_slots", "cores_per_slot", "gpus_per_slot", "num_nodes", "broker_opts", "exclusive", "conf")
_KEYWORDS = {option.keyword: option for option in job_options.OPTIONS if option.keyword}
# Options that take a list; a single text is accepted as a list of one. A repeatable option whose keyword differs from
# its name takes a mapping instead.
_LISTS = {keyword for keyword, option in _KEYWORDS.items() if option.repeats and keyword == option.name}


def apply(spec: JobspecV1, args: Any, options: Dict[str, Any]) -> None:
    """Apply the options of a namespace (or None), and `options`, which override it, to `spec`.

    Raises TypeError for unknown names, ValueError for invalid values.
    """
    unknown = sorted(set(options) - set(_KEYWORDS))
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise TypeError(f"apply_options() got unexpected keyword argument(s): {names}")
    merged = argparse.Namespace(**dict.fromkeys((*_KEYWORDS, *(option.name for option in job_options.OPTIONS))))
    for source in ({} if args is None else vars(args), options):
        for name, value in source.items():
            if value is not None:
                setattr(merged, name, [value] if name in _LISTS and isinstance(value, str) else value)
    _apply(spec, merged, args is not None)


def _apply(spec: JobspecV1, merged: argparse.Namespace, from_namespace: bool) -> None:
    from headrace.formats.spec import envrules, rlimits
    from headrace.wire.query import submission

    if merged.env is not None or from_namespace:
        spec.environment, expand = envrules.apply(merged.env or [], os.environ)
        if expand:
            spec.setattr_shell_option("env-expand", expand)
    if merged.rlimit is not None or from_namespace:
        spec.setattr_shell_option("rlimit", rlimits.collect(merged.rlimit or []))
    if merged.time_limit is not None:
        spec.duration = merged.time_limit
    for key, value in (merged.shell_options or {}).items():
        spec.setattr_shell_option(key, value)
    submission.finish(spec.jobspec, merged, warnings.warn)
    for key, value in (merged.attributes or {}).items():
        spec.setattr(key, value)


def take(more: Dict[str, Any]) -> Dict[str, Any]:
    """Remove the options for `apply` from `more`; add this process's environment and limits."""
    options = {key: more.pop(key) for key in _KEYWORDS if key in more}
    return {"env": [], "rlimit": [], **options}


def take_size(more: Dict[str, Any]) -> Dict[str, Any]:
    """Remove the size of an instance from `more`, named as on the command line.

    Returns it with the builders' names.
    """
    nslots, nodes = more.pop("nslots", None), more.pop("nodes", None)
    exclusive = more.pop("exclusive", False)
    if nslots is None:
        exclusive = exclusive or nodes is not None
        nslots = 1 if nodes is None else nodes
    size: Dict[str, Any] = {
        key: more.pop(key) for key in ("cores_per_slot", "gpus_per_slot", "broker_opts") if key in more
    }
    conf = _configuration(more.pop("conf", None))
    return {"num_slots": nslots, "num_nodes": nodes, "exclusive": exclusive, "conf": conf, **size}


def _configuration(conf: Any) -> Any:
    """The configuration of a mapping, of a BatchConfig, or of text as `BatchConfig.update` takes it."""
    if conf is None or isinstance(conf, dict):
        return conf
    if isinstance(conf, BatchConfig):
        return conf.config
    return BatchConfig().update(str(conf)).config
