"""Options of `flux job SUBCOMMAND`: each shown by an answer that would be another one without it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from option_lines import Line, after_first, answers, check, like, names

ID = "ƒ[1-9A-Za-z]+"
EPOCH = r"1\d{9}\.\d{6}"

JOB = [
    Line("flux run --job-name=first sh -c 'echo out; echo err >&2' >id 2>&1; flux job last >first"),
    # eventlog
    Line("flux job eventlog $(cat first) | head -n1", like(f"{EPOCH} submit userid=.*\n")),
    Line(
        "flux job eventlog --format=json $(cat first) | head -n1",
        like('{"timestamp":.*"name":"submit","context":.*}\n'),
    ),
    Line("flux job eventlog --format=xml $(cat first)", "flux-job: invalid format type 'xml'\n", 1),
    Line("flux job eventlog --time-format=raw $(cat first) | tail -n1", like(f"{EPOCH} clean\n")),
    Line(
        "TZ=UTC flux job eventlog --time-format=iso $(cat first) | tail -n1",
        like(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z clean\n"),
    ),
    Line("TZ=XXX-02:30 flux job eventlog --time-format=iso $(cat first) | tail -n1", like(r".*\+02:30 clean\n")),
    Line("flux job eventlog --time-format=offset $(cat first) | head -n1", like("0.000000 submit.*\n")),
    Line("flux job eventlog --time-format=offset $(cat first) | tail -n1", like(r"\d\.\d{6} clean\n")),
    Line("flux job eventlog --time-format=human $(cat first) | head -n1", like(r"\[...\d\d \d\d:\d\d\] submit .*\n")),
    Line("flux job eventlog --human $(cat first) | tail -n1", like(r"\[.{11}\] clean\n")),
    Line("flux job eventlog --time-format=odd $(cat first)", "flux-job: invalid time-format 'odd'\n", 1),
    Line(
        "flux job eventlog --color=always $(cat first) | tail -n1",
        like("\033\\[32m" + EPOCH + "\033\\[0m \033\\[33mclean\033\\[0m\n"),
    ),
    Line("flux job eventlog --color=never $(cat first) | tail -n1", like(EPOCH + " clean\n")),
    Line("flux job eventlog --color=odd $(cat first)", like("flux-job: Invalid argument to --color: odd.*\n"), 1),
    Line("flux job eventlog --path=exec -f json $(cat first) | grep -c shell.start", "1\n"),
    Line(
        "flux job eventlog --path=output -T offset $(cat first) | head -n1",
        like("0.000000 header version=1 .*\n"),
    ),
    Line("flux job eventlog --path=guest.exec.eventlog $(cat first) | tail -n1", like(f"{EPOCH} done\n")),
    Line("flux job eventlog --path=nosuch $(cat first)", "flux-job: eventlog path nosuch not found\n", 1),
    Line(
        "flux submit --urgency=hold --time-limit=1m true >held; "
        + after_first("flux job eventlog --follow $(cat held)", "flux job raise $(cat held)")
        + " | tail -n1",
        like(f"{EPOCH} clean\n"),
    ),
    # attach
    Line(
        "flux run sh -c 'seq 1 30; printf end >&2' >all 2>&1; flux job last >lines;"
        " flux job attach --tail=3 $(cat lines)",
        "29\n30\nend",
    ),
    Line("flux job attach --tail $(cat lines) | wc -l", like(" *9\nend")),
    Line("flux job attach --tail=0 --label-io $(cat lines)", ""),
    Line("flux job attach --tail=40 $(cat lines) 2>&1 | cmp - all", ""),
    Line("flux job attach --tail=-1 $(cat lines)", "flux-job: --tail: not a number of lines: -1\n", 1),
    Line(
        "flux submit sh -c 'seq 5; until test -e six; do sleep .02; done; echo 6' >six.id;"
        " flux job wait-event -qp output -m stream=stdout $(cat six.id) data;"
        + after_first("flux job attach --tail=1 $(cat six.id)", "touch six"),
        "5\n6\n",
    ),
    *[
        Line(
            # Who shows output has learned to pass signals on.
            f'rm -f up{name}; flux run sh -c \'trap "echo {name}; exit 3" {name}; echo up;'
            f" while :; do sleep .02; done' >up{name} & until test -s up{name}; do sleep .02; done;"
            f" kill -{name} $!; wait $!; r=$?; cat up{name}; exit $r",
            like(f"up\n{name}\n(.*\n)?flux-job: task\\(s\\) exited with exit code 3\n"),
            3,
        )
        for name in ("TERM", "HUP", "USR1", "USR2", "ALRM")
    ],
    # info
    Line("flux submit --urgency=hold --time-limit=1m true >held; flux update $(cat held) duration=2m"),
    Line("flux job info $(cat held) jobspec | grep -o '\"duration\": *[0-9.]*'", like(r'"duration": 120(\.0)?\n')),
    Line(
        "flux job info --base $(cat held) jobspec | grep -o '\"duration\": *[0-9.]*'", like(r'"duration": ?60(\.0)?\n')
    ),
    Line(
        "flux job info --original $(cat held) jobspec | grep -o '\"duration\": *[0-9.]*'",
        like(r'"duration": ?60(\.0)?\n'),
    ),
    # What was submitted is one thing, what the instance added to it another.
    Line("flux job info --base $(cat first) jobspec | grep -c FLUX_JOB_ID", "0\n", 1),
    # memo
    Line("flux job memo $(cat held) kept=1; flux job memo --volatile $(cat held) lost=2 text=words"),
    Line("flux jobs -no '{user.kept} {user.lost} {user.text}' $(cat held)", "1 2 words\n"),
    Line("flux job eventlog $(cat held) | grep -o 'memo .*'", "memo kept=1\n"),
    Line("echo -n read | flux job memo $(cat held) of.a=- of.b=[1] && flux job memo $(cat held) of.b=null"),
    Line("flux job eventlog $(cat held) | grep -o 'memo of.*'", 'memo of={"a":"read","b":[1]}\nmemo of={"b":null}\n'),
    Line("flux job memo $(cat held) bad", "flux-job: memo: no value for key bad\n", 1),
    # raise
    Line(
        "flux job raise --severity=7 --type=test --message='of no weight' $(cat held); "
        "flux jobs -no {status} $(cat held)",
        "SCHED\n",
    ),
    Line(
        "flux job eventlog $(cat held) | grep -o 'exception .*'",
        like('exception type="test" severity=7 note="of no weight" userid=\\d+\n'),
    ),
    Line("flux job raise --severity=9 $(cat held)", like("flux-job: Invalid severity.*\n"), 1),
    Line("flux job raise --type=end $(cat held) -- why not", ""),
    Line("flux job eventlog $(cat held) | grep -o 'note=\"why.*'", like('note="why not" userid=\\d+\n')),
    # status
    Line("flux job status --exception-exit-code=42 $(cat held)", "", 42),
    Line("flux job status $(cat held)", "", 1),
    Line("flux job status --exception-exit-code=42 $(cat first)", "", 0),
    Line("flux job status --verbose $(cat held)", like(f"flux-job: {ID}: exception type=end\n"), 1),
    Line('flux job status --json $(cat held) | grep -o \'"exception_type":"end"\'', '"exception_type":"end"\n'),
    # urgency, kill
    Line("flux submit --urgency=hold true >held; flux job urgency --verbose $(cat held) 5", "old urgency: job held\n"),
    Line(
        "flux submit sleep 100 >s; flux job wait-event $(cat s) start >/dev/null; "
        "flux job kill --signal=USR1 $(cat s); flux job status -v $(cat s)",
        like(f"flux-job: {ID}: .*(USR1|User defined).*\n"),
        138,
    ),
    # hostpids: of tasks that print their own
    Line(
        "flux submit -N2 --tasks-per-node=2 sh -c 'echo pid $$; exec sleep 100' >pids; "
        "flux job wait-event $(cat pids) start >begun; "
        "flux job hostpids --delimiter=' ' $(cat pids) >told; wc -w <told; "
        "flux job hostpids --ranks=1-2 $(cat pids) | tr , '\\n' | wc -l; "
        "for at in $(cat told); do tr '\\0' ' ' </proc/${at#*:}/environ | grep -o 'FLUX_TASK_RANK=.'; done",
        "4\n2\nFLUX_TASK_RANK=0\nFLUX_TASK_RANK=1\nFLUX_TASK_RANK=2\nFLUX_TASK_RANK=3\n",
    ),
    Line(
        "flux cancel $(cat pids); flux job wait-event $(cat pids) clean >begun; flux job hostpids --timeout=9s 1",
        "flux-job: 1: No such job\n",
        1,
    ),
    Line("flux job hostpids $(cat pids)", like("flux-job: ƒ\\w+: job is not running\n"), 1),
    Line("flux job hostpids --timeout=soon 1", like("flux-job: invalid duration 'soon'.*\n"), 1),
    # taskmap: two tasks on each of two nodes
    Line("flux run -N2 --tasks-per-node=2 true; flux job taskmap $(flux job last | tee four)", "[[0,2,2,1]]\n"),
    Line("flux job taskmap --taskids=1 $(cat four)", "2-3\n"),
    Line("flux job taskmap --ntasks=1 $(cat four)", "2\n"),
    Line("flux job taskmap --nodeid=1 $(cat four); flux job taskmap --nodeid=2 $(cat four)", "0\n1\n"),
    Line("flux job taskmap --hostname=1 $(cat four); flux job taskmap --hostname=2 $(cat four)", "node0\nnode1\n"),
    Line("flux job taskmap --to=raw $(cat four)", "0-1;2-3\n"),
    Line("flux job taskmap --to=pmi $(cat four)", "(vector,(0,2,2))\n"),
    Line("flux job taskmap --to=multiline $(cat four)", "0: 0\n1: 0\n2: 1\n3: 1\n"),
    Line("flux job taskmap --to=hosts $(cat four)", "node0: 0-1\nnode1: 2-3\n"),
    Line(
        "flux job taskmap --to=odd $(cat four)",
        "flux-job: invalid value for --to=odd: use raw, pmi, multiline or hosts\n",
        1,
    ),
    Line("flux job taskmap --nodeid=9 '[[0,2,2,1]]'", like("flux-job: .*9.*\n"), 1),
    # wait-event
    Line("flux job wait-event --format=json $(cat first) depend", like('{"timestamp":[0-9.]+,"name":"depend"}\n')),
    Line("flux job wait-event --match-context=status=0 $(cat first) finish", like(f"{EPOCH} finish status=0\n")),
    Line(
        "flux job wait-event --match-context=status=256 $(cat first) finish",
        "flux-job: event 'finish' never received\n",
        1,
    ),
    Line(
        "flux job wait-event --match-context=status $(cat first) finish",
        "flux-job: must specify a context test as key=value\n",
        1,
    ),
    Line("flux job wait-event --path=exec $(cat first) shell.init", like(f"{EPOCH} shell.init .*\n")),
    Line("flux job wait-event --path=output --count=2 $(cat first) data", like('.*stream="std(out|err).*\n')),
    Line("flux job wait-event --count=2 $(cat first) submit", "flux-job: event 'submit' never received\n", 1),
    Line("flux job wait-event --count=0 $(cat first) submit", "flux-job: count must be > 0\n", 1),
    Line("flux job wait-event --time-format=offset $(cat first) submit", like("0.000000 submit .*\n")),
    Line("flux job wait-event --human $(cat first) submit", like(r"\[.{11}\] submit .*\n")),
    Line("flux job wait-event --color=always $(cat first) validate", like("\033.*validate\033.*\n")),
    Line("flux job wait-event --verbose $(cat first) depend | wc -l", "3\n"),
    Line("flux job wait-event --quiet $(cat first) depend"),
    Line(
        "flux submit --urgency=hold true >held; flux job wait-event --timeout=0.1 $(cat held) alloc",
        "flux-job: wait-event timeout on event 'alloc'\n",
        1,
    ),
    Line("flux job wait-event --timeout=soon $(cat held) alloc", like("flux-job: invalid timeout.*\n"), 1),
    Line("flux job wait-event --path=guest.odd $(cat held) x", "flux-job: eventlog path guest.odd not found\n", 1),
    Line(
        "flux job wait-event --waitcreate --path=guest.odd -t .1 $(cat held) x",
        "flux-job: wait-event timeout on event 'x'\n",
        1,
    ),
    Line(
        "flux job wait-event --waitcreate --path=exec $(cat held) init & flux job urgency $(cat held) 16; wait",
        like(f"{EPOCH} init\n"),
    ),
    # wait and timeleft
    Line(
        "flux submit --flags=waitable true >w; flux job wait --all --verbose",
        like(f"flux-job: {ID}: job completed successfully\n"),
    ),
    Line(
        "flux submit -t 1h sleep 100 >t; flux job wait-event -q $(cat t) start; flux job timeleft --human $(cat t)",
        like(r"\d+(\.\d+)?m\n"),
    ),
    Line("flux job timeleft $(cat t)", like("3[0-9]{3}\n")),
    Line("flux cancel $(cat t); flux job wait-event -q $(cat t) clean; flux job timeleft $(cat t)", "0\n"),
    # submit
    Line(
        "flux submit --dry-run true >spec; flux job submit --urgency=0 spec >u; flux jobs -no {urgency} $(cat u)", "0\n"
    ),
    Line(
        "flux submit --debug --urgency=hold true >d; flux job eventlog $(cat d) | grep -o flags=2;"
        " flux cancel $(cat d)",
        "flags=2\n",
    ),
    Line(
        "flux job submit --flags=debug --urgency=hold spec >d; flux job eventlog $(cat d) | grep -o flags=2",
        "flags=2\n",
    ),
    Line("flux job submit --flags=odd spec", "flux-job: unknown flag: odd\n", 1),
    # The owner submits for another user (RFC 12). The instance refuses to run the job, but not to take it.
    Line(
        "flux python -c 'import sys; from flux.security import SecurityContext;"
        ' print(SecurityContext().sign_wrap_as(5011, sys.stdin.read(), mech_type="none").decode())\' <spec >signed;'
        " FLUX_HANDLE_USERID=5011 flux job submit --flags=signed signed >other; flux jobs -no {userid} $(cat other);"
        " flux job wait-event -q $(cat other) clean; flux job purge --force $(cat other)",
        like(r"5011\npurged 1 inactive jobs, \d+ remaining\n"),
    ),
    Line("flux job submit --flags=signed signed", f"flux-job: signer=5011 != requestor={os.getuid()}\n", 1),
    Line(
        "flux job submit --flags=signed --sign-type=none signed",
        "flux-job: --sign-type: the jobspec is signed already, with --flags=signed\n",
        1,
    ),
    # all jobs of a user at once
    Line("flux submit --cc=1-2 --quiet sleep 100; flux submit --urgency=hold --job-name=kept --quiet true"),
    Line("for id in $(flux jobs -no {id} --name=sleep); do flux job wait-event -q $id start; done"),
    Line("flux job raiseall --states=pending test a note", "flux-job: Command matched 3 jobs (-f to confirm)\n"),
    Line(
        "flux job raiseall --force --states=run --severity=6 test a note",
        "flux-job: Raised exception on 2 jobs (0 errors)\n",
    ),
    Line(
        "flux job eventlog $(flux jobs -no {id} --name=sleep -c1) | grep -o 'exception .*'",
        like('exception type="test" severity=6 note="a note" .*\n'),
    ),
    Line(
        "flux job raiseall --force --user=4242 test; flux job raiseall --user=nosuch test",
        "flux-job: Command matched 0 jobs\nflux-job: unknown user nosuch\n",
        1,
    ),
    Line("flux job raiseall --states=odd test", "flux-job: error parsing states: odd unknown\n", 1),
    Line(
        "flux job killall --user=4242; flux job killall --user=all",
        "flux-job: Command matched 0 jobs\nflux-job: Command matched 2 jobs (-f to confirm)\n",
    ),
    Line(
        "flux jobs -no {id} --name=sleep >both; flux job killall --signal=KILL --force; flux job status $(cat both)",
        "flux-job: Killed 2 jobs (0 errors)\n",
        137,
    ),
    # lists for programs
    Line("flux job list --count=1 --states=pending | grep -o '\"urgency\": 0'", '"urgency": 0\n'),
    Line("flux job list | wc -l; flux job list --all | wc -l", like("3\n\\d\\d\n")),
    Line("flux job list --all --since=9999999999 | wc -l", "3\n"),
    Line("flux job list --user=4242; flux job list --all-users | wc -l", "3\n"),
    Line("flux job list-inactive --count=2 | wc -l", "2\n"),
    Line(
        "flux job list-inactive --since=$(flux job list-inactive | sed -n 2p | jq .t_inactive) | wc -l; "
        "flux job list-inactive --since=-1",
        "1\nflux-job: Invalid argument: --count and --since are numbers from 0\n",
        1,
    ),
    Line("flux cancel --all --quiet; flux queue idle --quiet", like("flux-cancel: Canceled .*\n")),
    Line("flux cancel --all --quiet"),
    # purge, at last
    Line(
        "flux jobs -a -c0 -no {id} | wc -l >n; flux job purge --num-limit=3 | sed s/$(($(cat n)-3))/ALLBUT3/",
        like("use --force to purge ALLBUT3 of \\d+ inactive jobs\n"),
    ),
    Line("flux job purge --age-limit=1h", like("use --force to purge 0 of \\d+ inactive jobs\n")),
    Line("flux job purge --force --num-limit=3 --batch=2", like("purged \\d+ inactive jobs, 3 remaining\n")),
    Line("flux job purge --force --num-limit=0 --batch=x", like("flux-job: .*integer.*\n.*"), 1),
    Line(
        "flux jobs -ano {id} | tail -n1 >last; flux job purge --force $(cat last)",
        "purged 1 inactive jobs, 2 remaining\n",
    ),
    Line("flux job purge --force --age-limit=0s", "purged 2 inactive jobs, 0 remaining\n"),
]


@pytest.fixture(scope="module")
def job_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    config = tmp_path_factory.mktemp("config") / "two.toml"
    config.write_text('[resource]\nnoverify = true\n[[resource.config]]\nhosts = "node[0-1]"\ncores = "0-1"\n')
    return answers(JOB, tmp_path_factory.mktemp("job"), "-s2", "-c", str(config))


@pytest.mark.parametrize("index", range(len(JOB)), ids=names(JOB))
def test_job_option_has_its_effect(index: int, job_answers: list[dict[str, Any]]) -> None:
    check(JOB[index], job_answers[index])
