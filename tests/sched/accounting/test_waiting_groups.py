"""Groups of waiting jobs against sorted lists."""

from __future__ import annotations

import random

from headrace.sched.accounting.waiting import HOLD, Group, GroupKey


class Waiter:
    def __init__(self, order: int) -> None:
        self.group: Group | None = None
        self.order = order


def test_the_first_job_is_the_least_by_order_and_id() -> None:
    """Jobs come, leave, come back, change groups and change their order; the heaps stay as small as the groups."""
    draw = random.Random(7)
    groups = [Group(GroupKey(HOLD, "q", size, 1, ())) for size in (1, 2)]
    jobs = {jobid: Waiter(0) for jobid in range(60)}
    for _ in range(20_000):
        jobid = draw.randrange(60)
        job, order = jobs[jobid], draw.randrange(4)
        if job.group is None:
            job.order = order
            draw.choice(groups).add(jobid, job)
        elif order and job.order != order:
            job.group.move(jobid, job, order)
        else:
            job.group.discard(job)
        for group in groups:
            members = [(job.order, jobid) for jobid, job in jobs.items() if job.group is group]
            assert group.first() == min(members, default=None)
            assert group.size == len(members)
            assert len(group.heap) <= 2 * 60 + 64
