"""Keys of a configuration that nobody listens to are named; those that Flux has are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.engine.modules.sched.settings import QMANAGER, QMANAGER_KEYS, RESOURCE, RESOURCE_KEYS
from headrace.formats.config.files import ConfigError
from headrace.formats.config.keys import RefusedTable, attributes, check, warnings
from headrace.formats.config.schema import FOREIGN

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORDED = Path(__file__).parents[2] / "data" / "commands" / "queues.toml"

# Every key of flux-config(5) and RFC 33 that has an effect, or needs none, here.
KNOWN = """
[access]
allow-guest-user = true
allow-root-owner = true
[exec]
imp = "/x"
job-shell = "/x"
kill-timeout = "5s"
max-kill-count = 3
max-kill-timeout = "30m"
max-start-delay-percent = 12.5
method = "bgexec"
sdexec-stop-timer-sec = 30
sdexec-stop-timer-signal = 10
service = "rexec"
service-override = true
sdexec-properties.MemoryMax = "90%"
testexec.allow-guests = true
[policy]
jobspec.defaults.system = {queue = "batch", duration = "1h"}
limits = {duration = "1h", job-size = {min.ncores = 1, max = {nnodes = 2, ncores = 3, ngpus = 4}}}
scheduler.anything = 1
[queues.batch]
requires = ["x"]
policy.limits.job-size.max.nnodes = -1
[queues.few]
hosts = "node[0-2]"
[queues.empty]
[resource]
path = "/x"
exclude = "0"
norestrict = true
noverify = true
rediscover = true
[tbon]
topo = "kary:2"
torpid_min = "1s"
[sched-fluxion-qmanager]
queue-policy = "easy"
[sched-fluxion-resource]
match-policy = "first"
reserve-vtx-vec = 1000
[sched]
module = "graph"
[job-manager]
inactive-age-limit = "7d"
[heartbeat]
period = "2s"
[ingest.validator]
args = ["--require-version=any"]
[ingest.frobnicator]
plugins = ["defaults"]
[bootstrap]
curve_cert = "/x"
default_port = 1
hosts = [{host = "a"}]
"""


def test_what_flux_knows_raises_no_warnings() -> None:
    assert warnings(tomllib.loads(KNOWN)) == []
    assert warnings(tomllib.loads(RECORDED.read_text())) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("queues.batch.requries = []", "queues.batch.requries: unknown key, did you mean requires?"),
        ("queues.b.policy.limits.job-size.max.nodes = 1", "queues.b.policy.limits.job-size.max.nodes: unknown key, "),
        ("policy.limits.duraton = '1h'", "policy.limits.duraton: unknown key, did you mean duration?"),
        ("policy.jobspec.defaults.duration = '1h'", "policy.jobspec.defaults.duration: unknown key, not system"),
        ("exec.kill_timeout = '1s'", "exec.kill_timeout: unknown key, did you mean kill-timeout?"),
        ("tbon.tcp-user-timeout = '1s'", "tbon.tcp-user-timeout: unknown key, did you mean tcp_user_timeout?"),
        ("headrace.exec-module = []", "headrace.exec-module: unknown key, did you mean exec-modules?"),
        ("queue.batch.requires = []", "queue: unknown table, did you mean queues?"),
        ("acounting.x = 1", "acounting: unknown table, did you mean accounting?"),
        ("bogus.x = 1", "bogus: unknown table, nothing here reads it"),
        ("bogus = 1", "bogus: unknown table, nothing here reads it"),
        ("sched-fluxion-qmanager.queue-polcy = 'easy'", "sched-fluxion-qmanager.queue-polcy: unknown key, did you "),
        ("job-manager.inactive-age-limt = 3", "job-manager.inactive-age-limt: unknown key, did you mean inactive"),
        ("job-manager.epilog.command = ['x']", "job-manager.epilog: has no effect in Headrace"),
        ("job-manager.stop-queues-on-restart = true", "job-manager.stop-queues-on-restart: has no effect in Headrace"),
        ("bootstrap.enable-ipv6 = true", "bootstrap.enable-ipv6: unknown key, did you mean enable_ipv6?"),
        ("bootstrap.default-port = 1", "bootstrap.default-port: unknown key, did you mean default_port?"),
        ("exec.shell-exit-timeout = 'none'", "exec.shell-exit-timeout: has no effect in Headrace"),
        ("exec.testexec.x = 1", "exec.testexec.x: unknown key, not allow-guests"),
        ("exec.barrier-timeout = '1m'", "exec.barrier-timeout: has no effect in Headrace"),
        ("queues.batch.parent = 'a'", "queues.batch.parent: has no effect in Headrace"),
        ("policy.access.allow-user = ['a']", "policy.access.allow-user: has no effect in Headrace"),
    ],
)
def test_a_key_without_listener_is_named_with_what_was_meant(text: str, line: str) -> None:
    (found,) = warnings(tomllib.loads(text))
    assert found.startswith(line)


def test_tables_like_nothing_known_are_left_out_where_only_known_ones_count() -> None:
    assert warnings({"bogus": {"x": 1}, "polcy": {}}, known_only=True) == ["polcy: unknown table, did you mean policy?"]


def test_tables_of_other_projects_are_nobodys_mistake() -> None:
    assert warnings({name: {"anything": 1} for name in FOREIGN}) == []


def test_the_schedulers_keys_are_those_that_it_reads() -> None:
    table = {QMANAGER: dict.fromkeys(QMANAGER_KEYS, "x"), RESOURCE: dict.fromkeys(RESOURCE_KEYS, "x")}
    assert warnings(table) == []


def test_the_file_that_holds_the_key_is_named_the_last_one_of_several(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[resource]\nnoverfiy = true\nexclude = '0'\n[tbon]\nx = 1\n")
    (tmp_path / "b.toml").write_text("[resource]\nnoverfiy = false\n")
    config = {"resource": {"noverfiy": False}, "tbon": {"x": 1, "y": 2}}
    told = [line.split(": unknown")[0] for line in warnings(config, str(tmp_path))]
    assert told == [f"{tmp_path}/b.toml: resource.noverfiy", f"{tmp_path}/a.toml: tbon.x", "tbon.y"]
    (tmp_path / "b.toml").write_text("[")
    assert warnings(config, str(tmp_path))[0].startswith("resource.noverfiy: ")


def test_values_of_a_wrong_kind_are_no_warnings() -> None:
    assert warnings({"queues": 3, "exec": [], "policy": {"limits": "x"}}) == []


def test_what_flux_knows_is_of_the_right_kind() -> None:
    check(tomllib.loads(KNOWN))
    check(tomllib.loads(RECORDED.read_text()))
    check(
        {
            "sched": "simple",
            "my-plugin": 3,
            "job-manager": {"mine": 1},
            "exec": {"mine": [], "kill-timeout": "5", "kill-signal": "INT"},
        }
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("access.allow-guest-user = 'yes'", "access.allow-guest-user: must be true or false, not 'yes'"),
        ("access.allow-root-owner = 1", "access.allow-root-owner: must be true or false, not 1"),
        ("access = 3", "access: must be a table, not 3"),
        ("headrace.exec-modules = 'kvs'", "headrace.exec-modules: must be a list of strings, not 'kvs'"),
        ("headrace.skip-modules = [1]", "headrace.skip-modules: must be a list of strings, not [1]"),
        (
            "exec.max-kill-count = true",
            "error reading config value exec.max-kill-count: Expected integer, got true",
        ),
        ("exec.sdexec-properties = 42", "exec.sdexec-properties is not a table"),
        ("exec.sdexec-properties.MemoryHigh = 42", "exec.sdexec-properties.MemoryHigh is not a string"),
        (
            "exec.testexec.allow-guests = 1",
            "error reading config value exec.testexec.allow-guests: Expected true or false, got integer",
        ),
        ("exec.job-shell = 42", "error reading config value exec.job-shell: Expected string, got integer"),
        ("exec.imp = 1979-05-27", "error reading config value exec.imp: Expected string, got date"),
        ("exec.barrier-timeout = 1.5", "error reading config value exec.barrier-timeout: Expected string, got real"),
        ("exec.barrier-timeout = '55p'", "invalid duration '55p' specified for exec.barrier-timeout"),
        ("exec.method = 'wrong'", "unknown exec.method 'wrong': there are bulk-exec and bgexec"),
        (
            "headrace.guests.submit = 'as-guest'",
            "headrace.guests.submit: must be refuse, as-owner or as-user, not 'as-guest'",
        ),
        (
            "headrace.guests.pam-service = '/etc/pam.d/jobs'",
            "headrace.guests.pam-service: must be the name of a service of PAM, not '/etc/pam.d/jobs'",
        ),
        ("headrace.guests.min-uid = 0", "headrace.guests.min-uid: must be from 1, not 0"),
        (
            "headrace.guests.submit = true",
            "Config file error [headrace]: headrace.guests.submit: Expected string, got True",
        ),
        (
            "headrace.guests.limits.output-bytes = -1",
            "headrace.guests.limits.output-bytes: must be an integer, 0 or more, not -1",
        ),
        ("headrace.guests = 'as-owner'", "headrace.guests: must be a table, not 'as-owner'"),
        ("exec.shell-exit-timeout = 'notfsd'", "invalid shell-exit-timeout: notfsd"),
        ("exec.max-kill-timeout = 'x'", "invalid duration 'x' specified for exec.max-kill-timeout"),
        (
            "exec.service-override = 'no'",
            "error reading config value exec.service-override: Expected true or false, got string",
        ),
        (
            "exec.max-start-delay-percent = []",
            "error reading config value exec.max-start-delay-percent: Expected integer or real, got array",
        ),
        (
            "exec.sdexec-stop-timer-sec = {}",
            "error reading config value exec.sdexec-stop-timer-sec: Expected integer, got object",
        ),
        ("exec.kill-timeout = true", "exec.kill-timeout: must be a duration such as '5s', not True"),
        ("exec.kill-timeout = 5", "exec.kill-timeout: must be a duration such as '5s', not 5"),
        ("bootstrap.default_port = 99999", "bootstrap.default_port: must be a port, 1 to 65535, not 99999"),
        ("bootstrap.default_port = 0", "bootstrap.default_port: must be a port, 1 to 65535, not 0"),
        ("bootstrap.default_port = '1'", "bootstrap.default_port: must be a port, 1 to 65535, not '1'"),
        ("exec.term-signal = true", "exec.term-signal: must be a signal's name or number, not True"),
        ("policy.limits.job-size.max = 3", "policy.limits.job-size.max: must be a table, not 3"),
        ("policy.jobspec.defaults = 'batch'", "policy.jobspec.defaults: must be a table, not 'batch'"),
        ("queues.a.policy.limits.job-size.min = 3", "queues.a.policy.limits.job-size.min: must be a table, not 3"),
        ('[queues.""]', 'queues."": the name of a queue cannot be empty'),
        ("tbon = 3", "tbon: must be a table, not 3"),
        ("ingest.batch-count = 'x'", "Config file error [ingest]: ingest.batch-count: Expected integer, got 'x'"),
        ("ingest.buffer-size = 3", "Config file error [ingest]: ingest.buffer-size: Expected string, got 3"),
        ("ingest.frobnicator = 5", "ingest.frobnicator: must be a table, not 5"),
        ("ingest.frobnicator.disable = 1", "ingest.frobnicator.disable: must be true or false, not 1"),
        ("ingest.frobnicator.args = 'x'", "ingest.frobnicator.args: must be a list of strings, not 'x'"),
        ("ingest.validator.disable = 'x'", "ingest.validator.disable: must be true or false, not 'x'"),
        ("resource.rediscover = 'x'", "resource.rediscover: must be true or false, not 'x'"),
        ("resource.scheduling = 5", "resource.scheduling: must be the name of a file, not 5"),
        ("tbon.tcp_user_timeout = 42", "Config file error [tbon]: tbon.tcp_user_timeout: Expected string, got 42"),
        ("tbon.zmqdebug = 'x'", "Config file error [tbon]: tbon.zmqdebug: Expected integer, got 'x'"),
        ("tbon.zmq_io_threads = true", "Config file error [tbon]: tbon.zmq_io_threads: Expected integer, got True"),
        ("tbon.topo = []", "Config file error [tbon]: tbon.topo: Expected string, got []"),
        (
            "tbon.topo = 'zz'",
            "tbon.topo=zz: unknown topology scheme 'zz', give kary:K, mincrit:K, binomial or custom",
        ),
        (
            "tbon.torpid_max = 'zz'",
            "Error parsing tbon.torpid_max attribute: invalid duration 'zz': expected a number and ms, s, m, h or d, "
            "such as 1.5h",
        ),
        (
            "tbon.connect_timeout = '-1s'",
            "Error parsing tbon.connect_timeout attribute: invalid duration '-1s': "
            "expected a number and ms, s, m, h or d, such as 1.5h",
        ),
        ("tbon.child_rcvhwm = 1", "tbon.child_rcvhwm: must be 0 (no limit) or from 2 to 999999, not 1"),
        ("tbon.zmq_io_threads = -1", "tbon.zmq_io_threads: must be from 0 to 999999, not -1"),
        ("tbon.topo = 'kary:x'", "tbon.topo=kary:x: write kary:K with K a number, 0 for a flat tree"),
    ],
)
def test_a_value_of_a_wrong_kind_or_an_unknown_key_of_a_queue_is_refused_with_its_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(tomllib.loads(text))
    assert str(refused.value) == message


def test_the_table_tbon_sets_broker_attributes() -> None:
    table = {"topo": "kary:2", "zmq_io_threads": 2, "zmqdebug": True, "nonsense": 1}
    assert attributes({"tbon": table}) == {"tbon.topo": "kary:2", "tbon.zmq_io_threads": "2", "tbon.zmqdebug": "1"}
    assert attributes({}) == {}


def test_the_file_that_holds_a_wrong_value_is_named_unless_it_comes_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[exec]\nkill-timeout = 5\n[queues.b]\nrequirs = []\n")
    (tmp_path / "b.toml").write_text("[exec]\nkill-timeout = '5s'\n")
    text = "exec.kill-timeout: must be a duration such as '5s', not "
    for value, told in ((5, f"{text}5 (in {tmp_path}/a.toml)"), (6, f"{text}6")):
        with pytest.raises(ConfigError) as refused:
            check({"exec": {"kill-timeout": value}}, str(tmp_path))
        assert str(refused.value) == told
    (tmp_path / "b.toml").write_text("[tbon]\ntopo = 3\n")
    with pytest.raises(ConfigError) as refused:
        check({"tbon": {"topo": 3}}, str(tmp_path))
    assert str(refused.value).startswith(f"{tmp_path}/b.toml: Config file error [tbon]: ")


@pytest.mark.parametrize(
    ("text", "module", "message"),
    [
        (
            "access.guests = true",
            "connector-local",
            "error parsing [access] configuration: 1 object item(s) left unpacked: guests; "
            "known are allow-guest-user, allow-root-owner, limits, private-mode and roles",
        ),
        (
            "resource = {noverfiy = true, x = 1}",
            "resource",
            "error parsing [resource] configuration: 2 object item(s) left unpacked: noverfiy, x; "
            "did you mean noverify?",
        ),
        (
            "ingest.validator.arg = []",
            "job-ingest",
            "error parsing [ingest.validator] configuration: 1 object item(s) left unpacked: arg; did you mean args?",
        ),
        (
            "heartbeat.z = 1",
            "heartbeat",
            "error parsing [heartbeat] configuration: 1 object item(s) left unpacked: z; "
            "known are period, timeout and warn_thresh",
        ),
        (
            "policy.limts.duration = '1h'",
            "job-manager",
            "error parsing [policy] config table: 1 object item(s) left unpacked: limts; did you mean limits?",
        ),
        (
            "policy.access = {x = 1, y = 2}",
            "job-manager",
            "error parsing [policy.access] config table: 2 object item(s) left unpacked: x, y; "
            "known are allow-group and allow-user",
        ),
        (
            "queues.debug.requirs = ['x']",
            "job-manager",
            "error parsing [queues.debug] config table: 1 object item(s) left unpacked: requirs; "
            "did you mean requires?",
        ),
        (
            "queues.debug.policy.limits.job-size.max.nodes = 1",
            "job-manager",
            "error parsing [queues.debug.policy.limits.job-size.max] config table: "
            "1 object item(s) left unpacked: nodes; did you mean nnodes?",
        ),
        ("exec.job-shell = 1", "job-exec", "error reading config value exec.job-shell: Expected string, got integer"),
        ("exec.kill-timeout = 5", "job-exec", "exec.kill-timeout: must be a duration such as '5s', not 5"),
        (
            "access.allow-guest-user = 'yes'",
            "connector-local",
            "access.allow-guest-user: must be true or false, not 'yes'",
        ),
        (
            "access.roles.foo.users = []",
            "connector-local",
            "unknown role 'foo' in [access.roles]: there is admin alone",
        ),
    ],
)
def test_what_a_module_does_not_take_of_a_table_is_refused_with_its_name(
    text: str, module: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedTable) as refused:
        check(tomllib.loads(text))
    assert (refused.value.module, str(refused.value)) == (module, message)
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(RefusedTable) as refused:
        check(tomllib.loads(text), str(tmp_path))
    assert str(refused.value) == f"{message} (in {tmp_path}/a.toml)"


def test_roles_may_be_given_and_other_tables_may_have_keys_of_others() -> None:
    check(tomllib.loads("access = {private-mode = true, roles.admin = {users = [], groups = ['flux']}}"))
    check(tomllib.loads("job-manager.foo = 1"))
    check(tomllib.loads("ingest = {batch-count = 4, buffer-size = '4M', frobnicator = {disable = true, mine.x = 1}}"))
    with pytest.raises(ConfigError, match=r"access\.roles\.admin\.users: must be a list of strings, not 'x'"):
        check(tomllib.loads("access.roles.admin.users = 'x'"))


def test_jobs_run_as_their_users_under_root_alone(tmp_path: Path) -> None:
    table = tomllib.loads("headrace.guests = {submit = 'as-user', min-uid = 500, pam-service = 'jobs'}")
    check(table)
    check(table, owner=0)
    with pytest.raises(ConfigError, match=r'"as-user" needs an instance of root.*: the owner of this one is user 7$'):
        check(table, owner=7)
    file = tmp_path / "a.toml"
    file.write_text("headrace.guests.submit = 'as-user'")
    with pytest.raises(ConfigError, match=f"^{file}: "):
        check(table, str(file), 7)
    check({"headrace": {"guests": {"submit": "as-owner"}}}, owner=7)
