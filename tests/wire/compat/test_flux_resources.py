"""`flux.resource` and `flux.queue` in a real instance: the journal of resources, and queues with what is theirs."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_the_journal_of_resources_gives_the_past_and_then_the_present():
    lines = run(
        """
        from flux.resource import ResourceJournalConsumer, ResourceSet
        journal = ResourceJournalConsumer(h, include_sentinel=True).start()
        past = []
        while not (event := journal.poll(10)).is_empty():
            past.append(event)
        print(event, sorted(event.name for event in past))
        print([ResourceSet(event.R).nnodes for event in past if event.R])
        h.rpc("resource.drain", {"targets": "0", "reason": "tired"}).get()
        while (event := journal.poll(10)).name != "drain":
            pass
        print(event.context["reason"], "drain" in str(event))
        journal.stop()
        while journal.poll(10) is not None:
            pass
        after = ResourceJournalConsumer(h, since=past[-1].timestamp).start().poll(10)
        print(after.name)
        """
    )
    assert lines == [
        "-1: End of historical data stream ['online', 'resource-define', 'restart']",
        "[1]",
        "tired True",
        "drain",
    ]


def test_the_callback_of_a_journal_that_was_stopped_hears_no_more():
    lines = run(
        """
        journal = j.JournalConsumer(h, include_sentinel=True)
        heard = []
        def callback(event, *args):
            heard.append((event.is_empty(), *args))
            journal.stop()
        journal.set_callback(callback, 7)
        journal.start()
        h.reactor_run()
        print(heard)
        """
    )
    assert lines == ["[(True, 7)]"]


def test_queues_have_their_state_limits_and_resources():
    lines = run(
        """
        from flux.queue import QueueList
        (only,) = QueueList(h)
        print(repr(only.name), only.enabled, only.started, only.is_default)
        print(only.limits.timelimit, only.limits.max.nnodes)
        limits = {"duration": "1h", "job-size": {"max": {"ncores": 2}}}
        defaults = {"system": {"queue": "batch", "duration": "8h"}}
        h.rpc("config.load", {
            "queues": {"batch": {}, "debug": {"policy": {"limits": limits}}},
            "policy": {"limits": {"duration": "24h"}, "jobspec": {"defaults": defaults}},
        }).get()
        queues = QueueList(h)
        for queue in queues:
            print(queue.name, queue.started, queue.default, queue.limits.duration, queue.defaults.timelimit,
                  queue.limits.min.nnodes, queue.limits.max.ncores, queue.resources.up.nnodes)
        print(queues["debug"] is queues.debug, [queue.name for queue in QueueList(h, ["debug"])])
        for wrong in (lambda: QueueList(h, ["nosuch"]), lambda: queues.nosuch):
            try:
                print("no error", wrong())
            except (ValueError, AttributeError) as exc:
                print(exc)
        """
    )
    assert lines == [
        "'' True True True",
        "inf inf",
        "batch False True 86400.0 28800.0 0 inf 1",
        "debug False False 3600.0 28800.0 0 2 1",
        "True ['debug']",
        "No such queue: nosuch",
        "no queue has the name 'nosuch'",
    ]


def test_the_job_manager_says_which_resources_jobs_have():
    lines = run(
        """
        from flux.resource import ResourceSet
        def cores():
            return ResourceSet(h.rpc("job-manager.resource-status").get()["allocated"]).ncores
        print(cores())
        # A GPU entry that asks for none takes nothing.
        spec = j.JobspecV1.from_command(["sleep", "60"])
        spec.resources[0]["with"].append({"type": "gpu", "count": 0})
        ids = [j.submit(h, spec) for _ in range(2)]
        for i in ids:
            j.event_wait(h, i, "alloc")
        print(cores())
        for i in ids:
            j.cancel(h, i)
        for i in ids:
            j.event_wait(h, i, "clean", raiseJobException=False)
        print(cores())
        """
    )
    assert lines == ["0", "2", "0"]


def test_a_queue_below_another_has_the_others_resources_and_limits():
    lines = run(
        """
        from flux.queue import QueueInfo
        from flux.resource import resource_list
        limits = {"duration": "2h", "job-size": {"max": {"nnodes": 3}}}
        config = {
            "queues": {
                "batch": {"hosts": "nosuch", "policy": {"limits": limits}},
                "short": {"parent": "batch", "policy": {"limits": {"duration": "1h"}}},
            }
        }
        resources = resource_list(h).get()
        short = QueueInfo("short", config, resources, True, True, False, parent="batch")
        print(short.parent, short.limits.timelimit, short.limits.max.nnodes, short.resources.all.nnodes)
        alone = QueueInfo("short", config, resources, True, True, False)
        print(alone.parent, alone.limits.timelimit, alone.limits.max.nnodes, alone.resources.all.nnodes)
        try:
            print("no error", QueueInfo("short", config, resources, True, True, False, parent="nosuch"))
        except ValueError as exc:
            print(exc)
        """
    )
    assert lines == [
        "batch 3600.0 3 0",
        "None 3600.0 inf 1",
        "queue short: parent queue 'nosuch' is not configured",
    ]
