"""The tests mirror the source: a file with logic has its test file at the same place, or says which tests cover it.

The tests of `src/headrace/ROOM/FILE.py` are `tests/ROOM/test_FILE.py` or `tests/ROOM/test_FILE_SUBJECT.py`. No two test
files have the same name, so names of the folders may stand before FILE: `test_sched_graph_pool.py` tests
`modules/sched/graph/pool.py`. A file that is its package's whole (`__init__.py`, `main.py`, `service.py`, and
`broker.py` in `broker/`) may be named as the package. A test file belongs to the source file with the longest name of
those that fit. `tests/kube` needs a Kubernetes; what tests `src/headrace/kube` without one is in `tests/kube_unit`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/headrace"
TESTS = ROOT / "tests"
# A file with fewer statements in its functions holds data, types or a few lines that its callers' tests go through.
LOGIC = 10
WHOLE = ("__init__", "main", "service")

# Files without tests of their own, by folder: the test that goes through them. Most commands are tested as users run
# them, against a running instance; parts that only one other file uses are tested with it.
ELSEWHERE = {
    "api/": {
        "app.py": "api/v1/test_v1_routes.py",
        "instance.py": "api/v2/test_v2_instance_routes.py",
        "journal.py": "api/v2/test_v2_stream_routes.py",
        "v1/errors.py": "api/v1/test_v1_routes.py",
        "v2/changes.py": "api/v2/test_v2_routes_submit.py",
        "v2/errors.py": "api/v2/test_v2_routes.py",
        "v2/fields.py": "api/v2/test_v2_listing.py",
        "v2/record.py": "api/v2/test_v2_routes.py",
        "jobs.py": "api/v1/test_v1_routes.py",
        "people.py": "api/v2/test_v2_people_routes.py",
        "pages/job_list.py": "api/pages/test_pages_routes.py",
        "serve.py": "cli/api/test_api_command.py",
        "service.py": "api/v1/test_v1_routes.py",
    },
    "plots/": {name: "plots/test_charts.py" for name in ("bars.py", "box.py", "chart.py", "lines.py", "scale.py")},
    "broker/": {
        "archive.py": "system/test_archives.py",
        "broker.py": "system/test_instances.py",
        "kept.py": "broker/module/test_module_suspended.py",
        "crontabs.py": "system/test_cron_entries.py",
        "parts.py": "system/test_instances.py",
        "program_output.py": "system/test_closed_streams.py",
        "startlog.py": "system/test_starts_and_crashes.py",
        "launch/launch.py": "system/test_options_start.py",
        "launch/preload.py": "broker/launch/test_launch_many.py",
        "launch/start_service.py": "system/test_start_service.py",
        "module/context.py": "broker/module/test_module.py",
        "module/search.py": "broker/module/test_module_host.py",
        "services/broker_service.py": "broker/services/test_services.py",
        "services/config.py": "system/test_configuration.py",
        "services/growth.py": "system/test_growth.py",
        "state/machine.py": "broker/state/test_state.py",
    },
    "cli/": {
        "common/controller_options.py": "cli/test_operator_command.py",
        "common/uninstall_options.py": "kube/test_uninstall.py",
        "common/enclosing.py": "system/test_options_tools.py",
        "api/doctor.py": "cli/api/test_api_accounts.py",
        "config/main.py": "system/test_configuration.py",
        "env.py": "system/test_run_levels.py",
        "fluxqueue/graph.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/hold.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/list.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/main.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/match.py": "fluxqueue/services/test_fluxqueue_services.py",
        "fluxqueue/nodes.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/store_options.py": "cli/fluxqueue/test_fluxqueue_run.py",
        "fluxqueue/why.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "instance/attr.py": "system/test_commands.py",
        "instance/broker.py": "system/test_options_start.py",
        "instance/cron.py": "system/test_cron_entries.py",
        "instance/exec.py": "system/test_options_tools.py",
        "instance/pmi.py": "system/test_options_tools.py",
        "instance/shutdown.py": "system/test_options_tools.py",
        "instance/start.py": "system/test_options_start.py",
        "instance/startlog.py": "system/test_starts_and_crashes.py",
        "instance/uptime.py": "system/test_commands.py",
        "instance/uri.py": "system/test_options_tools.py",
        "job/main.py": "system/test_options_job.py",
        "job/status_line.py": "system/test_terminals.py",
        "job/terminal.py": "system/test_terminals.py",
        "job/watch.py": "system/test_watch.py",
        "jobs/columns.py": "system/test_options_listing.py",
        "jobs/pkill.py": "cli/jobs/test_pgrep.py",
        "kvs/requests.py": "cli/kvs/test_kvs_read.py",
        "messages/event.py": "system/test_options_tools.py",
        "mini/apply.py": "cli/mini/test_mini_kube.py",
        "mini/connect.py": "cli/mini/test_mini_kube.py",
        "mini/delete.py": "cli/mini/test_mini_kube.py",
        "train/main.py": "system/test_train_run.py",
        "train/run.py": "system/test_train_run.py",
        "mini/foreign.py": "cli/mini/test_mini_convert.py",
        "mini/file.py": "cli/mini/test_mini_kube.py",
        "mini/logs.py": "cli/mini/test_mini_kube.py",
        "mini/hpa.py": "cli/mini/test_mini_kube.py",
        "mini/main.py": "cli/mini/test_mini_kube.py",
        "mini/progress.py": "cli/mini/test_mini_kube.py",
        "mini/run.py": "system/test_mini_run.py",
        "mini/scale.py": "cli/mini/test_mini_kube.py",
        "mini/status.py": "cli/mini/test_mini_kube.py",
        "module/main.py": "system/test_options_module_overlay.py",
        "overlay/main.py": "system/test_options_module_overlay.py",
        "overlay/ranks.py": "system/test_options_module_overlay.py",
        "queue/main.py": "system/test_options_queue_resource.py",
        "resource/list.py": "system/test_options_queue_resource.py",
        "resource/main.py": "system/test_options_queue_resource.py",
        "resource/r.py": "system/test_options_queue_resource.py",
        "resource/sets.py": "system/test_options_queue_resource.py",
        "resource/status.py": "system/test_options_queue_resource.py",
        "simulate/html.py": "cli/simulate/test_cli_simulate.py",
        "simulate/record.py": "cli/simulate/test_cli_simulate.py",
        "submit/submitter.py": "system/test_options_submission.py",
        "top/layout.py": "cli/top/test_top_view.py",
        "store/archive.py": "system/test_archives.py",
        "store/archive_reader.py": "system/test_dump_restore.py",
        "store/content.py": "system/test_options_kvs.py",
        "store/dump.py": "system/test_dump_restore.py",
        "store/restore.py": "system/test_dump_restore.py",
        "store/restore_instance.py": "system/test_saved_instances.py",
        "submit/alloc.py": "system/test_options_run.py",
        "submit/batch.py": "system/test_options_submission.py",
        "submit/bulksubmit.py": "system/test_options_submission.py",
        "submit/run.py": "system/test_options_run.py",
        "version.py": "system/test_options_queue_resource.py",
    },
    # The index of the resource graph, and the queue's search: held to the plain search by random requests.
    "fluxqueue/": {
        "core/job.py": "fluxqueue/core/test_fluxqueue_replicas.py",
        "workloads/workload.py": "fluxqueue/test_fluxqueue_workloads.py",
        "workloads/pod.py": "fluxqueue/core/test_fluxqueue_step.py",
        "workloads/minicluster.py": "fluxqueue/test_fluxqueue_workloads.py",
        "workloads/mpijob.py": "fluxqueue/test_fluxqueue_workloads.py",
        "core/asking.py": "fluxqueue/core/test_fluxqueue_step.py",
        "core/binding.py": "fluxqueue/core/test_fluxqueue_step.py",
        "core/left_alone.py": "fluxqueue/core/test_fluxqueue_placement.py",
        "core/places.py": "fluxqueue/core/test_fluxqueue_step.py",
        "core/writes.py": "fluxqueue/core/test_fluxqueue_step.py",
        "core/external.py": "fluxqueue/services/test_fluxqueue_services_live_graph.py",
        "core/queue_nodes.py": "fluxqueue/core/test_fluxqueue_step.py",
        "core/world.py": "fluxqueue/core/test_fluxqueue_crashes.py",
        "services/given_graph.py": "fluxqueue/services/test_fluxqueue_services.py",
        "services/match.py": "fluxqueue/services/test_fluxqueue_services.py",
        "services/messages.py": "fluxqueue/services/test_fluxqueue_services.py",
        "serve.py": "kube/test_fluxqueue_store.py",
        "services/server.py": "fluxqueue/services/test_fluxqueue_services.py",
        "workloads/__init__.py": "fluxqueue/core/test_fluxqueue_step.py",
        "workloads/group.py": "fluxqueue/core/test_fluxqueue_step.py",
        "workloads/job.py": "fluxqueue/core/test_fluxqueue_step.py",
    },
    "graph/": {
        "candidates.py": "graph/test_index.py",
        "demands.py": "graph/test_index.py",
        "free.py": "graph/test_index.py",
        "layout.py": "graph/test_index.py",
        "reservations.py": "graph/test_index.py",
        "shapes.py": "graph/test_index.py",
        "spans.py": "graph/test_usage.py",
        "timeline.py": "modules/sched/graph/test_sched_graph.py",
        "formats/writers.py": "graph/test_recorded_runs.py",
    },
    # The processes of a job that local brokers run.
    "kubeflow/": {
        "instance_jobs.py": "kubeflow/test_kubeflow_backend.py",
        "recorder.py": "kubeflow/test_kubeflow_backend.py",
        "runner.py": "kubeflow/test_kubeflow_backend.py",
    },
    "images/": {
        "__main__.py": "images/test_oci.py",
        "code_finder.py": "images/test_code_store.py",
        "early.py": "images/test_view.py",
        "elf.py": "images/test_compat_image.py",
        "pmix_libraries.py": "images/test_view.py",
        "stdlib.py": "images/test_view.py",
    },
    "kube/": {
        "install_files.py": "kube_unit/test_install_objects.py",
        "apply.py": "cli/mini/test_mini_kube.py",
        "builders/containers.py": "kube_unit/builders/test_builders_pods.py",
        "builders/services.py": "kube_unit/builders/test_builders_jobs.py",
        "builders/volumes.py": "kube_unit/builders/test_builders_pods.py",
        "client.py": "cli/mini/test_mini_kube.py",
        "containers.py": "cli/mini/test_mini_kube.py",
        "core/conditions.py": "kube_unit/core/test_reconcile.py",
        "core/job_end.py": "kube_unit/core/test_reconcile.py",
        "core/progress.py": "kube_unit/core/test_reconcile.py",
        "core/status.py": "kube_unit/core/test_reconcile.py",
        "core/transitions.py": "kube_unit/core/test_reconcile.py",
        "execute.py": "kube_unit/core/test_reconcile.py",
        "foreign/controller.py": "kube_unit/foreign/test_foreign_reconcile.py",
        "names.py": "kube_unit/builders/test_builders_jobs.py",
        "removal.py": "kube/test_uninstall.py",
        "runtime/events.py": "kube_unit/runtime/test_controller.py",
        "runtime/writes.py": "kube_unit/core/test_reconcile_crashes.py",
        "serve.py": "kube/test_admission.py",
    },
    "minicluster/": {
        "channel.py": "minicluster/pod/test_channel_server.py",
        "documents.py": "minicluster/test_validate.py",
        "foreign/cluster.py": "minicluster/foreign/test_foreign_job.py",
        "foreign/field.py": "minicluster/foreign/test_foreign_load.py",
        "local.py": "system/test_mini_run.py",
        "pod/channel_link.py": "minicluster/pod/test_channel_server.py",
        "pod/enter.py": "minicluster/pod/test_modes.py",
        "pod/environment.py": "minicluster/pod/test_modes.py",
        "pod/files.py": "minicluster/pod/test_modes.py",
        "pod/place.py": "minicluster/pod/test_joining.py",
        "pod/sidecar.py": "minicluster/pod/test_joining.py",
        "shell_text.py": "minicluster/pod/test_modes.py",
    },
    "modules/": {
        "job_ingest/signature.py": "query/test_munge.py",
        "cron/service.py": "system/test_cron_entries.py",
        "job_exec/job.py": "modules/job_exec/test_job_exec_leader.py",
        "job_exec/simulator.py": "modules/job_exec/test_job_exec_leader.py",
        "job_ingest/checks.py": "modules/job_ingest/test_job_ingest.py",
        "job_ingest/validator_worker.py": "modules/job_ingest/test_validators.py",
        "job_manager/deadlines.py": "modules/job_manager/test_job_manager_core.py",
        "resource/acquirers.py": "modules/resource/test_resource_leader.py",
        "resource/follower.py": "modules/resource/test_resource_leader.py",
        "resource/log.py": "modules/resource/test_resource_leader.py",
        "sched/graph/jgf.py": "modules/sched/graph/test_sched_graph_pool.py",
        "sched/graph/r.py": "modules/sched/graph/test_sched_graph_pool.py",
    },
    "query/": {
        "signing.py": "query/test_munge.py",
        "instance_info.py": "cli/jobs/test_instance_info.py",
        "queue_policy.py": "cli/queue/test_queue_list.py",
        "resource_sets.py": "system/test_options_queue_resource.py",
        "uri.py": "system/test_options_tools.py",
    },
    "queueing/": {
        "compression.py": "queueing/test_queue.py",
        "simulate_synthetic.py": "queueing/test_simulate_trace.py",
        "start_search.py": "queueing/test_queue.py",
    },
    "process/": {"pam_session.py": "system/test_guests_as_users.py"},
    "agent/": {"as_user.py": "system/test_guests_as_users.py"},
    "shell/": {
        "exit_timeout.py": "shell/test_job.py",
        "oom.py": "shell/test_shell_options.py",
        "pmix/library.py": "system/test_open_mpi.py",
        "pmix/offer.py": "system/test_open_mpi.py",
        "pmix/server.py": "system/test_open_mpi.py",
        "service.py": "system/test_terminals.py",
    },
}


def statements(tree: ast.AST, inside: bool = False) -> int:
    """How many statements functions have, without docstrings and the `...` of protocols."""
    found = 0
    for child in ast.iter_child_nodes(tree):
        function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        constant = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        found += inside and isinstance(child, ast.stmt) and not function and not constant
        found += statements(child, inside or function)
    return found


def names(source: str) -> set[str]:
    """What a test file of this source file may be called, without `test_` and the subject: `pool`, `graph_pool`, ..."""
    *folders, stem = source.removesuffix(".py").split("/")
    before = ["_".join(some) for size in range(len(folders) + 1) for some in combinations(folders, size)]
    found = {f"{one}_{stem}".strip("_") for one in before}
    if folders and stem in (*WHOLE, folders[-1]):
        found.update(one for one in before if one.split("_")[-1:] == folders[-1].split("_")[-1:])
    return found


def room(source: str) -> str:
    """The folder of the tests of a source file: "spec", "kube_unit/runtime"."""
    return re.sub("^kube(?=/|$)", "kube_unit", Path(source).parent.as_posix())


def owners(sources: list[str], tests: list[str]) -> dict[str, set[str]]:
    """Of each source file (paths below the roots), the test files that belong to it."""
    owned: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        called = Path(test).stem.removeprefix("test_") + "_"
        fits: dict[int, set[str]] = defaultdict(set)
        for source in sources:
            if room(source) == Path(test).parent.as_posix():
                for name in names(source):
                    if called.startswith(f"{name}_"):
                        fits[len(name)].add(source)
        for source in fits[max(fits, default=0)]:
            owned[source].add(test)
    return owned


def files(root: Path, pattern: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in sorted(root.rglob(pattern))]


def test_each_file_with_logic_has_its_tests() -> None:
    # The bindings are held to Flux's own as a whole, by `tests/compat`.
    sources = [source for source in files(SOURCE, "*.py") if not source.startswith("compat/")]
    tests = files(TESTS, "test_*.py")
    owned = owners(sources, tests)
    untested = {
        source
        for source in sources
        if not owned[source] and statements(ast.parse((SOURCE / source).read_text())) >= LOGIC
    }
    elsewhere = {f"{folder}{name}": test for folder, table in ELSEWHERE.items() for name, test in table.items()}
    assert sorted(untested - elsewhere.keys()) == [], "these have neither tests of their own nor a line in ELSEWHERE"
    assert sorted(elsewhere.keys() - untested) == [], "these are gone, or have tests of their own now"
    assert sorted(set(elsewhere.values()) - set(tests)) == [], "there are no such tests"


def test_no_two_test_files_have_one_name() -> None:
    names = [Path(test).name for test in files(TESTS, "test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_a_name_belongs_to_the_longest_that_fits() -> None:
    sources = ["graph/pool.py", "graph/pool_size.py", "graph/service.py", "kube/pods.py"]
    tests = [
        "graph/test_pool_size.py",
        "graph/test_pool_grows.py",
        "graph/test_graph.py",
        "kube_unit/test_kube_pods.py",
    ]
    assert owners(sources, tests) == {
        "graph/pool.py": {"graph/test_pool_grows.py"},
        "graph/pool_size.py": {"graph/test_pool_size.py"},
        "graph/service.py": {"graph/test_graph.py"},
        "kube/pods.py": {"kube_unit/test_kube_pods.py"},
    }
