"""`submit = "as-user"` of [headrace.guests]: jobs of two users in an instance of root that has two brokers.

The users are of the test's own (`machine`). What one of them tries on a job of the other is tried by a process of that
user, so it is the kernel, or the broker, that refuses it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.process import linux
from machine import BIN, INHERITED, PATH, Instance, Machine, machine, missing
from waiting import until

ALICE, BOB, NOBODY_KNOWN = 61001, 61002, 61999
CONFIG = '[access]\nallow-guest-user = true\n[headrace.guests]\nsubmit = "as-user"\n'

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


class World(Instance):
    """The instance, and what its users do in it."""

    def begun(self, user: str, script: str, *options: str) -> str:
        """The id of a job that has printed its first line."""
        job = self.out(user, f"flux submit {' '.join(options)} sh -c '{script}'")
        self.out(user, f"flux job wait-event -p output {job} data")
        return job

    def of(self, user: str, words: str) -> list[int]:
        """Processes of a user whose command line begins with `words`."""
        uid = self.machine.users[user]
        return [pid for pid in linux.processes() if linux.user_of(pid) == uid and _line(pid).startswith(words)]


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with machine({"alice": ALICE, "bob": BOB}) as made:
        here = World(made, CONFIG, 2)
        yield here
        here.close()


def test_tasks_are_processes_of_their_user_on_all_ranks(world: World) -> None:
    script = (
        'id -u; id -g; id -G; grep -E "^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)" /proc/self/status | cut -f2 | xargs; '
        "echo $HOME $USER $LOGNAME $SHELL; stat -c %u:%a $FLUX_JOB_TMPDIR; env | grep -c ^FLUX_HANDLE; "
        "stat -c %u /proc/$PPID; cat /proc/$PPID/cmdline | cut -c1-10; "
        "mktemp -p $FLUX_JOB_TMPDIR >/dev/null && echo made"
    )
    lines = world.out("alice", f"flux run -N2 -n2 --label-io sh -c '{script}'").splitlines()
    home = world.machine.folder / "home/alice"
    none = "0" * 16
    one = [
        str(ALICE),
        str(ALICE),
        f"{ALICE} {Machine.CREW}",
        f"{none} {none} {none} {none} 1",
        f"{home} alice alice /bin/bash",
        f"{ALICE}:700",
        "0",
        str(ALICE),
        "flux-shell",
        "made",
    ]
    for rank in ("0", "1"):
        assert [line.partition(": ")[2] for line in lines if line.startswith(f"{rank}: ")] == one
    # The owner's jobs are as ever.
    assert world.out("root", "flux run id -u") == "0"
    assert world.out("root", "flux jobs -Aano '{userid} {status_abbrev}' | sort -u") == f"0 CD\n{ALICE} CD"


def test_a_job_has_no_terminal_of_the_owner(world: World) -> None:
    # The controlling terminal is that of the session: with the owner's, a job could type into the owner's shell.
    script = "ps -o sid= -p $$ -p $PPID; echo $PPID; cut -d' ' -f7 /proc/$$/stat; : </dev/tty"
    done = world.sh("alice", f"flux run sh -c '{script.replace(chr(39), chr(34))}'")
    own, shells, pid, terminal = done.stdout.split()
    assert own == shells == pid and terminal == "0"
    assert "No such device or address" in done.stderr


def test_output_files_and_folders_are_made_as_the_user(world: World) -> None:
    home = world.machine.folder / "home/alice"
    world.out("alice", "flux run --output=out-{{id}}.txt --cwd=$HOME echo to a file")
    (file,) = home.glob("out-*")
    assert file.read_text() == "to a file\n" and file.stat().st_uid == file.stat().st_gid == ALICE
    # Where only root could write, a user's job writes nothing.
    there = world.machine.folder / "roots.txt"
    failed = world.sh("alice", f"flux run --output={there} echo x")
    assert failed.returncode and "Permission denied" in failed.stderr and not there.exists()
    secret = world.machine.folder / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    assert "Permission denied" in world.sh("alice", f"flux run cat {secret}").stderr
    assert "Permission denied" in world.sh("alice", f"flux run --input={secret} cat").stderr
    # A folder is gone when its job is.
    until(lambda: not list((world.machine.folder / "run").glob("jobtmp-*")))


def test_a_job_begins_at_home_and_a_directory_that_its_user_cannot_enter_fails_it(world: World) -> None:
    home = world.machine.folder / "home/alice"
    spec = json.loads(world.out("alice", "flux submit --dry-run pwd"))
    del spec["attributes"]["system"]["cwd"]
    job = world.out("alice", f"echo '{json.dumps(spec)}' | flux job submit")
    assert world.out("alice", f"flux job attach {job}") == str(home)
    closed = world.machine.folder / "roots"
    closed.mkdir(mode=0o700)
    for cwd, reason in ((closed, "Permission denied"), (home / "gone", "No such file or directory")):
        failed = world.sh("alice", f"flux run --cwd={cwd} pwd")
        assert failed.returncode == 1
        assert f"Could not change dir to {cwd}: {reason}" in failed.stderr
        assert "/tmp" not in failed.stdout + failed.stderr.replace(str(world.machine.folder), "")


def test_another_users_job_is_out_of_reach_by_any_road(world: World) -> None:
    script = (
        "umask 077; echo secret >$FLUX_JOB_TMPDIR/file; cd $FLUX_JOB_TMPDIR; "
        'python3 -c \'import socket; s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen(); '
        "print(flush=True); s.accept()'"
    )
    (world.machine.folder / "home/alice/job.sh").write_text(script)
    job = world.begun("alice", "exec sh $HOME/job.sh", "--env=SECRET=x")
    (task,) = world.of("alice", "python3 -c")
    (shell,) = world.of("alice", "flux-shell")
    (tmpdir,) = (world.machine.folder / "run").glob("jobtmp-*")
    refused = "Permission denied", "Operation not permitted"
    tried = [
        f"cat {tmpdir}/file",
        f"ls {tmpdir}",
        f"touch {tmpdir}/other",
        f"rmdir {tmpdir}",
        f"mv {tmpdir} {tmpdir}-moved",
        f"{BIN}/python -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{tmpdir}/sock\")'",
        *(f"kill -{signal} {pid}" for pid in (task, shell) for signal in ("KILL", "STOP", "0")),
        *(f"cat /proc/{pid}/{name}" for pid in (task, shell) for name in ("environ", "maps", "mem")),
        *(f"ls /proc/{pid}/{name}/" for pid in (task, shell) for name in ("cwd", "root", "fd")),
        f"renice -n 5 {task}",
        f"prlimit --pid {task} --nofile=10:10",
    ]
    for command in tried:
        done = world.sh("bob", command)
        assert done.returncode and any(text in done.stderr for text in refused), (command, done)
    for command in ("flux cancel", "flux job kill", "flux job attach", "flux job raise", "flux job urgency"):
        more = " 5" if command.endswith("urgency") else ""
        assert world.sh("bob", f"{command} {job}{more}").returncode, command
    # The job runs on, and its user may do all of that.
    assert world.out("alice", f"flux jobs -no '{{status_abbrev}}' {job}") == "R"
    assert world.out("alice", f"cat {tmpdir}/file") == "secret"
    world.out("alice", f"flux cancel {job}; flux job wait-event {job} clean")
    assert world.of("alice", "python3 -c") == []


def test_import_flux_of_another_user_obeys_the_same(world: World) -> None:
    job = world.begun("alice", "echo secret; exec sleep 7000")
    program = """
