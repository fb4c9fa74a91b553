from __future__ import annotations

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.jobs import pgrep, pkill
from headrace.cli.jobs.pgrep import Expression
from headrace.formats.spec import jobid
from headrace.wire.query.job_info import JobInfo

IDS = [jobid.encode(number, "f58") for number in (10, 20)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["b"], ["bar", "ƒub"]),
        (["^b"], ["bar"]),
        (["r$"], ["bar", "or..er"]),
        (["."], ["bar", "ƒub", "or..er"]),
        (["f..f"], []),
        (["or..er"], ["or..er"]),
        ([f"{IDS[0]}..{IDS[1]}"], ["bar", "ƒub"]),
        (["10..10"], ["bar"]),
        (["20..10"], []),
        (["10..20", "u"], ["ƒub"]),
        (["u", "10..20"], ["ƒub"]),
        (["name:10..20"], []),
        (["name:r..e"], ["or..er"]),
        (["name:10"], []),
    ],
)
def test_an_expression_means_names_ids_or_both(words, found):
    jobs = [
        JobInfo({"id": 10, "name": "bar"}),
        JobInfo({"id": 20, "name": "ƒub"}),
        JobInfo({"id": 30, "name": "or..er"}),
    ]
    assert [job.get("name") for job in jobs if Expression(words).matches(job)] == found


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["a", "b"], "expression error: Only one pattern can be provided"),
        (["10..20", "a", "b"], "expression error: Only one pattern can be provided"),
        (["(a"], "expression error: (a: missing ), unterminated subpattern at position 0"),
        (["name:*"], "expression error: name:*: nothing to repeat at position 0"),
    ],
)
def test_an_expression_that_is_none_is_refused_with_2(words, error):
    with pytest.raises(CommandError) as caught:
        Expression(words)
    assert (caught.value.text, caught.value.status) == (error, 2)


def test_jobs_that_cannot_be_canceled_are_named(answers, capsys):
    jobs = [{"id": 10, "name": "a"}, {"id": 20, "name": "b"}]
    given = answers(pkill, job_list__list=[{"jobs": jobs}], job_manager__raise=[{}, OSError(22, "job is inactive"), {}])
    assert pkill.main(["."]) == 1
    assert capsys.readouterr().err == (
        f"flux-pkill: ERROR: {IDS[1]}: cancel: job is inactive\nflux-pkill: INFO: Canceled 1 job\n"
    )
    assert [asked for topic, asked in given.asked if topic == "job-manager.raise"] == [
        {"id": number, "type": "cancel", "severity": 0} for number in (10, 20)
    ]


def test_each_use_of_an_option_adds_to_what_is_asked_for(answers):
    given = answers(pgrep, job_list__list=[{"jobs": []}])
    assert pgrep.main(["-A", "-f", "run", "-f", "failed", "-q", "a,b", "-q", "c", "--max-entries=7", "x"]) == 1
    ((_, asked),) = given.asked
    assert asked["max_entries"] == 7
    assert asked["constraint"] == {
        "and": [{"queue": ["a", "b", "c"]}, {"or": [{"states": [16]}, {"results": [2]}]}],
    }
