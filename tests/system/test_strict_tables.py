"""Tables of the configuration that a module reads whole, the heartbeat on every rank, and who may connect."""

from __future__ import annotations

import textwrap

import pytest
from instance import start


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "[access]\\nfoo=42",
            "error updating connector-local: error parsing [access] configuration: 1 object item(s) left",
        ),
        ("[access.roles.foo]\\nusers=[]", "error updating connector-local: unknown role 'foo' in [access.roles]"),
        (
            "[heartbeat]\\nz=1",
            "error updating heartbeat: error parsing [heartbeat] configuration: 1 object item(s) left",
        ),
        ("[heartbeat]\\nperiod='2s'\\ntimeout='1s'", "error updating heartbeat: heartbeat.timeout is 1s, less than"),
        (
            "[resource]\\nfoo=1",
            "error updating resource: error parsing [resource] configuration: 1 object item(s) left",
        ),
        (
            "[queues.b.policy.limits]\\nfoo=1",
            "error updating job-manager: error parsing [queues.b.policy.limits] config table: 1 object item(s) left",
        ),
        ("[ingest]\\nfrobnicator=5", "error updating job-ingest: ingest.frobnicator: must be a table, not 5"),
        ("[resource]\\nscheduling=5", "error updating resource: resource.scheduling: must be the name of a file"),
        (
            "[ingest.validator]\\nplugins=['feasibilty']",
            "error updating job-ingest: ingest.validator.plugins: 'feasibilty' is not one of feasibility, jobspec",
        ),
        ("[access]\\nallow-guest-user=1", "error updating connector-local: access.allow-guest-user: must be true"),
        (
            "[exec]\\njob-shell=42",
            "error updating job-exec: error reading config value exec.job-shell: Expected string, got integer",
        ),
        (
            "[exec]\\nbarrier-timeout='55p'",
            "error updating job-exec: invalid duration '55p' specified for exec.barrier-timeout",
        ),
    ],
)
def test_a_refused_table_changes_nothing(table: str, says: str) -> None:
    done = start(
        f"""
        printf "[heartbeat]\\nperiod='3s'\\n" | flux config load
        printf "{table}\\n" | flux config load && echo taken
        flux config get heartbeat.period; flux module stats -p period heartbeat
        """
    )
    assert (done.rc, done.out) == (0, "3s\n3.0\n")
    assert done.err.startswith(f"flux-config: {says}")


def test_a_queue_of_which_no_host_is_there_is_told_in_the_log() -> None:
    table = "[queues.a]\\nhosts='nope[8-9]'\\n[queues.b]\\nhosts='all'\\n[queues.c]\\nhosts='real1,nope1'\\n"
    done = start(
        "--test-size=2",
        "--test-hosts=real[0-1]",
        "--conf=resource.config=[{hosts='real[0-1]', cores='0'}]",
        "--conf=resource.noverify=true",
        "--conf=queues.d.hosts=nope3",
        f"printf \"{table}\" | flux config load; flux dmesg | grep -o 'resource.warning.*queues.*'",
    )
    line = "resource.warning[0]: queues.{}.hosts: no host of {} is among the resources\n"
    assert done.out == line.format("d", "nope3") + line.format("a", "nope[8-9]")


def test_who_may_connect_is_logged_and_debug_bits_refuse_or_demote_the_next_client() -> None:
    done = start(
        """
        printf '[access]\\nallow-guest-user=true\\n' | flux config load
        flux dmesg | grep -o 'connector-local.debug.*'
        FLUX_HANDLE_ROLEMASK=0x2 flux dmesg
        flux module debug --set 1 connector-local; flux getattr size; flux getattr size
        flux module debug --set 4 connector-local; flux dmesg -C; flux dmesg -C
        """
    )
    no = "connector-local.debug[0]: allow-guest-user=false\nconnector-local.debug[0]: allow-root-owner=false\n"
    assert done.out == no + no.replace("user=false", "user=true") + "0x1\n1\n0x4\n"
    lines = done.err.splitlines()
    assert lines[0] == lines[-1] == "flux-dmesg: Request requires owner credentials"
    assert any("connect by uid=" in line and line.endswith("denied by debug flag") for line in lines)
    assert any(line.endswith("Unable to connect to Flux: Operation not permitted") for line in lines)


def test_every_broker_has_a_heartbeat_and_a_follower_ends_when_it_stops() -> None:
    program = textwrap.dedent(
        """
        flux exec -r all flux module reload heartbeat period=0.2s
        for rank in 0 1 2; do flux exec -r $rank flux module stats -p period heartbeat; done
        flux exec -r 1 flux module reload heartbeat period=0.2s timeout=1s
        flux module remove heartbeat
        flux overlay status --wait=degraded --timeout=60 >/dev/null || flux overlay status
        flux dmesg | grep -o 'heartbeat.*overdue' | head -n1
        flux dmesg | grep -o 'heartbeat.crit.1.*no heartbeat' | head -n1
        """
    )
    done = start("--test-size=3", "--test-exit-mode=leader", "-Stbon.topo=kary:2", program)
    assert done.out.splitlines()[:3] == ["0.2"] * 3, (done.out, done.err)
    assert "heartbeat.crit[1]: no heartbeat" in done.out + done.err
    assert "lost the parent broker: no heartbeat" in done.out + done.err
