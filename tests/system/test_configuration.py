"""Configuration files as an administrator writes them: what is said of mistakes, and what takes effect."""

from __future__ import annotations

from pathlib import Path

from instance import start


def test_unknown_keys_are_named_on_stderr_also_at_a_reload_and_once_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[exec]\nkill_timeout = '5s'\n")
    script = "flux dmesg | grep -c kill_timeout; flux config reload; flux dmesg | grep -c kill_timeout"
    done = start("--test-size=2", f"--config-path={path}", script)
    told = f"warning: {path}: exec.kill_timeout: unknown key, did you mean kill-timeout?\n"
    assert done.err == f"flux-broker: {told}flux-config: {told}"
    assert done.out == "1\n1\n"


def test_tables_that_nobody_reads_are_named_once_and_those_of_other_projects_are_not() -> None:
    script = "flux config set bogus.x 2; flux dmesg | grep -c bogus; "
    script += "flux config set -t integer others.x 2; flux dmesg | tail -1"
    done = start("--conf=bogus.x=1", "--conf=archive.dbpath='/x'", script)
    assert done.err == "flux-broker: warning: bogus: unknown table, nothing here reads it\n"
    count, last = done.out.splitlines()
    assert count == "1"
    assert last.endswith("config.warning[0]: others: unknown table, nothing here reads it")


def test_an_unknown_key_of_a_queue_is_refused_as_flux_does() -> None:
    done = start("--conf=queues.debug.requirs=['x']", "true")
    told = "config table: 1 object item(s) left unpacked:"
    refused = f"error parsing [queues.debug] {told} requirs; did you mean requires?\n"
    assert (done.rc, done.err) == (1, f"flux-broker: {refused}")
    done = start("echo '[policy.limts]' | flux config load || true")
    refused = f"error updating job-manager: error parsing [policy] {told} limts; did you mean limits?\n"
    assert done.err == f"flux-config: {refused}"


def test_the_table_tbon_takes_effect_and_options_win(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[tbon]\ntopo = 'kary:1'\ntorpid_min = '3s'\nconnect_timeout = '4s'\n")
    script = "flux getattr tbon.maxlevel; flux getattr tbon.torpid_min; flux getattr tbon.connect_timeout"
    done = start("--test-size=3", f"--config-path={path}", "-Stbon.torpid_min=2s", script)
    assert (done.out, done.err) == ("2\n2s\n4s\n", "")


def test_a_value_that_tbon_cannot_take_is_refused() -> None:
    done = start("--test-size=2", "--conf=tbon.connect_timeout=soon", "true")
    assert done.rc == 1
    assert done.err.startswith("flux-broker: Error parsing tbon.connect_timeout attribute: invalid duration 'soon'")


def test_a_queue_may_be_given_by_its_hosts(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        "[resource]\nnoverify = true\n[[resource.config]]\nhosts = 'n[0-2]'\ncores = '0'\n"
        "[queues.few]\nhosts = 'n[1-2]'\n[queues.every]\nhosts = 'all'\n"
    )
    script = (
        "flux queue start --quiet --all; flux resource list -s all -no '{queue} {nodelist}'; "
        "flux run -q few -N2 flux getattr rank | sort; flux run -q few -N3 true"
    )
    done = start("--test-size=3", "--test-hosts=n[0-2]", f"--config-path={path}", script)
    assert done.out == "every n[0-2]\nfew n[1-2]\n1\n2\n"
    assert "only 2 eligible" in done.err


def test_nodes_that_are_excluded_get_no_jobs_and_cannot_be_drained() -> None:
    script = (
        "flux resource status -no '{state} {ranks}'; flux resource info; flux run -N2 flux getattr rank | sort; "
        "flux run -N3 true; flux resource drain 1; flux resource drain -f 1 why"
    )
    done = start("--test-size=3", "--conf=resource.exclude='1'", script)
    first, second, count, *ranks = done.out.splitlines()
    assert (first, second, count[:8], ranks) == ("avail 0,2", "exclude 1", "2 Nodes,", ["0", "2"])
    assert "unsatisfiable" in done.err
    assert done.err.count("flux-resource: ERROR: [Errno 17] rank 1 already drained or excluded\n") == 2


def test_a_configuration_that_is_refused_undrains_nothing() -> None:
    script = """
        flux resource drain 1 broken
        printf '[resource]\nexclude = "1"\n[heartbeat]\nperiod = "0s"\n' | flux config load || echo refused
        flux resource status -s drain,exclude -no '{state} {ranks} {reason}' | grep 1
        printf '[resource]\nexclude = "1"\n' | flux config load
        flux resource status -s drain,exclude -no '{state} {ranks}' | grep 1
    """
    done = start("--test-size=2", "bash", "-c", script)
    assert (done.rc, done.out) == (0, "refused\ndrained 1 broken\nexclude 1\n"), done.err


def test_a_value_of_a_wrong_kind_is_refused_at_the_start_and_a_reload_keeps_the_old_configuration(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[access]\nallow-guest-user = 'yes'\n")
    refused = f"access.allow-guest-user: must be true or false, not 'yes' (in {path})\n"
    done = start(f"--config-path={path}", "true")
    assert done.rc == 1
    assert done.err.endswith(f"connector-local.crit[0]: {refused}")
    path.write_text("[access]\nallow-guest-user = false\n")
    script = f"echo 'access.allow-guest-user = \"yes\"' > {path}; flux config reload; flux config get access"
    done = start("--test-size=2", f"--config-path={path}", script)
    assert done.err == f"flux-config: error updating connector-local: {refused}"
    assert done.out == '{"allow-guest-user":false}\n'
