"""`import flux` against a real instance, from this Python and, where there is one, from Python 3.8."""

from __future__ import annotations

import ast
import glob
import os
import subprocess
import sys

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, os.path.dirname(__file__))
from bindings import run


def test_a_job_is_submitted_watched_and_listed():
    lines = run(
        """
        i = j.submit(h, j.JobspecV1.from_command(["true"]))
        print(type(i).__name__, int(i) == j.JobID(str(i)))
        print([e.name for e in j.event_watch(h, i)])
        print(j.result(h, i).result, j.get_job(h, i)["status"])
        print(sorted(j.job_list(h, max_entries=1, attrs=["name", "state"]).get()["jobs"][0]))
        """
    )
    assert lines == [
        "JobID True",
        "['submit', 'validate', 'depend', 'priority', 'alloc', 'start', 'finish', 'release', 'free', 'clean']",
        "COMPLETED COMPLETED",
        "['id', 'name', 'state']",
    ]


def test_an_address_may_be_bytes_as_with_the_c_bindings():
    assert run("print(flux.Flux(h.attr_get('local-uri').encode()).attr_get('size'))") == ["1"]


def test_errors_are_the_classes_and_words_of_the_c_bindings():
    lines = run(
        """
        for code in ('j.submit(h, "{}")', "j.cancel(h, 1)", 'flux.Flux("local:///nosuch")',
                     'h.rpc("attr.get", {"name": "nosuch"}).get()', "j.JobspecV1.from_command([])",
                     'j.JobspecV1.from_command(["a"], num_tasks=1, num_nodes=2)'):
            try:
                print("no error", eval(code))
            except Exception as exc:
                print(f"{type(exc).__name__}: {exc}")
        """
    )
    assert lines == [
        "PermissionError: [Errno 1] Missing key (attributes)",
        "FileNotFoundError: [Errno 2] unknown job id",
        "FileNotFoundError: [Errno 2] Unable to connect to Flux: broker socket /nosuch was not found",
        "FileNotFoundError: [Errno 2] No such file or directory",
        "TypeError: command array cannot have length of zero",
        "ValueError: node count must not be greater than task count",
    ]


def test_waiting_cancelling_and_output():
    lines = run(
        """
        i = j.submit(h, j.JobspecV1.from_command(["false"]), waitable=True)
        print(tuple(j.wait(h, i))[1:])
        i = j.submit(h, j.JobspecV1.from_command(["sleep", "300"]))
        j.cancel(h, i, "why")
        r = j.result(h, i)
        print(r.result, r.exception.occurred, r.exception.type, r.exception.note)
        print(j.job_output(h, j.submit(h, j.JobspecV1.from_command(["echo", "hi"]))).stdout)
        """
    )
    assert lines == ["(False, b'task(s) exited with exit code 1')", "CANCELED True cancel why", "hi", ""]


def test_the_executor_gives_statuses_ids_and_exceptions():
    lines = run(
        """
        seen = []
        with j.FluxExecutor() as executor:
            futures = [executor.submit(j.JobspecV1.from_command(["sh", "-c", f"exit {n}"])) for n in range(3)]
            futures[0].add_event_callback("finish", lambda future, event: seen.append(event.context["status"]))
            print([future.result(60) for future in futures], futures[0].jobid() > 0)
            try:
                executor.submit(j.JobspecV1.from_command(["nosuch"])).result(60)
            except j.JobException as exc:
                print(exc.type, "start failed: nosuch" in exc.note, repr(exc)[:44])
        print(seen)
        """
    )
    assert lines == ["[0, 1, 2] True", "exec True JobException('job.exception: type=exec: task", "[0]"]


def test_kvs_resources_and_the_reactor():
    lines = run(
        """
        import flux.kvs
        from flux.resource.list import resource_list
        flux.kvs.put(h, "a.b", [1, 2])
        flux.kvs.commit(h)
        print(flux.kvs.get(h, "a.b"), list(flux.kvs.get_dir(h, "a")), flux.kvs.exists(h, "a.c"))
        listing = resource_list(h).get()
        print(listing.up.nnodes, listing.free.ncores == listing.all.ncores, len(listing.all.nodelist))
        def fired(handle, watcher, events, args):
            print("timer", args)
            handle.reactor_stop()
        h.timer_watcher_create(0.01, fired, args=5).start()
        h.reactor_run()
        """
    )
    assert lines == ["[1, 2] ['b'] False", "1 True 1", "timer 5"]


def test_the_bindings_run_in_a_users_own_python_without_our_packages():
    pythons = glob.glob(os.path.expanduser("~/.pyenv/versions/3.8.*/bin/python")) or ["/usr/bin/python3"]
    if not os.path.exists(pythons[0]):
        pytest.skip("needs a Python other than ours: ~/.pyenv 3.8 or /usr/bin/python3")
    bare = [pythons[0], "-c", "import msgspec"]
    assert subprocess.run(bare, capture_output=True, check=False).returncode, "that Python has our packages"
    lines = run("print(j.result(h, j.submit(h, j.JobspecV1.from_command(['true']))).result)", pythons[0])
    assert lines == ["COMPLETED"]


