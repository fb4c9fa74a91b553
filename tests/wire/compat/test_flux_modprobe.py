"""`flux.modprobe` and `flux modprobe run`: files that load and remove an instance's modules."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "system"))
sys.path.insert(0, os.path.dirname(__file__))
from bindings import run
from flux.modprobe import Task, plan, task
from instance import start

# Startup and shutdown as test suites have them: fake resources, a store of blobs, arguments by service.
_RC1 = """
import subprocess
from flux.modprobe import task
import flux.kvs

def setup(context):
    context.setopt("resource", "noverify")
    context.setopt("sched", "mode=limited=8")
    context.load_modules(["sched", "job-exec", "resource", "job-list", "job-info", "job-ingest", "job-manager"])
    context.load_modules(["heartbeat", "kvs-watch", "kvs", "content-backing", "content"])
    context.set("cores", 3)

@task("resources", ranks="0", after=["kvs"], before=["resource"])
def resources(context):
    last = int(context.attr_get("size")) - 1
    made = subprocess.check_output(["flux", "R", "encode", f"-r0-{last}", f"-c0-{context.get('cores') - 1}"])
    flux.kvs.put(context.handle, "resource.R", made.decode(), raw=True)
    flux.kvs.commit(context.handle)

@task("without-other", needs=["without-one"])
@task("without-one", needs=["of-no-rank"])
@task("of-no-rank", ranks=">1")
@task("without-attribute", needs_attrs=["nosuch"])
@task("without-module", needs=["cron"])
def never(context):
    raise RuntimeError("not for this broker")
"""
_RC3 = """
from flux.modprobe import task

def setup(context):
    context.remove_modules()

@task("flush", ranks="0", after=["kvs"], before=["content-backing"], needs=["kvs"])
def flush(context):
    context.rpc("content.flush").get()
"""


def tasks(**options: dict) -> dict:
    return {name: Task(name, print, **given) for name, given in options.items()}


def test_tasks_run_between_the_modules_that_they_name_and_stars_first_and_last() -> None:
    among = tasks(b={"after": ["kvs"], "before": ["sched"]}, last={"after": ["*"]}, first={"before": ["*"]})
    assert plan(["content", "kvs", "sched-simple"], among) == ["first", "content", "kvs", "b", "sched-simple", "last"]


def test_tasks_that_wait_for_each_other_have_no_order() -> None:
    with pytest.raises(ValueError, match="each of these waits for another: a, b"):
        plan(["kvs"], tasks(a={"after": ["b"]}, b={"after": ["a"]}))


def test_an_option_that_tasks_have_not_is_refused() -> None:
    with pytest.raises(ValueError, match="one: unknown task argument rank"):
        task("one", rank="0")


def test_an_instance_starts_and_ends_by_files(tmp_path: Path) -> None:
    for name, text in (("rc1.py", _RC1), ("rc3.py", _RC3)):
        (tmp_path / name).write_text(text)
    scripts = [f"-Sbroker.{rc}_path=flux modprobe run {tmp_path}/{rc}.py" for rc in ("rc1", "rc3")]
    program = f"flux run -n6 echo task; flux modprobe run --dry-run {tmp_path}/rc3.py | tail -n4"
    done = start("-s2", *scripts, program)
    assert (done.rc, done.left) == (0, []), done.err
    assert done.out.split() == ["task"] * 6 + ["kvs", "flush", "content-sqlite", "content"]


def test_what_fails_is_named_and_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "rc.py"
    path.write_text(
        textwrap.dedent(
            """
            from flux.modprobe import task
            @task("failing")
            def failing(context):
                raise RuntimeError("out of luck")
            @task("next", after=["failing"])
            def after(context):
                print("not reached")
            """
        )
    )
    done = start(f"flux modprobe run {path}; echo $?; flux modprobe run {tmp_path}/nosuch.py; echo $?")
    assert done.out.split() == ["1", "1"]
    assert done.err.splitlines() == [
        "flux-modprobe: ERROR: failing: out of luck",
        f"flux-modprobe: {tmp_path}/nosuch.py: No such file",
    ]


def test_what_is_run_is_told_where_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "rc.py"
    path.write_text("from flux.modprobe import task\n@task('one')\ndef one(context):\n    context.print('hello')\n")
    done = start(f"flux modprobe run {path}; echo told >&2; flux modprobe run --verbose {path}")
    assert done.err.splitlines() == ["told", "one", "hello"]


def test_the_loaded_modules_and_their_services_are_listed() -> None:
    lines = run(
        """
        from flux.modprobe import ModuleList
        modules = ModuleList(h)
        print("kvs" in modules, "broker" in modules, list(modules) == modules.loaded_modules)
        print(modules.lookup("sched"), modules.lookup("content-backing"), modules.lookup("nosuch"))
        """
    )
    assert lines == ["True False True", "sched-graph content None"]
