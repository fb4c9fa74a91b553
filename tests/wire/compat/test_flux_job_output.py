"""Output, executor and entries of jobs as `flux.job` gives them, against a real instance."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_output_comes_as_events_pieces_and_lines_also_in_the_reactor():
    lines = run(
        """
        def sub(script, **more):
            return j.submit(h, j.JobspecV1.from_command(["sh", "-c", script], **more))
        i = sub("printf 'a\\\\nb'", num_tasks=2)
        got = {}
        def line(future, kind):
            got.setdefault(kind, []).append(future.getline())
        def event(future):
            entry = future.get_event()
            if entry is not None and entry.name == "data" and entry.data:
                got.setdefault("ranks", set()).update(entry.rank.ids)
        j.output_watch_lines_async(h, i, labelio=True, keepends=True).then(line, "lines")
        j.output_event_watch_async(h, i).then(event)
        h.reactor_run()
        print(sorted(got["lines"][:-1]), got["lines"][-1], sorted(got["ranks"]))
        i = sub("echo x", output="out.txt")
        print(next(line for _, line in j.output_watch_lines(h, i) if "redirected" in line))
        """
    )
    assert lines[0] == (
        "[('stdout', '0: a\\n'), ('stdout', '0: b'), ('stdout', '1: a\\n'), ('stdout', '1: b')] (None, None) [0, 1]"
    )
    assert lines[1] == "0: stdout redirected to out.txt"


def test_output_of_a_job_that_never_starts_ends_with_the_reason():
    lines = run(
        """
        i = j.submit(h, j.JobspecV1.from_command(["true"]), urgency=0)
        for fn in (lambda: j.job_output(h, i, nowait=True), lambda: j.job_output(h, 1)):
            try:
                print(fn())
            except FileNotFoundError:
                print("none")
        j.cancel(h, i, "why")
        try:
            print(j.job_output(h, i))
        except j.JobException as exc:
            print(exc.note)
        try:
            for piece in j.output_watch(h, i):
                print(piece)
        except OSError as exc:
            print(exc.errno, exc.strerror == f"job {i} never started")
        """
    )
    assert lines == ["none", "none", "why", "('stderr', 'job.exception type=cancel severity=0 why\\n')", "5 True"]


def test_the_executor_says_what_is_wrong_with_a_job():
    lines = run(
        """
        with j.FluxExecutor() as executor:
            wrong = [executor.submit(None), executor.attach(None), executor.attach(-1), executor.attach(7)]
            code = executor.submit(j.JobspecV1.from_command(["sh", "-c", "exit 200"]))
            known = []
            code.add_jobid_callback(lambda future: known.append(1)).add_done_callback(lambda future: known.append(2))
        print([type(future.exception()).__name__ for future in wrong], [future.jobid() for future in wrong[1:]])
        print(code.result(), known, "finish" in executor.EVENTS)
        """
    )
    assert lines == ["['OSError', 'TypeError', 'OverflowError', 'ValueError'] [None, -1, 7]", "200 [1, 2] True"]


def test_callbacks_of_a_future_may_ask_for_its_id_and_may_fail():
    lines = run(
        """
        import logging
        logging.disable()
        with j.FluxExecutor() as executor:
            future = executor.submit(j.JobspecV1.from_command(["true"]))
            known = []
            future.add_jobid_callback(lambda future: 1 / 0)
            future.add_jobid_callback(lambda future: known.append(future.jobid()))
            future.add_event_callback("start", lambda future, event: 1 / 0)
            future.add_event_callback("finish", lambda future, event: known.append(event.name))
        print(future.result(), known == [future.jobid(), "finish"])
        """
    )
    assert lines == ["0 True"]


def test_entries_of_a_job_are_text_or_objects_before_or_after_updates():
    lines = run(
        """
        i = j.submit(h, j.JobspecV1.from_command(["true"]), urgency=0)
        j.event_wait(h, i, "priority")
        h.rpc("job-manager.update", {"id": i, "updates": {"attributes.system.duration": 100.0}}).get()
        def duration(entry):
            return entry["jobspec"]["attributes"]["system"]["duration"]
        first, now = j.job_info_lookup(h, i), j.job_info_update_lookup(h, i)
        print(type(first.get()["jobspec"]).__name__, duration(first.get_decode()), duration(now.get_decode()))
        print(j.get_job(h, i)["returncode"] == "", j.JobID(j.JobID(1234)).orig)
        from flux.job.journal import SENTINEL_EVENT
        print(SENTINEL_EVENT.is_empty(), j.EventLogEvent({"name": "a", "timestamp": 1.5}))
        """
    )
    assert lines == ["str 0 100.0", "True 1234", "True 1.500000: a {}"]
