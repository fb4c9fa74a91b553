"""`flux cron` and the module `cron`: entries of each kind, their runs, and what commands do with them."""

from __future__ import annotations

import re

import pytest
from instance import start
from option_lines import Line, answers, check, like, names

# Functions for the lines: K ID KEY prints a value; until_is ID KEY VALUE waits for it.
_BEGIN = (
    "K() { flux cron dump --key=$2 $1; }; "
    'until_is() { until test "$(K $1 $2)" = "$3"; do sleep .02; done; }; '
    'said() { flux dmesg | grep -o "cron-$1.*" | tail -1; }; '
)


def _line(command: str, printed: str | re.Pattern[str] = "", status: int = 0) -> Line:
    return Line(_BEGIN + command, printed, status)


LINES = [
    _line("flux module list | grep -c ^cron", "1\n"),
    _line("flux cron list", like(r" +ID CMD/NAME +STATE +#RUNS +LASTRUN +STATUS *\n")),
    # 1: intervals
    _line("flux cron interval .05s echo out of cron", "interval: cron-1 created\n"),
    _line("until test $(K 1 stats.success) -ge 2; do :; done; flux cron stop 1; K 1 stopped", "Stopped cron-1\ntrue\n"),
    _line(
        "until_is 1 task.1.state Exited; said 1", 'cron-1[echo]: rank=0: command="echo out of cron": "out of cron"\n'
    ),
    _line("flux cron stop cron-1", "flux-cron: cron-1 is stopped\n", 1),
    _line("flux cron list | awk 'NR > 1 {print $1, $2, $3, $NF}'", "1 echo Stopped Success\n"),
    _line("flux cron start 1; flux cron start 1", like("Started cron-1\n.*cron-1 is not stopped\n"), 1),
    _line(
        "flux cron delete 1; flux cron dump 1",
        like("Removed cron-1: echo (last ran .*|still running.*)\n.*No such.*"),
        1,
    ),
    # 2: once, after a time; in a folder, with a name and this environment
    _line(
        "FOO=bar flux cron interval --after=.01s --name=own --preserve-env --working-dir=/ 0 'pwd; echo $FOO'; "
        "until_is 2 task.1.state Exited; flux dmesg | grep -o 'cron-2.*'; K 2 name; K 2 stats.count",
        like('.*created\n.*: "/"\n.*: "bar"\nown\n1\n'),
    ),
    # 3: a number of times, on another rank; started again, it counts anew
    _line(
        "flux cron interval --count=1 -o rank=1 .01s flux getattr rank; until_is 3 task.1.state Exited; said 3; "
        "K 3 stopped; flux cron start 3; until_is 3 stats.total 2; until_is 3 task.1.state Exited; K 3 stats.count",
        like('.*: "1"\ntrue\nStarted cron-3\n1\n'),
    ),
    # 4, 5: what fails
    _line(
        "flux cron interval -c1 .01s notaprogram; until_is 4 task.1.state Failed; K 4 task.1.code; "
        "flux cron list | grep -c Exec-Error",
        like(".*created\n127\n1\n"),
    ),
    _line(
        "flux cron interval -o rank=99 -c1 .01s true; until_is 5 task.1.state 'Rexec Failure'; K 5 task.1.rexec_errno",
        like(".*created\n113\n"),
    ),
    # 6: events, and the end of a run that lasts
    _line(
        "flux cron event t.go sleep inf; K 6 stats.count; flux event pub t.go; until_is 6 task.1.state Running; "
        "flux cron delete 6; K 6 task.1.state; flux event pub t.go; flux cron delete --kill 6; "
        "while flux cron dump 6 >&- 2>&-; do :; done",
        like("event: .*\n0\nRemoved cron-6: sleep still running.*\nRunning\nRemoved cron-6.*\n"),
    ),
    # 7, 8, 9: which events
    _line(
        "flux cron event --nth=3 t.a true; flux cron event --after=3 t.a true; "
        "for n in 1 2 3 4 5; do flux event pub t.a; "
        "until_is 7 typedata.counter $n; until_is 8 typedata.counter $n; until ! flux cron list | grep -q Running; "
        "do :; done; done; K 7 stats.count; K 8 stats.count",
        like(".*\n1\n3\n"),
    ),
    _line(
        "flux cron event --min-interval=1.1s --count=2 t.b true; flux event pub t.b; until_is 9 stats.success 1; "
        "flux event pub t.b; until_is 9 stats.success 2; K 9 typedata.min_interval; said 9",
        like(".*\n1.1\n.*delaying .* due to min interval\n"),
    ),
    # 10, 11: limits
    _line(
        "flux cron event -o timeout=.1 -N slow t.c sleep inf; flux event pub t.c; until_is 10 task.1.state Timeout; "
        "K 10 task.1.timedout; K 10 name",
        like(".*\ntrue\nslow\n"),
    ),
    _line(
        "flux cron event -o stop-on-failure=2,task-history-count=3 t.d 'exit 3'; for n in 1 2; do flux event pub t.d; "
        "until_is 11 stats.failure $n; done; until_is 11 stopped true; K 11 task.2.code; said 11",
        like(".*\n3\n.*exceeded failure limit of 2. stopping\n"),
    ),
    # 12, 13, 14: dates
    _line(
        "flux cron at 'now + 1 second' echo at once; until_is 12 task.1.state Exited; K 12 stopped; said 12",
        like('at: cron-12 created: scheduled in .*s at .*\ntrue\n.*: "at once"\n'),
    ),
    _line(
        "printf '# minutes\\n\\n10 * * * * echo tab # and so on\\n0 0 1 jan mon true\\n' >tab; flux cron tab tab; "
        "K 13 command; K 13 typedata.minute; K 14 typedata.month",
        like("tab: cron-13 created: scheduled in .*\ntab: cron-14 .*\necho tab\n10\njan\n"),
    ),
    _line("echo '5 * * * * true' | flux cron tab -E -d / -o rank=1 -; K 15 rank", like("tab: cron-15 .*\n1\n")),
    _line("echo zzz | flux cron tab", like("flux-cron: Failed to process crontab line: zzz .line 1 .*\n"), 1),
    _line("echo '99 * * * * x' | flux cron tab", like("flux-cron: .*minute: '99' is not in the range of 0-59\n"), 1),
    _line("flux cron at nosuchtime x", "flux-cron: Failed to parse datetime arg: 'nosuchtime'\n", 1),
    _line("flux cron at -E -d / -o rank=1 tomorrow x; K 16 repeat", like(".*\n1\n")),
    # what is no entry
    _line("flux cron interval 1x true", "flux-cron: Invalid duration '1x'\n", 1),
    _line("flux cron interval -o nosuch=1 1 true", like("flux-cron: -o nosuch=1: unknown option, known are .*"), 1),
    _line("flux cron event -d / -E -i 1 t", like("Usage: flux-cron event .*"), 1),
    _line("flux cron nosuch", like("flux-cron: Unknown subcommand: nosuch\n.*"), 1),
    _line("flux cron start 99", "flux-cron: cron-99: No such cron entry found\n", 1),
    # all runs wait for an event
    _line(
        "flux cron sync; flux cron sync --epsilon=.025 t.sync", like('.*disabled.\nsync: .*"t.sync" epsilon=0.025s.\n')
    ),
    _line(
        "flux cron event t.e true; flux event pub t.e; until_is 17 task.1.state Deferred; K 17 stats.deferred; "
        "flux event pub t.sync; until_is 17 task.1.state Exited; flux event pub t.e; until_is 17 stats.deferred 2; "
        "flux cron sync --disable; until_is 17 stats.success 2",
        like(".*\n1\nsync: sync disabled.\n"),
    ),
    _line(
        "flux module reload cron sync=t.x sync_epsilon=42s; flux cron sync; flux cron list | wc -l; "
        "flux module reload cron badopt",
        like("sync: .*\"t.x\" epsilon=42.000s.\n1\n.*unknown argument 'badopt'.*"),
        1,
    ),
]


