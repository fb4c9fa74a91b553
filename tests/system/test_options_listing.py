"""Options of `flux jobs`, `cancel`, `update` and `job attach`: each shown by what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, after_first, answers, check, like, names

ID = "ƒ[1-9A-Za-z]+"
HEADER = " +JOBID USER +NAME +ST +NTASKS NNODES +TIME INFO\n"
ROW = " +ƒ\\S+ \\S+ +%s +R +%d +\\d .*\n"

LISTING = [
    # an instance in the instance in the instance: each runs a job of its own besides
    Line(
        "flux alloc -N2 --bg --job-name=in >in; flux proxy $(cat in) flux submit --job-name=job1 sleep inf; "
        "flux proxy $(cat in) flux alloc -n1 --bg --job-name=deep >deep; "
        "flux proxy $(cat in)/$(cat deep) flux submit --job-name=job2 sleep inf",
        like(f"{ID}\n{ID}\n"),
    ),
    Line("flux jobs -o {name}", "NAME\nin\n"),
    Line(
        "flux submit --urgency=hold --job-name=\"$(printf 'a\\nb\\033[2J')\" true >odd; "
        "flux jobs -no {name} $(cat odd); flux cancel $(cat odd)",
        "a\\nb\\x1b[2J\n",
    ),
    Line(
        "flux submit --urgency=hold --job-name=ended true >ended; flux cancel $(cat ended); "
        "flux job wait-event -q $(cat ended) clean; "
        "flux jobs -no {name} --name=ended --since=-1h; echo; "
        "flux jobs -no {name} --name=ended --since=now; flux jobs -no {name} --name=ended",
        "ended\n\n",
    ),
    Line("flux jobs --no-header -o {name}", "in\n"),
    Line("flux jobs --suppress-header -o {name}", "in\n"),
    Line(
        "flux jobs --recursive -o {name}",
        like(f"NAME\nin\n\n{ID}:\ndeep\njob1\n\n{ID}/{ID}:\njob2\n"),
    ),
    Line(
        "flux jobs --recursive",
        like(HEADER + ROW % ("in", 2) + f"\n{ID}:\n" + ROW % ("deep", 1) + ROW % ("job1", 1) + ".*job2.*\n"),
    ),
    Line("flux jobs --recurse-all -no {name}", like(f"in\n\n{ID}:\ndeep\njob1\n\n{ID}/{ID}:\njob2\n")),
    Line("flux jobs -R --level=0 -o {name}", "NAME\nin\n"),
    # what an instance says of itself, and nothing of what is none
    Line(
        "flux submit --quiet --urgency=hold --job-name=none true; "
        "flux jobs --sort=name -o "
        "'{name} {instance.stats} {instance.progress} {instance.utilization!P:h} {instance.stats.active}'; "
        "flux cancel $(flux jobs -no {id} --name=none)",
        like(r"NAME STATS PROG CORE% ACTIVE\nin PD:0 R:2 CD:0 F:0 0.0 [0-9]+% 2\nnone   - \n"),
    ),
    Line("flux jobs -R --level=1 -no {name}", like(f"in\n\n{ID}:\ndeep\njob1\n")),
    Line("flux jobs -R --level=1 --stats -no {name}", like(f"1 running, .*\nin\n\n{ID}:\n2 running, .*\ndeep\njob1\n")),
    # one thread asks all instances, but a wrong number is refused
    # what real clients ask for with ids, what they read from elsewhere, and how wide it gets
    Line(
        "flux jobs -no {name} f1 $(flux jobs -no {id} | head -1) 2>&1 | sort", like(f"flux-jobs: .*{ID} unknown\nin\n")
    ),
    Line("flux jobs -n f1 2>/dev/null", "", 1),
    Line(
        "flux jobs -A $(flux jobs -no {id} | head -1) 2>&1 | grep -v JOBID | head -1",
        "flux-jobs: WARNING: Filtering options ignored with jobid list\n",
    ),
    Line("flux job list | flux jobs --from-stdin -o '{name} {annotations.sched.x}'", "NAME SCHED.X\nin \n"),
    Line("echo odd | flux jobs --from-stdin", like("flux-jobs: ERROR: standard input is not JSON: .*"), 1),
    Line("flux jobs -w 10 | grep -c '+$'", "2\n"),
    Line("flux jobs --json --stats", "flux-jobs: ERROR: --json does not work with --stats and --stats-only\n", 1),
    Line("flux jobs --user=nobody1", like("flux-jobs: ERROR: Invalid user nobody1 specified.*"), 1),
    Line("flux jobs --user=+1234 -n", ""),
    Line("flux job list-ids --wait-state=run $(flux jobs -no {id} | head -1) | jq -r .name", "in\n"),
    Line(
        "flux jobs --json -R | jq -c '[.jobs[] | [.name, (.jobs // [] | map([.name, (.jobs // [] | map(.name))]))]]'",
        '[["in",[["deep",["job2"]],["job1",[]]]]]\n',
    ),
    Line("flux jobs --json -R --level=1 | jq -c '[.jobs[].jobs[] | has(\"jobs\")]'", "[false,false]\n"),
    Line("flux jobs -R --threads=2 -no {name} | tail -1", "job2\n"),
    Line("flux jobs -c -1", like("usage: .*argument -c/--count: '-1' must be 0 or a positive integer\n"), 2),
    Line("flux jobs --threads=0", like("usage: .*argument --threads: '0' must be a positive integer\n"), 2),
    Line("flux shutdown --quiet $(cat in)"),
    Line(
        "flux submit --urgency=hold x >id; flux cancel --message='not now' $(cat id); "
        "flux jobs -no {exception.note} $(cat id)",
        "not now\n",
    ),
    Line(
        "flux submit --urgency=hold mine >id; "
        "flux jobs -no {name}; flux jobs -Ano {name}; flux jobs --user=1234 -no {name}",
        "mine\nmine\n",
    ),
    # a lesser credential changes who asks, not whose jobs are one's own
    Line("FLUX_HANDLE_USERID=1234 FLUX_HANDLE_ROLEMASK=0x2 flux jobs -no {name}", "mine\n"),
    Line(
        "flux job list -s pending | jq -r .name; flux job list -s pending --all-users | jq -r .name; "
        "flux cancel --user=1234 --quiet; flux cancel --user=all --quiet",
        "mine\nmine\nflux-cancel: Canceled 1 job (0 errors)\n",
    ),
    # as in Flux without its setuid helper, only the execution refuses a job of another user
    Line(
        "FLUX_HANDLE_USERID=1234 flux submit true >id; flux job wait-event -t 60 $(cat id) clean >/dev/null; "
        "flux jobs -no '{userid} {exception.type} {exception.note}' $(cat id)",
        like(r'1234 exec this instance runs jobs of its owner only, .*: headrace.guests.submit is "refuse"\n'),
    ),
    # a format may begin with the keys to sort by; --sort goes before them
    Line(
        "flux submit --quiet --urgency=hold a; flux submit --quiet --urgency=hold b; flux jobs -no 'sort:name {name}'; "
        "flux jobs -no 'sort:-name {name}'; flux jobs --sort=-name -no 'sort:name {name}'; "
        "flux jobs -o 'sort:nosuch {name}'; flux cancel --all --quiet",
        "a\nb\n"
        + "b\na\n" * 2
        + "flux-jobs: ERROR: Invalid sort key: nosuch\nflux-cancel: Canceled 2 jobs (0 errors)\n",
    ),
    # an update is in the job's eventlog when the command ends
    Line(
        "flux submit -t1m --urgency=hold x >id; flux update --wait $(cat id) duration=2m; flux jobs -no {duration}",
        "120.0\n",
    ),
    Line(
        "flux job eventlog $(cat id) | grep update | cut -d' ' -f2-",
        "jobspec-update attributes.system.duration=120.0\n",
    ),
    Line("flux update --dry-run $(cat id) duration=+1m name=y", like('{"attributes.system.duration": 180.0, .*"y"}\n')),
    Line(
        "flux update -v $(cat id) duration=3m",
        "flux-update: INFO: updated attributes.system.duration to 180.0\n",
    ),
    Line(
        "flux submit --quiet --urgency=hold true; flux job cancelall --force --user=1; flux jobs -no {name}; "
        "flux job cancelall --force --user=$(id -u)",
        like("x\ntrue\nflux-job: Command matched 0 jobs\nflux-job: Canceled 2 jobs .0 errors.\n"),
    ),
]

EVENTS = r"0\.\d+s: job\.submit .*\n0\.\d+s: job\.validate\n.*\n0\.\d+s: job\.alloc .*\n"
ATTACHING = [
    Line("flux submit sh -c 'echo out; exit 3' >id; flux job attach $(cat id)", like("out\n.*exit code 3\n"), 3),
    Line("flux job attach --show-events $(cat id)", like("out\n" + EVENTS + ".*job.finish.*exit code 3\n"), 3),
    Line("flux job attach -E --wait-event=alloc $(cat id)", like("out\n" + EVENTS)),
    Line("flux job attach --wait-event=start $(cat id)", "out\n"),
    Line("flux job attach --wait-event=nosuch --quiet $(cat id)", "out\n", 3),
    Line("flux job attach --show-exec $(cat id)", like('out\n.*exec.init\n.*exec.complete {"status":768}\n.*'), 3),
    Line(
        "flux job attach --show-status $(cat id)",
        like(f"out\n(\rflux-job: {ID} [a-z ]+ 00:00:\\d\\d\r)+\n.*exit code 3\n"),
        3,
    ),
    Line("flux job attach --show-status $(cat id) 2>&1 >/dev/null | tr '\\r' '\\n' | grep -c started", "1\n"),
    Line(
        "flux queue stop --quiet; flux submit true >id; flux job attach --show-status $(cat id) 2>status & "
        "until grep -qs 'waiting for resources (default queue stopped)' status; do sleep 0.05; done; "
        "flux queue start --quiet; wait; tr '\\r' '\\n' <status | grep -o 'starting'",
        "starting\n",
    ),
    Line(
        "flux submit --urgency=hold true >id; "
        + after_first("script -qec 'flux job attach '$(cat id) /dev/null", "flux job urgency $(cat id) default"),
        like(f"\rflux-job: {ID} waiting for resources +00:00:0\\d\r.*started.*\n"),
    ),
    Line("flux job attach --debug $(cat id)", like("flux-job attach: unrecognized option '--debug'\n.*"), 1),
    # standard input: whose it becomes, when it goes, and none at all
    Line("flux submit -n2 cat >id; printf hello | flux job attach --stdin-ranks=1 --label-io $(cat id)", "1: hello"),
    Line(
        "flux submit -n2 cat >id; echo hi | flux job attach -i1-2 --label-io $(cat id)",
        like("(1: hi\n|flux-job: warning: adjusting --stdin-ranks from 1-2 to 1\n){2}"),
    ),
    Line("flux job attach -i1 --read-only $(cat id)", "flux-job: Do not use --stdin-ranks with --read-only\n", 1),
    Line(
        "FLUX_ATTACH_NONINTERACTIVE=t flux job attach --show-status $(cat id) </dev/null",
        like("1: hi\n|hi\n"),
    ),
    Line(
        "flux submit -o pty.interactive cat >id; flux job attach --read-only $(cat id); flux cancel $(cat id)",
        "flux-job: Cannot connect to pty in readonly mode\n",
    ),
    # The first has said that there is no more; nothing can be added.
    Line(
        "flux submit sleep 60 >id; (echo x | flux job attach $(cat id) 2>/dev/null &); "
        "flux job wait-event -p guest.input -W -t10 -m eof=true $(cat id) data >/dev/null; "
        "echo y | flux job attach $(cat id); echo $?; flux cancel $(cat id)",
        "1\nflux-job: error writing stdin: Broken pipe\n",
    ),
    Line(
        "flux submit --unbuffered cat >id; rm -f go; "
        + after_first(
            "sh -c 'printf part; until test -e go; do sleep .02; done' | flux job attach --unbuffered $(cat id)",
            "touch go",
        ),
        "part",
    ),
    Line(
        "flux submit cat >id; echo no | flux job attach --read-only $(cat id) & "
        "flux job wait-event -q $(cat id) start; echo yes | flux job attach $(cat id) >yes; wait",
        "yes\n",
    ),
]


MATCHING = [
    Line(
        "flux cancel --all -q 2>/dev/null; flux queue idle --quiet; "
        "for name in one two three; do flux submit -n1 --urgency=hold --job-name=$name sleep inf; done >ids",
    ),
    Line("test $(flux pgrep one) = $(head -1 ids)"),
    Line("flux pgrep -no '{name}' o | sort", "one\ntwo\n"),
    Line("flux pgrep --format='{name} {state}' t | sort", "NAME STATE\nthree SCHED\ntwo SCHED\n"),
    Line("flux pgrep --no-header -o full one | awk '{print $3, $4}'", "one S\n"),
    Line("FLUX_PGREP_FORMAT_DEFAULT={name} flux pgrep one", "NAME\none\n"),
    Line("flux pgrep -o help x | grep -c -e default -e full -e long -e deps", "4\n"),
    Line("flux pgrep -o {nosuch} x", like("flux-pgrep: ERROR: .*nosuch.*"), 1),
    Line("flux pgrep -no {name} $(head -1 ids)..$(sed -n 2p ids) | sort", "one\ntwo\n"),
    Line("flux pgrep -no {name} $(head -1 ids)..$(sed -n 3p ids) t.o", "two\n"),
    Line("flux pgrep -no {name} --filter=run .; flux pgrep -no {name} --filter=run,sched two", "two\n"),
    Line("flux pgrep -f bubbling .", "flux-pgrep: ERROR: Invalid filter specified: bubbling\n", 1),
    Line("flux pgrep --count=2 . | wc -l; flux pgrep --max-entries=1 . | wc -l", "2\n1\n"),
    Line("flux pgrep --user=9999 .", "", 1),
    Line("flux pgrep --user=nosuch .", like("flux-pgrep: ERROR: Invalid user nosuch specified.*"), 1),
    Line("flux pgrep -A --user=9999 -no {name} two", "two\n"),
    Line("flux pgrep --queue=nosuch .", "", 1),
    Line("flux pgrep one two", "flux-pgrep: ERROR: expression error: Only one pattern can be provided\n", 2),
    Line("flux pkill --user=9999 .; flux pkill --queue=nosuch .; flux pkill --filter=run .", "", 1),
    Line(
        "flux pkill --wait ^tw; flux jobs -no {status} $(sed -n 2p ids)",
        "CANCELED\nflux-pkill: INFO: Canceled 1 job\n",
    ),
    Line("flux pgrep two; flux pgrep -a -no {name} --count=1 two", "two\n"),
    Line(
        "flux pkill -a --count=1 two",
        like(f"flux-pkill: ERROR: {ID}: cancel: .*inactive.*\nflux-pkill: INFO: Canceled 0 jobs\n"),
        1,
    ),
    Line("flux pkill --max-entries=1 -A . ; flux pkill -A .", like("(flux-pkill: INFO: Canceled 1 job\n){2}")),
    Line("flux pkill .", "", 1),
]

TREE = [
    Line("flux pstree", ".\n"),
    Line("flux pstree --skip-root=yes; flux pstree -x", like(" +JOBID USER +ST +NTASKS NNODES +RUNTIME\n")),
    Line("flux pstree -a -n --skip-root=no -x | sed -n 1p", like(r" +\. \S+ +R +2 +2 +\S+ \.\n")),
    Line(
        'flux alloc -n2 --bg --job-name=one >one; in="flux proxy $(cat one)"; '
        "for n in 1 2; do $in flux alloc -n1 --bg --job-name=in >in$n; done; "
        "for n in 1 2; do flux proxy $(cat one)/$(cat in$n) flux submit --job-name=leaf sleep inf; done; "
        "flux proxy $(cat one)/$(cat in2) flux submit --job-name=held --urgency=hold true",
        like(".*"),
    ),
    Line("flux pstree", ".\n└── one\n    ├── in\n    │   └── leaf\n    └── in\n        └── leaf\n"),
    Line("flux pstree --compact", ".\n└─one\n  ├─in\n  │ └─leaf\n  └─in\n    └─leaf\n"),
    Line("flux pstree --ascii | head -3", ".\n`-- one\n    |-- in\n"),
    Line("flux pstree --ascii -C", "flux-pstree: ERROR: Choose only one of --ascii, --compact\n", 1),
    Line("flux pstree --level=1", ".\n└── one\n    └── 2*[in]\n"),
    Line("flux pstree -L1 --no-combine", ".\n└── one\n    ├── in\n    └── in\n"),
    Line("flux pstree --skip-root=yes -L0", "one\n"),
    Line("flux pstree --skip-root=no -L0 $(cat one)", ".\n└── one\n"),
    Line("flux pstree $(cat one) | head -2", "one\n├── in\n"),
    Line("flux pstree f1", "JobID ƒ1 unknown\n"),
    Line("flux pstree -a f1", "flux-pstree: WARNING: filtering options ignored with jobid list\nJobID ƒ1 unknown\n"),
    Line("flux pstree -a | grep -o -e 'held:.*' -e 'leaf:.*' -e 'in$' | sort", "held:S\nin\nin\nleaf:R\nleaf:R\n"),
    Line(
        "flux pstree --filter=pending --skip-root=no; flux pstree -f bubbling", like(r"\.\nflux-pstree: ERROR: .*"), 1
    ),
    Line("flux pstree -L1 --count=1", ".\n└── one\n    └── in\n"),
    Line("flux pstree -L1 --label='{name} x' --parent-label='{name} y'", ". y\n└── one y\n    └── 2*[in y]\n"),
    Line("flux pstree -L0 --label='{name} x'", ". x\n└── one x\n"),
    Line("flux pstree -L0 --parent-ids; cat one", like(rf"\. \.\n└── ({ID}) one\n\1\n")),
    Line("flux pstree -L0 --skip-root=yes --parent-label='{name} {instance.stats}'", "one PD:0 R:2 CD:0 F:0\n"),
    Line(
        "flux pstree -x -L1 --no-combine",
        like(r" +JOBID .*RUNTIME\n +ƒ\S+ \S+ +R +1 +\d +\S+ one\n( +ƒ\S+ \S+ .* [├└]── in\n){2}"),
    ),
    Line("flux pstree --extended --no-header -L0 | awk '{print $3, $NF}'", "R one\n"),
    Line(
        "flux pstree -d resources -L0",
        like(r" +JOBID NODES  USED CORES  USED  GPUS  USED\n +ƒ\S+ +\d +\d +2 +2 +0 +0 one\n"),
    ),
    Line(
        "flux pstree --details=stats -L0", like(r" +JOBID +STATS +RUNTIME\n +ƒ\S+ +PD:0 R:2 CD:0 F:0 +0:00:\d\d one\n")
    ),
    Line(
        "flux pstree -d progress -L0",
        like(r" +JOBID NTASKS +NJOBS +PROG CORE% +GPU% +RUNTIME\n +ƒ\S+ +1 +2 +0% +100% .*one\n"),
    ),
    Line("flux pstree -d nosuch", "flux-pstree: ERROR: Unknown --details format 'nosuch'\n", 1),
    Line("flux pstree --detail-format='{name:<5}' -L0", "NAME \none   one\n"),
    Line("COLUMNS=10 flux pstree | tail -1; COLUMNS=10 flux pstree --long | tail -1", "        └+\n        └── leaf\n"),
    Line("flux proxy $(cat one) flux pstree -L0", "one\n└── 2*[in]\n"),
    Line("flux pstree --skip-root=foo", like(".*--skip-root: 'foo' must be yes or no\n"), 2),
    Line("flux pstree IllegalID", like(".*invalid JobID value: 'IllegalID'\n"), 2),
    Line("flux cancel --all; flux queue idle --quiet", like(".*")),
]

LINES = [*LISTING, *ATTACHING, *MATCHING, *TREE]


@pytest.fixture(scope="module")
def jobs_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("jobs"), "--test-size=2")


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_job_option_has_its_effect(index: int, jobs_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], jobs_answers[index])
