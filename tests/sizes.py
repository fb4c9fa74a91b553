"""How large the tests are whose size is a choice: what CI has time for, and a soak (`make soak`).

`HEADRACE_SOAK=1` chooses the sizes of a soak, `HEADRACE_SIZES="kills=30 jobs=5000"` any other. Every such test has the
mark `soak`.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Size(NamedTuple):
    ci: int
    soak: int


SIZES = {
    # kill -9 of the lead broker under a load of submissions
    "kills": Size(15, 100),
    # random and mutated frames at the local socket
    "frames": Size(50_000, 100_000),
    # the same from a member of the tree, which holds the key, to its parent
    "member_frames": Size(5_000, 100_000),
    # requests of clients and members that leave before they are answered
    "wishes": Size(6_000, 300_000),
    # orders in which messages between job manager, scheduler and agents may come
    "orders": Size(40, 400),
    # histories of jobs under the limits of the multi-factor policy
    "limited_lives": Size(80, 4_000),
    # the same in the job manager's core, with a scheduler, restarts and reloads of the policy
    "limited_cores": Size(60, 2_000),
    # arbitrary MiniClusters of which objects are made
    "objects": Size(2_000, 50_000),
    # the same whose objects a real API server is shown
    "shown_objects": Size(300, 10_000),
    # short jobs on several nodes whose output is counted
    "runs": Size(40, 2_000),
    # workflow tools, of which CI has the first: the others are installed from a registry
    "tools": Size(2, 6),
    # versions of Kubeflow Trainer, with the JobSet of each: CI has the newest
    "trainers": Size(1, 4),
    # Jobs without the label that makes them clusters, none of which is reviewed
    "unlabelled": Size(100, 1_000),
    # pods that wait in the cluster queue, each beside a foreign pod that fits a node with it no more
    "collisions": Size(10, 100),
    # pairs of gangs of which one has room at a time
    "gangs": Size(5, 50),
    # pods of a Deployment in the cluster queue that grows from one to these, and shrinks back
    "replicas": Size(200, 5_000),
    # sides of each write at which the cluster queue is killed: before it or after it, by turns, or both
    "sides": Size(1, 2),
    # of how many such writes one is a place to kill it
    "writes_between": Size(2, 1),
    # random histories of jobs amid which the cluster queue is killed, a seed each
    "histories": Size(12, 40),
    # jobs through one broker
    "jobs": Size(10_000, 100_000),
    # kill -9 of the leading cluster queue, and the jobs amid which that happens
    "leader_kills": Size(2, 30),
    "queued_jobs": Size(40, 200),
    # random histories of jobs amid which the cluster queue is killed before it has written them
    "store_histories": Size(8, 500),
    # seconds for which the cluster queue's database is away at least
    "outage_seconds": Size(1, 60),
    # seconds that each attack of a guest goes on
    "guest_seconds": Size(1, 10),
    # spoiled MiniCluster documents, through admission and reconcile
    "documents": Size(3_000, 100_000),
    # spoiled Jobs, JobSets and TrainJobs, through readers and admission
    "foreign_documents": Size(3_000, 100_000),
    # requests made up from the OpenAPI document of /v2
    "api_requests": Size(300, 100_000),
    # random trees of banks whose fair share is computed twice
    "trees": Size(300, 10_000),
    # kill -9 of the program of the module accounting, or of the broker, while jobs end
    "book_kills": Size(6, 200),
    # kill -9 of services of two clusters that book into one database
    "cluster_kills": Size(30, 2_000),
    # kill -9 of a broker whose policy has limits
    "policy_kills": Size(3, 60),
    # jobs of two users that share an instance
    "shared_jobs": Size(400, 2_000),
    # themes and widths in which each page is shown by a browser
    "views": Size(1, 5),
    # random samples whose statistics are compared with those of numpy and scipy
    "samples": Size(200, 1_000),
    # samples of each size and shape, of which the share is counted whose interval covers the true median
    "covered": Size(400, 20_000),
    # pairs of experiments that differ by chance alone
    "equal_experiments": Size(15, 1_000),
    # runs of an experiment whose report is made
    "reported_runs": Size(500, 10_000),
    # pairs of samples of each size and shape, for the interval of the ratio of their medians
    "covered_ratios": Size(60, 4_000),
    # spoiled files of experiments
    "spoiled_experiments": Size(300, 50_000),
    # kill -9 of `headrace experiment run` at random moments
    "experiment_kills": Size(3, 100),
}
SOAK = bool(os.environ.get("HEADRACE_SOAK"))


def size(name: str) -> int:
    """The size of a test. Raises ValueError for a choice of a size that there is not."""
    chosen = dict(word.split("=") for word in os.environ.get("HEADRACE_SIZES", "").split())
    if chosen.keys() - SIZES.keys():
        raise ValueError(f"HEADRACE_SIZES: no such size: {', '.join(sorted(chosen.keys() - SIZES.keys()))}")
    return int(chosen.get(name, SIZES[name].soak if SOAK else SIZES[name].ci))


def limit(seconds: int) -> int:
    """A test's time limit, which is ten times longer in a soak."""
    return seconds * 10 if SOAK else seconds
