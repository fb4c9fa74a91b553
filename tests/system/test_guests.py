"""Another user at the local socket (RFC 12): let in only where the configuration says so, and a guest in everything.

The guest is a process of this test that gave its privileges away, so what the broker sees is what the kernel tells it.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bootstrapped import Cluster, cluster, until

from headrace.formats.spec import message as m
from headrace.wire.client.handle import Handle

GUEST = 65534

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")


def as_guest(uri: str, ask: Callable[[Handle], Any], uid: int = GUEST) -> Any:
    """What `ask` returns in a process of user `uid`; ["errno", N] when it raises OSError."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            try:
                answer = ask(Handle(uri))
            except OSError as exc:
                answer = ["errno", exc.errno]
            os.write(writer, json.dumps(answer).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return json.loads(data)


def refused(handle: Handle, topic: str, body: object, streaming: bool = False) -> int:
    """The errno that a request is refused with, 0 when it is not."""
    try:
        handle.rpc(topic, body, flags=m.FLAG_STREAMING if streaming else 0).get(60)
    except OSError as exc:
        return exc.errno or 0
    return 0


@contextlib.contextmanager
def instance(access: str, size: int = 1) -> Iterator[Cluster]:
    """A lead that others can reach: its run directory is open, as that of a system instance is."""
    with cluster(size, f"broker.quorum={size}") as brokers:
        os.chmod(brokers.folder, 0o755)
        run = Path(brokers.folder, "run")
        with open(brokers.config, "a") as config:
            config.write(f"[access]\n{access}\n")
        for rank in range(1, size):
            brokers.broker(rank)
        run.mkdir()
        run.chmod(0o755)
        brokers.options.append(f"-Srundir={run}")
        brokers.lead()
        yield brokers
        assert brokers.finish()[0] == 0


def hello(handle: Handle) -> str:
    return handle.attr_get("size")


def test_another_user_is_not_let_in_unless_the_configuration_says_so():
    for access in ("", "allow-guest-user = false", "allow-root-owner = true"):
        with instance(access) as brokers:
            assert as_guest(brokers.uri, hello) == ["errno", errno.EPERM], access
            assert as_guest(brokers.uri, hello, os.getuid()) == "1"


def test_a_reloaded_configuration_lets_guests_in_and_out():
    with instance("allow-guest-user = false") as brokers:
        text = Path(brokers.config).read_text()
        for allowed, answer in (("true", "1"), ("false", ["errno", errno.EPERM])):
            Path(brokers.config).write_text(text.replace("allow-guest-user = false", f"allow-guest-user = {allowed}"))
            assert brokers.flux("config", "reload").returncode == 0
            assert as_guest(brokers.uri, hello) == answer


OWNERS = [
    ("attr.set", {"name": "user.x", "value": "y"}),
    ("attr.rm", {"name": "user.x"}),
    ("broker.getenv", {"names": ["PATH"]}),
    ("broker.setenv", {"env": {"X": "y"}}),
    ("config.load", {}),
    ("config.reload", {}),
    ("content.store", {}),
    ("content.load", {"hash": "sha1-0"}),
    ("groups.join", {"name": "x"}),
    ("groups.update", {"update": {}}),
    ("job-exec.launch", {}),
    ("job-exec.up", {}),
    ("job-ingest.shutdown", {}),
    ("job-manager.submit", {"jobs": []}),
    ("job-manager.drain", {}),
    ("job-manager.purge", {"age_limit": 0.0}),
    ("job-manager.queue-start", {"start": False, "all": True}),
    ("job-manager.queue-enable", {"enable": False, "all": True}),
    ("job-manager.sched-hello", {}),
    ("job-manager.exec-hello", {}),
    ("job-store.lookup", {"path": "x"}),
    ("job-store.append", {"logs": []}),
    ("kvs.namespace-create", {"namespace": "x", "owner": GUEST, "flags": 0}),
    ("kvs.dropcache", {}),
    ("log.clear", {}),
    ("module.load", {"path": "heartbeat", "args": []}),
    ("module.remove", {"name": "kvs"}),
    ("module.debug", {"name": "kvs", "op": "get"}),
    ("overlay.disconnect-subtree", {"rank": 1}),
    ("resource.acquire", {}),
    ("resource.drain", {"targets": "0"}),
    ("resource.reload", {}),
    ("rexec.exec", {"cmd": {"cmdline": ["true"], "cwd": "/", "env": {}, "opts": {}, "channels": []}, "flags": 0}),
    ("rexec.list", {}),
    ("rexec.kill", {"pid": 1, "signum": 0}),
    ("sched.alloc", {}),
    ("sched.stats-clear", {}),
    ("service.add", {"service": "mine"}),
    ("shutdown.start", {}),
    ("kvs.debug", {}),
    ("kvs.shutdown", {}),
]


def test_a_guest_may_look_but_not_touch():
    def ask(handle: Handle) -> dict[str, int]:
        return {topic: refused(handle, topic, body) for topic, body in OWNERS}

    def look(handle: Handle) -> dict[str, int]:
        topics = ["broker.ping", "module.list", "overlay.health", "resource.status", "config.get", "job-list.list"]
        return {topic: refused(handle, topic, {"attrs": [], "max_entries": 0}) for topic in topics}

    with instance("allow-guest-user = true") as brokers:
        answers = as_guest(brokers.uri, ask)
        assert {topic: code for topic, code in answers.items() if code != errno.EPERM} == {}
        assert set(as_guest(brokers.uri, look).values()) == {0}


def test_what_a_guest_says_of_itself_does_not_count():
    """The credential in a message is the owner's to choose (for tests and gateways), not a guest's."""

    def ask(_handle: Handle) -> Any:
        os.environ.update(FLUX_HANDLE_USERID=str(os.getuid() + 1), FLUX_HANDLE_ROLEMASK=str(m.ROLE_OWNER))
        with Handle(brokers.uri) as claims:
            body = claims.rpc("broker.ping", {}).get(60)
        return [body["userid"], body["rolemask"]]

    with instance("allow-guest-user = true") as brokers:
        assert as_guest(brokers.uri, ask) == [GUEST, m.ROLE_USER | m.ROLE_LOCAL]


def test_a_guests_events_move_no_service():
    """Everybody may publish, but services listen to the owner's events only (RFC 12)."""

    def ask(handle: Handle) -> list[int]:
        codes = []
        for topic, body in (
            ("broker.state", {"state": "shutdown"}),
            ("job-purge-inactive", {"jobs": [job]}),
            ("kvs.stats-clear", {}),
            ("heartbeat.pulse", {}),
        ):
            payload = base64.b64encode(json.dumps(body).encode()).decode()
            codes.append(refused(handle, "event.publish", {"topic": topic, "flags": 0, "payload": payload}))
            sent = m.event(topic, body)
            handle.send(sent)
        refused(handle, "broker.ping", {})
        return codes

    with instance("allow-guest-user = true", 2) as brokers:
        job = int(brokers.flux("job", "id", brokers.flux("submit", "true").stdout.strip()).stdout)
        assert brokers.flux("job", "wait-event", str(job), "clean").returncode == 0
        as_guest(brokers.uri, ask)
        assert brokers.flux("run", "-N2", "echo", "alive").stdout == "alive\nalive\n"
        assert brokers.health() == ("full", {1: "full"})
        assert brokers.flux("jobs", "-ano", "{id.dec}").stdout.split()[-1] == str(job)


def test_a_guest_sees_and_ends_no_job_of_another():
    def ask(handle: Handle) -> list[int]:
        wishes: list[tuple[str, dict[str, object], bool]] = [
            ("job-manager.raise", {"id": job, "severity": 0, "type": "cancel", "note": ""}, False),
            ("job-manager.kill", {"id": job, "signum": 15}, False),
            ("job-manager.urgency", {"id": job, "urgency": 0}, False),
            ("job-manager.memo", {"id": job, "memo": {"a": 1}}, False),
            ("job-manager.update", {"id": job, "updates": {"attributes.system.duration": 1.0}}, False),
            ("job-manager.events-journal", {}, True),
            ("job-info.lookup", {"id": job, "keys": ["J"], "flags": 0}, False),
            ("job-info.lookup", {"id": job, "keys": ["guest.output"], "flags": 0}, False),
            ("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0}, True),
            ("job-info.eventlog-watch", {"id": job, "path": "guest.output", "flags": 0}, True),
            ("job-info.update-watch", {"id": job, "key": "R", "flags": 0}, True),
            ("kvs.lookup", {"key": "job", "namespace": "primary", "flags": 0}, False),
            ("kvs-watch.lookup", {"key": "resource.R", "namespace": "primary", "flags": 4}, True),
            ("kvs.commit", {"namespace": "primary", "ops": [], "flags": 0}, False),
            ("kvs.getroot", {"namespace": "primary"}, False),
        ]
        return [refused(handle, *wish) for wish in wishes]

    def shell(handle: Handle) -> list[int]:
        name = f"{owner}-shell-f{text[1:]}"
        return [refused(handle, f"{name}.stdin", {}), refused(handle, f"{name}.eventlog", {})]

    def cancel_all(handle: Handle) -> Any:
        body = {"dry_run": False, "userid": -1, "states": 63, "severity": 0, "type": "cancel"}
        return refused(handle, "job-manager.raiseall", body)

    with instance("allow-guest-user = true") as brokers:
        text = brokers.flux("submit", "sleep", "300").stdout.strip()
        job = int(brokers.flux("job", "id", text).stdout)
        assert brokers.flux("job", "wait-event", text, "shell.start", "-p", "exec").returncode == 0
        assert as_guest(brokers.uri, ask) == [errno.EPERM] * 15
        owner = os.getuid()
        assert errno.EPERM in as_guest(brokers.uri, shell)
        assert 0 not in as_guest(brokers.uri, shell)
        as_guest(brokers.uri, cancel_all)
        assert brokers.flux("jobs", "-no", "{state}").stdout.strip() == "RUN"
        brokers.flux("cancel", "--all")
        until(lambda: not brokers.flux("jobs", "-no", "{id}").stdout, "the job is over")


# What tells of jobs or of their number beside the services of jobs.
MODULES = "broker connector-local content job-exec job-info job-ingest kvs overlay rexec sched sched-fluxion-qmanager"
STATISTICS: list[tuple[str, dict[str, object]]] = [
    *((f"{name}.stats-get", {}) for name in MODULES.split()),
    ("sched-fluxion-resource.stats-get", {}),
    ("sched-fluxion-resource.info", {"jobid": 1}),
    ("sched-fluxion-resource.find", {"criteria": "sched-now=allocated"}),
]


def test_in_private_mode_a_guest_does_not_see_that_there_are_jobs():
    attrs = ["id", "userid"]

    def ask(handle: Handle) -> list[Any]:
        listing = {"max_entries": 0, "attrs": attrs, "constraint": {"states": [127]}}
        wishes: list[tuple[str, dict[str, object]]] = [
            ("job-list.list-id", {"id": job, "attrs": attrs}),
            ("job-list.list-id", {"id": job, "attrs": attrs, "state": 64}),
            ("job-list.job-stats", {}),
            ("job-list.stats-get", {}),
            ("job-manager.stats-get", {}),
            ("job-manager.getinfo", {}),
            ("job-manager.getattr", {"id": job, "attrs": ["jobspec"]}),
            ("job-manager.getattr", {"id": 1, "attrs": ["jobspec"]}),
        ]
        codes = [refused(handle, *wish) for wish in wishes]
        told = [topic for topic, body in STATISTICS if refused(handle, topic, body) != errno.EPERM]
        assert bool(told) == (codes[2] == 0), told
        listed = [handle.rpc(topic, body).get(60)["jobs"] for topic, body in (("job-list.list", listing), everyone)]
        return [codes, *listed]

    everyone = ("job-manager.list", {"max_entries": 0})
    name = pwd.getpwuid(GUEST).pw_name
    for access, codes in (
        ("private-mode = true", [errno.ENOENT] * 2 + [errno.EPERM] * 6),
        ("private-mode = false", [0] * 6 + [errno.EPERM, errno.ENOENT]),
        (f"private-mode = true\nroles.admin.users = ['{name}']", [0] * 6 + [errno.EPERM, errno.ENOENT]),
    ):
        with instance(f"allow-guest-user = true\n{access}") as brokers:
            text = brokers.flux("submit", "true").stdout.strip()
            job = int(brokers.flux("job", "id", text).stdout)
            brokers.flux("job", "wait-event", text, "clean")
            until(lambda: brokers.flux("jobs", "-ano", "{status}").stdout == "COMPLETED\n", "the job is listed as over")
            held = brokers.flux("submit", "--urgency=hold", "true").stdout.strip()
            seen = as_guest(brokers.uri, ask)
            assert seen[0] == codes
            assert [len(jobs) for jobs in seen[1:]] == ([2, 1] if codes[0] == 0 else [0, 0])
            brokers.flux("cancel", held)


def test_a_guest_submits_no_job_that_would_run_as_the_owner():
    def ask(handle: Handle) -> list[int]:
        codes = []
        for uid in (0, GUEST):
            head = base64.b64encode(f"version\0i1\0userid\0i{uid}\0mechanism\0snone\0".encode()).decode()
            codes.append(refused(handle, "job-ingest.submit", {"J": f"{head}.{spec}.none", "urgency": 16, "flags": 0}))
        return codes

    with instance("allow-guest-user = true") as brokers:
        spec = base64.b64encode(brokers.flux("submit", "--dry-run", "id", "-u").stdout.encode()).decode()
        codes = as_guest(brokers.uri, ask)
        assert codes[0] == errno.EPERM
        out = brokers.flux("jobs", "-ano", "{userid} {status}").stdout
        assert codes[1] != 0, out
        assert out == ""


def test_where_the_configuration_says_so_a_guests_jobs_run_as_the_owner_and_are_the_guests() -> None:
    def submit(handle: Handle) -> int:
        for uid in (0, GUEST):
            head = base64.b64encode(f"version\0i1\0userid\0i{uid}\0mechanism\0snone\0".encode()).decode()
            body = {"J": f"{head}.{spec}.none", "urgency": 16, "flags": 0}
            if uid != GUEST:
                assert refused(handle, "job-ingest.submit", body) == errno.EPERM
        return int(handle.rpc("job-ingest.submit", body).get(60)["id"])

    def look(handle: Handle) -> list[Any]:
        output = handle.rpc("job-info.lookup", {"id": mine, "keys": ["guest.output"], "flags": 0}).get(60)
        cancel = {"severity": 0, "type": "cancel", "note": ""}
        return [
            output["guest.output"],
            refused(handle, "job-info.lookup", {"id": owners, "keys": ["guest.output"], "flags": 0}),
            refused(handle, "job-manager.raise", {"id": owners, **cancel}),
            refused(handle, "job-manager.raise", {"id": mine, **cancel}),
        ]

    with instance('allow-guest-user = true\n[headrace.guests]\nsubmit = "as-owner"') as brokers:
        owners = int(brokers.flux("job", "id", brokers.flux("submit", "sleep", "1000").stdout).stdout)
        script = "id -u; exec sleep 1000"
        spec = base64.b64encode(brokers.flux("submit", "--dry-run", "sh", "-c", script).stdout.encode()).decode()
        mine = as_guest(brokers.uri, submit)
        assert brokers.flux("job", "wait-event", "-p", "output", str(mine), "data").returncode == 0
        output, *codes = as_guest(brokers.uri, look)
        assert f'"data":"{os.getuid()}\\n"' in output
        assert codes == [errno.EPERM, errno.EPERM, 0]
        assert brokers.flux("job", "wait-event", str(mine), "clean").returncode == 0
        listed = brokers.flux("jobs", "-Aano", "{id.dec} {userid} {status}").stdout.splitlines()
        assert sorted(listed) == sorted([f"{owners} {os.getuid()} RUN", f"{mine} {GUEST} CANCELED"])
        brokers.flux("cancel", str(owners))


def test_commands_in_a_guests_job_are_about_the_guests_jobs_and_its_instance_is_its_own() -> None:
    def submit(handle: Handle) -> int:
        head = base64.b64encode(f"version\0i1\0userid\0i{GUEST}\0mechanism\0snone\0".encode()).decode()
        body = {"J": f"{head}.{spec}.none", "urgency": 16, "flags": 0}
        return int(handle.rpc("job-ingest.submit", body).get(60)["id"])

    def encoded(*argv: str) -> str:
        return base64.b64encode(brokers.flux(*argv).stdout.encode()).decode()

    with instance('allow-guest-user = true\n[headrace.guests]\nsubmit = "as-owner"') as brokers:
        owners = brokers.flux("submit", "sleep", "1000").stdout.strip()
        # The job is one of those that it cancels.
        inner = "flux submit --urgency=hold true; flux cancel --all; exec sleep 1000"
        spec = encoded("submit", "--dry-run", "sh", "-c", inner)
        one = as_guest(brokers.uri, submit)
        assert brokers.flux("job", "wait-event", str(one), "clean").returncode == 0
        found = brokers.flux("jobs", "-Aano", "{userid} {status_abbrev}").stdout.splitlines()
        assert sorted(found) == sorted([f"{os.getuid()} R", f"{GUEST} CA", f"{GUEST} CA"])

        inner = "flux run echo of the inner; flux getattr size"
        spec = encoded("submit", "--dry-run", "flux", "broker", "sh", "-c", inner)
        nested = as_guest(brokers.uri, submit)
        assert brokers.flux("job", "wait-event", str(nested), "clean").returncode == 0
        assert brokers.flux("job", "attach", str(nested)).stdout == "of the inner\n1\n"
        brokers.flux("cancel", owners)
