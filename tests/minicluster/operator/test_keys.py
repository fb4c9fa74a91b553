"""The keys of a MiniCluster: random, in one Secret, and nowhere else."""

from __future__ import annotations

import json

import pytest
import zmq
from clusters import built, minicluster

from headrace.formats.spec.curve_certificate import key_pair
from headrace.minicluster.operator.keys import CURVE_CERT, fresh_keys, keys_of, secret


def test_keys_are_fresh_each_time_and_pairs_belong_together() -> None:
    first, second = fresh_keys(), fresh_keys()
    assert len({first.curve, first.channel, first.channel_client, second.curve, second.channel}) == 5
    for certificate in (first.curve, first.channel, first.channel_client):
        public, private = key_pair(certificate)
        assert zmq.curve_public(private) == public
    assert key_pair(first.channel_client)[0].decode() == first.channel_client_public


def test_a_secret_gives_its_keys_back() -> None:
    keys = fresh_keys()
    made = secret(minicluster(), keys, uid="u-1")
    assert made["metadata"]["name"] == "sample-curve"
    assert keys_of(made) == keys


def test_a_certificate_of_the_file_stands_in_for_the_brokers_own() -> None:
    given = fresh_keys().curve
    made = secret(minicluster(flux={"curveCert": given}), fresh_keys())
    assert keys_of(made).curve == given


def test_a_secret_without_a_key_is_named_with_the_key() -> None:
    made = secret(minicluster(), fresh_keys())
    del made["data"][CURVE_CERT]
    with pytest.raises(ValueError, match=r"Secret sample-curve has no key curve\.cert"):
        keys_of(made)
    made["data"][CURVE_CERT] = "###"
    with pytest.raises(ValueError, match=r"curve\.cert is not valid base64 text"):
        keys_of(made)


def test_keys_are_in_no_other_object_and_in_no_representation() -> None:
    keys = fresh_keys()
    objects = built(minicluster(flux={"curveCert": keys.curve}), keys=keys)
    del objects["Secret/sample-curve"]
    texts = json.dumps(objects) + repr(keys)
    for certificate in (keys.curve, keys.channel, keys.channel_client):
        for key in key_pair(certificate):
            assert key.decode() not in texts
    assert "headrace-pod" in texts


def test_no_pod_has_the_operators_own_key_pair_mounted() -> None:
    objects = built(minicluster(), keys=fresh_keys())
    volumes = objects["Job/sample"]["spec"]["template"]["spec"]["volumes"]
    mounted = next(one["secret"] for one in volumes if "secret" in one)
    assert mounted["secretName"] == "sample-curve"
    assert [item["key"] for item in mounted["items"]] == ["curve.cert", "channel.cert", "channel-client.pub"]
