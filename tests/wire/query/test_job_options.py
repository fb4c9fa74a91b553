"""The table of the options of jobs: constant, without contradictions, and known to all who read it."""

from __future__ import annotations

import pytest

from headrace.formats.spec import jobspec_build
from headrace.service import submission
from headrace.wire.query import job_options
from headrace.wire.query.job_options import OPTIONS, Option, Web


def test_an_option_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="the options of jobs are constant"):
        OPTIONS[0].help = "other"
    with pytest.raises(AttributeError, match="the options of jobs are constant"):
        Web("name", "text").label = "other"


@pytest.mark.parametrize("command", job_options.EVERY)
def test_a_command_has_each_flag_once(command: str) -> None:
    flags = [flag for option in OPTIONS if command in option.commands for flag in option.flags]
    assert len(flags) == len(set(flags)) > 20


def test_an_option_of_the_command_line_has_help_and_the_name_of_its_value() -> None:
    for option in OPTIONS:
        assert bool(option.flags) == bool(option.commands) == bool(option.help), option.name
        assert not option.flags or bool(option.metavar) != (option.kind == job_options.FLAG), option.name


def test_each_parameter_of_the_builders_is_one_that_they_have() -> None:
    parameters = {option.builder: None for option in job_options.BUILT}
    jobspec_build.from_command(["true"], **parameters)


def test_each_field_of_requests_comes_from_the_table_with_its_bound() -> None:
    fields = {field.name: field for field in submission.FIELDS}
    assert fields.keys() - {option.web.name for option in OPTIONS if option.web} == {"command", "script"}
    assert fields["nodes"].schema["minimum"] == 1 and fields["gpus_per_task"].schema["minimum"] == 0


def test_an_option_without_flags_is_for_requests_alone() -> None:
    option = Option("x", sets="x", commands=())
    assert option.flags == () and option.web is None
