"""The text of a CURVE certificate: its two keys, or what it lacks."""

from __future__ import annotations

import pytest
import zmq

from headrace.cli.keygen import certificate
from headrace.formats.spec.curve_certificate import key_pair

PUBLIC = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
SECRET = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"


def test_a_certificate_of_keygen_has_a_pair_that_belongs_together() -> None:
    public, secret = key_pair(certificate("a", "b=c"))
    assert zmq.curve_public(secret) == public


def test_either_quote_and_any_order_will_do() -> None:
    text = f'curve\n  secret-key = \'{SECRET}\'\n  public-key="{PUBLIC}"  \nmetadata\n  name = "x"\n'
    assert key_pair(text) == (PUBLIC.encode(), SECRET.encode())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("any text", 'has no public-key and no secret-key = "...", of 40 characters in quotes'),
        (f'public-key = "{PUBLIC}"\n', 'has no secret-key = "..."'),
        (f'public-key = "{PUBLIC}"\nsecret-key = "{SECRET[1:]}"', "has no secret-key"),
        (f'public-key = "{PUBLIC}"\nsecret-key = "{SECRET}\'', "has no secret-key"),
        (f'public-key = "{PUBLIC}"\nsecret-key = "{SECRET[1:]}|"', r"its secret-key is not in Z85"),
    ],
)
def test_what_a_text_lacks_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        key_pair(text)
    assert told in str(refused.value)