import json, sys
import flux, flux.job
handle = flux.Flux()
job = flux.job.JobID(sys.argv[1])
answers = {}
def ask(name, call):
    try:
        call()
        answers[name] = 0
    except OSError as exc:
        answers[name] = exc.errno
    except Exception as exc:
        answers[name] = repr(exc)
ask("cancel", lambda: flux.job.cancel(handle, job))
ask("kill", lambda: flux.job.kill(handle, job))
ask("eventlog", lambda: list(flux.job.event_watch(handle, job)))
ask("output", lambda: list(flux.job.event_watch(handle, job, eventlog="guest.output")))
ask("jobspec", lambda: flux.job.job_kvs_lookup(handle, job, keys=["jobspec"]))
ask("shell", lambda: handle.rpc(f"{sys.argv[2]}-shell-{job.f58plain}.proctable", {}).get())
ask("exec", lambda: handle.rpc("rexec.exec", {"cmd": {"cmdline": ["id"], "env": {}, "cwd": "/"}, "flags": 0}).get())
answers["own"] = flux.job.result(handle, flux.job.submit(handle, flux.job.JobspecV1.from_command(["true"]))).success
print(json.dumps(answers))
"""
    file = world.machine.folder / "program.py"
    file.write_text(program)
    command = f"flux python {file} {job} {ALICE}"
    answers = json.loads(world.out("bob", command))
    assert answers.pop("own") is True
    assert all(answers.values()), answers
    world.out("alice", f"flux cancel {job}; flux job wait-event {job} clean")


def test_a_shell_has_nothing_open_that_the_broker_was_started_with(world: World) -> None:
    # A user can take descriptors out of processes of the own, such as the broker's log or terminal.
    shell = "for fd in 0 1 2; do readlink /proc/$PPID/fd/$fd; done; readlink /proc/$PPID/fd/* /proc/self/fd/*; true"
    lines = world.out("alice", f"flux run sh -c '{shell}'").splitlines()
    assert lines[:3] == ["/dev/null"] * 3
    # The instance was started with a file (machine.INHERITED), which a job of root has.
    assert world.out("root", "flux run sh -c 'readlink /proc/self/fd/*; true'").count(INHERITED) == 1
    assert INHERITED not in lines


def test_an_instance_in_a_job_belongs_to_its_user(world: World) -> None:
    inner = "flux getattr security.owner; flux getattr size; flux run -N2 -n2 id -u; echo $FLUX_URI; exec sleep 1000"
    (world.machine.folder / "home/alice/inner.sh").write_text(inner)
    job = world.begun("alice", "echo; exec flux start sh $HOME/inner.sh", "-N2", "-n2")
    lines: list[str] = []

    def told() -> bool:
        found = world.out("alice", f'flux job eventlog -p output {job} -f json | grep -o \'"data":"[^"]*\' || true')
        lines[:] = "".join(line.partition(':"')[2].replace("\\n", "\n") for line in found.splitlines()).split()
        return len(lines) == 5

    until(told)
    assert lines[:4] == [str(ALICE), "2", str(ALICE), str(ALICE)]
    assert world.out("alice", f"flux proxy {job} flux getattr security.owner") == str(ALICE)
    path = lines[4].removeprefix("local://")
    assert os.stat(path).st_uid == ALICE
    done = world.sh("bob", f"FLUX_URI=local://{path} flux getattr size")
    assert done.returncode and ("Permission denied" in done.stderr or "not permitted" in done.stderr), done
    world.out("alice", f"flux cancel {job}; flux job wait-event {job} clean")
    assert world.of("alice", "flux-broker") == []


def test_a_job_ends_and_leaves_nothing_whatever_it_does_to_its_shell(world: World) -> None:
    quiet = ">/dev/null 2>&1"
    sleeps = f"sleep 70001 {quiet} & setsid sleep 70002 {quiet} & env -i setsid -f sleep 70003 {quiet}; "
    killed = world.sh("alice", f"flux run sh -c '{sleeps} kill -KILL $PPID; sleep 70004'")
    assert killed.returncode and "Killed" in killed.stderr
    until(lambda: not world.of("alice", "sleep 7000"))
    # The end of a job is the end of what it has started.
    world.out("alice", f"flux run sh -c '{sleeps} true'")
    assert not world.of("alice", "sleep 7000")
    stopped = world.begun("alice", f"{sleeps} kill -STOP $PPID; echo; exec sleep 70004")
    world.out("alice", f"flux cancel {stopped}; flux job wait-event {stopped} clean")
    assert not world.of("alice", "sleep 7000")
    # A job that goes on where the shell of another node was killed ends as ever.
    two = "test $FLUX_TASK_RANK = 0 || kill -KILL $PPID; exec sleep .1"
    done = world.sh("alice", f"flux run -N2 -n2 -o exit-timeout=none sh -c '{two}'")
    assert done.returncode and "shell rank 1" in done.stderr, done
    assert not world.of("alice", "flux-shell")


def test_who_cannot_have_jobs_is_refused_with_the_reason(world: World) -> None:
    submit = ["flux", "submit", "true"]
    own = ["env", f"FLUX_URI={world.uri}", f"PATH={PATH}"]
    for uid, why in ((1, "below headrace.guests.min-uid, which is 1000"), (NOBODY_KNOWN, "has no entry in passwd")):
        plain = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        done = world.machine.run(*plain, *own, *submit)
        assert done.returncode and f"user {uid} " in done.stderr and why in done.stderr, done
        # The owner, in the name of that user.
        stamped = [f"FLUX_HANDLE_USERID={uid}", "FLUX_HANDLE_ROLEMASK=0x2"]
        assert why in world.machine.run(*own, *stamped, *submit).stderr
    stamped = ["FLUX_HANDLE_USERID=0", "FLUX_HANDLE_ROLEMASK=0x2"]
    assert "user 0 is below" in world.machine.run(*own, *stamped, *submit).stderr


def test_a_job_that_came_before_the_keys_is_ended_with_the_reason(world: World) -> None:
    job = world.out("alice", "flux submit --urgency=hold true")
    table = f"{CONFIG}min-uid = {ALICE + 1}\n"
    assert (
        world.machine.run(
            "env", f"FLUX_URI={world.uri}", f"PATH={PATH}", "flux", "config", "load", text=table
        ).returncode
        == 0
    )
    world.out("alice", f"flux job urgency {job} 16")
    attached = world.sh("alice", f"flux job attach {job}")
    assert f"user {ALICE} is below headrace.guests.min-uid, which is {ALICE + 1}" in attached.stderr
    world.machine.run("env", f"FLUX_URI={world.uri}", f"PATH={PATH}", "flux", "config", "load", text=CONFIG)
    assert world.out("alice", "flux run id -u") == str(ALICE)


def test_an_owner_other_than_root_cannot_have_it(world: World) -> None:
    why = (
        'headrace.guests.submit: "as-user" needs an instance of root, which can start processes of other users: '
        f"the owner of this one is user {ALICE}"
    )
    refused = world.machine.run("flux", "start", "-c", str(world.config), "true", user="alice")
    assert refused.returncode and why in refused.stderr and str(world.config) in refused.stderr, refused
    loaded = world.machine.run("flux", "start", "sh", "-c", f"flux config load <{world.config}", user="alice")
    assert loaded.returncode and why in loaded.stderr, loaded


_MPI = """
#include <mpi.h>
#include <stdio.h>
static char data[1 << 20];
int main(int argc, char **argv) {
    int rank, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(data, sizeof data, MPI_CHAR, 0, MPI_COMM_WORLD);
    printf("%d\\n", sum);
    return MPI_Finalize();
}
"""


@pytest.mark.skipif(shutil.which("mpicc.openmpi") is None, reason="needs Open MPI (Debian: libopenmpi-dev)")
def test_mpi_works_without_privileges(world: World) -> None:
    source, program = world.machine.folder / "mpi.c", world.machine.folder / "mpi"
    source.write_text(_MPI)
    subprocess.run(["mpicc.openmpi", str(source), "-o", str(program)], check=True)
    for where in ("-N2", "-N1"):
        assert world.out("alice", f"flux run {where} -n2 -o pmi=pmix {program}") == "1\n1"


def test_jobs_have_sessions_of_a_service_of_pam() -> None:
    limits = "alice hard nofile 1111\nalice hard nproc 99\n"
    service = (
        "account required pam_access.so accessfile=/etc/security/access.conf nodefgroup\n"
        "session required pam_limits.so conf=/etc/security/limits.conf\n"
    )
    files = {
        "/etc/pam.d/jobs": service,
        "/etc/security/limits.conf": limits,
        "/etc/security/access.conf": "-:bob:ALL\n+:ALL:ALL\n",
    }
    with machine({"alice": ALICE, "bob": BOB}, files) as made:
        here = World(made, f'{CONFIG}pam-service = "jobs"\n', 2)
        try:
            told = here.out("alice", "flux run -N2 -n2 bash -c 'ulimit -Hn; ulimit -Hu'").split()
            assert sorted(told) == ["1111", "1111", "99", "99"]
            # The owner has no session, and an account that PAM refuses has no job.
            assert here.out("root", "flux run bash -c 'ulimit -Hu'") != "99"
            refused = here.sh("bob", "flux run true")
            assert refused.returncode and "PAM (service jobs) refuses user bob: " in refused.stderr, refused
            table = f'{CONFIG}pam-service = "absent"\n'
            load = ["env", f"FLUX_URI={here.uri}", f"PATH={PATH}", "flux", "config", "load"]
            assert made.run(*load, text=table).returncode == 0
            refused = here.sh("alice", "flux run true")
            assert refused.returncode and "PAM has no service 'absent'" in refused.stderr, refused
        finally:
            here.close()


def test_files_of_an_instance_are_not_for_guests_to_read(tmp_path: Path) -> None:
    with machine({"alice": ALICE, "bob": BOB}) as made:
        state = made.folder / "state"
        state.mkdir(mode=0o755)
        here = World(made, CONFIG, 2, "-Sstatedir=" + str(state), "-Scontent.dump=auto")
        try:
            here.out("alice", "flux run sh -c 'echo SECRET; seq 100000' >out")
            here.out("root", "flux kvs put a.b=SECRET; flux run -N2 sh -c 'echo SECRET; seq 100000' >/dev/null")
            readable = "find {} ! -type l ! -type s -perm /077 -type f; grep -rls SECRET {}"
            for folder in (here.run, state):
                assert here.sh("bob", readable.replace("{}", str(folder))).stdout == ""
        finally:
            here.close()
        assert list((state / "dump").iterdir())
        # What has no statedir leaves nothing in a run directory that was there before.
        shutil.rmtree(here.run)
        other = World(made, CONFIG)
        other.out("root", "flux run sh -c 'echo SECRET; seq 100000' >/dev/null")
        assert [path.name for path in other.run.glob("output-*/*")]
        other.close()
        assert list(here.run.iterdir()) == []
        assert made.run("sh", "-c", readable.replace("{}", str(state)), user="bob").stdout == ""
