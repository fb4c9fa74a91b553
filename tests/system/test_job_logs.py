"""Events that users append to a job's logs through the KVS: in the log for every reader, while the job runs, after its
end, after a restart, and after a `kill -9`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from instance import FLUX, LIMIT, clean_env

SCRIPT = r"""
append() { flux kvs eventlog append --namespace=job-$(flux job id $1) $2 $3; }
note() { flux kvs eventlog append $(flux job id --to=kvs $1).eventlog $2; }
flux submit --wait-event=depend --urgency=hold true >pending
append $(cat pending) exec.eventlog before
id=$(flux submit sh -c 'flux kvs eventlog append exec.eventlog own "{\"a\":1}"; flux kvs eventlog append output mine
    until test -e go; do sleep 0.05; done')
flux job wait-event -p exec $id own
flux job wait-event -p guest.output $id mine
flux kvs eventlog wait-event -v --namespace=job-$(flux job id $id) exec.eventlog own | tail -n1
flux job eventlog -p guest.exec.eventlog $id | grep -c shell.start
flux job wait-event -p exec $id later & watching=$!
append $id exec.eventlog later
wait $watching
flux job wait-event $id noted & watching=$!
note $id noted
wait $watching
>go
flux job wait-event $id clean >clean
append $id exec.eventlog after
append $id exec.eventlog after-that
note $id noted-late
flux job wait-event $id noted-late && exit 9
flux kvs put --append $(flux job id --to=kvs $id).eventlog=text && exit 9
echo $id >id
"""
NAMES = 'flux job eventlog -f json {} | sed \'s/.*"name":"\\([^"]*\\)".*/\\1/\' | xargs'
READ = f"""
{NAMES.format("-p guest.exec.eventlog $(cat id)")} >names
flux kvs eventlog get -u --namespace=job-$(flux job id $(cat id)) exec.eventlog |
    cmp - <(flux job eventlog -f json -p guest.exec.eventlog $(cat id))
{NAMES.format("$(cat id)")} >main
flux kvs eventlog get -u $(flux job id --to=kvs $(cat id)).eventlog | cmp - <(flux job eventlog -f json $(cat id))
flux jobs -no {{status}} $(cat id) >status
{NAMES.format("-p guest.exec.eventlog $(cat pending)")}
"""


@pytest.mark.parametrize("end", ["", "kill -9 $(flux getattr broker.pid)"], ids=["restart", "kill"])
def test_what_is_appended_to_a_log_of_a_job_is_in_the_log_for_everybody_and_stays(tmp_path: Path, end: str) -> None:
    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = [FLUX, "start", f"-Sstatedir={tmp_path}/state", "bash", "-ec", script]
        env = clean_env(TMPDIR=str(tmp_path))
        return subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False
        )

    first = run(f"{SCRIPT}\n{READ}\n{end}")
    names = (tmp_path / "names").read_text().split()
    assert bool(first.returncode) == bool(end), first.stderr
    assert [name for name in names if name in ("own", "later", "after", "after-that")] == [
        *("own", "later", "after", "after-that")
    ], first.stderr
    assert names.index("own") < names.index("done") < names.index("after")
    main = (tmp_path / "main").read_text().split()
    assert main[-2:] == ["clean", "noted-late"]
    assert main.index("start") < main.index("noted") < main.index("finish")
    again = run(READ)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "names").read_text().split() == names
    assert (tmp_path / "main").read_text().split() == main
    assert (tmp_path / "status").read_text() == "COMPLETED\n"
    assert again.stdout.split() == ["before"]
