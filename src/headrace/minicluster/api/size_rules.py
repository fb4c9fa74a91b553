"""Limits on the size of a MiniCluster, so that Linux, the API server and a reconcile can handle it.

Pure. A shell gets its text as one argument, which Linux limits to 128 KiB (MAX_ARG_STRLEN), like an environment
variable. The scripts are in a ConfigMap, which has at most 1 MiB. `kubectl apply` keeps a copy of the whole object in
an annotation, which has at most 256 KiB. The operator enumerates the hosts at each reconcile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.formats.spec.hostlist import count_hosts
from headrace.k8s.objects.problems import Problem

from .fields import MOST_PODS, Bursting, Commands, MiniCluster, Spec
from .plan import batch_script, initial_program, mode_of, one_line
from .shell_text import Mode

# Maximum number of bytes of the spec as JSON, and of values in it: each reconcile compares all values.
LARGEST_SPEC = 256 << 10
MOST_VALUES = 2048
# Maximum number of bytes of an argument or variable, including the final zero byte, and the part of it that is reserved
# for Headrace's own lines around a user's text.
_LARGEST_ARGUMENT, _OWN_LINES = 128 << 10, 4 << 10
LARGEST_TEXT = _LARGEST_ARGUMENT - _OWN_LINES
# Maximum number of hosts outside a MiniCluster, and of MiniClusters that they belong to.
MOST_OUTSIDE, MOST_CLUSTERS = 8192, 256

_Part = tuple[str, str]


def check_spec_size(spec: Any) -> Iterator[Problem]:
    """Problems with the size of a spec as it was read."""
    size = len(msgspec.json.encode(spec))
    if size > LARGEST_SPEC:
        yield Problem("spec", f"has {size} bytes as JSON, at most {LARGEST_SPEC} fit: put large files on a volume")
    values = _values(spec)
    if values > MOST_VALUES:
        yield Problem("spec", f"has {values} values, at most {MOST_VALUES} fit: put variables and lists into a file")


def _values(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_values, value.values()))
    return sum(map(_values, value)) if isinstance(value, list) else 1


def check_texts(cluster: MiniCluster) -> Iterator[Problem]:
    """Problems with the sizes of texts that shells run, and of variables."""
    yield from _check_variables(cluster)
    if len(cluster.spec.containers) > 1 and sum(one.run_flux for one in cluster.spec.containers) != 1:
        return
    view = cluster.flux.container
    own_flux = view is not None and view.disable
    for index, one in enumerate(cluster.spec.containers):
        path = f"spec.containers[{index}]"
        if one is not cluster.runner:
            commands = one.commands or Commands()
            texts = ((".commands.init", commands.init), (".commands.servicePre", commands.service_pre))
            after = ((".commands.post", commands.post), (".command", one_line(one.command)))
            yield from _check_text([(path + name, text) for name, text in (*texts, *after)])
        elif own_flux:
            # The scripts of such an image are files.
            continue
        else:
            yield from _check_runner(cluster, path)
    for index, service in enumerate(cluster.spec.services):
        yield from _check_text([(f"spec.services[{index}].command", service.command)])


def _check_runner(cluster: MiniCluster, path: str) -> Iterator[Problem]:
    runner = cluster.runner
    commands = runner.commands or Commands()
    first = [
        (f"{path}.commands.init", commands.init),
        (f"{path}.commands.script", commands.script),
        (f"{path}.commands.pre", commands.pre),
    ]
    lead, last = [(f"{path}.commands.brokerPre", commands.broker_pre)], [(f"{path}.commands.post", commands.post)]
    mode = mode_of(cluster)
    if mode is Mode.BATCH:
        lead.append((f"{path}.command", batch_script(runner.command, runner.batch_raw)))
    found = list(_check_text([*first, *lead, *last]))
    yield from found or _check_text([*first, (f"{path}.commands.workerPre", commands.worker_pre), *last])
    if mode is not Mode.BATCH:
        yield from _check_text([(f"{path}.command", initial_program(cluster))])


def _check_text(parts: list[_Part]) -> Iterator[Problem]:
    """A problem if the texts that one shell runs are too large together; it names the largest of them."""
    sizes = {path: len(text.encode(errors="surrogatepass")) for path, text in parts}
    total = sum(sizes.values())
    if total <= LARGEST_TEXT:
        return
    largest = max(sizes, key=lambda path: sizes[path])
    others = "" if total == sizes[largest] else f", {total} with the others that its shell runs"
    advice = "put a longer script into the image or on a volume"
    yield Problem(largest, f"has {sizes[largest]} bytes{others}, at most {LARGEST_TEXT} fit: {advice}")


def _check_variables(cluster: MiniCluster) -> Iterator[Problem]:
    spec = cluster.spec
    groups = [("spec.flux.environment", cluster.flux.environment)]
    groups += [(f"spec.containers[{index}].environment", one.environment) for index, one in enumerate(spec.containers)]
    groups += [(f"spec.services[{index}].environment", one.environment) for index, one in enumerate(spec.services)]
    groups += [(f"spec.groups[{index}].environment", one.environment) for index, one in enumerate(spec.groups)]
    for path, variables in groups:
        for name, value in variables.items():
            size = len(name) + len(value.encode(errors="surrogatepass")) + 2
            if size > _LARGEST_ARGUMENT:
                yield Problem(f"{path}.{name}", f"has {size} bytes with its name, at most {_LARGEST_ARGUMENT} fit")


def check_hosts(spec: Spec) -> Iterator[Problem]:
    """Problems with the number of hosts. They are found without building a list of hosts."""
    bursting = (spec.flux.bursting if spec.flux else None) or Bursting()
    path = "spec.flux.bursting"
    # Sizes out of bounds are reported by their own rule.
    own = [max(spec.size, spec.max_size), *(max(one.size, one.max_size) for one in spec.groups)]
    if len(own) > 1 and max(own) <= MOST_PODS < sum(own):
        yield Problem("spec.groups", f"has more than {MOST_PODS} pods, with those of spec.size or spec.maxSize")
    sizes = [one.size or spec.size for one in bursting.clusters]
    if len(bursting.clusters) > MOST_CLUSTERS:
        yield Problem(f"{path}.clusters", f"has {len(bursting.clusters)} entries, at most {MOST_CLUSTERS} fit")
    elif max(sizes, default=0) <= MOST_PODS and sum(sizes) > MOST_OUTSIDE:
        yield Problem(f"{path}.clusters", f"names more than {MOST_OUTSIDE} hosts")
    try:
        count_hosts(bursting.hostlist, MOST_OUTSIDE)
    except ValueError as exc:
        yield Problem(f"{path}.hostlist", str(exc))
