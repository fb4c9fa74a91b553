"""`import flux` against a real instance, from this Python and, where there is one, from Python 3.8."""

from __future__ import annotations

import ast
import glob
import os
import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "system"))
from instance import start


def run(code: str, python: str = "flux python") -> list[str]:
    """The lines that `code` prints inside an instance of one broker."""
    program = "import flux, flux.job as j\nh = flux.Flux()\n" + textwrap.dedent(code)
    done = start(f"cd $TMPDIR && cat > p.py <<'EOF'\n{program}\nEOF\n{python} p.py; rm p.py")
    assert done.rc == 0, done.err
    return done.out.splitlines()


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
            print([future.result(30) for future in futures], futures[0].jobid() > 0)
            try:
                executor.submit(j.JobspecV1.from_command(["nosuch"])).result(30)
            except j.JobException as exc:
                print(exc.type, "start failed: nosuch" in exc.note)
        print(seen)
        """
    )
    assert lines == ["[0, 1, 2] True", "exec True", "[0]"]


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
    folder = os.path.join(os.path.dirname(__file__), "..", "..", "src", "headrace", "compat", "python", "flux")
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