def test_only_the_standard_library_and_headrace_are_imported():
    folder = os.path.join(BINDINGS, "flux")
    for path in glob.glob(folder + "/**/*.py", recursive=True):
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), feature_version=(3, 8))
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in ("flux", "headrace") or top in sys.stdlib_module_names, f"{path} imports {name}"


def test_the_reactor_returns_when_nothing_is_left_to_wait_for():
    lines = run(
        """
        print(h.reactor_run())
        spec = j.JobspecV1.from_command(["true"])
        def submitted(future):
            print("submitted", future.get_id() > 0)
            j.event_watch_async(h, future.get_id()).then(event)
        def event(future):
            entry = future.get_event()
            if entry is None or entry.name == "clean":
                print("event", entry and entry.name)
        j.submit_async(h, spec).then(submitted)
        h.rpc("attr.get", {"name": "size"}).then(lambda future: print("attr", future.get()["value"]))
        h.rpc("attr.get", {"name": "size"})
        h.reactor_run()
        with h.timer_watcher_create(0.01, lambda *_: print("timer")):
            h.reactor_run()
        w = h.signal_watcher_create(10, lambda h, w, *_: (print("signal"), w.stop()))
        w.start()
        import os, threading
        threading.Timer(0.05, os.kill, (os.getpid(), 10)).start()
        h.reactor_run()
        """
    )
    assert sorted(lines[:3]) == ["0", "attr 1", "submitted True"]
    assert lines[3:] == ["event clean", "event None", "timer", "signal"]


def test_kvs_trees_are_walked_filled_and_watched():
    lines = run(
        """
        import flux.kvs as kvs
        top = kvs.KVSDir(h)
        top.fill({"t.x": {"n": 1}, "t.y.z": [2]})
        print(list(kvs.walk("t", topdown=True, flux_handle=h)))
        print(list(kvs.walk(kvs.get_dir(h, "t"))))
        print(kvs.get_dir(h, "t").list_all(), "x" in kvs.get_dir(h, "t"), kvs.join("a", "", "b"))
        kvs.namespace_create(h, "own")
        kvs.put(h, "k", 5)
        kvs.commit_async(h, namespace="own").get()
        print(kvs.get(h, "k", namespace="own"), kvs.exists(h, "k"), "own" in kvs.namespace_list(h))
        kvs.namespace_remove(h, "own")
        seen = []
        watch = kvs.kvs_watch_async(h, "w", waitcreate=True)
        def changed(future):
            seen.append(future.get())
            if len(seen) < 3:
                kvs.put(h, "w", len(seen) + 1)
                kvs.commit(h)
            elif len(seen) == 3:
                future.cancel()
        watch.then(changed)
        kvs.put(h, "w", 1)
        kvs.commit(h)
        h.reactor_run()
        print(seen)
        """
    )
    assert lines == [
        "[('', ['y'], ['x']), ('y', [], ['z'])]",
        "[('y', [], ['z']), ('', ['y'], ['x'])]",
        "(['x'], ['y']) True a.b",
        "5 False True",
        "[1, 2, 3, None]",
    ]


def test_output_results_and_entries_of_jobs():
    lines = run(
        """
        i = j.submit(h, j.JobspecV1.from_command(["sh", "-c", "echo out $FLUX_TASK_RANK; echo err >&2"], num_tasks=2))
        j.result_async(h, i).then(lambda future: print(future.get_info().result, future.get_dict()["waitstatus"]))
        h.reactor_run()
        print(sorted(j.output_watch_lines(h, i, labelio=True)))
        print(sorted(j.output_watch(h, i, tasks="1", nowait=True)))
        print(j.job_output(h, i, tasks="0"))
        entry = j.job_kvs_lookup(h, i, keys=["jobspec", "R"])
        print(entry["id"] == i, entry["jobspec"]["version"], entry["R"]["version"], j.job_kvs_lookup(h, 1))
        print("environment" in j.job_kvs_lookup(h, i, original=True)["jobspec"]["attributes"]["system"])
        lookup = j.JobKVSLookup(h, [i, 1], keys=["R"], decode=False)
        print([type(entry["R"]).__name__ for entry in lookup.data()], len(lookup.errors))
        print(sorted(j.job_kvs_guest(h, i).files()))
        stats = j.JobStats(h).update_sync()
        print(stats.inactive, stats.successful, stats.failed, stats.active)
        line = j.JobInfoFormat("{status:>10} {ntasks}")
        print(line.fields, line.header(), line.format(next(j.job_list(h).get_jobinfos())))
        """
    )
    assert lines == [
        "COMPLETED 0",
        "[('stderr', '0: err'), ('stderr', '1: err'), ('stdout', '0: out 0'), ('stdout', '1: out 1')]",
        "[('stderr', 'err\\n'), ('stdout', 'out 1\\n')]",
        "JobOutput(stdout='out 0\\n', stderr='err\\n', log='')",
        "True 1 1 None",
        "True",
        "['str'] 1",
        "['output']",
        "1 1 0 0",
        "['status', 'ntasks']     STATUS NTASKS  COMPLETED 2",
    ]


