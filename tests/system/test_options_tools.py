"""Options of `flux proxy`, `uri`, `dmesg`, `lsattr`, `ping`, `exec`, `shutdown`, `keygen` and `hostlist`.

Each is shown by what it changes, in an instance of two brokers.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from instance import FLUX, clean_env
from option_lines import Line, after_first, answers, check, like, names

from headrace.formats.spec.message import Deframer, frame, response

ID = "ƒ[1-9A-Za-z]+"
LOG = r"broker\.%s\[0\]: [^\n]+\n"
FLAGS_OF_EVENT = """
from headrace.wire.client.handle import Handle
from headrace.formats.spec.message import FLAG_PRIVATE
handle = Handle()
handle.subscribe("t.")
print("ready", flush=True)
print(bool(handle.next_event().flags & FLAG_PRIVATE))
"""
INSIDE = 'flux shutdown --background; while test -S "${FLUX_URI#*//}"; do sleep .02; done; '

REACHING = [
    Line("flux uri --remote local:///x/y", like("ssh://[^/]+/x/y\n")),
    Line("flux uri --remote ssh://h/x/y", "ssh://h/x/y\n"),
    Line("flux uri --local ssh://h/x/y", "local:///x/y\n"),
    Line(
        "flux exec -r 1 sh -c 'flux uri pid:$(flux getattr broker.pid)' 2>&1 | grep -c 'and no child found'",
        "1\n",
    ),
    Line("test $(flux uri /) = $FLUX_URI && test $(flux uri ..) = $FLUX_URI && test $(flux uri .) = $FLUX_URI", ""),
    Line("flux alloc -n1 sh -c 'flux uri / ..; flux uri /; flux uri ..' 2>&1 | grep -c $FLUX_URI", "2\n"),
    Line("flux uri --help | grep schemes", "Supported resolver schemes:\n"),
    Line("sh -c 'test $(flux uri \"pid:$$?remote\") = $(flux uri --remote $FLUX_URI)'"),
    Line(
        "printf '#!/bin/sh\necho PID JOBID\necho %s 77\n' $$ >scontrol; chmod +x scontrol; "
        "PATH=$PWD:$PATH flux uri slurm:77 | cut -d: -f1",
        "ssh\n",
    ),
    Line(
        "printf '#!/bin/sh\necho compute_nodes:\necho \" - n9\"\n' >query; "
        "printf '#!/bin/sh\nexec sh -c \"$2\"\n' >there; chmod +x query there; export LSB_JOBID=88; "
        "CSM_ALLOCATION_QUERY=./query FLUX_SSH=./there sh -c 'flux uri --local lsf:88 | cut -d: -f1'",
        "local\n",
    ),
    Line("flux uri slurm:78", "flux-uri: ERROR: unable to query nodelist for Slurm job 78\n", 1),
    Line("flux uri lsf:89", "flux-uri: ERROR: No compute nodes found for LSF job 89\n", 1),
    Line("flux uri pid:0", "flux-uri: ERROR: No such file or directory: '/proc/0/environ'\n", 1),
    Line("flux alloc -n1 --bg >id; flux uri --wait $(cat id) | cut -d: -f1", "ssh\n"),
    Line("flux uri --local $(cat id) | cut -d: -f1", "local\n"),
    # an instance knows itself by the id that it has outside
    Line("flux proxy $(cat id) sh -c 'test $(flux uri --local $(cat id)) = $(flux getattr local-uri)'"),
    Line(
        "flux proxy $(cat id) flux uri f1",
        like("flux-uri: ERROR: jobid f1 not found\n"),
        1,
    ),
    Line("flux alloc -n1 --bg -v true | wc -l", like("1\n.*: waiting for resources\n.*: waiting for instance\n")),
    Line(
        "flux alloc -n1 --bg --broker-opts=--xx", like(".*unrecognized option '--xx'.*: instance startup failed\n"), 1
    ),
    # the end of the instance hangs the command up, unless told otherwise
    Line(
        f"flux proxy $(cat id) sh -c 'trap \"echo hup; exit 3\" HUP; {INSIDE} while :; do sleep .02; done'",
        "hup\nflux-proxy: lost connection to the broker, sending SIGHUP to the command\n",
        3,
    ),
    Line(
        "flux alloc -n1 --bg >id; flux proxy --nohup $(cat id) sh -c "
        f"'trap \"echo hup\" HUP; {INSIDE} until test -s err; do sleep .02; done; sleep .1; echo on' 2>err; cat err",
        "on\nflux-proxy: lost connection to the broker\n",
    ),
    # through ssh, which here is a script that leaves out the host: one connection carries those of all commands
    Line(
        'printf \'#!/bin/sh\\necho "$1" >>hosts; shift; exec "$@"\\n\' >ssh; chmod +x ssh; '
        "FLUX_SSH=./ssh flux proxy ssh://me@there$(flux getattr rundir)/local-0 sh -c '"
        "flux getattr size; flux run -n2 echo out; flux getattr rank; echo $FLUX_PROXY_REMOTE'; cat hosts",
        "2\nout\nout\n0\nme@there\nme@there\n",
    ),
    Line("$(flux getattr rundir)/bin/flux getattr size", "2\n"),
    Line(
        "flux alloc -n1 --bg >id; "
        "FLUX_PROXY_REMOTE=me@there flux proxy $(cat id) flux getattr parent-uri | cut -d: -f1; "
        "FLUX_SSH=./ssh flux proxy ssh://me@there$(flux proxy $(cat id) flux getattr rundir)/local-0 "
        "sh -c 'flux getattr parent-uri | cut -d/ -f1-3'; flux shutdown --quiet $(cat id)",
        "local\nssh://me@there\n",
    ),
    Line("flux proxy bloop:1 true", like("flux-proxy: Unable to resolve bloop:1 to a URI: .*"), 1),
    Line(
        "mkfifo quiet; FLUX_HOSTLIST_STDIN_TIMEOUT=.1 flux hostlist <>quiet",
        "flux-hostlist: ERROR: timeout after .1s waiting for standard input\n",
        1,
    ),
    Line("flux hostlist -m 'h[1,1,1]' h1; flux hostlist -um 'h[1,1,1]' h1", "h[1,1]\nh1\n"),
    Line(
        "flux config set --type=string x.y meep; flux config get --type=fsd x.y",
        "flux-config: x.y does not have the requested type: 'meep' is not a valid FSD\n",
        1,
    ),
    Line("flux config set --type=integer job-manager.inactive-age-limit 5", like(".*Expected string.*"), 1),
    Line("flux config set --type=string job-manager.inactive-age-limit x", like(".*invalid FSD.*"), 1),
    Line("flux config set --type=integer job-manager.inactive-num-limit -- -5", like(".*must be >= 0.*"), 1),
    # an instance that comes back at the same place
    Line(
        "mkdir pr; up() { flux start -s1 --test-rundir=pr sh -c 'touch up; sleep 60' 2>/dev/null & }; up; "
        "until test -e up; do sleep .02; done; rm up; flux proxy --reconnect local://$PWD/pr/local-0 "
        "sh -c 'flux shutdown --quiet; until grep -q trying err; do sleep .02; done; touch down; "
        "until grep -q reconnected err; do sleep .02; done; flux getattr rundir; flux shutdown --quiet' 2>err & "
        "until test -e down; do sleep .02; done; wait %1; up; wait; sed -n 's/: Con.*,/: ...,/; /^flux-proxy/p' err",
        like(
            "/\\S+/pr\nflux-proxy: lost connection to the broker: ..., trying to reconnect\nflux-proxy: reconnected\n.*"
        ),
    ),
]

LOGGING = [
    Line("flux dmesg --read-clear >all; flux logger one; flux dmesg | cut -d' ' -f2-", "logger.notice[0]: one\n"),
    Line("flux logger -s err two; flux dmesg -H | cut -c1-13,15-", like(r"\[\w+ \d\d:\d\d\].* one\n\[ .*: two\n")),
    Line(
        "sleep .2; flux logger three; sleep .2; flux logger four; flux dmesg --human --delta | tail -1 >d; "
        "flux dmesg --human | tail -1 >h; cut -c3-13 d h | tr '\\n' ' ' | awk '{print ($1 < $2 || $2 !~ /^\\+/)}'",
        "1\n",
    ),
    Line("flux dmesg --color=always | head -1", like("\033\\[32m\\S+\033\\[0m \033\\[33mlogger.*\033\\[0m: one\n")),
    Line("flux dmesg --color=always | grep two", like(".*: \033\\[31mtwo\033\\[0m\n")),
    Line("flux dmesg --delta", "flux-dmesg: --delta can only be used with --human\n", 1),
    Line("printf 'in1\\n\\nin2\\r\\n' | flux logger -n me; flux dmesg | sed -n 's/.*me.notice.*: //p'", "in1\nin2\n"),
    Line("flux setattr own 1", "flux-setattr: own: unknown attribute\n", 1),
    Line(
        "flux setattr broker.shutdown-warn 5m", "flux-setattr: broker.shutdown-warn: attribute may not be updated\n", 1
    ),
    Line("flux setattr --force broker.shutdown-warn 5m; flux getattr broker.shutdown-warn", "5m\n"),
    Line("flux setattr log-forward-level -1; flux getattr log-forward-level; flux setattr log-forward-level 7", "-1\n"),
    Line(
        "flux setattr user.own 1; flux getattr user.own; flux setattr --expunge user.own; flux getattr user.own",
        like("1\nflux-g.*\n"),
        1,
    ),
    Line("flux exec -r 1 flux ping -c1 -r upstream broker | grep -o '^0!broker.ping'", "0!broker.ping\n"),
    Line("flux dmesg --color=nosuch", like("flux-dmesg: Invalid argument to --color: nosuch.*\n"), 1),
    # what is there and what comes, or only what comes
    Line(
        "flux dmesg --follow >seen & until test -s seen; do sleep .02; done; "
        "flux logger five; until grep -q five seen; do sleep .02; done; kill $!; grep -c -e one -e five seen",
        "2\n",
    ),
    Line(
        ">seen; flux dmesg --new >seen & until grep -q six seen; do flux logger six; sleep .02; done; "
        "kill $!; grep -c one seen",
        "0\n",
        1,
    ),
    Line("flux dmesg --clear; flux dmesg"),
    Line(
        "flux setattr log-ring-size 2; flux logger a; flux logger b; flux logger c; flux dmesg | wc -l; "
        "flux module stats -p ring-used log; flux setattr log-ring-size 1024",
        "2\n2\n",
    ),
]

ASKING = [
    Line("flux lsattr | grep -x size", "size\n"),
    Line("flux lsattr --values | grep -E '^(size|rank) '", f"{'rank':<40}0\n{'size':<40}2\n"),
    Line("flux ping --count=1 --pad=5 kvs | cut -d' ' -f1-3", "flux-ping any!kvs\n0!kvs.ping pad=5 seq=0\n"),
    Line(
        "flux ping --count=1 --userid kvs | cut -d' ' -f3-5 | tail -1",
        like(r"userid=\d+ rolemask=0x5 seq=0\n"),
    ),
    # the first answer is only taken after the last request was sent
    Line(
        "flux ping --batch --count=3 --interval=.1 kvs | sed -n 's/.*seq=0 time=\\([0-9]*\\)[.].*/\\1/p' >ms; "
        "test $(cat ms) -ge 200 && echo later",
        "later\n",
    ),
    Line("flux ping --batch kvs", "flux-ping: --batch should only be used with --count\n", 1),
]

EXECUTING = [
    Line("flux exec --dir=/ pwd", "/\n/\n"),
    Line("D=$(flux getattr rundir); cd $D; flux exec -r1 --dir=none pwd | grep -c $D", "0\n", 1),
    Line("flux exec -r1 -l sh -c 'printf a; sleep .1; printf \"b\\nc\"'", "1: ab\n1: c"),
    Line("flux exec -r1 -l printf 'a\\rb\\n'", "1: a\rb\n"),
    # One that is too long to wait for has one label all the same.
    Line(
        "flux exec -r1 -l sh -c 'head -c 9000000 /dev/zero | tr \"\\0\" x; echo; echo y' | tr -d x",
        "1: \n1: y\n",
    ),
    # Lines of several stay whole; what one writes is shown at once.
    Line("flux exec sh -c 'printf a; sleep .1; printf \"b\\nc\\n\"'", "ab\nc\nab\nc\n"),
    Line(
        after_first("flux exec -r1 sh -c 'printf a; until test -e go; do sleep .02; done'", "touch go"),
        "a",
    ),
    Line("flux exec --setopt=stdin_BUFSIZE=4096 -r1 echo x; flux exec --setopt=y true", like("x\nflux-exec.*\n"), 1),
    Line(
        "flux exec -r0 --bg --label=lb sh -c 'exit 3' >id; until flux dmesg | grep -q Exit; do sleep .02; done; "
        "flux dmesg | grep -c 'rexec.*: lb: sh.[0-9]*.: Exit 3'",
        "1\n",
    ),
    Line("flux exec --exclude=0 flux getattr rank", "1\n"),
    Line("echo in | flux exec --noinput -r0 cat"),
    Line("echo in | flux exec -r0 cat", "in\n"),
    Line("flux submit --requires=rank:1 sleep 60 >id; flux job wait-event -q $(cat id) start"),
    Line("flux exec --jobid=$(cat id) flux getattr rank", "1\n"),
    Line("flux exec -j $(cat id) --rank=0 flux getattr rank", "1\n"),
    Line("flux exec -j $(cat id) -r1 true", "flux-exec: One or more invalid --ranks specified: 1\n", 1),
    Line("flux exec -j $(cat id) --exclude=0 true; flux cancel $(cat id)", "flux-exec: No targets specified\n"),
    Line("flux exec -j f1 true", "flux-exec: job f1 not found\n", 1),
    Line(
        "flux submit -o rexec-shutdown-timeout=0.1s sh -c 'until test -e going; do sleep .02; done' >id;"
        " flux job wait-event -q $(cat id) start;"
        " flux exec -qj $(cat id) sh -c 'trap \"echo told\" TERM; touch going; while :; do sleep .02; done'",
        like("told\n(Terminated\n)?"),
        137,
    ),
    Line(
        "flux job wait-event -q $(cat id) clean; flux exec -j $(cat id) true",
        like("flux-exec: job .* is not running\n"),
        1,
    ),
    Line(
        "flux exec -nr0 sh -c 'trap \"touch told\" INT; touch deaf; while :; do sleep .02; done' &"
        " until test -e deaf; do sleep .02; done; kill -INT $!;"
        " until test -e told; do sleep .02; done; kill -INT $!; wait $!",
        "",
        130,
    ),
    Line(
        "flux exec -r1 --service=nosuch true",
        "flux-exec: Error: rank 1: true: No service matching nosuch.exec is registered\n",
        1,
    ),
    *[
        Line(
            f"flux exec -r1 --bg {option} --label=it sh -c 'exit 3' | cut -d: -f1; "
            'flux python -c \'import flux; print(flux.Flux().rpc("rexec.wait",{"pid":-1,"label":"it"},1).get())\' '
            "2>&1 | tail -1",
            like(answer),
        )
        for option, answer in (("--waitable", "1\n{'status': 768}\n"), ("", "1\n.*Error.*\n"))
    ],
    Line(
        "flux exec -v -r1 sh -c 'echo $$; exit 3'",
        like("(\\d+)\nflux-exec: rank 1: started process \\1\nflux-exec: rank 1: ended: Exit 3\n1: Exit 3\n"),
        3,
    ),
    Line(
        "flux exec --verbose sh -c 'kill -9 $$' 2>&1 | grep ended | sort",
        "flux-exec: rank 0: ended: Killed\nflux-exec: rank 1: ended: Killed\n",
    ),
    Line("flux exec --waitable true", "flux-exec: --waitable needs --bg\n", 1),
]

ENDING = [
    Line("flux alloc -n1 --bg >id; flux shutdown --background $(cat id); flux job status $(cat id)"),
    Line("flux alloc -n1 --bg >id; flux shutdown $(cat id)", like(f"({LOG % 'info'})+")),
    Line("flux alloc -n1 --bg >id; flux shutdown --quiet $(cat id); flux job status $(cat id)"),
    Line(
        "flux alloc -n1 --bg >id; flux shutdown --verbose $(cat id) 2>&1 | grep -v broker.info",
        like(f"({LOG % 'debug'})+"),
    ),
    Line("flux shutdown --gc", like("flux-shutdown: unrecognized option '--gc'.*"), 1),
    Line(
        "id=$(flux batch -n1 --dump --wrap flux run hostname); flux job wait-event -t 60 $id clean >/dev/null; "
        "tar tzf flux-$id-dump.tgz | grep -c jobspec",
        "1\n",
    ),
    Line(
        "id=$(flux alloc -n1 --bg --dump=d.tgz); flux shutdown --dump=e.tgz $id 2>log; head -n1 log; ls [de].tgz",
        like("flux-shutdown: shutdown will dump KVS to .*/e.tgz \\(this may take some time\\)\ne.tgz\n"),
    ),
    Line("id=$(flux alloc -n1 --bg --dump=d.tgz); flux shutdown --skip-gc --quiet $id; ls d.tgz", like("ls: .*"), 2),
]

OTHERS = [
    Line("flux keygen --meta=a=1,b.c=x cert; grep -E '(a|b.c) =' cert", '    a = "1"\n    b.c = "x"\n'),
    Line("flux keygen --name=me cert; grep name cert", like('.*name = "me"\n.*')),
    Line("flux keygen --meta==a cert", "flux-keygen: --meta: '=a' is not KEY or KEY=VALUE\n", 1),
    # pmi: how often, and who tells
    Line("flux run -n2 flux pmi -v barrier --count=2 --test-timing 2>&1 | grep -c 'barrier:\\| in 0'", "5\n"),
    Line("flux run -n2 flux pmi --verbose barrier --test-count=3 2>&1 | grep -c barrier:", "6\n"),
    Line("flux run flux pmi -v exchange --count=3 2>&1 | grep -c put", "3\n"),
    Line("flux run -n3 -l flux pmi get --ranks=1-2 PMI_process_mapping | cut -c1 | sort", "1\n2\n"),
    Line("flux run -n3 flux pmi get --ranks=all PMI_process_mapping | wc -l", "3\n"),
    Line("flux run flux pmi --method=simple barrier", like(".* completed pmi barrier on 1 tasks\n")),
    Line("flux pmi --method=pmix barrier", "flux-pmi: unknown PMI method 'pmix': use simple\n", 1),
    # event: its number, and whom it is for
    Line("flux event pub --synchronous t.x", like("\\d+\n")),
    Line("flux exec -r1 flux event pub --synchronous --loopback t.x", like("[1-9]\\d*\n")),
    *[
        Line(
            after_first(f"python -c '{FLAGS_OF_EVENT}'", f"flux event pub {option} t.x"),
            f"ready\n{shown}\n",
        )
        for option, shown in (("--private", "True"), ("", "False"))
    ],
    Line("flux event sub --timeout=.05s t.none", "flux-event: no event within .05s\n", 1),
    # hostlist: what is printed
    Line("flux hostlist -q 'a[1-3]'"),
    Line("flux hostlist --quiet --minus a1 a1", "", 1),
    Line("flux hostlist --expand 'a[1-3]'", "a1 a2 a3\n"),
    Line("flux hostlist --expand --delimiter='\\n' 'a[1-2]'", "a1\na2\n"),
    Line("flux hostlist --nth=0,2 'a[1-3]'; flux hostlist --nth=-1 'a[1-3]'", "a[1,3]\na3\n"),
    Line("flux hostlist --find='a[2-3]' 'a[1-3]'; flux hostlist --find=a2,a1 -e -d+ 'a[1-3]'", "1 2\n1+0\n"),
    Line("flux hostlist --limit=2 'a[1-3]'; flux hostlist --limit=-2 'a[1-3]'", "a[1-2]\na[2-3]\n"),
    # and which hosts
    Line("flux hostlist --exclude=0,2 'a[1-3]'; flux hostlist --exclude=a1,b 'a[1-3]'", "a2\na[2-3]\n"),
    Line("flux hostlist b a,a b; flux hostlist --union b a,a b; flux hostlist --unique b a b", "b,a,a,b\na,b\na,b\n"),
    Line("flux hostlist --intersect 'a[1-3]' 'a[2-4]'", "a[2-3]\n"),
    Line("flux hostlist --minus 'a[1-3]' a2 b", "a[1,3]\n"),
    Line("flux hostlist --xor 'a[1-3]' 'a[2-4]'", "a[1,4]\n"),
    Line(
        "flux hostlist --fallback foo1 foo2; flux hostlist foo1",
        "foo[1-2]\nflux-hostlist: ERROR: job foo1 not found\n",
        1,
    ),
    Line(
        "flux run flux getattr hostname >h; flux hostlist --fallback $(flux job last) | diff - h;"
        " flux hostlist instance",
        "n[0-1]\n",
    ),
    Line("flux hostlist --local; echo c1 | flux hostlist; echo c1 | flux hostlist a -", "n[0-1]\nc1\na,c1\n"),
    Line("flux run flux hostlist --local | diff - h"),
    Line("flux resource drain 1; flux hostlist avail; flux hostlist available", "n0\nn0\n"),
]

LINES = [*LOGGING, *ASKING, *EXECUTING, *ENDING, *OTHERS]


@pytest.fixture(scope="module")
def reaching_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(REACHING, tmp_path_factory.mktemp("reaching"), "--test-size=2", "--test-hosts=n[0-1]")


@pytest.mark.parametrize("index", range(len(REACHING)), ids=names(REACHING))
def test_option_that_reaches_other_instances_has_its_effect(index: int, reaching_answers: list[dict[str, Any]]) -> None:
    check(REACHING[index], reaching_answers[index])


@pytest.fixture(scope="module")
def tool_answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return answers(LINES, tmp_path_factory.mktemp("tools"), "--test-size=2", "--test-hosts=n[0-1]")


@pytest.mark.parametrize("index", range(len(LINES)), ids=names(LINES))
def test_tool_option_has_its_effect(index: int, tool_answers: list[dict[str, Any]]) -> None:
    check(LINES[index], tool_answers[index])


@pytest.fixture
def old_broker(tmp_path: Path):
    """A broker that says it speaks an old version of Flux, at the path that is given."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "local"))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        client.sendall(b"\0")
        deframer = Deframer()
        while data := client.recv(1 << 16):
            deframer.feed(data)
            for msg in deframer:
                client.sendall(frame(response(msg, {"value": "0.30.0", "flags": 1})))
        client.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield tmp_path / "local"
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    ("options", "printed", "said", "status"),
    [
        (
            [],
            "",
            "flux-proxy: fatal: proxy version 0.88.0 may not interoperate with broker version 0.30.0"
            " (--force to connect anyway)\n",
            1,
        ),
        (
            ["--force"],
            "ran\n",
            "flux-proxy: warning: proxy version 0.88.0 may not interoperate with broker version 0.30.0\n",
            0,
        ),
    ],
)
def test_proxy_to_another_version_needs_force(options, printed, said, status, old_broker):
    command = [FLUX, "proxy", *options, f"local://{old_broker}", "echo", "ran"]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, said, status)
