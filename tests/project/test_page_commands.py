"""What the pages for users and the README show is typed, loaded or validated here, or by a test that is named here.

A block of a page is known by the page and its first line. One that is neither typed nor in ELSEWHERE fails, whatever
its language; `text` is what no reader types.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from page_blocks import ROOT, Block, blocks
from typed import HERE, SHOWN, comparable, parts, script_of, session, typed

from headrace.cli.mini.main import main as mini
from headrace.experiments.file.load import read_text as read_experiment
from headrace.flux_jobs.read.load import KINDS as FOREIGN

PAGES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs/user").glob("*.md"))]
BLOCKS = [block for page in ["README.md", *PAGES] for block in blocks(page)]


class How(NamedTuple):
    """How a block of shell lines is typed: in `flux start OPTIONS` (None: in no instance), its lines from `begin` to
    `end`, after what `before` does; `printed` matches somewhere in what is printed. Where a line begins an instance
    with a shell, which takes a terminal, it has `program` instead."""

    options: str | None
    printed: str = ""
    before: str = ""
    begin: int = 0
    end: int | None = None
    program: str = ""


TYPED = {
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install ."): How(None, "^task 3 on ", begin=2),
    ("README.md", "srun -N4 --mpi=pmi2 flux start ./work.sh"): How(
        "--test-size=4", " step +[SR] ", before="printf '#!/bin/sh\nsleep 1' >step; chmod +x step", begin=1
    ),
    ("docs/user/first-steps.md", "headrace mini run hello.yaml"): How(None, r"\S+\n\S+\n", end=1),
    ("docs/user/first-steps.md", "cat >steps.sh <<'end'"): How("--test-size=2", "on two nodes\n"),
    ("docs/user/first-steps.md", "flux start --test-size=4"): How(None, program="true"),
    ("docs/user/queues-and-configuration.md", "flux start -c cluster.toml"): How(
        None, "^8h\n8h$", program="flux config get policy.limits.duration", end=2
    ),
    ("docs/user/queues-and-configuration.md", "flux config get policy.limits"): How(
        "--test-size=4 --test-hosts=node[0-3] -c cluster.toml"
    ),
    ("docs/user/queues-and-configuration.md", "flux start -Sstatedir=$HOME/state -c cluster.toml"): How(
        None, program="true"
    ),
    ("docs/user/queues-and-configuration.md", "flux python -c 'import flux, os; h = flux.Flux(os.environ["): How(
        "--test-size=2 --test-exit-mode=leader"
    ),
    ("docs/user/accounting.md", "flux account -p site.db create-db"): How("", "^ biology +true +1 "),
    ("docs/user/scheduling.md", "flux start -Ssched.module=simple"): How(
        None, "sched-simple", program="flux module list"
    ),
    ("docs/user/experiments.md", "headrace experiment init"): How(None, "^runs: 24, 4 of them to warm up$", end=2),
    ("docs/user/training.md", "headrace train run examples/training/job.yaml"): How(None, "^task 3 in pod 1$"),
    ("docs/user/training.md", "headrace train run --runtime"): How("--test-size=2", "^process 3 of 4$"),
    ("docs/user/simulate.md", "cat > banks.json <<end"): How(None, r"^2 +\| biology +\| 1 +\| 0.0 +\| 1.0"),
    ("docs/user/simulate.md", "headrace simulate --record jobs.jsonl"): How(
        "", "makespan", before="flux submit --cc=1-3 --wait -t 1m sleep 1.1"
    ),
}
# What programs print, the lines in any order, where it is not "succeeded".
PRINTED = {
    ("docs/user/training.md", "from kubeflow.trainer import"): [
        "Complete",
        "process 2 of 4 takes 3 steps",
        "process 3 of 4 takes 3 steps",
    ]
}
# Blocks that another test shows, or that take what no test machine has: the reason, and the test.
ELSEWHERE = {
    ("docs/user/experiments.md", "headrace experiment report first"): (
        "takes an experiment that has run",
        "tests/cli/experiment/test_experiment_report_command.py",
    ),
    ("docs/user/experiments.md", "headrace experiment compare first"): (
        "takes experiments that have run",
        "tests/cli/experiment/test_experiment_report_command.py",
    ),
    ("README.md", "headrace operator manifests"): ("takes a Kubernetes", "tests/kube/test_install_in_pods.py"),
    ("README.md", "make setup"): ("the targets themselves", "tests/system/test_lammps.py"),
    ("docs/user/first-steps.md", "python3 -m venv .venv"): ("an environment of its own", "tests/project/test_wheel.py"),
    ("docs/user/accounting.md", "flux account -p postgresql://"): (
        "a PostgreSQL",
        "tests/cli/account/test_account_postgresql.py",
    ),
    ("docs/user/cluster-queue.md", "headrace fluxqueue manifests"): (
        "takes a Kubernetes",
        "tests/kube/test_fluxqueue_in_pods.py",
    ),
    ("docs/user/cluster-queue.md", "kubectl fluxqueue list"): (
        "takes a Kubernetes",
        "tests/kube/test_fluxqueue_plugin.py",
    ),
    ("docs/user/cluster-queue.md", "headrace fluxqueue match"): (
        "serves until it is stopped",
        "tests/cluster_queue/services/test_cluster_queue_services.py",
    ),
    ("docs/user/cluster-queue.md", "headrace fluxqueue run"): (
        "takes a Kubernetes",
        "tests/cli/fluxqueue/test_fluxqueue_run.py",
    ),
    ("docs/user/cluster-queue.md", "apiVersion"): ("an object of the cluster queue", "tests/kube/test_fluxqueue.py"),
    ("docs/user/kubernetes.md", "headrace operator manifests"): (
        "names of a registry",
        "tests/kube/test_install_in_pods.py",
    ),
    ("docs/user/kubernetes.md", "headrace mini apply"): ("takes a Kubernetes", "tests/kube/test_mini_commands.py"),
    ("docs/user/kubernetes.md", "headrace mini connect"): ("takes a Kubernetes", "tests/kube/test_mini_commands.py"),
    ("docs/user/kubernetes.md", "headrace operator uninstall"): ("takes a Kubernetes", "tests/kube/test_uninstall.py"),
    ("docs/user/cluster-queue.md", "headrace fluxqueue uninstall"): (
        "takes a Kubernetes",
        "tests/kube/test_uninstall.py",
    ),
    ("docs/user/jobs-on-kubernetes.md", "headrace mini status  "): (
        "takes a Kubernetes",
        "tests/kube/test_mini_jobs.py",
    ),
    ("docs/user/jobs-on-kubernetes.md", "sed s,debian:12"): (
        "takes a Kubernetes",
        "tests/kube/test_cluster_operator.py",
    ),
    ("docs/user/minicluster-status.md", "kubectl get mc"): ("takes a Kubernetes", "tests/kube/test_behaviours.py"),
    ("docs/user/nesting-and-mpi.md", "pip install mpich"): ("packages of a registry", "tests/system/test_lammps.py"),
    ("docs/user/queues-and-configuration.md", "flux overlay grow"): ("hosts that join", "tests/system/test_growth.py"),
    ("docs/user/resource-graph.md", "$ headrace resource-query"): ("", "tests/sched/graph/test_page_examples.py"),
    ("docs/user/resource-graph.md", "from headrace.sched.graph import"): (
        "",
        "tests/sched/graph/test_page_examples.py",
    ),
    ("docs/user/services.md", "headrace api start  "): (
        "serves until it is ended",
        "tests/cli/api/test_api_command.py",
    ),
    ("docs/user/services.md", "flux start -c group.toml"): (
        "serves until it is ended",
        "tests/cli/api/test_api_accounts.py",
    ),
    ("docs/user/services.md", "headrace api start --auth proxy"): (
        "serves until it is ended",
        "tests/cli/api/test_api_accounts.py",
    ),
    ("docs/user/services.md", "headrace api start --experiments"): (
        "serves until it is ended",
        "tests/system/test_experiments.py",
    ),
    ("docs/user/services.md", "headrace api doctor --auth pam"): (
        "serves until it is ended",
        "tests/service/users/test_pam.py",
    ),
    ("docs/user/services.md", "rm -f service.json; headrace api start"): (
        "serves until it is ended",
        "tests/cli/api/test_api_command.py",
    ),
    ("docs/user/metrics.md", "headrace mini hpa"): ("takes a Kubernetes", "tests/cli/mini/test_mini_kube.py"),
    ("docs/user/metrics.md", "headrace metrics-api start --ssl"): (
        "serves until it is ended",
        "tests/cli/test_metrics_api_command.py",
    ),
    ("docs/user/metrics.md", "scrape_configs:"): ("is Prometheus' own", "tests/service/test_metrics_route.py"),
    ("docs/user/services.md", "from flux_restful"): ("takes a service", "tests/service/test_peer_client.py"),
    ("docs/user/services.md", "curl -so v2.json"): ("takes a service", "tests/service/rest/v2/test_v2_openapi.py"),
    ("docs/user/services.md", "from headrace_client"): ("takes a service", "tests/service/rest/v2/test_v2_openapi.py"),
    ("docs/user/view.md", "python -m headrace.images"): ("images of two architectures", "tests/images/test_oci.py"),
    ("docs/user/view.md", "spec:"): ("objects of other controllers", "tests/kube/test_recorded_operator_objects.py"),
}


def entry(table: dict[tuple[str, str], object], block: Block) -> tuple[str, str] | None:
    """The key of a block in a table, where its first line may be cut."""
    return next((key for key in table if key[0] == block.page and block.first.startswith(key[1])), None)


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and not entry(ELSEWHERE, block)]


def name(block: Block) -> str:
    return f"{Path(block.page).stem}-{block.line}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that pages speak of: `cluster.toml`, `hello.yaml`, the examples."""
    for block in BLOCKS:
        if (block.page, block.first) == ("docs/user/queues-and-configuration.md", "[resource]"):
            (tmp_path / "cluster.toml").write_text(block.text)
        if (block.page, block.language) == ("docs/user/first-steps.md", "yaml"):
            (tmp_path / "hello.yaml").write_text(block.text)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def test_every_block_has_a_language_that_says_what_is_done_with_it() -> None:
    known = {"sh", "console", "python", "toml", "yaml", "text"}
    assert [name(block) for block in BLOCKS if block.language not in known] == []