@pytest.fixture(scope="module")
def cron_answers(tmp_path_factory):
    return answers(LINES, tmp_path_factory.mktemp("cron"), "--test-size=2")


@pytest.mark.parametrize("index", range(len(LINES)), ids=[name[-60:] for name in names(LINES)])
def test_entries(index, cron_answers):
    check(LINES[index], cron_answers[index])


def test_crontabs_of_a_folder_are_loaded_and_a_bad_one_ends_the_start(tmp_path):
    folder = tmp_path / "cron.d"
    there = f"-Scron.directory={folder}"
    assert start(there, "flux cron list").out.count("\n") == 1
    (folder / "below").mkdir(parents=True)
    (folder / "one").write_text("10 * * * * true\n")
    (folder / "two").write_text("20 * * * * hostname\n")
    done = start(there, "flux cron list")
    assert [line.split()[1] for line in done.out.splitlines()[1:]] == ["true", "hostname"]
    (folder / "bad").write_text("zzz\n")
    done = start(there, "echo ran")
    assert (done.rc, done.out) == (1, "")
    assert f"could not load crontab: {folder}/bad" in done.err
    assert not done.left


def test_tasks_end_with_the_instance():
    done = start(
        "flux cron interval 0 'sleep 1234'; until test $(flux cron dump -k task.1.state 1) = Running; "
        "do sleep .02; done"
    )
    assert done.rc == 0 and not done.left