def test_the_journal_gives_the_past_in_order_and_then_the_present():
    lines = run(
        """
        ids = [j.submit(h, j.JobspecV1.from_command(["true"])) for _ in range(2)]
        for i in ids:
            j.result(h, i)
        journal = j.JournalConsumer(h, include_sentinel=True).start()
        past = []
        while not (event := journal.poll(10)).is_empty():
            past.append(event)
        print([e.name for e in past].count("clean"), past == sorted(past, key=lambda e: e.timestamp))
        print({e.jobid for e in past} == set(ids), past[0].jobspec["version"])
        i = j.submit(h, j.JobspecV1.from_command(["true"]))
        while (event := journal.poll(10)).name != "alloc":
            pass
        print(event.jobid == i, event.R["version"])
        journal.stop()
        while journal.poll(10) is not None:
            pass
        print("over")
        """
    )
    assert lines == ["2 True", "True 1", "True 1", "over"]


def test_events_services_and_futures_of_ones_own():
    lines = run(
        """
        import flux.future, flux.constants as c
        from flux.message import Message
        h.event_subscribe("tick")
        h.event_send("tick.1", {"n": 1})
        h.send(h.event_create("tick.2", {"n": 2}))
        print(h.event_recv().payload, h.recv(c.FLUX_MSGTYPE_EVENT, topic_glob="tick.*").payload_str)
        h.service_register("mine").get()
        def double(handle, watcher, msg, args):
            handle.respond(msg, {"n": 2 * msg.payload["n"]})
        with h.msg_watcher_create(double, c.FLUX_MSGTYPE_REQUEST, "mine.double"):
            answers = [h.rpc("mine.double", {"n": 4}), h.rpc("mine.nosuch", {})]
            flux.future.WaitAllFuture(answers).then(lambda _: h.reactor_stop())
            h.reactor_run()
            print(answers[0].get(), answers[1].error_string())
        own = flux.future.FutureExt(
            lambda future: future.get_flux().timer_watcher_create(0.01, lambda *_: future.fulfill(7)).start(),
            flux_handle=h,
        )
        print(own.is_ready(), own.get(), own.is_ready())
        failed = flux.future.FutureExt(lambda future: future.fulfill_error(2, "gone"), flux_handle=h)
        failed.then(lambda future: print(future.error_string()))
        h.reactor_run()
        """
    )
    assert lines == ["{'n': 1} {\"n\": 2}", "{'n': 8} Function not implemented", "False 7 True", "gone"]


def test_resource_sets_and_host_lists_are_cut_and_changed():
    lines = run(
        """
        from flux.hostlist import Hostlist
        from flux.idset import IDset
        from flux.resource import ResourceSet, resource_list
        r = ResourceSet(
            {"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}],
             "nodelist": ["n[0-3]"], "starttime": 0.0, "expiration": 5.0}}
        )
        r.set_property("fast", "1-2")
        print(r.copy_constraint({"properties": ["fast"]}).ranks, r.get_properties(), r.host_ranks("n[1,3]"))
        r.remove_ranks("0").expiration = 9
        print(r.nodelist, r.to_dict()["execution"]["expiration"], r.add(r).ncores)
        listing = resource_list(h).get()
        print(listing.filter("0").all.nnodes, listing.filter("7").all.nnodes, listing.filter("nosuch").all.nnodes)
        hosts = Hostlist("a[0-3]")
        print(hosts[IDset("1,3")], hosts[1:], hosts.index("a2"), hosts.index("a[1,9]", ignore_nomatch=True))
        """
    )
    assert lines == ['1-2 {"fast": "1-2"} [1, 3]', "n[1-3] 9.0 6", "1 0 0", "a[1,3] a[1-3] 2 [1]"]


def test_instances_are_found_from_processes_and_addresses():
    lines = run(
        """
        from flux.uri import FluxURIResolver, JobURI
        pid = h.attr_get("broker.pid")
        print(FluxURIResolver().resolve(f"pid:{pid}").local == h.attr_get("local-uri"))
        print(JobURI("ssh://host/a/b").local, JobURI("ssh://host/a/b").netloc, JobURI("ssh://host/a/b").remote)
        try:
            FluxURIResolver().resolve("pid:0")
        except ValueError as exc:
            print(exc)
        """
    )
    assert lines == ["True", "local:///a/b host ssh://host/a/b", "No such file or directory: '/proc/0/environ'"]
