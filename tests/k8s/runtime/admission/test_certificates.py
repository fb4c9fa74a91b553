"""Certificates of the webhook: they serve TLS, are replaced in time, and bad ones are told as such."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta, timezone

import pytest
from handshakes import handshake

from headrace.k8s.runtime.admission.certificates import (
    Pair,
    UnusablePair,
    certificates_in,
    make_pair,
    pair_of,
    renewal_time,
    secret_data,
    trusting,
)
from headrace.k8s.runtime.admission.server import tls_context, use_pair

HOSTS = ["headrace-webhook.headrace-system.svc", "headrace-webhook.headrace-system"]
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair(HOSTS, datetime.now(timezone.utc))


@pytest.mark.parametrize("host", HOSTS)
def test_a_client_that_trusts_the_authority_trusts_the_server_for_its_names(pair: Pair, host: str) -> None:
    handshake(tls_context(pair), pair.authority, host)


def test_another_name_or_authority_is_not_trusted(pair: Pair) -> None:
    context = tls_context(pair)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, pair.authority, "elsewhere.headrace-system.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, make_pair(HOSTS, datetime.now(timezone.utc)).authority, HOSTS[0])


def test_a_pair_can_be_replaced_in_a_running_server_and_both_are_trusted_meanwhile(pair: Pair) -> None:
    context = tls_context(pair)
    fresh = make_pair(HOSTS, datetime.now(timezone.utc))
    bundle = trusting(pair.authority, fresh.authority, pair.authority)
    handshake(context, bundle, HOSTS[0])
    use_pair(context, fresh)
    handshake(context, bundle, HOSTS[0])
    handshake(context, fresh.authority, HOSTS[0])


def test_a_certificate_and_a_key_that_are_no_pair_leave_the_one_before_in_use(pair: Pair) -> None:
    context = tls_context(pair)
    with pytest.raises(ssl.SSLError):
        use_pair(context, pair._replace(certificate=make_pair(HOSTS, datetime.now(timezone.utc)).certificate))
    handshake(context, pair.authority, HOSTS[0])


def test_a_pair_is_renewed_after_two_thirds_of_its_life() -> None:
    made = make_pair(HOSTS, NOW, timedelta(days=30))
    assert NOW + timedelta(days=19) < renewal_time(made, HOSTS) < NOW + timedelta(days=20)


def test_the_secret_gives_back_the_pair(pair: Pair) -> None:
    data = secret_data(pair)
    assert sorted(data) == ["ca.crt", "tls.crt", "tls.key"]
    assert pair_of({"data": data}) == pair
    assert pair_of({}) == pair_of({"data": {"tls.key": "not base64", "ca.crt": 3}}) == Pair("", "", "")


def test_an_unusable_pair_is_told_with_the_reason(pair: Pair) -> None:
    other = make_pair(HOSTS, NOW)
    with pytest.raises(UnusablePair, match="no pair"):
        renewal_time(pair._replace(key=other.key), HOSTS)
    with pytest.raises(UnusablePair, match="not for elsewhere"):
        renewal_time(pair, [*HOSTS, "elsewhere.svc"])
    for wrong in (Pair("", "", ""), pair._replace(authority=other.authority), pair._replace(certificate="x" * 99)):
        with pytest.raises(UnusablePair, match="cannot be used"):
            renewal_time(wrong, HOSTS)


def test_a_bundle_is_changed_only_where_an_authority_is_missing(pair: Pair) -> None:
    other = make_pair(HOSTS, NOW)
    both = trusting("", other.authority, pair.authority)
    assert certificates_in(both) == [*certificates_in(other.authority), *certificates_in(pair.authority)]
    # While a pair is replaced the one before is still checked for, which must not undo the change.
    assert trusting(both, pair.authority) == trusting(both, other.authority) == both
    assert trusting(pair.authority.replace("\n", "\r\n"), pair.authority) == pair.authority.replace("\n", "\r\n")
    assert trusting("junk", pair.authority) == pair.authority
    assert trusting(pair.authority, pair.authority, "") == pair.authority
