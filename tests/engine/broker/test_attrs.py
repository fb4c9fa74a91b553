"""Attributes: what a user may set, and what attr.set and attr.rm refuse."""

from __future__ import annotations

import errno

import pytest

from headrace.engine.broker.attrs import AttrError, AttrTable
from headrace.engine.broker.module.context import RpcError


def test_given_attributes_replace_defaults():
    table = AttrTable({"tbon.topo": "kary:2", "statedir": "/x"})
    assert table.lookup("tbon.topo")["value"] == "kary:2"
    assert table.get("statedir") == "/x"
    assert table.get("log-level") == "7"


@pytest.mark.parametrize(("name", "text"), [("nosuch", "unknown attribute"), ("rank", "read-only")])
def test_what_is_not_a_users_to_set_is_refused(name, text):
    with pytest.raises(AttrError, match=text):
        AttrTable({name: "1"})


def test_an_attribute_that_is_not_set_is_enoent():
    with pytest.raises(RpcError) as caught:
        AttrTable().lookup("statedir")
    assert caught.value.errnum == errno.ENOENT


@pytest.mark.parametrize("name", ["broker.rc1_path", "conf.shell_pluginpath", "parent-uri", "statedir"])
def test_attributes_that_flux_always_lists_are_listed_without_a_value(name):
    assert name in AttrTable().names()
    with pytest.raises(RpcError):
        AttrTable().lookup(name)


def test_a_switch_that_nobody_has_set_is_not_listed():
    switches = {"broker.exit-norestart", "broker.exit-restart", "broker.recovery-mode", "broker.rc2_none"}
    unlisted = {*switches, "broker.module-nopanic", "broker.sd-notify", "config.path"}
    assert not unlisted & set(AttrTable().names())
    table = AttrTable({**dict.fromkeys(switches, "1"), "config.path": "/x"})
    table.update("broker.module-nopanic", "1")
    assert unlisted - {"broker.sd-notify"} <= set(table.names())
    assert table.lookup("broker.exit-restart")["value"] == "1"


def test_flux_attributes_do_not_change_in_a_running_broker_but_users_own_do():
    table = AttrTable()
    with pytest.raises(RpcError, match="may not be updated"):
        table.update("log-level", "5")
    table.update("log-level", "5", force=True)
    assert table.get("log-level") == "5"
    with pytest.raises(RpcError, match="may not be updated"):
        table.update("rank", "5", force=True)
    with pytest.raises(RpcError, match="unknown attribute"):
        table.update("mine", "5")
    table.update("user.mine", "5")
    assert table.get("user.mine") == "5"
    for level in ("-1", "0"):
        for name in ("log-stderr-level", "log-forward-level", "log-critical-level"):
            table.update(name, level)
    table.update("log-ring-size", "5")
    with pytest.raises(RpcError, match="value must be an integer"):
        table.update("log-ring-size", "many")
    table.update("log-stderr-level", "7")
    with pytest.raises(RpcError, match="'8' is not a level"):
        table.update("log-stderr-level", "8")
    assert "user.mine" in table.names()
    table.remove("user.mine")
    with pytest.raises(RpcError):
        table.remove("user.mine")


@pytest.mark.parametrize("name", ["tbon.tcp_user_timeout", "tbon.torpid_max", "broker.quorum-warn"])
def test_a_duration_is_checked_at_start(name):
    with pytest.raises(AttrError, match=f"Error parsing {name} attribute: invalid duration 'soon'"):
        AttrTable({name: "soon"})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("statedir", "", "statedir: give a folder"),
        ("rundir", "", "rundir: give a folder"),
        ("content.backing-module", "foo", "'foo' is neither content-sqlite nor none"),
    ],
)
def test_what_could_only_be_ignored_is_refused_at_start(name, value, text):
    with pytest.raises(AttrError, match=text):
        AttrTable({name: value})


def test_the_log_has_levels_and_two_modes():
    for name, value in (("log-level", "8"), ("log-stderr-level", ""), ("log-stderr-mode", "here")):
        with pytest.raises(AttrError, match=name):
            AttrTable({name: value})


def test_a_limit_may_be_none_and_a_count_is_a_number():
    for name in ("broker.cleanup-timeout", "broker.quorum-warn", "broker.shutdown-warn"):
        assert AttrTable({name: "none"}).get(name) == "none"
    with pytest.raises(AttrError, match="value must be an integer of"):
        AttrTable({"tbon.zmq_io_threads": "many"})


def test_an_attribute_of_tests_is_made_up_at_the_start_and_changed_by_force_only():
    table = AttrTable({"test-nr.mine": "1", "test.mine": "1", "tbon.connect_timeout": "0", "tbon.torpid_min": "90"})
    table.update("test.mine", "2")
    with pytest.raises(RpcError, match="may not be updated"):
        table.update("test-nr.mine", "2")
    table.update("test-nr.mine", "2", force=True)
    assert (table.get("test.mine"), table.get("test-nr.mine")) == ("2", "2")
    # No time has a unit, too.
    assert (table.get("tbon.connect_timeout"), table.get("tbon.torpid_min")) == ("0s", "90")
