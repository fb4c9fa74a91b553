"""The multi-factor policy: refusals and holds one by one, priorities, late data, updates, and what `query` shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accounting_rows import UNLIMITED, association_row, queue_row
from headrace.formats.spec.job_state import CLEANUP, DEPEND, INACTIVE, PRIORITY, RUN, SCHED
from headrace.sched.accounting.multifactor import MultiFactor
from headrace.sched.accounting.releases import MOST_REQUESTS
from headrace.sched.accounting.values import JobRefusedError, Release, Request

OWNER = 7
DURATION = "attributes.system.duration"
BANK, PROJECT, QUEUE = "attributes.system.bank", "attributes.system.project", "attributes.system.queue"
NO_ENTRY = "cannot find user/bank or user/default bank entry for uid: "


def policy(*associations: dict[str, Any], queues: tuple[dict[str, Any], ...] = (), **kind: bool) -> MultiFactor:
    made = MultiFactor(OWNER, **kind)
    made.load(
        {
            "associations": list(associations) or [association_row()],
            "queues": list(queues),
            "projects": [{"project": "*"}, {"project": "p"}],
        }
    )
    return made


def submit(policy: MultiFactor, jobid: int, **fields: Any) -> tuple[Request, list[str]]:
    """A job, as far as it gets: with no holds and with headroom it is in SCHED."""
    request = Request(jobid, fields.pop("userid", 1), **fields)
    assert policy.refusal(request) == ""
    policy.added(request)
    holds = policy.holds(request)
    if not holds and policy.priority(request, 16) is not None:
        assert policy.entered(request, SCHED) == []
    return request, holds


def start(policy: MultiFactor, request: Request) -> list[Release]:
    assert policy.may_start(request) == ""
    return policy.entered(request, RUN)


@pytest.mark.parametrize(
    ("row", "queue", "job", "text"),
    [
        ({}, {}, {"userid": 2}, NO_ENTRY + "2"),
        ({}, {}, {"bank": "B"}, NO_ENTRY + "1"),
        ({"def_bank": "B"}, {}, {}, NO_ENTRY + "1"),
        ({"active": 0}, {}, {}, "user/bank entry has been disabled from flux-accounting DB"),
        ({"queues": "r,s"}, {}, {"queue": "q"}, 'queue "q" not valid for user; valid queues for user: r,s'),
        ({}, {}, {"queue": "q"}, 'queue "q" not valid for user; valid queues for user: '),
        ({"projects": "*,x"}, {}, {"project": "p"}, 'project "p" not valid for user; valid projects for user: *,x'),
        ({"projects": "*,x"}, {}, {"project": "x"}, 'project "x" not valid for user; valid projects for user: *,x'),
        (
            {"queues": "q"},
            {"max_nodes_per_assoc": 2},
            {"queue": "q", "nodes": 3, "cores": 3},
            "job size (3 node(s)) is greater than max resources limit configured for queue (2 node(s))",
        ),
        (
            {"max_nodes": 2},
            {},
            {"nodes": 3, "cores": 6},
            "job size (3 node(s), 6 core(s)) is greater than max resources limits configured for association "
            "(2 node(s), 2147483647 core(s))",
        ),
        (
            {"max_cores": 5},
            {},
            {"nodes": 3, "cores": 6},
            "job size (3 node(s), 6 core(s)) is greater than max resources limits configured for association "
            "(2147483647 node(s), 5 core(s))",
        ),
        ({"max_nodes": 3, "max_cores": 6, "queues": "q"}, {}, {"queue": "q", "nodes": 3, "cores": 6}, ""),
        ({"projects": "p"}, {}, {"queue": "unknown", "project": "p", "bank": "A"}, ""),
    ],
)
def test_refusals(row: dict[str, Any], queue: dict[str, Any], job: dict[str, Any], text: str) -> None:
    made = policy(association_row(**row), queues=(queue_row(**queue),))
    assert made.refusal(Request(1, job.pop("userid", 1), **job)) == text


def test_the_first_reason_is_told() -> None:
    """The order of the checks: a job for which all are wrong loses one reason after the other."""
    made = policy(
        association_row(active=0, projects="", max_active_jobs=1, max_nodes=1),
        queues=(queue_row(max_nodes_per_assoc=1),),
    )
    made.rec_config_update({"deny_unknown_queues": True})
    submit_one = Request(1, 1)
    made.added(submit_one)
    request = Request(2, 1, queue="x", project="p", nodes=2)
    told = [made.refusal(request)]
    made.rec_update([association_row(projects="", max_active_jobs=1, max_nodes=1)])
    told.append(made.refusal(request))
    request = replace(request, queue="q")
    told.append(made.refusal(request))
    made.rec_update([association_row(queues="q", projects="", max_active_jobs=1, max_nodes=1)])
    told.append(made.refusal(request))
    request = replace(request, project="")
    told.append(made.refusal(request))
    made.entered(submit_one, INACTIVE)
    told.append(made.refusal(request))
    request = replace(request, queue="")
    told.append(made.refusal(request))
    assert [text.split("(")[0][:30].strip() for text in told] == [
        "user/bank entry has been disab",
        'queue "x" is unknown to flux-a',
        'queue "q" not valid for user;',
        'project "p" not valid for user',
        "user has max active jobs",
        "job size",
        "job size",
    ]
    assert "limit configured for queue" in told[-2]
    assert "limits configured for association" in told[-1]


def test_no_limit_of_active_jobs_is_0() -> None:
    made = policy(association_row(max_active_jobs=0))
    submit(made, 1)
    submit(made, 2)
    made.rec_update([association_row(max_active_jobs=2)])
    assert made.refusal(Request(3, 1)) == "user has max active jobs"


@pytest.mark.parametrize(
    ("limits", "job", "text"),
    [
        ({"min_nodes_per_job": 2}, {"nodes": 1}, "asks for 1 nodes, fewer than the 2"),
        ({"max_nodes_per_job": 2}, {"nodes": 3}, "asks for 3 nodes, more than the 2"),
        ({"max_nodes": 2}, {"nodes": 3}, "asks for 3 nodes, more than the 2"),
        ({"max_cores": 2}, {"cores": 3}, "asks for 3 cores, more than the 2"),
        ({"max_time_per_job": 2}, {"duration": 121.0}, "at most 2 minutes"),
        ({"max_time_per_job": 2}, {"duration": 0.0}, "no time limit"),
        ({"max_time_per_job": 2}, {"duration": 120.0}, ""),
        (
            {"min_nodes_per_job": 2, "max_nodes_per_job": 2, "max_nodes": 2, "max_cores": 8},
            {"nodes": 2, "cores": 8},
            "",
        ),
    ],
)
def test_strict_refusals(limits: dict[str, int], job: dict[str, Any], text: str) -> None:
    request = Request(1, 1, queue="q", **job)
    row, queue = association_row(queues="q"), queue_row(**limits)
    refusal = policy(row, queues=(queue,), strict=True).refusal(request)
    assert text in refusal
    assert bool(text) == bool(refusal)
    assert policy(row, queues=(queue,)).refusal(request) == ""


# The row of the association and of the queue, the job that runs, the job that is in SCHED, and the size of the job that
# is held by the one limit.
HOLDS = [
    ("max-run-jobs-queue", {}, {"max_running_jobs": 1}, (1, 1), None, (1, 1)),
    ("max-sched-jobs-queue-limit", {}, {"max_sched_jobs": 1}, None, (1, 1), (1, 1)),
    ("max-sched-nodes-queue-limit", {}, {"max_sched_nodes_per_assoc": 3}, None, (2, 2), (2, 2)),
    ("max-sched-cores-queue-limit", {}, {"max_sched_cores_per_assoc": 7}, None, (2, 4), (2, 4)),
    ("max-resources-queue", {}, {"max_nodes_per_assoc": 3}, (1, 1), (1, 1), (2, 2)),
    ("max-running-jobs-user-limit", {"max_running_jobs": 1}, {}, (1, 1), None, (1, 1)),
    ("max-sched-jobs-user-limit", {"max_sched_jobs": 1}, {}, None, (1, 1), (1, 1)),
    ("max-resources-user-limit", {"max_nodes": 3}, {}, (2, 2), None, (2, 2)),
    ("max-resources-user-limit", {"max_cores": 7}, {}, (2, 4), None, (2, 4)),
]


@pytest.mark.parametrize(("name", "row", "queue", "running", "waiting", "size"), HOLDS)
def test_holds(
    name: str,
    row: dict[str, int],
    queue: dict[str, int],
    running: tuple[int, int] | None,
    waiting: tuple[int, int] | None,
    size: tuple[int, int],
) -> None:
    made = policy(association_row(queues="q", **row), association_row(2, queues="q"), queues=(queue_row(**queue),))
    first = None
    if running:
        first, _ = submit(made, 1, queue="q", nodes=running[0], cores=running[1])
        start(made, first)
    if waiting:
        second, holds = submit(made, 2, queue="q", nodes=waiting[0], cores=waiting[1])
        assert holds == []
        first = first or second
    # Limits are per association, and smaller jobs may fit.
    _, other = submit(made, 3, userid=2, queue="q", nodes=size[0], cores=size[1])
    held, holds = submit(made, 4, queue="q", nodes=size[0], cores=size[1])
    assert (other, holds) == ([], [name])
    assert made.waits_for(4) == [name]
    assert made.holds(held) == []
    if min(size) > 1:
        assert submit(made, 5, queue="q", nodes=1, cores=1)[1] == []
        made.entered(Request(5, 1), INACTIVE)
    assert first is not None
    assert made.entered(first, INACTIVE) == [Release(4, name)]
    assert made.waits_for(4) == []


def test_a_job_has_all_holds_in_the_order_of_the_peer() -> None:
    made = policy(
        association_row(queues="q", max_running_jobs=0, max_sched_jobs=0, max_nodes=1),
        queues=(
            queue_row(max_running_jobs=0, max_sched_jobs=0, max_sched_nodes_per_assoc=0, max_sched_cores_per_assoc=0),
        ),
    )
    made.count_active(Request(1, 1, queue="q"), RUN, [])
    _, holds = submit(made, 2, queue="q")
    names = list(dict.fromkeys(name for name, *_ in HOLDS))
    assert holds == [name for name in names if name != "max-resources-queue"]
    assert submit(made, 3, queue="unknown")[1] == [name for name in holds if "queue" not in name]


def test_a_row_with_minus_one_running_jobs_stands_for_a_lost_association() -> None:
    made = policy(association_row(max_running_jobs=-1))
    with pytest.raises(JobRefusedError, match=r"^job\.state\.depend: bank info is missing$"):
        submit(made, 1)
    made.entered(Request(1, 1), INACTIVE)
    made.rec_update([association_row(max_running_jobs=1)])
    assert submit(made, 2)[1] == []


def test_releases_are_as_many_as_there_are_places() -> None:
    """Oldest first. A job that keeps another hold takes no place, so the next one is released as well."""
    made = policy(association_row(queues="q", max_running_jobs=2), queues=(queue_row(max_running_jobs=1),))
    running = [submit(made, 1, queue="q")[0], submit(made, 2)[0]]
    for request in running:
        start(made, request)
    user, queue = "max-running-jobs-user-limit", "max-run-jobs-queue"
    assert submit(made, 3, queue="q")[1] == [queue, user]
    assert submit(made, 4)[1] == [user]
    assert submit(made, 5)[1] == [user]
    assert made.entered(running[1], INACTIVE) == [Release(3, user), Release(4, user)]
    made.entered(Request(4, 1), SCHED)
    assert made.entered(running[0], INACTIVE) == [Release(3, queue), Release(5, user)]


def test_a_released_job_takes_its_place_in_the_queue() -> None:
    made = policy(association_row(queues="q"), queues=(queue_row(max_running_jobs=1),))
    running, _ = submit(made, 1, queue="q")
    start(made, running)
    for jobid in (2, 3):
        assert submit(made, jobid, queue="q")[1] == ["max-run-jobs-queue"]
    assert made.entered(running, INACTIVE) == [Release(2, "max-run-jobs-queue")]


def test_a_job_that_never_reached_sched_gives_its_place_back() -> None:
    """The job that was released first also waits for another job, and is canceled before that one ends."""
    made = policy(association_row(max_sched_jobs=1))
    first, _ = submit(made, 1)
    second, third = submit(made, 2)[0], submit(made, 3)[0]
    assert made.entered(first, INACTIVE) == [Release(2, "max-sched-jobs-user-limit")]
    assert made.entered(second, INACTIVE) == [Release(3, "max-sched-jobs-user-limit")]
    assert made.waits_for(third.id) == []


def test_no_job_is_held_for_one_that_may_start() -> None:
    """Whether the job in SCHED gets resources soon is not known, so it does not keep others behind a dependency."""
    made = policy(association_row(max_running_jobs=1))
    first, second = submit(made, 1)[0], submit(made, 2)[0]
    start(made, first)
    assert made.may_start(second)
    assert submit(made, 3)[1] == ["max-running-jobs-user-limit"]
    assert made.entered(first, INACTIVE) == [Release(3, "max-running-jobs-user-limit")]
    assert made.ready() == [2]


def test_a_raised_limit_releases_at_reprioritize() -> None:
    made = policy(association_row(max_running_jobs=1))
    start(made, submit(made, 1)[0])
    for jobid in (2, 3, 4):
        submit(made, jobid)
    made.rec_update([association_row(max_running_jobs=3)])
    assert made.waits_for(2) == ["max-running-jobs-user-limit"]
    assert [release.id for release in made.reprioritize()] == [2, 3]


@pytest.mark.parametrize(
    ("name", "row", "queue", "size"),
    [
        ("max-running-jobs-user-limit", {"max_running_jobs": 1}, {}, (1, 1)),
        ("max-run-jobs-queue", {}, {"max_running_jobs": 1}, (1, 1)),
        ("max-resources-user-limit", {"max_nodes": 3}, {}, (2, 2)),
        ("max-resources-user-limit", {"max_cores": 3}, {}, (1, 2)),
        ("max-nodes-queue-limit", {}, {"max_nodes": 3}, (2, 2)),
        ("max-cores-queue-limit", {}, {"max_cores": 3}, (1, 2)),
    ],
)
def test_jobs_submitted_before_one_starts_do_not_exceed_a_limit(
    name: str, row: dict[str, int], queue: dict[str, int], size: tuple[int, int]
) -> None:
    made = policy(association_row(queues="q", **row), queues=(queue_row(**queue),), strict=True)
    jobs = [submit(made, jobid, queue="q", nodes=size[0], cores=size[1]) for jobid in (1, 2, 3)]
    assert all(holds == [] for _, holds in jobs)
    first, second, third = (request for request, _ in jobs)
    start(made, first)
    assert made.may_start(second) == made.may_start(third) == name
    assert made.waits_for(3) == [name]
    assert made.ready() == []
    made.entered(first, CLEANUP)
    assert made.ready() == []
    made.entered(first, INACTIVE)
    assert made.ready() == [2]
    start(made, second)
    assert made.may_start(third) == name
    made.entered(second, INACTIVE)
    assert made.ready() == [3]
    start(made, third)


def test_a_strict_queue_limits_a_changed_duration() -> None:
    for strict, text in (
        (True, 'queue "q": the job asks for 2 minutes, and a job may have at most 1 minutes'),
        (False, ""),
    ):
        made = policy(association_row(queues="q"), queues=(queue_row(max_time_per_job=1),), strict=strict)
        request, _ = submit(made, 1, queue="q", duration=60.0)
        assert made.update_refusal(request, DURATION, 30.0) == ""
        assert made.update_refusal(request, DURATION, 120.0) == text
        assert bool(made.update_refusal(request, DURATION, 0.0)) is strict
        other, _ = submit(made, 2, duration=60.0)
        assert made.update_refusal(other, DURATION, 1e6) == ""


@given(
    jobs=st.lists(
        st.fixed_dictionaries(
            {"shape": st.integers(0, 2), "duration": st.sampled_from([0.0, 60.0]), "queue": st.sampled_from(["", "q"])}
        ),
        min_size=2,
        max_size=9,
    ),
    limit=st.integers(1, 3),
)
def test_a_ready_job_that_gets_no_resources_keeps_only_jobs_with_the_same_request_waiting(
    jobs: list[dict[str, Any]], limit: int
) -> None:
    made = policy(association_row(max_running_jobs=limit, queues="q"))
    requests = [submit(made, jobid, **job)[0] for jobid, job in enumerate(jobs, 1)]
    running, withheld = requests[:limit], requests[limit:]
    for request in running:
        start(made, request)
    for request in withheld:
        assert made.may_start(request) == "max-running-jobs-user-limit"
    ready: set[int] = set()
    for request in running:
        made.entered(request, INACTIVE)
        named = made.ready()
        # None of them is named twice, and none starts.
        assert ready.isdisjoint(named)
        ready.update(named)
        needs = {replace(request, id=0) for request in withheld if request.id in ready}
        assert needs == {replace(request, id=0) for request in withheld}
    # There is room for as many jobs with the same request as may run.
    for need in needs:
        alike = [request.id for request in withheld if replace(request, id=0) == need]
        assert ready.issuperset(alike[:limit])


def test_different_requests_that_a_pass_lets_start_are_not_too_many() -> None:
    made = policy(association_row(max_running_jobs=1))
    requests = [submit(made, jobid, shape=jobid)[0] for jobid in range(1, MOST_REQUESTS + 10)]
    start(made, requests[0])
    assert all(map(made.may_start, requests[1:]))
    made.entered(requests[0], INACTIVE)
    assert made.ready() == [request.id for request in requests[1 : MOST_REQUESTS + 1]]


def test_raised_limits_let_the_jobs_of_all_users_start() -> None:
    users = range(1, MOST_REQUESTS + 10)
    made = policy(*(association_row(user, max_running_jobs=1) for user in users))
    for user in users:
        start(made, submit(made, 2 * user, userid=user)[0])
    waiting = [Request(2 * user + 1, user) for user in users]
    for request in waiting:
        made.added(request)
        made.entered(request, SCHED)
        assert made.may_start(request) == "max-running-jobs-user-limit"
    made.rec_update([association_row(user, max_running_jobs=2) for user in users])
    made.reprioritize()
    assert sorted(made.ready()) == [request.id for request in waiting]


def test_a_lowered_limit_holds_jobs_in_sched() -> None:
    made = policy(association_row(queues="q"), queues=(queue_row(max_nodes_per_assoc=3),))
    first, second = submit(made, 1, queue="q", nodes=2)[0], submit(made, 2, queue="q")[0]
    made.rec_q_update([queue_row(max_nodes_per_assoc=2)])
    start(made, first)
    assert made.may_start(second) == "max-resources-queue"
    made.entered(first, INACTIVE)
    assert made.ready() == [2]


def test_totals_of_a_queue_are_of_all_users() -> None:
    made = policy(
        association_row(1, queues="q"), association_row(2, queues="q"), queues=(queue_row(max_nodes=1),), strict=True
    )
    first, _ = submit(made, 1, queue="q")
    second, _ = submit(made, 2, userid=2, queue="q")
    start(made, first)
    assert made.may_start(second) == "max-nodes-queue-limit"
    made.entered(first, INACTIVE)
    assert made.ready() == [2]


def test_with_limits_at_submit_they_all_start() -> None:
    made = policy(association_row(max_running_jobs=1), at_submit=True)
    jobs = [submit(made, jobid)[0] for jobid in (1, 2, 3)]
    for request in jobs:
        start(made, request)
    assert made.query()["mf_priority_map"][0]["banks"][0]["cur_run_jobs"] == 3


def test_a_job_stays_in_priority_while_sched_is_full() -> None:
    """Two jobs that wait for another dependency pass DEPEND while nothing is in SCHED."""
    made = policy(association_row(max_sched_jobs=1))
    first, second = Request(1, 1), Request(2, 1)
    for request in (first, second):
        made.added(request)
        assert made.holds(request) == []
    assert made.priority(first, 16) == 50000
    made.entered(first, SCHED)
    assert made.priority(second, 16) is None
    assert made.waits_for(2) == ["max-sched-jobs-user-limit"]
    assert made.priority(first, 20) == 54000
    made.entered(first, RUN)
    assert made.ready() == [2]
    assert made.priority(second, 16) == 50000


def test_jobs_that_waited_to_start_are_ready_by_priority() -> None:
    made = policy(association_row(max_running_jobs=1))
    jobs = {jobid: submit(made, jobid)[0] for jobid in range(1, 6)}
    start(made, jobs[1])
    for jobid in (2, 3, 4, 5):
        assert made.may_start(jobs[jobid])
    made.priority(jobs[4], 31)
    made.priority(jobs[2], 0)
    told = []
    for jobid in (1, 4, 3, 5):
        made.entered(jobs[jobid], INACTIVE)
        told += made.ready()
    assert told == [4, 3, 5, 2]


def test_a_job_that_is_held_gives_its_turn_to_another() -> None:
    made = policy(association_row(max_running_jobs=1))
    first, second, third = (submit(made, jobid)[0] for jobid in (1, 2, 3))
    start(made, first)
    assert made.may_start(second)
    assert made.may_start(third)
    made.entered(first, INACTIVE)
    assert made.ready() == [2]
    made.priority(second, 0)
    assert made.ready() == [3]


def test_a_queue_keeps_no_turn_from_another() -> None:
    """The queue of the job that was named first may be stopped."""
    made = policy(association_row(max_running_jobs=1))
    first, second, third, fourth = (submit(made, jobid, queue=queue)[0] for jobid, queue in enumerate("aaab", 1))
    start(made, first)
    for request in (second, third, fourth):
        assert made.may_start(request)
    made.entered(first, INACTIVE)
    assert made.ready() == [2, 4]


def test_a_requeued_job_leaves_its_place() -> None:
    made = policy(association_row(max_running_jobs=1))
    first, second = submit(made, 1)[0], submit(made, 2)[0]
    start(made, first)
    assert made.may_start(second)
    made.entered(first, PRIORITY)
    assert made.ready() == [2]
    assert made.priority(first, 16) == 50000


def test_priorities() -> None:
    made = policy(association_row(fairshare=0.453217, queues="q"), queues=(queue_row(priority=3),))
    made.rec_bank_update([{"bank": "A", "priority": 2.5}])
    one, two = submit(made, 1)[0], submit(made, 2, queue="q")[0]
    assert (made.priority(one, 16), made.priority(two, 16)) == (45322, 75322)
    assert (made.priority(one, 0), made.priority(two, 31)) == (0, 4294967295)
    assert made.fairshare(one) == 0.453217
    made.rec_fac_update(
        [{"factor": "bank", "weight": 100}, {"factor": "urgency", "weight": 10}, {"factor": "x", "weight": 9}]
    )
    assert made.priority(one, 17) == 45582
    made.rec_update([association_row(fairshare=0.0)])
    made.rec_fac_update([{"factor": "bank", "weight": 0}])
    assert made.priority(one, 15) == 0


def test_defaults() -> None:
    made = policy(association_row(def_project="p"), association_row(1, "B", def_bank="A", def_project=""))
    assert made.defaults(Request(1, 1)) == {BANK: "A", PROJECT: "p"}
    assert made.defaults(Request(1, 1, project="*")) == {BANK: "A"}
    assert made.defaults(Request(1, 1, bank="B")) == {}
    assert made.defaults(Request(1, 2)) == {}


def test_without_data_jobs_wait_in_priority() -> None:
    made = MultiFactor(OWNER)
    jobs = [Request(1, 1), Request(2, 1, bank="X"), Request(3, OWNER), Request(4, 1, queue="q")]
    for request in jobs:
        assert made.refusal(request) == ""
        made.added(request)
        assert made.holds(request) == []
        assert made.priority(request, 16) is None
        assert made.defaults(request) == {}
    made.rec_q_update([queue_row()])
    assert made.refusal(Request(5, 1)) == ""
    assert made.priority(jobs[0], 16) is None
    made.rec_update([association_row()])
    assert made.refusal(Request(5, 2)) == NO_ENTRY + "2"
    # The associations are known now, and so are the counts.
    assert made.query()["mf_priority_map"][0]["banks"][0]["cur_active_jobs"] == 2
    assert made.priority(jobs[0], 16) == 50000
    assert made.defaults(jobs[0]) == {BANK: "A", PROJECT: "*"}
    with pytest.raises(JobRefusedError, match=NO_ENTRY + "1"):
        made.priority(jobs[1], 16)
    with pytest.raises(JobRefusedError, match='queue "q" not valid'):
        made.priority(jobs[3], 16)
    # The owner needs no association.
    assert made.priority(jobs[2], 16) == 50000
    assert made.defaults(jobs[2]) == {}


def test_the_owner_may_run_without_an_association() -> None:
    made = policy(association_row(), queues=(queue_row(max_running_jobs=0),))
    assert [made.refusal(Request(1, userid)) for userid in (OWNER, 8)] == ["", NO_ENTRY + "8"]
    request, holds = submit(made, 1, userid=OWNER, queue="q", bank="mine")
    assert holds == []
    start(made, request)
    # An association of the owner counts like any other.
    made.rec_update([association_row(OWNER, "mine", max_running_jobs=1)])
    assert submit(made, 2, userid=OWNER)[1] == ["max-running-jobs-user-limit"]
    assert made.refusal(Request(3, OWNER, bank="A")) == NO_ENTRY + str(OWNER)


def test_jobs_that_run_are_counted_when_the_policy_is_loaded() -> None:
    made = policy(association_row(max_running_jobs=2, queues="q"), queues=(queue_row(),))
    made.count_active(Request(1, 1, queue="q", nodes=2, cores=4), RUN, [])
    made.count_active(Request(2, 1), CLEANUP, [])
    made.count_active(Request(3, 1, queue="q", nodes=3, cores=5), SCHED, [])
    made.count_active(Request(4, 1), PRIORITY, [])
    made.count_active(Request(5, 1), DEPEND, ["max-running-jobs-user-limit", "after-start=1"])
    bank = made.query()["mf_priority_map"][0]["banks"][0]
    assert {name: value for name, value in bank.items() if name.startswith("cur")} == {
        "cur_run_jobs": 2,
        "cur_active_jobs": 5,
        "cur_nodes": 3,
        "cur_cores": 5,
        "cur_sched_jobs": 1,
    }
    assert bank["queue_usage"]["q"] == {
        "cur_run_jobs": 1,
        "cur_nodes": 2,
        "cur_sched_jobs": 1,
        "cur_sched_nodes": 3,
        "cur_sched_cores": 5,
    }
    held = {"nnodes": 1, "ncores": 1, "queue": "", "deps": ["max-running-jobs-user-limit"]}
    assert bank["held_jobs"] == {"5": held}
    assert made.entered(Request(2, 1), INACTIVE) == [Release(5, "max-running-jobs-user-limit")]


def test_updates_are_checked() -> None:
    made = policy(
        association_row(queues="q,big"),
        association_row(1, "B", def_bank="A", max_active_jobs=2, max_running_jobs=1),
        queues=(queue_row(), queue_row("gold"), queue_row("big", max_nodes_per_assoc=1)),
    )
    request, _ = submit(made, 1, nodes=2)
    refusals = {value: made.update_refusal(request, QUEUE, value) for value in ("q", "x", "gold", "big")}
    assert (refusals["q"], refusals["x"]) == ("", "")
    assert refusals["gold"] == "mf_priority: queue not valid for user: gold"
    assert refusals["big"].startswith("job size (2 node(s)) is greater")
    assert made.update_refusal(request, BANK, "C") == "update_bank: cannot find flux-accounting entry for uid/bank: 1/C"
    assert made.update_refusal(request, BANK, "B") == ""
    assert made.update_refusal(request, "attributes.system.duration", "B") == ""
    running, _ = submit(made, 2, bank="B")
    start(made, running)
    assert made.update_refusal(request, BANK, "B") == (
        "updating to bank B while it is already at max-run-jobs limit is not allowed; try again later"
    )
    submit(made, 3, bank="B")
    assert made.update_refusal(request, BANK, "B") == "new bank is already at max-active-jobs limit"
    assert MultiFactor(OWNER).update_refusal(request, BANK, "B") == (
        "update_bank: plugin still waiting on flux-accounting data"
    )


def test_counts_follow_an_update() -> None:
    made = policy(association_row(max_sched_jobs=1), association_row(1, "B", def_bank="A"), queues=(queue_row(),))
    first, _ = submit(made, 1, bank="A")
    assert submit(made, 2, bank="A")[1] == ["max-sched-jobs-user-limit"]
    moved = replace(first, bank="B", queue="q")
    assert made.updated(first, moved) == [Release(2, "max-sched-jobs-user-limit")]
    a, b = made.query()["mf_priority_map"][0]["banks"]
    assert (a["cur_active_jobs"], a["cur_sched_jobs"]) == (1, 0)
    assert (b["cur_active_jobs"], b["cur_sched_jobs"], b["queue_usage"]["q"]["cur_sched_jobs"]) == (1, 1, 1)


def test_an_updated_job_may_ask_again() -> None:
    made = policy(association_row(max_running_jobs=1), association_row(1, "B", def_bank="A"))
    first, turned_away = submit(made, 1, bank="A")[0], submit(made, 2, bank="A")[0]
    start(made, first)
    assert made.may_start(turned_away)
    moved = replace(turned_away, bank="B")
    made.updated(turned_away, moved)
    assert made.ready() == [2]
    start(made, moved)


def test_holds_follow_an_update() -> None:
    made = policy(association_row(max_running_jobs=1), association_row(1, "B", def_bank="A"))
    start(made, submit(made, 1, bank="A")[0])
    held, holds = submit(made, 2, bank="A")
    assert holds == ["max-running-jobs-user-limit"]
    assert made.updated(held, replace(held, bank="B")) == [Release(2, "max-running-jobs-user-limit")]


def test_query() -> None:
    made = policy(
        association_row(2, "B", queues="q", projects="*,p", fairshare=0.25, max_nodes=3),
        association_row(1, "Z"),
        association_row(1, "A"),
        queues=(queue_row("z"), queue_row(priority=4, max_nodes=9)),
    )
    submit(made, 1, userid=2, queue="q")
    answer = made.query()
    assert [(one["userid"], [bank["bank_name"] for bank in one["banks"]]) for one in answer["mf_priority_map"]] == [
        (1, ["A", "Z"]),
        (2, ["B"]),
    ]
    bank = answer["mf_priority_map"][1]["banks"][0]
    assert (bank["queues"], bank["projects"], bank["queue_factor"]) == (["q"], ["*", "p"], 4)
    assert (bank["fairshare"], bank["max_nodes"], bank["max_cores"]) == (0.25, 3, UNLIMITED)
    assert list(answer["queues"]) == ["q", "z"]
    assert answer["queues"]["q"] == {"name": "q"} | {
        key: value for key, value in queue_row(priority=4).items() if key != "queue"
    }
    assert answer["projects"] == ["*", "p"]


@pytest.mark.parametrize(
    ("service", "data", "text"),
    [
        (
            "rec_update",
            [association_row(), association_row(fairshare="much")],
            r"associations\[1\].fairshare: expected",
        ),
        (
            "rec_update",
            [association_row(), association_row(fairshare=float("nan"))],
            r"associations\[1\].fairshare: nan",
        ),
        ("rec_update", [association_row(), {"userid": 3}], r"associations\[1\].bank: missing"),
        ("rec_update", [association_row(), association_row(max_nodes=2**63)], r"associations\[1\].max_nodes: expected"),
        ("rec_update", {}, "associations: expected `array`"),
        ("rec_q_update", [queue_row(priority=1.5)], r"queues\[0\].priority: expected `int`"),
        ("rec_proj_update", [{"project": 1}], r"projects\[0\].project: expected `str`"),
        ("rec_bank_update", [{"bank": "A"}], r"banks\[0\].priority: missing"),
        ("rec_fac_update", [{"factor": "bank", "weight": 1}, None], r"priority_factors\[1\]: expected `object`"),
        ("rec_config_update", {"deny_unknown_queues": 1}, "config.deny_unknown_queues: expected `bool`"),
        ("load", [], "config: not an object"),
        ("load", {"associations": [association_row(9)], "queues": [{}]}, r"queues\[0\].queue: missing"),
    ],
)
def test_bad_rows_change_nothing(service: str, data: Any, text: str) -> None:
    made = policy(association_row(fairshare=0.75), queues=(queue_row(),))
    before = made.query()
    with pytest.raises(ValueError, match=text):
        getattr(made, service)(data)
    assert made.query() == before
