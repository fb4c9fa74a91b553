"""Signatures by a real munged, of two users on this machine, from the command to the instance (RFC 39).

munged and its key are the test's own, in a mount namespace (`machine`): the machine may have none.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from headrace.wire.query import munge
from headrace.wire.query.signing import SigningError, sign
from machine import BIN, Instance, Machine, machine, missing
from waiting import PATIENCE, until

ALICE, BOB = 61001, 61002
MUNGED = shutil.which("munged", path="/usr/sbin:/usr/bin") or ""
CONFIG = '[access]\nallow-guest-user = true\n[headrace.guests]\nsubmit = "as-owner"\nmechanism = "munge"\n'

WHY = missing() or ("" if MUNGED else "needs munged (Debian: munge)")
real = pytest.mark.skipif(bool(WHY), reason=WHY or "never")


def test_a_mechanism_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SigningError, match="unknown mechanism 'curve' to sign with, there are none and munge"):
        sign("{}", mechanism="curve")
    monkeypatch.setenv("HEADRACE_SIGN_TYPE", "curve")
    with pytest.raises(SigningError, match="curve"):
        sign("{}")
    # What is asked for comes first.
    assert sign("{}", mechanism="none").endswith(".none")


def test_without_the_library_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(munge, "_LIBRARY", "libmunge-that-is-not-there.so")
    with pytest.raises(SigningError, match=r"there is no libmunge-that-is-not-there\.so on this machine"):
        sign("{}", mechanism="munge")
    with pytest.raises(munge.MungeError):
        munge.decode("MUNGE:x:")


@contextlib.contextmanager
def munged(made: Machine) -> Iterator[None]:
    """A munged of the machine, at the place where libmunge looks for it."""
    folder = made.folder
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    places = [f"--key-file={key}", f"--seed-file={folder}/seed", f"--log-file={folder}/munged.log"]
    places += [f"--pid-file={folder}/munged.pid", "--foreground", "--num-threads=2"]
    process = subprocess.Popen(made.argv(MUNGED, *places), stderr=subprocess.DEVNULL)
    until(lambda: made.run("sh", "-c", "munge -n | unmunge -n").returncode == 0 or process.poll() is not None)
    assert process.poll() is None, (folder / "munged.log").read_text()
    yield
    process.terminate()
    process.wait(PATIENCE)


@pytest.fixture(scope="module")
def world() -> Iterator[Instance]:
    with machine({"alice": ALICE, "bob": BOB}, folders=("/run/munge",)) as made, munged(made):
        here = Instance(made, CONFIG)
        yield here
        here.close()


PROGRAM = """
import flux, flux.job
handle = flux.Flux()
job = flux.job.submit(handle, flux.job.JobspecV1.from_command(["true"]))
print(flux.job.result(handle, job).success)
"""


@real
def test_a_guest_signs_by_the_variable_or_the_option(world: Instance) -> None:
    refused = world.sh("alice", "flux run id -u")
    why = 'must be signed with munge, as headrace.guests.mechanism is "munge": set HEADRACE_SIGN_TYPE=munge'
    assert refused.returncode and why in refused.stderr
    signed = world.sh("alice", "flux run id -u", HEADRACE_SIGN_TYPE="munge")
    assert (signed.returncode, signed.stdout) == (0, "0\n"), signed
    submit = "flux submit --dry-run true | flux job submit --sign-type=munge | tee id; flux job attach $(cat id)"
    assert world.sh("alice", submit).returncode == 0
    file = world.machine.folder / "program.py"
    file.write_text(PROGRAM)
    bound = world.sh("alice", f"flux python {file}", HEADRACE_SIGN_TYPE="munge")
    assert bound.stdout == "True\n", bound
    assert why in world.sh("alice", f"flux python {file}").stderr
    # J is kept as it was signed, and the owner need not sign.
    kept = world.sh("root", "flux job info $(flux jobs -Aano '{id}' | tail -1) J").stdout.strip()
    head, _, tail = kept.split(".")
    assert b"mechanism\\0smunge\\0".decode("unicode-escape").encode() in base64.b64decode(head)
    assert tail.startswith("MUNGE:")
    assert world.sh("root", "flux run true").returncode == 0
    assert world.sh("root", "flux run true", HEADRACE_SIGN_TYPE="munge").returncode == 0


ATTACK = """
import base64, json, sys
import flux, flux.job
from headrace.wire.query import munge, signing
handle = flux.Flux()
spec = json.dumps(flux.job.JobspecV1.from_command(["true"]).jobspec)
def ask(j):
    try:
        handle.rpc("job-ingest.submit", {"J": j, "urgency": 16, "flags": 0}).get()
        return ""
    except OSError as exc:
        return exc.strerror
own = signing.sign(spec, mechanism="munge")
head, text, tail = own.split(".")
other = base64.b64encode(spec.replace("true", "evil").encode()).decode()
alices = open(sys.argv[1]).read()
answers = {
    "own": ask(own),
    "again": ask(own),
    "changed": ask(f"{head}.{other}.{tail}"),
    "no credential": ask(f"{head}.{text}.MUNGE:AwQDAA==:"),
    "none": ask(f"{head}.{text}.none"),
    "alices": ask(alices),
    "in alices name": ask(signing.sign(spec, int(sys.argv[2]), "munge")),
    "with alices signature": ask(f"{head}.{text}.{alices.split('.')[2]}"),
    "of another kind": ask(f"{head}.{text}.{munge.encode(b'x')}"),
}
print(json.dumps(answers))
"""


@real
def test_a_signature_is_one_of_this_jobspec_by_this_user(world: Instance) -> None:
    made = 'from headrace.wire.query.signing import sign; print(sign(input(), mechanism="munge"), end="")'
    file = world.machine.folder / "alices"
    alices = world.sh("alice", f"flux submit --dry-run true | {BIN}/python -c '{made}'")
    assert alices.returncode == 0, alices
    file.write_text(alices.stdout)
    attack = world.machine.folder / "attack.py"
    attack.write_text(ATTACK)
    done = world.sh("bob", f"flux python {attack} {file} {ALICE}")
    assert done.returncode == 0, done
    answers = json.loads(done.stdout)
    assert answers.pop("own") == answers.pop("again") == ""
    assert answers.pop("no credential").startswith("J: munge: ")
    assert answers == {
        "changed": "J: the signature belongs to another text",
        "none": "J: the signature is not one of mechanism munge",
        "alices": f"signer={ALICE} != requestor={BOB}",
        "in alices name": f"signer={ALICE} != requestor={BOB}",
        "with alices signature": "J: the signature belongs to another text",
        "of another kind": "J: the signature belongs to another text",
    }
    # Who may speak for others cannot sign for them.
    stamped = {"FLUX_HANDLE_USERID": str(ALICE), "FLUX_HANDLE_ROLEMASK": "0x2", "HEADRACE_SIGN_TYPE": "munge"}
    assert f"J: signed by user 0, not by user {ALICE}" in world.sh("root", "flux submit true", **stamped).stderr
