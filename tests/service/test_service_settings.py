from __future__ import annotations

import pytest

from headrace.service.settings import Settings, SettingsError, from_environment, proxy_header


def of(auth: str = "", **environment: str) -> Settings:
    return from_environment(environment, "", auth, frozenset())


def test_the_defaults_ask_for_a_token() -> None:
    found = of()
    assert (found.auth, found.user, found.token_minutes, found.nodes, found.gpus) == (
        "token",
        "fluxuser",
        600,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("given", "auth", "found"),
    [("true", "", "token"), ("1", "", "token"), ("False", "", "none"), ("0", "", "none"), ("1", "none", "none")],
)
def test_flux_require_auth_says_what_no_option_says(given: str, auth: str, found: str) -> None:
    assert of(auth, FLUX_REQUIRE_AUTH=given).auth == found


def test_all_variables_are_read() -> None:
    found = of(
        **{"FLUX_USER": "u", "FLUX_TOKEN": "t", "FLUX_SECRET_KEY": "s", "FLUX_ACCESS_TOKEN_EXPIRES_MINUTES": "5"},
        **{"FLUX_NUMBER_NODES": "4", "FLUX_HAS_GPUS": "false", "FLUX_OPTION_FLAGS": "-ompi=openmpi@5 verbose=1"},
        FLUX_SERVER_MODE="single-user",
    )
    assert (found.user, found.password, found.secret_key, found.token_minutes) == ("u", "t", "s", 5)
    assert (found.nodes, found.gpus, found.shell_options) == (4, False, {"mpi": "openmpi@5", "verbose": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLUX_REQUIRE_AUTH", "yes, please"),
        ("FLUX_HAS_GPUS", "2"),
        ("FLUX_NUMBER_NODES", "0"),
        ("FLUX_NUMBER_NODES", "x"),
        ("FLUX_ACCESS_TOKEN_EXPIRES_MINUTES", "-1"),
        ("FLUX_OPTION_FLAGS", "verbose"),
        ("FLUX_OPTION_FLAGS", "'"),
        ("FLUX_SERVER_MODE", "many-user"),
    ],
)
def test_what_a_variable_cannot_be_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        of(**{name: value})


def test_the_mode_for_several_users_is_that_of_the_store() -> None:
    assert of(FLUX_SERVER_MODE="multi-user").auth == of("users", FLUX_SERVER_MODE="multi-user").auth == "users"
    with pytest.raises(SettingsError, match="FLUX_SERVER_MODE is 'multi-user', which --auth token is not"):
        of("token", FLUX_SERVER_MODE="multi-user")


@pytest.mark.parametrize("name", ["X-Remote-User", "Remote-User", "x-forwarded-user", "X_User", "X-Auth-Request-Email"])
def test_a_proxy_names_users_by_a_header_of_its_own(name: str) -> None:
    assert proxy_header(name) == name


@pytest.mark.parametrize("name", ["", "X Y", "X:Y", "X-Us\u00e9r", "X\tY", "X-User\n", "(x)", "a,b", "x/y", '"x"'])
def test_a_header_has_a_token_as_its_name(name: str) -> None:
    with pytest.raises(SettingsError, match="it must be the name of a header"):
        proxy_header(name)


@pytest.mark.parametrize(
    "name",
    [
        *("Cookie", "HOST", "User-Agent", "Authorization", "Origin", "Referer", "Accept", "Accept-Language", "Via"),
        *(
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "Forwarded",
            "Content-Type",
            "Sec-Fetch-Site",
            "Connection",
            "If-Match",
        ),
    ],
)
def test_a_header_that_browsers_and_proxies_send_names_no_user(name: str) -> None:
    with pytest.raises(SettingsError, match=f"--proxy-header is '{name}', which browsers and proxies send themselves"):
        proxy_header(name)
