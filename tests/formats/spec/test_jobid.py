"""Job ids (RFC 19): all text forms and the generator."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.jobid import MAX_GENERATOR, MAX_ID, FluidGenerator, JobIdError, encode, parse, split

FORMS = ["f58", "f58plain", "dec", "hex", "dothex", "kvs", "words", "emoji"]
any_id = st.integers(0, MAX_ID) | st.integers(0, 64).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))


@pytest.mark.parametrize(
    ("id_", "form", "text"),
    [
        (6731191091817518, "f58", "ƒuZZybuNNy"),
        (6731191091817518, "hex", "0x17e9fb8df16c2e"),
        (6731191091817518, "dothex", "0017.e9fb.8df1.6c2e"),
        (6731191091817518, "words", "reform-remote-galileo--heart-package-academy"),
        (45332037632, "f58", "ƒ2C4qYSj"),
        (45332037632, "f58plain", "f2C4qYSj"),
        (45332037632, "dec", "45332037632"),
        (45332037632, "hex", "0xa8e000000"),
        (45332037632, "dothex", "0000.000a.8e00.0000"),
        (45332037632, "kvs", "job.0000.000a.8e00.0000"),
        (45332037632, "words", "quest-circus-garcia--airline-academy-academy"),
        (45332037632, "emoji", "🍤👰🏦🏃"),
        (44107300864, "words", "miami-hair-matrix--airline-academy-academy"),
        (45952794624, "words", "monitor-life-journal--airline-academy-academy"),
        (53452210176, "words", "radar-signal-toronto--aladdin-academy-academy"),
        (56841207808, "words", "vampire-stadium-korea--alarm-academy-academy"),
        (12345678901234567, "f58", "ƒ2fQP3uiEDL"),
        (173, "f58plain", "f3z"),
        (0, "f58", "ƒ1"),
        (0, "emoji", "😃"),
        (0, "dothex", "0000.0000.0000.0000"),
        (0, "words", "academy-academy-academy--academy-academy-academy"),
        (9, "kvs", "job.0000.0000.0000.0009"),
        (MAX_ID, "f58", "ƒjpXCZedGfVQ"),
    ],
)
def test_ids_have_the_recorded_and_the_rfcs_forms(id_, form, text):
    assert (encode(id_, form), parse(text), parse(f"  {text}\n")) == (text, id_, id_)


@pytest.mark.parametrize("form", FORMS)
@given(id_=any_id)
def test_every_id_comes_back_from_every_form(form, id_):
    assert parse(encode(id_, form)) == id_


@given(any_id)
def test_f58_is_base_58(id_):
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    digits = []
    rest = id_
    while rest or not digits:
        rest, digit = divmod(rest, 58)
        digits.append(alphabet[digit])
    assert encode(id_, "f58plain") == "f" + "".join(reversed(digits))


@pytest.mark.parametrize(
    "text", ["Quest-Circus-Garcia--Airline-Academy-Academy", "quest-circus-garcia-airline-academy-academy"]
)
def test_words_are_read_in_any_case_and_grouping(text):
    assert parse(text) == 45332037632


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nosuch!",
        "f",
        "ƒ",
        "f0",
        "fI",
        "ƒl",
        "ƒ" + "z" * 11,
        "ƒ" + "1" * 12,
        "-1",
        "+1",
        "1_000",
        "١",
        "1.5",
        "0.0.0.0.0",
        "0000.0000.0000.0000g",
        "00000.0.0.0",
        "job.0.0.0",
        "jobs.0.0.0.1",
        "0x",
        "0xg",
        "0x10000000000000000",
        "0X10",
        "18446744073709551616",
        "9" * 5000,
        "academy-academy-academy",
        "academy-academy-academy--academy-academy-nosuchword",
        "yes-yes-yes--yes-yes-yes",
        "royal-royal-royal--academy-academy-academy-academy",
        "verbal-verbal-verbal--academy-academy-academy",
        "😃a",
        "🦄",
        "🎌" * 7,
        "😃" * 8,
    ],
)
def test_text_that_is_no_id_is_refused(text):
    with pytest.raises(JobIdError, match="not a job id"):
        parse(text)


@given(st.text(alphabet="ƒf0x1a.-😃 ", max_size=12) | st.text(max_size=12))
def test_any_text_is_an_id_or_refused(text):
    try:
        id_ = parse(text)
    except JobIdError:
        return
    assert 0 <= id_ <= MAX_ID


@pytest.mark.parametrize(("id_", "form"), [(-1, "f58"), (MAX_ID + 1, "dec"), (1, "base64"), (1, "")])
def test_what_has_no_such_form_is_refused(id_, form):
    with pytest.raises(JobIdError):
        encode(id_, form)


def test_f58_is_ascii_where_the_environment_asks_for_it():
    code = "from headrace.formats.spec import jobid; print(jobid.encode(173), jobid.encode(173, 'f58plain'))"
    env = dict(os.environ, FLUX_F58_FORCE_ASCII="1")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "f3z f3z\n"


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({"LC_ALL": "C"}, "f3z"),
        ({"LC_ALL": "POSIX", "LANG": "C.UTF-8"}, "f3z"),
        ({"LANG": "C", "PYTHONCOERCECLOCALE": "0"}, "f3z"),
        ({"LC_ALL": "C.UTF-8"}, "\u01923z"),
        ({"LC_ALL": "C.UTF-8", "FLUX_F58_FORCE_ASCII": "1"}, "f3z"),
    ],
)
def test_f58_is_ascii_where_the_locale_is_not_utf_8(env, shown):
    code = "from headrace.formats.spec import jobid; jobid.follow_locale(); print(ascii(jobid.encode(173)))"
    given = {name: text for name, text in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**given, **env}, capture_output=True, text=True, check=True
    )
    assert done.stdout == ascii(shown) + "\n"


def test_f58_is_read_where_the_locale_took_its_letter_for_bytes():
    letter = "\u0192".encode()
    for misread in (letter.decode("ascii", "surrogateescape"), letter.decode("latin-1")):
        assert parse(f"{misread}3z") == 173


def test_an_id_is_made_of_time_generator_and_sequence():
    made = FluidGenerator(generator=5, epoch_ms=1000)
    assert [split(made.next(now)) for now in (1007, 1007, 1008)] == [(7, 5, 0), (7, 5, 1), (8, 5, 0)]


def test_the_first_id_of_an_instance_is_zero():
    assert FluidGenerator(epoch_ms=50).next(50) == 0


def test_ids_ascend_when_the_clock_steps_back():
    made = FluidGenerator(epoch_ms=0)
    issued = [made.next(now) for now in (100, 90, -5, 100, 101)]
    assert [split(id_)[0::2] for id_ in issued] == [(100, 0), (100, 1), (100, 2), (100, 3), (101, 0)]


def test_a_burst_runs_ahead_of_the_clock_without_repeating():
    made = FluidGenerator(generator=3)
    issued = [*made.take(1000, 7), *made.take(3000, 7), made.next(7), made.next(9), made.next(20)]
    assert issued == sorted(set(issued))
    assert {split(id_)[1] for id_ in issued} == {3}
    assert [split(id_)[0] for id_ in (issued[1023], issued[1024], issued[4000], issued[-1])] == [7, 8, 10, 20]


def test_taking_none_changes_nothing():
    made = FluidGenerator()
    assert (made.take(0, 99), made.high_water) == ([], -1)


@given(
    st.integers(0, MAX_GENERATOR),
    st.lists(st.tuples(st.integers(0, 2500), st.integers(-3, 50)), min_size=1, max_size=5),
    st.integers(0, 5),
)
def test_a_generator_restored_from_its_high_water_continues_above_it(generator, requests, other):
    made = FluidGenerator(generator)
    issued = [id_ for count, now in requests for id_ in made.take(count, now)]
    assert issued == sorted(set(issued))
    assert made.high_water == max(issued, default=-1)
    for number in (generator, other):
        restored = FluidGenerator(number, high_water=made.high_water)
        assert restored.next(0) > made.high_water


def test_numbers_out_of_range_are_refused():
    for wrong in ({"generator": -1}, {"generator": MAX_GENERATOR + 1}, {"high_water": MAX_ID + 1}, {"high_water": -2}):
        with pytest.raises(JobIdError):
            FluidGenerator(**wrong)


def test_after_35_years_no_ids_are_left():
    made = FluidGenerator()
    last = (1 << 40) - 1
    assert split(made.take(1024, last)[-1])[0] == last
    with pytest.raises(JobIdError, match="40 bits"):
        made.next(last)
