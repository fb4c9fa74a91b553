"""The webhook's certificate over its life: made once, trusted before it is served, replaced in time by one replica."""

from __future__ import annotations

import asyncio
import copy
import ssl
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from headrace.k8s.objects.kinds import APISERVICES, CLUSTER_ROLES, CONFIG_MAPS, MUTATING, SECRETS, VALIDATING, Kind
from headrace.k8s.runtime.admission import rotation
from headrace.k8s.runtime.admission.aggregation import Aggregator
from headrace.k8s.runtime.admission.certificates import LIFETIME, Pair, certificates_in, decoded, make_pair, pair_of
from headrace.k8s.runtime.admission.rotation import Keeper, Settings, api_service, trusted_hook
from headrace.k8s.runtime.api import Api, ApiError, Listing, Unreachable
from waiting import until_in_loop

CONFIGURATIONS = ((VALIDATING, "greetings"), (MUTATING, "greeters"))
SETTINGS = Settings(
    namespace="n", service="webhook", secret="webhook", component="greeter", configurations=CONFIGURATIONS
)
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)
Object = dict[str, Any]


class Server:
    """The API server as far as a keeper uses it, with versions and conflicts; `writes` has (verb, plural)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[tuple[str, str]] = []
        self.version = 0
        for kind, name in CONFIGURATIONS:
            self.put(kind, {"metadata": {"name": name}, "webhooks": [{"clientConfig": {}}]})
        self.put(CLUSTER_ROLES, {"metadata": {"name": "greeter-apis", "uid": "role-1"}})

    def put(self, kind: Kind, body: Object) -> Object:
        self.version += 1
        made = copy.deepcopy(body)
        made["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind.plural, made["metadata"]["name"]] = made
        return copy.deepcopy(made)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        # Others act between the steps of one.
        await asyncio.sleep(0)
        if (kind.plural, name) not in self.objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return copy.deepcopy(self.objects[kind.plural, name])

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        await asyncio.sleep(0)
        self.writes.append(("create", kind.plural))
        if (kind.plural, body["metadata"]["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", "it exists")
        return self.put(kind, body)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        await asyncio.sleep(0)
        self.writes.append(("update", kind.plural))
        return self._change(kind, name, body, body)

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object) -> Object:
        await asyncio.sleep(0)
        self.writes.append(("patch", kind.plural))
        stored = self.objects[kind.plural, name]
        parts = {key: {**stored[key], **value} for key, value in body.items() if key in ("spec", "metadata")}
        return self._change(kind, name, body, {**stored, **body, **parts})

    def _change(self, kind: Kind, name: str, sent: Object, wanted: Object) -> Object:
        if sent["metadata"]["resourceVersion"] != self.objects[kind.plural, name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "it has changed")
        return self.put(kind, wanted)

    async def list_objects(self, kind: Kind, namespace: str = "", fields: str = "") -> Listing:
        raise Unreachable("not in this test")

    @property
    def trusted(self) -> list[str]:
        hooks = [self.objects[kind.plural, name]["webhooks"][0] for kind, name in CONFIGURATIONS]
        one, other = [certificates_in(decoded(hook["clientConfig"].get("caBundle"))) for hook in hooks]
        assert one == other
        return one

    @property
    def stored(self) -> Pair:
        return pair_of(self.objects[SECRETS.plural, SETTINGS.secret])


def keeper(server: Server, now: datetime = NOW, settings: Settings = SETTINGS) -> Keeper:
    return Keeper(cast(Api, server), settings, lambda: now)


def test_the_first_start_makes_a_pair_and_a_restart_takes_it() -> None:
    server = Server()
    pair = asyncio.run(keeper(server).current())
    assert server.stored == pair
    assert server.trusted == certificates_in(pair.authority)
    told = [("patch", kind.plural) for kind, _ in CONFIGURATIONS]
    assert server.writes == [*told, ("create", "secrets")], "trusted before it is served"
    server.writes.clear()
    assert asyncio.run(keeper(server).current()) == pair
    assert server.writes == []


def test_replicas_that_start_together_serve_one_pair_that_is_trusted() -> None:
    server = Server()

    async def start() -> list[Pair]:
        return await asyncio.gather(*(keeper(server).first() for _ in range(3)))

    pairs = asyncio.run(start())
    assert pairs == [server.stored] * 3
    assert set(certificates_in(server.stored.authority)) <= set(server.trusted)


def test_a_pair_is_replaced_after_two_thirds_of_its_life_and_the_one_before_stays_trusted() -> None:
    server = Server()
    before = asyncio.run(keeper(server).current())
    due = NOW + LIFETIME * 2 / 3
    assert asyncio.run(keeper(server, due - timedelta(days=2)).current()) == before
    after = asyncio.run(keeper(server, due + timedelta(days=1)).current())
    assert after != before and server.stored == after
    assert server.trusted == [*certificates_in(after.authority), *certificates_in(before.authority)]
    # A replica that is late finds the pair in the Secret.
    assert asyncio.run(keeper(server, due + timedelta(days=2)).current()) == after


@pytest.mark.parametrize("data", [{}, {"tls.crt": "bm8=", "tls.key": "bm8=", "ca.crt": "bm8="}, {"tls.crt": "?"}])
def test_a_secret_without_a_usable_pair_is_filled(data: dict[str, str]) -> None:
    server = Server()
    server.put(SECRETS, {"metadata": {"name": SETTINGS.secret}, "data": data})
    pair = asyncio.run(keeper(server).current())
    assert server.stored == pair and server.trusted == certificates_in(pair.authority)


def test_a_pair_for_other_names_is_replaced() -> None:
    server = Server()
    before = asyncio.run(keeper(server).current())
    elsewhere = replace(SETTINGS, address="192.0.2.1")
    assert asyncio.run(keeper(server, settings=elsewhere).current()) != before
    assert asyncio.run(keeper(server, settings=elsewhere).current()) == server.stored


def test_without_a_configuration_the_webhook_serves_all_the_same() -> None:
    server = Server()
    server.objects.clear()
    assert asyncio.run(keeper(server).current()) == server.stored


def test_a_certificate_of_others_is_read_from_its_folder_and_nothing_is_written(tmp_path: Path) -> None:
    server = Server()
    settings = replace(SETTINGS, folder=str(tmp_path))
    with pytest.raises(OSError):
        asyncio.run(keeper(server, settings=settings).current())
    first, second = (make_pair(["x.svc"], datetime.now(timezone.utc)) for _ in range(2))

    def provide(pair: Pair) -> None:
        (tmp_path / "tls.crt").write_text(pair.certificate)
        (tmp_path / "tls.key").write_text(pair.key)

    async def follow() -> list[Pair]:
        used: list[Pair] = []

        def use(pair: Pair) -> None:
            used.append(pair)
            if pair.key == first.key:
                provide(second)
            else:
                raise asyncio.CancelledError

        one = keeper(server, settings=settings)
        one.pause = 0.0
        provide(first)
        with pytest.raises(asyncio.CancelledError):
            await one.keep(use)
        return used

    assert [pair.key for pair in asyncio.run(follow())] == [first.key, second.key]
    assert server.writes == [] and server.trusted == []


def test_a_certificate_that_cannot_be_read_leaves_the_one_before(tmp_path: Path) -> None:
    settings = replace(SETTINGS, folder=str(tmp_path))
    (tmp_path / "tls.crt").write_text("junk")
    (tmp_path / "tls.key").write_text("junk")
    tries = 0

    async def follow() -> None:
        nonlocal tries

        def use(pair: Pair) -> None:
            nonlocal tries
            tries += 1
            if tries == 3:
                raise asyncio.CancelledError
            raise ssl.SSLError("no certificate")

        one = keeper(Server(), settings=settings)
        one.pause = 0.0
        with pytest.raises(asyncio.CancelledError):
            await one.keep(use)

    asyncio.run(follow())
    assert tries == 3


def test_a_hook_that_trusts_the_authority_is_left_alone() -> None:
    authority = make_pair(["x.svc"], NOW).authority
    changed = trusted_hook({"name": "a", "clientConfig": {"url": "u"}}, authority, "")
    assert changed["clientConfig"]["url"] == "u" and certificates_in(decoded(changed["clientConfig"]["caBundle"]))
    assert trusted_hook(changed, authority, "") is changed


METRICS = "custom.metrics.k8s.io/v1beta2"
NAME = "v1beta2.custom.metrics.k8s.io"


def registering(told: dict[str, str], **more: str) -> Settings:
    return replace(
        SETTINGS,
        api_services=(METRICS,),
        api_services_role="greeter-apis",
        owned_elsewhere=told.__setitem__,
        **more,
    )


def owners(server: Server) -> list[str]:
    """The uids of the owners of the APIService."""
    metadata = server.objects["apiservices", NAME]["metadata"]
    return [one["uid"] for one in metadata["ownerReferences"] if one["kind"] == "ClusterRole"]


def test_an_api_that_the_server_answers_for_is_registered_with_its_authority() -> None:
    server, told = Server(), dict[str, str]()
    pair = asyncio.run(keeper(server, settings=registering(told)).current())
    made = server.objects["apiservices", NAME]["spec"]
    assert made["service"] == {"namespace": "n", "name": "webhook", "port": 443}
    assert (made["group"], made["version"]) == ("custom.metrics.k8s.io", "v1beta2")
    assert certificates_in(decoded(made["caBundle"])) == certificates_in(pair.authority) and told == {NAME: ""}
    assert owners(server) == ["role-1"]
    server.writes.clear()
    asyncio.run(keeper(server, settings=registering(told)).current())
    assert server.writes == []
    # The authority before is trusted until all replicas have the new pair.
    later = asyncio.run(keeper(server, NOW + LIFETIME * 0.7, registering(told)).current())
    bundle = certificates_in(decoded(server.objects["apiservices", NAME]["spec"]["caBundle"]))
    assert set(bundle) == {*certificates_in(pair.authority), *certificates_in(later.authority)}


@pytest.mark.parametrize(
    ("service", "owner"),
    [
        ({"namespace": "monitoring", "name": "prometheus-adapter"}, "monitoring/prometheus-adapter"),
        (None, "the API server"),
    ],
)
def test_an_api_of_another_program_is_left_alone(service: Object | None, owner: str) -> None:
    server, told = Server(), dict[str, str]()
    server.put(APISERVICES, {"metadata": {"name": NAME}, "spec": {"service": service, "insecureSkipTLSVerify": True}})
    before = copy.deepcopy(server.objects["apiservices", NAME])
    asyncio.run(keeper(server, settings=registering(told)).current())
    assert server.objects["apiservices", NAME] == before and told == {NAME: owner}
    del server.objects["apiservices", NAME]
    asyncio.run(keeper(server, settings=registering(told)).current())
    assert server.objects["apiservices", NAME]["spec"]["service"]["name"] == "webhook" and told == {NAME: ""}


def test_an_api_goes_with_the_role_that_gives_the_right_to_register_it() -> None:
    server = Server()
    asyncio.run(keeper(server, settings=registering({})).current())
    del server.objects[CLUSTER_ROLES.plural, "greeter-apis"], server.objects["apiservices", NAME]
    pair = asyncio.run(keeper(server, settings=registering({})).current())
    assert ("apiservices", NAME) not in server.objects and pair == server.stored
    # One that an earlier version has registered gets its owner.
    server.put(CLUSTER_ROLES, {"metadata": {"name": "greeter-apis", "uid": "role-2"}})
    service = {"namespace": "n", "name": "webhook", "port": 443}
    server.put(APISERVICES, {"metadata": {"name": NAME}, "spec": {"service": service}})
    asyncio.run(keeper(server, settings=registering({})).current())
    assert owners(server) == ["role-2"]
    assert certificates_in(decoded(server.objects["apiservices", NAME]["spec"]["caBundle"]))


def test_with_a_certificate_of_others_they_provide_the_authority() -> None:
    role = {"metadata": {"name": "greeter-apis", "uid": "role-1"}}
    made = api_service(METRICS, registering({}, folder="/certificate"), role)
    assert made["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "n/webhook"}
    assert "caBundle" not in made["spec"]


class Published(Server):
    """An API server whose ConfigMap of the aggregation layer changes; `answers` are its listings, None a refusal."""

    def __init__(self, *answers: list[Object] | None) -> None:
        super().__init__()
        self.answers = list(answers)
        self.events: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()

    async def list_objects(self, kind: Kind, namespace: str = "", fields: str = "") -> Listing:
        if kind is not CONFIG_MAPS:
            raise Unreachable("not in this test")
        assert (namespace, fields) == ("kube-system", "metadata.name=extension-apiserver-authentication")
        found = self.answers.pop(0)
        if found is None:
            raise ApiError(403, "Forbidden", "may not list configmaps")
        return Listing(found, "1")

    async def watch(
        self, kind: Kind, version: str, namespace: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        assert namespace == "kube-system"
        while (found := await self.events.get())[0]:
            yield found
        raise Unreachable("gone")


def follow(server: Published, times: int, *events: tuple[str, Object]) -> list[Aggregator]:
    """What is told of the aggregation layer until it has been told so many times."""
    found: list[Aggregator] = []

    async def run() -> None:
        its = keeper(server, settings=registering({}))
        keeping = asyncio.create_task(its.keep(lambda pair: None, found.append))
        for event in events:
            server.events.put_nowait(event)
        await until_in_loop(lambda: len(found) >= times and not server.answers)
        keeping.cancel()

    asyncio.run(run())
    return found


def published(authority: str) -> Object:
    return {"data": {"requestheader-client-ca-file": authority}}


def test_the_aggregation_layer_is_told_whenever_its_config_map_changes() -> None:
    one, other = (certificates_in(make_pair(["a"], NOW).authority)[0] for _ in range(2))
    found = follow(Published([]), 4, ("ADDED", published(one)), ("MODIFIED", published(other)), ("DELETED", {}))
    assert [each.authority for each in found] == ["", one, other, ""]
    assert "there is no ConfigMap" in found[0].why_unknown and found[0] == found[3]


def test_a_refused_config_map_is_told_and_leaves_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_FIRST_RETRY", 0.001)
    one = certificates_in(make_pair(["a"], NOW).authority)[0]
    found = follow(Published(None, [published(one)], None, [published(one)]), 3, ("", {}))
    assert [each.authority for each in found] == ["", one, one]
    assert found[0].why_unknown.endswith("extension-apiserver-authentication cannot be read: may not list configmaps")
