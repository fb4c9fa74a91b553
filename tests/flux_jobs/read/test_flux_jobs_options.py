"""The options of a Job: what each key may have, and that anything else is refused with the key and what would do."""

from __future__ import annotations

from typing import Any

import pytest

from flux_jobs.read.samples import container, job, problems, read
from headrace.flux_jobs.read.options import Exit, Options, Run, Spread

AT = "metadata.annotations.flux-framework.org/headrace-options"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", Options()),
        ("{}", Options()),
        ('{"run": "node", "procsPerNode": 4}', Options(run=Run.NODE, procs_per_node=4)),
        ("run: program\nqueuePolicy: easy\n", Options(run=Run.PROGRAM, queue_policy="easy")),
        ("{container: main, maxSize: 8, interactive: true}", Options(container="main", max_size=8, interactive=True)),
        ("{sharedMemory: 1Gi, spread: required}", Options(shared_memory="1Gi", spread=Spread.REQUIRED)),
        (
            "{sharedMemory: none, spread: none, exit: keep}",
            Options(shared_memory="none", spread=Spread.NONE, exit=Exit.KEEP),
        ),
        ("run:", Options()),
    ],
)
def test_the_annotation_is_a_map_in_yaml_or_json(text: str, options: Options) -> None:
    assert read(job(text)).options == options


@pytest.mark.parametrize(
    ("text", "where", "rule"),
    [
        ("{procPerNode: 2}", ".procPerNode", "is not an option; did you mean procsPerNode?"),
        ("{xyz: 2}", ".xyz", "is not an option; known are container, run"),
        ("{run: all}", ".run", "must be one of tasks, node, program, not 'all'"),
        ("{run: 3}", ".run", "must be text, not 3"),
        ("{procsPerNode: 0}", ".procsPerNode", "must be 1 or more, not 0"),
        ("{procsPerNode: '2'}", ".procsPerNode", "must be a whole number, not '2'"),
        ("{procsPerNode: true}", ".procsPerNode", "must be a whole number, not true"),
        (
            "{procsPerNode: 0x" + "f" * 5000 + "}",
            "",
            "must be a map in YAML or JSON: line 1, column 16: not YAML: a num",
        ),
        ("{procsPerNode: 1048577}", ".procsPerNode", "must be 1048576 or less, not 1048577"),
        ("{interactive: 1}", ".interactive", "must be true or false, not 1"),
        ("{queuePolicy: lifo}", ".queuePolicy", "must be one of fcfs, easy, hybrid, conservative, not 'lifo'"),
        ("{maxSize: 1}", ".maxSize", "must be at least 2 (parallelism), not 1"),
        ("{maxSize: 100001}", ".maxSize", "must be 100000 or less, not 100001"),
        ("{sharedMemory: much}", ".sharedMemory", "must be a quantity such as 1Gi, or none, not 'much'"),
        ("{sharedMemory: -1}", ".sharedMemory", "must be a quantity such as 1Gi, or none, not -1"),
        ("{spread: wide}", ".spread", "must be one of preferred, required, none, not 'wide'"),
        ("{exit: never}", ".exit", "must be one of honest, keep, not 'never'"),
        ("{container: other}", ".container", "'other' is not a container of the pod (its containers: main)"),
        ("[run]", "", "must be a map in YAML or JSON, such as {run: node}, not a list"),
        ("run", "", "must be a map in YAML or JSON, such as {run: node}, not 'run'"),
        ("{run: [}", "", "must be a map in YAML or JSON: line 1"),
        ("{run: node, run: tasks}", "", "line 1: run is given twice"),
        ("---\n{}\n---\n{}\n", "", "must be a map in YAML or JSON, such as {run: node}, not 2 documents"),
    ],
)
def test_what_is_wrong_is_told_of_the_key(text: str, where: str, rule: str) -> None:
    found = problems(job(text))
    assert list(found) == [AT + where]
    assert found[AT + where].startswith(rule)


def test_an_annotation_that_is_no_text_is_refused() -> None:
    document = job("x")
    document["metadata"]["annotations"][AT.removeprefix("metadata.annotations.")] = {"run": "node"}
    assert problems(document) == {AT: "must be text, not a mapping"}


@pytest.mark.parametrize(
    ("options", "env", "procs", "policy"),
    [
        ("", {}, 1, "fcfs"),
        ("", {"PET_NPROC_PER_NODE": "4", "FLUX_QUEUE_POLICY": "easy"}, 4, "easy"),
        ("", {"PET_NPROC_PER_NODE": "auto"}, 1, "fcfs"),
        ("", {"PET_NPROC_PER_NODE": "0"}, 1, "fcfs"),
        (
            "{procsPerNode: 2, queuePolicy: hybrid}",
            {"PET_NPROC_PER_NODE": "4", "FLUX_QUEUE_POLICY": "easy"},
            2,
            "hybrid",
        ),
    ],
)
def test_what_an_option_leaves_open_is_in_the_environment(
    options: str, env: dict[str, Any], procs: int, policy: str
) -> None:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    cluster = read(job(options, pod={"containers": [container(env=variables)]}))
    assert (cluster.procs, cluster.queue_policy) == (procs, policy)
    assert cluster.tasks == 2 * procs


def test_a_policy_in_the_environment_is_checked() -> None:
    pod = {"containers": [container(env=[{"name": "FLUX_QUEUE_POLICY", "value": "lifo"}])]}
    rule = "FLUX_QUEUE_POLICY must be one of fcfs, easy, hybrid, conservative, not 'lifo'"
    assert problems(job(pod=pod)) == {"spec.template.spec.containers[0].env[0].value": rule}
