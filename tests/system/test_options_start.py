"""Options of `flux start` and `flux broker`: each shown by what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from option_lines import Line, answers, check, like, names

ID = "ƒ[1-9A-Za-z]+"

STARTED = [
    Line(
        "flux start -vX -o -Sa=b,--conf=x.y=1 --broker-opts=-Sc=d -Se=f prog arg",
        like("flux-start: .*flux broker -Sa=b --conf=x.y=1 -Sc=d -Se=f prog arg\n"),
    ),
    Line(
        "flux start --noexec --verbose -s2 -cpath prog",
        like(
            "flux-start: 0: .*flux broker -cpath (--setattr=rundir=.*/flux-XXXXXX) prog\n"
            "flux-start: 1: .*flux broker -cpath \\1\n"
        ),
    ),
    Line("flux start --noexec sh -c 'echo started'", ""),
    Line("flux start -v sh -c 'echo started'", like("started\nflux-start: .*flux broker sh -c echo started\n")),
    Line(
        "flux start -v2 -X --sysconfig prog", like("flux-start: .*flux broker --config-path=/.*/system/conf.d prog\n")
    ),
    # what the broker's options take as their values may follow in the command
    Line("flux start -o --conf resource.noverify=true flux config get resource.noverify", "true\n"),
    Line(
        "mkdir conf; echo x.y=4 >conf/a.toml; flux start -o --config conf -Slog-ring-size=100 sh -c "
        "'flux config get x.y; flux getattr log-ring-size' 2>/dev/null",
        "4\n100\n",
    ),
    Line("flux start --wrap=env,WRAPPED=yes printenv WRAPPED", "yes\n"),
    Line(
        "mkdir wrapped; flux start --wrap=env,WRAPPED=yes -o --config wrapped -Slog-stderr-level=5 "
        "sh -c 'printenv WRAPPED; flux getattr log-stderr-level'",
        "yes\n5\n",
    ),
    Line("flux start -s2 --wrap=env,WRAPPED=yes sh -c 'printenv WRAPPED; flux getattr size'", "yes\n2\n"),
    Line("flux start -s2 --verbose=2 true 2>&1 | grep -c '^[01]: [CS]: cmd=init.* pmi_version=1 '", "2\n"),
    Line(
        "flux broker -v true",
        "flux-broker: boot: rank=0 size=1\nflux-broker: parent: none\nflux-broker: child: none\n"
        "flux-broker: entering event loop\n",
    ),
    Line("flux broker -vv true 2>&1 | tail -1", "flux-broker: entering event loop\n"),
    Line(
        "flux batch -n1 --output=said --broker-opts=-v --wrap true >id; flux job wait-event -q $(cat id) clean; "
        "grep -o 'boot: rank=0 size=1\\|entering event loop' said",
        "boot: rank=0 size=1\nentering event loop\n",
    ),
    Line(
        "flux start -s2 -o,--verbose true 2>&1 | sort",
        like(
            "flux-broker: boot: rank=0 size=2\nflux-broker: boot: rank=1 size=2\n"
            "flux-broker: child: ipc://(.*/tbon-0)\nflux-broker: child: (none|ipc://.*)\n"
            "(flux-broker: entering event loop\n){2}"
            "flux-broker: parent: ipc://\\1\nflux-broker: parent: none\n"
        ),
    ),
    Line("flux start -o,-Slog-ring-size=100 flux getattr log-ring-size", "100\n"),
    Line("flux start --broker-opts=--conf=a.b=3,-q true", like("flux-broker: unrecognized option '-q'\n.*"), 1),
    Line("flux start -s4 -Scron.directory=/x -Stbon.fanout=2 flux getattr tbon.topo", "kary:2\n"),
    Line(
        "flux submit --wait-event=exec.shell.init sleep inf >id; flux run --wait-event=exec.shell.start sleep inf; "
        "flux job wait-event $(cat id) start >/dev/null; flux cancel $(cat id) $(flux job last)",
        "",
    ),
    Line(
        "flux submit --wait-event=memo flux start -Sbroker.rc2_none >id; flux proxy $(cat id) flux getattr size; "
        "flux shutdown --quiet $(cat id)",
        "1\n",
    ),
    Line("flux start --broker-opts=--conf=resource.noverify=true flux config get resource.noverify", "true\n"),
    Line("flux alloc -n1 --dry-run | grep -o '\"command\": [^]]*]'", '"command": ["flux", "broker"]\n'),
    Line(
        "flux start -s2 flux alloc -N2 --add-brokers=2 sh -c 'flux getattr size; "
        "flux resource list -s free -no {nnodes}; flux resource status -s exclude -no {ranks}; "
        "flux run -N2 echo ran' </dev/null",
        "4\n2\n1-2\nran\nran\n",
    ),
    Line("flux batch -n2 --add-brokers=1 --dry-run --wrap true", like("flux-batch: ERROR: --add-brokers .*"), 1),
    Line("flux alloc -n1 --broker-opts=-Slog-ring-size=100 flux getattr log-ring-size", "100\n"),
]

BOOTED = [
    Line("mkdir rd; flux start -s1 --test-rundir=rd ls rd; ls -d rd", "bin\nlocal-0\nstart\nrd\n"),
    Line(
        "flux start -s1 --test-rundir=rd --test-rundir-cleanup ls rd; ls -d rd 2>/dev/null", "bin\nlocal-0\nstart\n", 2
    ),
    Line("mkdir re; flux start -s3 -Stbon.topo=kary:1 --test-rundir=re true; ls re", ""),
    Line("flux start -s1 --test-rundir=rd true", "flux-start: rd: No such file or directory\n", 1),
    Line("touch rf; flux start -s1 --test-rundir=rf true", "flux-start: rf: not a directory\n", 1),
    Line("flux start --test-rundir=rd true", "flux-start: --test-rundir needs --test-size\n", 1),
    Line("flux start --test-exit-mode=any true", "flux-start: --test-exit-mode needs --test-size\n", 1),
    Line("flux start -s1 --test-exit-mode=x true", like("flux-start: unknown --test-exit-mode: x: .*\n"), 1),
    Line("flux start -s1 --test-start-mode=x true", like("flux-start: unknown --test-start-mode: x: .*\n"), 1),
    Line("flux start -s1 --test-exit-timeout=x true", like("flux-start: --test-exit-timeout: invalid.*\n"), 1),
    Line("flux start -s1 --test-rundir-cleanup true", "flux-start: --test-rundir-cleanup needs --test-rundir\n", 1),
    # which brokers share a node
    Line("flux start -s2 flux getattr broker.mapping", "[[0,1,2,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=per-broker flux getattr broker.mapping", "[[0,2,1,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=[[0,2,1,1]] flux getattr broker.mapping", "[[0,2,1,1]]\n"),
    Line("flux start -s2 --test-pmi-clique=none flux getattr tbon.endpoint", like("tcp://.*\n")),
    Line("flux start -s2 --test-pmi-clique=single flux getattr tbon.endpoint", like("ipc://.*\n")),
    Line(
        "flux start -s2 --test-pmi-clique=0-2 true", like("flux-start: --test-pmi-clique: the task map has 3 .*\n"), 1
    ),
    # how a broker boots
    Line("flux start -s1 flux getattr broker.boot-method", "simple\n"),
    Line("flux start flux getattr broker.boot-method", "single\n"),
    Line("flux start -s1 -Sbroker.boot-method=single flux getattr broker.boot-method", "single\n"),
    Line("FLUX_PMI_CLIENT_METHODS=single flux start -s1 flux getattr broker.boot-method", "single\n"),
    Line("flux start -s2 -Sbroker.boot-method=single true", like("flux-broker: boot method single makes .*\n"), 1),
    Line("flux start -Sbroker.boot-method=x true", "flux-broker: bootstrap: plugin matching 'x' not found\n", 1),
    Line("flux start -s2 -Sbroker.boot-method=x true", "flux-broker: bootstrap: plugin matching 'x' not found\n", 1),
    # the state of an instance, looked at: its jobs are there and nothing runs
    Line(
        "flux start -Sstatedir=st sh -c 'flux kvs put a=1; flux submit --wait true; flux submit --urgency=hold x'",
        like(f"{ID}\n{ID}\n"),
    ),
    Line(
        "flux start --recovery=st sh -c 'flux kvs get a; flux jobs -ano {name}; flux resource list -no {state}{nnodes};"
        " flux submit --quiet true; flux jobs -no {state}'",
        "1\nx\ntrue\nfree0\nallocated0\ndown1\nSCHED\nSCHED\n",
    ),
    Line("flux start --recovery=st flux getattr broker.recovery-mode", "1\n"),
    Line("flux start --recovery=nosuch true", like("flux-start: --recovery: nosuch: .*\n"), 1),
    Line("flux start -s2 --recovery=st true", like("flux-start: --recovery starts one broker.*\n"), 1),
]

TABLES = {"started": STARTED, "booted": BOOTED}
CASES = [(table, index) for table, lines in TABLES.items() for index in range(len(lines))]


@pytest.fixture(scope="module")
def start_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Each table has an instance of its own: a start takes longer than most commands."""
    return {table: answers(lines, tmp_path_factory.mktemp(table)) for table, lines in TABLES.items()}


@pytest.mark.parametrize(("table", "index"), CASES, ids=[name for lines in TABLES.values() for name in names(lines)])
def test_start_option_has_its_effect(table: str, index: int, start_answers: dict[str, list[dict[str, Any]]]) -> None:
    check(TABLES[table][index], start_answers[table][index])
