"""Modules in processes of their own: nothing about them differs from modules in the broker, until they die."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from instance import start

PROBE = str(Path(__file__).with_name("probe_module.py"))
_HEAD = f"""
import errno, json, os, select, signal, subprocess, sys, time
from headrace.wire.client.handle import Handle
h = Handle()
result = {{}}
PROBE = {PROBE!r}

def rpc(topic, obj=None, **more):
    return h.rpc(topic, obj, **more).get()

def fails(topic, obj=None):
    try:
        rpc(topic, obj)
    except OSError as exc:
        return [exc.errno, exc.strerror]
    return None

def load(*args, **more):
    return rpc("module.load", {{"path": PROBE, "args": list(args), "exec": True, **more}})

def modules():
    return {{mod["name"]: mod for mod in rpc("module.list")["mods"]}}

def wait_until(met):
    deadline = time.monotonic() + 60
    while not met() and time.monotonic() < deadline:
        time.sleep(0.01)
"""


def inside(body: str, *options: str, **env: str) -> Any:
    """What `body`, run as the initial program of an instance, left in `result`; nothing else may be left."""
    script = _HEAD + textwrap.dedent(body) + "\nprint(json.dumps(result))\n"
    done = start(*options, "flux", "python", "-c", script, **env)
    assert done.rc == 0, done.err
    assert not done.left
    return json.loads(done.out.splitlines()[-1])


def test_a_module_sees_the_same_context_as_in_its_broker():
    body = """
    for how in (True, False):
        rpc("module.load", {"path": PROBE, "args": ["a", "b"], "exec": how})
        told = rpc("probe.tell")
        told["own"] = told.pop("pid") != int(rpc("attr.get", {"name": "broker.pid"})["value"])
        told["uri"] = told["uri"] == os.environ["FLUX_URI"]
        stream = h.rpc("probe.ticks", flags=0x40)
        told["ticks"] = [stream.get()["tick"] for _ in range(3)]
        told["slow"] = rpc("probe.slow", {"x": "é"})
        told["ping"] = sorted(rpc("probe.ping", {"seq": 1}))
        told["hops"] = rpc("probe.ping", {"seq": 1})["route"].count("!")
        told["unknown"] = fails("probe.nosuch")
        told["stats"] = rpc("probe.stats-get")
        told["debug"] = [rpc("module.debug", {"name": "probe", "op": "setbit", "flags": 5}), rpc("probe.debug", {})]
        told["rusage"] = sorted(rpc("probe.rusage"))
        told["list"] = [modules()["probe"][key] for key in ("name", "path", "status", "services", "recvqueue")]
        rpc("module.remove", {"name": "probe"})
        told["gone"] = ["probe" in modules(), fails("probe.echo")]
        result[str(how)] = told
    """
    told = inside(body)
    apart, within = told["True"], told["False"]
    assert apart.pop("own") and not within.pop("own")
    assert apart == within
    assert apart["args"] == ["a", "b"] and apart["ticks"] == [0, 1, 2] and apart["slow"] == {"echo": {"x": "é"}}
    assert apart["gone"][0] is False and apart["gone"][1][0] == 38


def test_attributes_events_services_and_configuration_reach_it(tmp_path):
    config = tmp_path / "probe.toml"
    config.write_text("[probe]\nlimit = 1\n")
    body = f"""
    config = {str(config)!r}
    load()
    result["color"] = [rpc("probe.tell")["color"]]
    rpc("attr.set", {{"name": "user.color", "value": "red"}})
    result["color"].append(rpc("probe.tell")["color"])
    rpc("attr.rm", {{"name": "user.color"}})
    result["color"].append(rpc("probe.tell")["color"])
    rpc("probe.shout", {{"text": "hear, hear"}})
    wait_until(lambda: rpc("probe.tell")["heard"])
    result["heard"] = rpc("probe.tell")["heard"]
    rpc("probe.service", {{"add": True}})
    wait_until(lambda: fails("probe-more.hello") is None)
    result["more"] = [rpc("probe-more.hello"), modules()["probe"]["services"]]
    rpc("probe.service", {{"add": False}})
    wait_until(lambda: fails("probe-more.hello"))
    result["limit"] = [rpc("probe.tell")["limit"]]
    for limit in (2, -1):
        open(config, "w").write(f"[probe]\\nlimit = {{limit}}\\n")
        result["limit"] += [fails("config.reload"), rpc("probe.tell")["limit"]]
    other = Handle()
    stream = other.rpc("probe.ticks", flags=0x40)
    stream.get()
    other.close()
    wait_until(lambda: rpc("probe.tell")["left"])
    result["left"] = rpc("probe.tell")["left"]
    result["log"] = subprocess.run(["flux", "dmesg"], capture_output=True, text=True).stdout
    """
    told = inside(body, f"-c{config}")
    assert told["color"] == ["", "red", ""]
    assert told["heard"] == [["probe.shouted", {"text": "hear, hear"}]]
    assert told["more"] == [{"hello": "more"}, ["probe", "probe-more"]]
    assert told["limit"] == [1, None, 2, [22, "error updating probe: probe.limit must not be negative"], 2]
    assert told["left"] == 1
    assert "probe.err[0]: hear, hear\n" in told["log"] and "hear, hear on stderr" in told["log"]


def test_a_load_that_fails_says_why_and_leaves_nothing():
    body = """
    result["why"] = [fails("module.load", {"path": path, "args": [arg], "exec": True}) for path, arg in (
        (PROBE, "refuse"), (PROBE, "break"), (PROBE, "taken"), ("nosuch", ""), ("/nosuch.py", ""), ("job-exec", ""))]
    result["died"] = fails("module.load", {"path": PROBE, "args": ["die"], "exec": True})
    result["twice"] = [load(), fails("module.load", {"path": PROBE, "args": [], "exec": True})]
    result["named"] = fails("module.load", {"path": PROBE, "args": [], "exec": True, "name": "other"})
    rpc("module.remove", {"name": "probe"})
    load(name="other")
    result["other"] = modules()["other"]["services"]
    """
    told = inside(body)
    why = told["why"]
    assert why[0] == [33, "this module refuses to load"]
    assert why[1] == [22, "LookupError: nothing there"]
    assert why[2][0] == 17 and "kvs" in why[2][1]
    assert why[3] == why[4] == [2, "module not found in search path"]
    assert why[5] == [22, "module job-exec works in the broker's process only: load it without --exec"]
    assert told["died"][0] == 104 and "exited with status 3" in told["died"][1]
    assert told["twice"][1] == [17, "module probe is already loaded"]
    assert told["named"] == [17, "service probe is already registered"]
    assert sorted(told["other"]) == ["other", "probe"]


@pytest.mark.parametrize("how", ["kill", "die"])
def test_its_death_answers_who_waits_and_is_told_with_its_status(how):
    body = f"""
    load()
    waiting = [h.rpc("probe.hang"), h.rpc("probe.ticks", flags=0x40)]
    for _ in range(3):
        waiting[1].get()
    if {how!r} == "kill":
        os.kill(rpc("probe.tell")["pid"], signal.SIGKILL)
    else:
        waiting.append(h.rpc("probe.die"))
    result["waiting"] = []
    for request in waiting:
        try:
            request.get()
        except OSError as exc:
            result["waiting"].append([exc.errno, exc.strerror])
    result["after"] = fails("probe.echo")[0]
    wait_until(lambda: "probe" not in modules())
    result["listed"] = "probe" in modules()
    load()
    result["again"] = rpc("probe.echo", {{"x": 1}})
    result["log"] = subprocess.run(["flux", "dmesg"], capture_output=True, text=True).stdout
    """
    told = inside(body)
    assert told["waiting"] and all(answer == [38, "module probe ended"] for answer in told["waiting"])
    assert told["after"] == 38 and told["listed"] is False and told["again"] == {"x": 1}
    status = r"killed by signal 9 \(Killed\)" if how == "kill" else "exited with status 7"
    assert re.search(rf"broker\.err\[0\]: module probe: process \d+ {status}\n", told["log"])


def test_a_module_that_is_removed_unloads_first_and_one_that_shuts_down_is_removed():
    body = """
    load()
    waiting = h.rpc("probe.hang")
    rpc("module.remove", {"name": "probe"})
    result["waiting"] = None
    try:
        waiting.get()
    except OSError as exc:
        result["waiting"] = exc.errno
    load()
    h.rpc("probe.shutdown", flags=0x04)
    wait_until(lambda: "probe" not in modules())
    result["listed"] = "probe" in modules()
    result["log"] = subprocess.run(["flux", "dmesg"], capture_output=True, text=True).stdout
    """
    told = inside(body)
    assert told["waiting"] == 38 and told["listed"] is False
    assert told["log"].count("the probe says goodbye") == 2
    assert "module probe: process" not in told["log"]


@pytest.mark.parametrize("how", [True, False])
def test_a_trace_shows_what_a_module_receives_and_sends_until_it_is_canceled(how):
    body = f"""
    wanted = {{"names": ["probe"], "full": True, "typemask": 7, "topic_glob": "probe.*"}}
    trace = h.rpc("module.trace", wanted, flags=0x40)
    rpc("module.load", {{"path": PROBE, "args": [], "exec": {how}}})
    command = ["flux", "module", "trace", "-t", "response", "probe"]
    printed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    rpc("probe.echo", {{"x": 1}})
    fails("probe.nosuch")
    h.publish("probe.event")
    seen = [trace.get() for _ in range(5)]
    keys = ("prefix", "type", "topic", "payload_size", "payload", "errnum")
    result["seen"] = [[entry.get(key) for key in keys] for entry in seen]
    # The command may have come after those; it sees one of these.
    while not select.select([printed.stdout], [], [], 0.02)[0]:
        rpc("probe.echo", {{"x": 1}})
    result["printed"] = printed.stdout.readline()
    printed.kill()
    printed.wait()
    trace.cancel()
    result["ended"] = len([entry for entry in trace if entry["topic"] != "probe.echo"])
    """
    told = inside(body)
    assert told["ended"] == 0
    assert told["seen"] == [
        ["rx", 1, "probe.echo", 8, {"x": 1}, None],
        ["tx", 2, "probe.echo", 8, {"x": 1}, 0],
        ["rx", 1, "probe.nosuch", 0, None, None],
        ["tx", 2, "probe.nosuch", 32, None, 38],
        ["rx", 4, "probe.event", 0, None, None],
    ]
    assert re.fullmatch(r"\d+\.\d{6} probe tx < probe\.echo \[8\]\n", told["printed"])


_SIMPLE = "-Ssched.module=simple"
_JOBS = """
flux run -N2 hostname | wc -l
flux submit --quiet --cc=1-20 true; flux submit --quiet false; flux queue drain
flux jobs -a --filter=completed -no {status} | wc -l
flux jobs -a --filter=failed -no {name}
flux module list | awk '$1 == "sched-simple" || $1 == "job-list" {print $1, $3}' | sort
"""
_PRINTED = "2\n21\nfalse\njob-list R\nsched-simple R\n"


def test_jobs_run_with_scheduler_and_listing_loaded_as_processes():
    load = """
    for name in sched-simple job-list; do flux module remove $name; flux module load --exec $name; done
    """
    done = start("--test-size=2", _SIMPLE, load + _JOBS)
    assert done.out == _PRINTED
    assert not done.left


@pytest.mark.parametrize("size", ["--test-size=2", "--test-size=1"])
def test_jobs_run_when_the_configuration_puts_them_into_processes(size):
    jobs = _JOBS.replace("-N2 hostname", "-N2 hostname" if size[-1] == "2" else "-n2 hostname")
    done = start(size, _SIMPLE, '--conf=headrace.exec-modules=["sched-simple","job-list"]', jobs)
    assert done.out == _PRINTED
    assert not done.left


def test_every_module_that_can_be_apart_works_apart():
    apart = '["content","kvs","kvs-watch","resource","job-info","job-list","sched-simple","heartbeat"]'
    script = """
    flux run -N2 hostname | wc -l; flux kvs put a=1; flux kvs get a; flux resource list -no {nnodes}
    flux submit --wait -vvv true 2>&1 | grep -c clean; flux job eventlog $(flux job last) | grep -c clean
    """
    done = start("--test-size=2", _SIMPLE, f"--conf=headrace.exec-modules={apart}", script)
    assert done.out == "2\n1\n2\n0\n0\n1\n1\n", done.err
    assert not done.left


_SCHEDULERS_PID = (
    "from headrace.wire.client.handle import Handle; mods = Handle().rpc('module.list').get()['mods']; "
    "print(*[mod['pid'] for mod in mods if mod['name'].startswith('sched-')])"
)


def test_a_scheduler_that_is_killed_is_loaded_again_and_takes_up_its_jobs():
    script = """
    flux submit --quiet -n1 sleep 0.5
    kill -9 $(flux python -c "$PID"); flux submit --quiet -n1 true
    flux queue drain
    flux jobs -a -no {name}:{status} | sort
    """
    done = start("--test-size=1", script, PID=_SCHEDULERS_PID)
    assert done.out == "sleep:COMPLETED\ntrue:COMPLETED\n"
    assert "module sched-graph was loaded again" in done.err
    assert not done.left


def test_a_scheduler_that_ends_time_and_again_is_given_up():
    script = """
    for i in 1 2 3 4; do
        until pid=$(flux python -c "$PID") && test -n "$pid"; do sleep 0.05; done
        flux run true; kill -9 $pid
        while kill -0 $pid 2>/dev/null; do sleep 0.05; done
    done
    until flux dmesg | grep -q "not loaded again"; do sleep 0.05; done
    flux module load sched-graph && flux run true
    """
    done = start("--test-size=1", script, PID=_SCHEDULERS_PID)
    assert (done.rc, done.left) == (0, [])
    assert done.err.count("was loaded again") == 3 and done.err.count("is not loaded again") == 1


def test_kill_9_of_the_broker_ends_its_modules():
    script = "flux run true; kill -9 $(flux getattr broker.pid); sleep 30"
    done = start("--test-size=1", script)
    assert done.rc == 137
    assert not done.left
