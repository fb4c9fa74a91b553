"""Commands against recorded answers of a real broker: same requests, same output, same error text, same status."""

from __future__ import annotations

import re

import pytest

from headrace.cli.job import control

# The recordings name a host `node0` that had another name when Flux wrote this list, and so no brackets.
HOSTS = [(r"node0,node0,node0", "node[0,0,0]")]

# Conversation, the command's arguments as its shell split them, and what may differ (a pattern and its replacement).
CONVERSATIONS = [
    ("01", ["uptime"], [(r"\d\d:\d\d:\d\d run [^,]*", "CLOCK run AGE")]),
    ("02", ["resource", "list"], HOSTS),
    ("03", ["resource", "status"], HOSTS),
    ("04", ["submit", "-n2", "-N2", "--output=/home/user/o.{{id}}", "hostname"], []),
    ("05", ["submit", "--cc=0-2", "--wait", "true"], []),
    ("06", ["run", "-N2", "-n2", "-l", "hostname"], []),
    ("07", ["run", "sh", "-c", "exit 3"], []),
    ("08", ["jobs", "-a"], HOSTS),
    ("09", ["jobs", "-f", "completed", "-o", "{id.f58} {name} {state} {result} {runtime}"], []),
    ("10", ["job", "eventlog", "ƒ2H9s5XM"], []),
    ("11", ["job", "attach", "ƒ2H9s5XM"], []),
    ("12", ["job", "info", "ƒ2H9s5XM", "jobspec"], []),
    ("13", ["job", "info", "ƒ2H9s5XM", "R"], []),
    ("14", ["job", "wait-event", "ƒ2H9s5XM", "clean"], []),
    ("15", ["job", "status", "ƒ2H9s5XM"], []),
    ("16", ["cancel", "ƒ2iEEvyd"], []),
    ("17", ["queue", "list"], []),
    ("18", ["queue", "status"], []),
    ("19", ["queue", "stop"], []),
    ("20", ["submit", "--urgency=hold", "true"], []),
    ("21", ["job", "urgency", "ƒ39Xxfy1", "20"], []),
    ("22", ["queue", "start"], []),
    ("23", ["queue", "drain"], []),
    ("24", ["queue", "idle"], []),
    ("25", ["resource", "drain", "1", "testing"], []),
    ("26", ["resource", "undrain", "1"], []),
    ("27", ["kvs", "put", "a.b=42"], []),
    ("28", ["kvs", "get", "a.b"], []),
    ("29", ["kvs", "ls", "-R", "a"], []),
    ("30", ["kvs", "dir", "-R", "a"], []),
    ("32", ["kvs", "unlink", "-R", "a"], []),
    ("33", ["getattr", "size"], []),
    ("35", ["overlay", "status"], []),
    ("36", ["exec", "-r", "all", "hostname"], []),
    ("37", ["ping", "--count=2", "--interval=0.01", "1"], [(r"time=\S+", "time=T")]),
    ("38", ["module", "list"], []),
    ("42", ["job", "memo", "ƒ39Xxfy1", "foo=bar"], []),
    # Times are printed with more digits than the recording of the messages kept.
    ("43", ["job", "list", "-a"], [(r"(\.\d\d)\d+", r"\1")]),
    ("44", ["job", "taskmap", "ƒ39Xxfy1"], []),
    ("45", ["job", "timeleft"], []),
    ("46", ["config", "get"], []),
    ("52", ["job", "purge", "--force", "--num-limit=1"], []),
    ("53", ["module", "stats", "job-manager"], []),
    ("58", ["event", "sub", "--count=1", "heartbeat.pulse"], []),
    ("60", ["submit", "-n", "9999", "true"], []),
    ("61", ["bulksubmit", "--wait", "echo", "{}", ":::", "a", "b", "c"], []),
    ("64", ["hostlist", "-c", "avail"], []),
    ("65", ["resource", "R"], HOSTS),
    ("67", ["job", "wait", "--all"], []),
    ("70", ["run", "-t", "1s", "sleep", "30"], []),
]


@pytest.mark.parametrize(("number", "argv", "masks"), CONVERSATIONS, ids=[row[0] for row in CONVERSATIONS])
def test_command_asks_and_answers_as_recorded(number, argv, masks, flux, playback):
    broker = playback(number)
    outcome = flux(*argv, uri=broker.uri)
    recorded = broker.recording

    def masked(text: str) -> str:
        for pattern, replacement in masks:
            text = re.sub(pattern, replacement, text)
        return text

    assert broker.unexpected == []
    assert masked(outcome.stderr) == masked(recorded.stderr)
    assert masked(outcome.stdout) == masked(recorded.stdout)
    assert outcome.rc == recorded.rc


def test_kvs_eventlog_append_commits_one_line_with_the_append_flag(flux, playback):
    broker = playback("31")
    outcome = flux("kvs", "eventlog", "append", "tst", "foo", uri=broker.uri)
    # The event carries the present time, so the request cannot be the recorded one byte by byte.
    assert outcome.rc == 1
    (request,) = broker.unexpected
    assert "kvs.commit" in request
    assert "'key': 'tst', 'flags': 32" in request


def test_input_reaches_the_lead_shell(flux, playback):
    broker = playback("69")
    outcome = flux("run", "cat", uri=broker.uri, stdin=b"hello\n")
    assert (outcome.stdout, outcome.stderr, outcome.rc) == ("hello\n", "", 0)
    assert broker.unexpected == []


def test_input_that_the_job_does_not_take_is_an_error(flux, playback):
    broker = playback("68")
    outcome = flux("run", "--input=/dev/stdin", "cat", uri=broker.uri, stdin=b"hello\n")
    assert outcome.stderr == "flux-job: stdin not accepted by job\n"
    assert outcome.rc == 1


def test_blob_goes_out_and_comes_back_by_its_reference(flux, playback):
    broker = playback("66")
    stored = flux("content", "store", uri=broker.uri, stdin=b"hi\n")
    loaded = flux("content", "load", stored.stdout.strip(), uri=broker.uri)
    assert loaded.stdout == "hi\n"


def test_batch_submits_the_recorded_jobspec(flux, playback):
    broker = playback("50")
    outcome = flux("batch", "-N1", "-n1", "--wrap", "hostname", uri=broker.uri)
    assert outcome.stdout == "ƒ5YdyHZZ\n"
    assert broker.unexpected == []


def test_duration_update_is_sent_in_seconds(flux, playback):
    broker = playback("48")
    submitted = flux("submit", "--urgency=hold", "-t", "10m", "true", uri=broker.uri)
    assert flux("update", submitted.stdout.strip(), "duration=20m", uri=broker.uri).rc == 0
    assert flux("cancel", submitted.stdout.strip(), uri=broker.uri).rc == 0
    assert broker.unexpected == []


@pytest.mark.parametrize(
    ("word", "is_one"),
    [("f4fr", True), ("fqvbJP", True), ("\u01924fr", True), ("foo", False), ("for", False), ("5", False)],
)
def test_what_follows_the_job_to_cancel_is_another_job_or_the_note(word, is_one):
    assert control._is_id(word) is is_one


def test_raise_carries_type_severity_and_note(flux, playback):
    broker = playback("62")
    submitted = flux("submit", "sleep", "60", uri=broker.uri)
    assert flux("job", "raise", "--type=test", "--severity=1", submitted.stdout.strip(), "why", uri=broker.uri).rc == 0
    assert broker.unexpected == []