def test_blocks_fit_their_box() -> None:
    """Of a window of 1280 pixels (docs/assets/site.css)."""
    drawn = [*BLOCKS, *blocks("docs/dev/architecture.md")]
    assert [name(block) for block in drawn if max(map(len, block.text.splitlines())) > 100] == []


def test_no_entry_is_left_of_a_block_that_is_gone() -> None:
    used = {entry(table, block) for table in (TYPED, PRINTED, ELSEWHERE) for block in BLOCKS}
    assert [key for key in (*TYPED, *PRINTED, *ELSEWHERE) if key not in used] == []


@pytest.mark.parametrize("test", sorted({test for _, test in ELSEWHERE.values()}))
def test_the_other_tests_are_there(test: str) -> None:
    assert (ROOT / test).is_file()


@pytest.mark.parametrize("block", [block for block in of("sh") if not block.text.startswith("#!")], ids=name)
def test_shell_lines_work(block: Block, folder: Path) -> None:
    key = entry(TYPED, block)
    assert key, f"{block.page}:{block.line}: nothing says how this is typed: see TYPED and ELSEWHERE"
    how = TYPED[key]
    lines = block.text.splitlines()[how.begin : how.end]
    if how.program:
        lines = [f"{line.partition(' #')[0].rstrip()} {how.program}" for line in lines]
    printed = typed("\n".join(["set -e", how.before, *lines]), folder, how.options)
    assert re.search(how.printed, printed, re.MULTILINE), printed


