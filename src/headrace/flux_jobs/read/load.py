"""Reads the file of a Job, JobSet or TrainJob. Pure.

The runtime of a TrainJob may be in the same file or in another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.k8s.objects.problems import Problem
from headrace.minicluster.api.documents import documents

from . import job, jobset, runtimes, trainjob
from .cluster import ForeignCluster
from .field import Field, InvalidForeign

_READERS: dict[str, Callable[[Any], ForeignCluster]] = {job.KIND: job.read, jobset.KIND: jobset.read}
KINDS = (*_READERS, trainjob.KIND)


class Source(NamedTuple):
    """The contents of a file: its cluster, its other documents ("ConfigMap/data"), and warnings."""

    cluster: ForeignCluster
    others: list[str]
    warnings: list[str]


def load(text: str, runtime: Any = None) -> Source:
    """The only Job, JobSet or TrainJob in a YAML text; `runtime` is the document of the TrainJob's runtime.

    Without `runtime`, the runtime to which the TrainJob refers is looked up in the text, then among Headrace's own.
    Raises InvalidMiniCluster with all problems.
    """
    found, warnings = documents(text)
    chosen = [one for one in found if kind_of_document(one) in KINDS]
    if len(chosen) != 1:
        kinds = ", ".join(sorted({kind_of_document(one) or "none" for one in found}))
        number = f"{len(chosen)} of them" if chosen else f"none (its kinds: {kinds})"
        raise InvalidForeign([Problem("", f"a file must hold one {' or '.join(KINDS)}, this one holds {number}")])
    document = chosen[0]
    kind = kind_of_document(document)
    if kind == trainjob.KIND:
        runtime = runtime or _find_runtime(document, found)
        cluster = trainjob.read(document, runtime)
    else:
        if runtime is not None:
            raise InvalidForeign([Problem("kind", f"must be {trainjob.KIND} for a runtime to apply, not {kind}")])
        cluster = _READERS[kind](document)
    return Source(cluster, [_called(one) for one in found if one is not document and one is not runtime], warnings)


def load_runtimes(text: str) -> list[Any]:
    """The documents of the training runtimes in a YAML text. Raises InvalidMiniCluster."""
    return [one for one in documents(text)[0] if kind_of_document(one) in runtimes.KINDS]


def load_runtime(text: str) -> Any:
    """The document of the only training runtime in a YAML text. Raises InvalidMiniCluster."""
    found = load_runtimes(text)
    if len(found) != 1:
        number = f"{len(found)} of them" if found else "none"
        rule = f"a runtime's file must hold one {' or '.join(runtimes.KINDS)}, this one holds {number}"
        raise InvalidForeign([Problem("", rule)])
    return found[0]


def kind_of_document(document: Any) -> str:
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""


def _find_runtime(document: Any, found: list[Any]) -> Any:
    wanted = trainjob.reference(document)
    named = [
        one
        for one in found
        if kind_of_document(one) in runtimes.KINDS and Field(one)["metadata"]["name"].value == wanted
    ]
    if wanted and named:
        return named[0]
    if wanted in runtimes.BUILT_IN:
        return runtimes.BUILT_IN[wanted]
    known = ", ".join(runtimes.BUILT_IN)
    rule = f"{wanted!r} is not in any of the documents" if wanted else "is required"
    advice = f"{rule}: give its file, or one of {known}, as --runtime"
    raise InvalidForeign([Problem("spec.runtimeRef.name", advice)])


def _called(document: Any) -> str:
    name = Field(document)["metadata"]["name"].value if isinstance(document, dict) else ""
    return f"{kind_of_document(document) or 'document'}/{name or ''}"
