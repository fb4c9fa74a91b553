"""The tests mirror the source: a file with logic has its test file at the same place, or says which tests cover it.

The tests of `src/headrace/ROOM/FILE.py` are `tests/ROOM/test_FILE.py` or `tests/ROOM/test_FILE_SUBJECT.py`. No two test
files have the same name, so names of the folders may stand before FILE: `test_sched_graph_pool.py` tests
`engine/modules/sched/graph/pool.py`. A file that is its package's whole (`__init__.py`, `main.py`, `service.py`, and
`broker.py` in `broker/`) may be named as the package. A test file belongs to the source file with the longest name of
those that fit. `tests/kube` has what needs a Kubernetes.
"""

from __future__ import annotations

import ast
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
    "cli/": {
        "api/doctor.py": "cli/api/test_api_accounts.py",
        "common/controller_options.py": "cli/test_operator_command.py",
        "common/enclosing.py": "system/test_options_tools.py",
        "common/uninstall_options.py": "kube/test_uninstall.py",
        "config/main.py": "system/test_configuration.py",
        "env.py": "system/test_run_levels.py",
        "fluxqueue/graph.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/hold.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/list.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/main.py": "cli/fluxqueue/test_cli_fluxqueue_cluster.py",
        "fluxqueue/match.py": "cluster_queue/services/test_cluster_queue_services.py",
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
        "mini/file.py": "cli/mini/test_mini_kube.py",
        "mini/foreign.py": "cli/mini/test_mini_convert.py",
        "mini/hpa.py": "cli/mini/test_mini_kube.py",
        "mini/logs.py": "cli/mini/test_mini_kube.py",
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
        "submit/submitter.py": "system/test_options_submission.py",
        "top/layout.py": "cli/top/test_top_view.py",
        "train/main.py": "system/test_train_run.py",
        "train/run.py": "system/test_train_run.py",
        "version.py": "system/test_options_queue_resource.py",
    },
    "cluster_queue/": {
        "core/asking.py": "cluster_queue/core/test_cluster_queue_step.py",
        "core/binding.py": "cluster_queue/core/test_cluster_queue_step.py",
        "core/external.py": "cluster_queue/services/test_cluster_queue_services_live_graph.py",
        "core/job.py": "cluster_queue/core/test_cluster_queue_replicas.py",
        "core/left_alone.py": "cluster_queue/core/test_cluster_queue_placement.py",
        "core/places.py": "cluster_queue/core/test_cluster_queue_step.py",
        "core/queue_nodes.py": "cluster_queue/core/test_cluster_queue_step.py",
        "core/world.py": "cluster_queue/core/test_cluster_queue_crashes.py",
        "core/writes.py": "cluster_queue/core/test_cluster_queue_step.py",
        "services/given_graph.py": "cluster_queue/services/test_cluster_queue_services.py",
        "services/match.py": "cluster_queue/services/test_cluster_queue_services.py",
        "services/messages.py": "cluster_queue/services/test_cluster_queue_services.py",
        "services/server.py": "cluster_queue/services/test_cluster_queue_services.py",
        "workloads/__init__.py": "cluster_queue/core/test_cluster_queue_step.py",
        "workloads/group.py": "cluster_queue/core/test_cluster_queue_step.py",
        "workloads/job.py": "cluster_queue/core/test_cluster_queue_step.py",
        "workloads/minicluster.py": "cluster_queue/test_cluster_queue_workloads.py",
        "workloads/mpijob.py": "cluster_queue/test_cluster_queue_workloads.py",
        "workloads/pod.py": "cluster_queue/core/test_cluster_queue_step.py",
        "workloads/workload.py": "cluster_queue/test_cluster_queue_workloads.py",
    },
    "engine/": {
        "agent/as_user.py": "system/test_guests_as_users.py",
        "broker/archive.py": "system/test_archives.py",
        "broker/broker.py": "system/test_instances.py",
        "broker/crontabs.py": "system/test_cron_entries.py",
        "broker/kept.py": "engine/broker/module/test_module_suspended.py",
        "broker/launch/launch.py": "system/test_options_start.py",
        "broker/launch/preload.py": "engine/broker/launch/test_launch_many.py",
        "broker/launch/start_service.py": "system/test_start_service.py",
        "broker/module/context.py": "engine/broker/module/test_module.py",
        "broker/module/search.py": "engine/broker/module/test_module_host.py",
        "broker/parts.py": "system/test_instances.py",
        "broker/program_output.py": "system/test_closed_streams.py",
        "broker/services/broker_service.py": "engine/broker/services/test_services.py",
        "broker/services/config.py": "system/test_configuration.py",
        "broker/services/growth.py": "system/test_growth.py",
        "broker/startlog.py": "system/test_starts_and_crashes.py",
        "broker/state/machine.py": "engine/broker/state/test_state.py",
        "modules/cron/service.py": "system/test_cron_entries.py",
        "modules/job_exec/job.py": "engine/modules/job_exec/test_job_exec_leader.py",
        "modules/job_exec/simulator.py": "engine/modules/job_exec/test_job_exec_leader.py",
        "modules/job_ingest/checks.py": "engine/modules/job_ingest/test_job_ingest.py",
        "modules/job_ingest/signature.py": "wire/query/test_munge.py",
        "modules/job_ingest/validator_worker.py": "engine/modules/job_ingest/test_validators.py",
        "modules/job_manager/deadlines.py": "engine/modules/job_manager/test_job_manager_core.py",
        "modules/resource/acquirers.py": "engine/modules/resource/test_resource_leader.py",
        "modules/resource/follower.py": "engine/modules/resource/test_resource_leader.py",
        "modules/resource/log.py": "engine/modules/resource/test_resource_leader.py",
        "modules/sched/graph/jgf.py": "engine/modules/sched/graph/test_sched_graph_pool.py",
        "modules/sched/graph/r.py": "engine/modules/sched/graph/test_sched_graph_pool.py",
        "process/pam_session.py": "system/test_guests_as_users.py",
        "shell/exit_timeout.py": "engine/shell/test_job.py",
        "shell/oom.py": "engine/shell/test_shell_options.py",
        "shell/pmix/library.py": "system/test_open_mpi.py",
        "shell/pmix/offer.py": "system/test_open_mpi.py",
        "shell/pmix/server.py": "system/test_open_mpi.py",
        "shell/service.py": "system/test_terminals.py",
    },
    "flux_jobs/": {
        "client/containers.py": "cli/mini/test_mini_kube.py",
        "operator/controller.py": "flux_jobs/operator/test_flux_jobs_reconcile.py",
        "read/cluster.py": "flux_jobs/read/test_flux_jobs_job.py",
        "read/field.py": "flux_jobs/read/test_flux_jobs_load.py",
    },
    "formats/": {
        "plots/bars.py": "formats/plots/test_charts.py",
        "plots/box.py": "formats/plots/test_charts.py",
        "plots/chart.py": "formats/plots/test_charts.py",
        "plots/lines.py": "formats/plots/test_charts.py",
        "plots/scale.py": "formats/plots/test_charts.py",
    },
    "images/": {
        "__main__.py": "images/test_oci.py",
        "code_finder.py": "images/test_code_store.py",
        "early.py": "images/test_view.py",
        "elf.py": "images/test_compat_image.py",
        "pmix_libraries.py": "images/test_view.py",
        "stdlib.py": "images/test_view.py",
    },
    "k8s/": {
        "objects/labels.py": "minicluster/api/test_object_rules.py",
        "objects/quantities.py": "minicluster/api/test_object_rules.py",
        "packaging/removal.py": "kube/test_uninstall.py",
        "runtime/events.py": "k8s/runtime/test_controller.py",
        "runtime/writes.py": "minicluster/operator/core/test_reconcile_crashes.py",
    },
    "kubeflow/": {
        "instance_jobs.py": "kubeflow/test_kubeflow_backend.py",
        "recorder.py": "kubeflow/test_kubeflow_backend.py",
        "runner.py": "kubeflow/test_kubeflow_backend.py",
    },
    "minicluster/": {
        "api/documents.py": "minicluster/api/test_validate.py",
        "api/shell_text.py": "minicluster/run/pod/test_modes.py",
        "client/apply.py": "cli/mini/test_mini_kube.py",
        "client/clusters.py": "cli/mini/test_mini_kube.py",
        "operator/builders/containers.py": "minicluster/operator/builders/test_builders_pods.py",
        "operator/builders/services.py": "minicluster/operator/builders/test_builders_jobs.py",
        "operator/builders/volumes.py": "minicluster/operator/builders/test_builders_pods.py",
        "operator/channel.py": "minicluster/run/pod/test_channel_server.py",
        "operator/core/conditions.py": "minicluster/operator/core/test_reconcile.py",
        "operator/core/job_end.py": "minicluster/operator/core/test_reconcile.py",
        "operator/core/progress.py": "minicluster/operator/core/test_reconcile.py",
        "operator/core/status.py": "minicluster/operator/core/test_reconcile.py",
        "operator/core/transitions.py": "minicluster/operator/core/test_reconcile.py",
        "operator/execute.py": "minicluster/operator/core/test_reconcile.py",
        "operator/names.py": "minicluster/operator/builders/test_builders_jobs.py",
        "run/local.py": "system/test_mini_run.py",
        "run/pod/channel_link.py": "minicluster/run/pod/test_channel_server.py",
        "run/pod/enter.py": "minicluster/run/pod/test_modes.py",
        "run/pod/environment.py": "minicluster/run/pod/test_modes.py",
        "run/pod/files.py": "minicluster/run/pod/test_modes.py",
        "run/pod/place.py": "minicluster/run/pod/test_joining.py",
        "run/pod/sidecar.py": "minicluster/run/pod/test_joining.py",
    },
    "programs/": {
        "cluster_queue/serve.py": "kube/test_fluxqueue_store.py",
        "operator/serve.py": "kube/test_admission.py",
    },
    "sched/": {
        "graph/candidates.py": "sched/graph/test_index.py",
        "graph/demands.py": "sched/graph/test_index.py",
        "graph/formats/writers.py": "sched/graph/test_recorded_runs.py",
        "graph/free.py": "sched/graph/test_index.py",
        "graph/layout.py": "sched/graph/test_index.py",
        "graph/reservations.py": "sched/graph/test_index.py",
        "graph/shapes.py": "sched/graph/test_index.py",
        "graph/spans.py": "sched/graph/test_usage.py",
        "graph/timeline.py": "engine/modules/sched/graph/test_sched_graph.py",
        "queueing/compression.py": "sched/queueing/test_queue.py",
        "queueing/simulate_synthetic.py": "sched/queueing/test_simulate_trace.py",
        "queueing/start_search.py": "sched/queueing/test_queue.py",
    },
    "service/": {
        "app.py": "service/rest/v1/test_v1_routes.py",
        "instance.py": "service/rest/v2/test_v2_instance_routes.py",
        "jobs.py": "service/rest/v1/test_v1_routes.py",
        "journal.py": "service/rest/v2/test_v2_stream_routes.py",
        "pages/job_list.py": "service/pages/test_pages_routes.py",
        "people.py": "service/rest/v2/test_v2_people_routes.py",
        "rest/v1/errors.py": "service/rest/v1/test_v1_routes.py",
        "rest/v2/changes.py": "service/rest/v2/test_v2_routes_submit.py",
        "rest/v2/errors.py": "service/rest/v2/test_v2_routes.py",
        "rest/v2/fields.py": "service/rest/v2/test_v2_listing.py",
        "rest/v2/record.py": "service/rest/v2/test_v2_routes.py",
        "serve.py": "cli/api/test_api_command.py",
        "service.py": "service/rest/v1/test_v1_routes.py",
    },
    "wire/": {
        "query/instance_info.py": "cli/jobs/test_instance_info.py",
        "query/queue_policy.py": "cli/queue/test_queue_list.py",
        "query/resource_sets.py": "system/test_options_queue_resource.py",
        "query/signing.py": "wire/query/test_munge.py",
        "query/uri.py": "system/test_options_tools.py",
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
    """The folder of the tests of a source file: "spec", "k8s/runtime"."""
    return Path(source).parent.as_posix()


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
    # The bindings are held to Flux's own as a whole, by `tests/wire/compat`.
    sources = [source for source in files(SOURCE, "*.py") if not source.startswith("wire/compat/")]
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
    sources = ["graph/pool.py", "graph/pool_size.py", "graph/service.py", "k8s/pods.py"]
    tests = [
        "graph/test_pool_size.py",
        "graph/test_pool_grows.py",
        "graph/test_graph.py",
        "k8s/test_k8s_pods.py",
    ]
    assert owners(sources, tests) == {
        "graph/pool.py": {"graph/test_pool_grows.py"},
        "graph/pool_size.py": {"graph/test_pool_size.py"},
        "graph/service.py": {"graph/test_graph.py"},
        "k8s/pods.py": {"k8s/test_k8s_pods.py"},
    }