@pytest.mark.parametrize("block", of("console"), ids=name)
def test_sessions_print_what_the_page_shows(block: Block, folder: Path) -> None:
    options = None if "headrace mini run" in block.first else "--test-size=4"
    commands = session(block.text)
    printed = parts(typed(script_of(block.text), folder, options))
    assert len(printed) == len(commands)
    for (command, shown), lines in zip(commands, printed, strict=True):
        # Jobs that run side by side end in any order.
        assert sorted(comparable(lines, HERE)) == sorted(comparable(shown, SHOWN)), command


@pytest.mark.parametrize("block", [block for block in of("sh") if block.text.startswith("#!")], ids=name)
def test_scripts_run_as_batch_jobs(block: Block, folder: Path) -> None:
    (folder / "script.sh").write_text(block.text)
    printed = typed("flux job status $(flux batch script.sh) && cat job.out", folder, "--test-size=2")
    assert len(printed.splitlines()) == 6


@pytest.mark.parametrize("block", of("python"), ids=name)
def test_programs_run(block: Block, folder: Path) -> None:
    (folder / "program.py").write_text(block.text)
    printed = typed("flux python program.py", folder, "--test-size=2")
    key = entry(PRINTED, block)
    assert sorted(printed.splitlines()) == (PRINTED[key] if key else ["succeeded"])


@pytest.mark.parametrize("block", of("toml"), ids=name)
def test_configurations_are_taken_without_a_warning(block: Block, folder: Path) -> None:
    (folder / "page.toml").write_text(block.text)
    options = "--test-size=4 --test-hosts=node[0-3] -c page.toml"
    assert typed("flux config get >/dev/null", folder, options) == ""


@pytest.mark.parametrize("block", of("yaml"), ids=name)
def test_objects_and_experiments_are_valid(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of one is put into the first whole MiniCluster of its page; a Job, JobSet or TrainJob can be made one."""
    document = yaml.safe_load(block.text)
    if block.page == "docs/user/experiments.md":
        job = {"jobs": {"a": {"command": "true"}}}
        assert read_experiment(yaml.safe_dump({**job, **document}), block.page).notes == ()
        return
    if "kind" not in document:
        whole = next(one for one in BLOCKS if one.page == block.page and "kind: MiniCluster" in one.text)
        part, document = document, yaml.safe_load(whole.text)
        document["spec"].update(part.get("spec", part))
    (tmp_path / "page.yaml").write_text(yaml.safe_dump(document))
    how = ["convert"] if document["kind"] in FOREIGN else ["validate"]
    if document.get("spec", {}).get("runtimeRef", {}).get("name") == "torch-distributed":
        # A runtime that comes with Kubeflow Trainer; ours has the same policy.
        how += ["--runtime", "headrace-torch"]
    assert mini([*how, str(tmp_path / "page.yaml")]) == 0, capsys.readouterr()
