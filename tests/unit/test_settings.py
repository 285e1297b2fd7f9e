import json

import pytest

from turnwise.service.settings import Settings, SettingsError, ignored_variables, read_settings

KEY = {"name": "ada", "sha256": "0" * 64}


def test_an_argument_overrides_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_PORT", "9000")
    monkeypatch.setenv("TURNWISE_MAX_TURNS", "7")
    monkeypatch.setenv("TURNWISE_API_KEYS", json.dumps([KEY]))
    settings = read_settings(port=9001)
    assert (settings.port, settings.max_turns) == (9001, 7)
    assert settings.api_keys[0].name == "ada"


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ("http://tier:8000", "http://tier:8000/v1/embeddings"),
        ("http://tier:8000/", "http://tier:8000/v1/embeddings"),
        ("https://tier/embed", "https://tier/embed"),
    ],
)
def test_the_url_of_an_encoder_has_the_path_of_openai_unless_it_names_one(
    given: str, called: str
) -> None:
    assert read_settings(encoder_url=given).encoder_url == called


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_REDIS_URL", "")
    monkeypatch.setenv("TURNWISE_PORT", "")
    settings = read_settings()
    assert (settings.redis_url, settings.port) == (None, 8000)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TURNWISE_HOTS", "TURNWISE_HOTS is not a setting; did you mean TURNWISE_HOST?"),
        ("turnwise_redis", "turnwise_redis is not a setting; did you mean TURNWISE_REDIS_URL?"),
        ("TURNWISE_XYZZY", "TURNWISE_XYZZY is not a setting"),
    ],
)
def test_an_unknown_variable_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["TURNWISE_KEY", "TURNWISE_URL"])
def test_variables_of_clients_are_not_unknown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    read_settings()


def test_a_removed_setting_is_ignored_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURNWISE_SHORT_LIST", "turnwise_max_goals"):
        monkeypatch.setenv(name, "not even a number")
    monkeypatch.setenv("TURNWISE_PORT", "9000")
    assert read_settings().port == 9000
    assert ignored_variables() == ["TURNWISE_SHORT_LIST", "turnwise_max_goals"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PORT", "many", "TURNWISE_PORT: "),
        ("LOG_LEVEL", "loud", "TURNWISE_LOG_LEVEL: "),
        ("MAX_TURNS", "0", "TURNWISE_MAX_TURNS: "),
        ("DRAIN_TIMEOUT", "inf", "TURNWISE_DRAIN_TIMEOUT: should be a finite number"),
        ("REQUEST_TIMEOUT", "inf", "TURNWISE_REQUEST_TIMEOUT: should be a finite number"),
        ("SESSION_TTL", str(1 << 63), "TURNWISE_SESSION_TTL: should be less than"),
        ("API_KEYS", "[{", "TURNWISE_API_KEYS: not valid JSON"),
        ("API_KEYS", '[{"name": "ada"}]', "TURNWISE_API_KEYS.0.sha256: "),
        ("API_KEYS", json.dumps([KEY, KEY]), "TURNWISE_API_KEYS lists a key twice"),
        ("REDIS_URL", "localhost:6379", "TURNWISE_REDIS_URL: must begin with redis://"),
        ("REDIS_URL", "redis+sentinel://one:26379", "TURNWISE_REDIS_URL: must begin with redis://"),
        ("ENCODER_URL", "encoder:8000", "TURNWISE_ENCODER_URL: must be http://HOST:PORT"),
        ("ENCODER_URL", "http://:80", "TURNWISE_ENCODER_URL: must be http://HOST:PORT"),
        ("ENCODER_URL", "http://me:secret@tier", "TURNWISE_ENCODER_URL: must be http://HOST:PORT"),
        ("ENCODER_URL", "http://tier:abc", "TURNWISE_ENCODER_URL: must be http://HOST:PORT"),
        ("ENCODER_URL", "http://tier:0", "TURNWISE_ENCODER_URL: must be http://HOST:PORT"),
        ("ENCODER_KEY", "schlüssel", "TURNWISE_ENCODER_KEY: must be ASCII"),
        ("STORE_URL", "milvus://a:b", "TURNWISE_STORE_URL: must end with a host"),
        ("STORE_URL", "qdrant://a:99999", "TURNWISE_STORE_URL: must end with a host"),
        ("ALLOWED_HOSTS", "a.example:80", "TURNWISE_ALLOWED_HOSTS: 'a.example:80' is not the name"),
        ("HOST", "0.0.0.0", "other machines can reach host 0.0.0.0"),  # noqa: S104
    ],
)
def test_the_error_of_a_wrong_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"TURNWISE_{name}", value)
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert str(caught.value).startswith(message)


def test_an_error_does_not_quote_the_value_which_may_be_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNWISE_API_KEYS", json.dumps([{"name": "ada", "sha256": "my-own-key"}]))
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert "my-own-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://:sec/ret@redis:6379/1", "Redis at redis://redis:6379/1"),
        ("unix://ada:secret@/run/redis.sock", "Redis at unix:///run/redis.sock"),
    ],
)
def test_the_place_of_redis_does_not_name_its_password(url: str, place: str) -> None:
    settings = read_settings(redis_url=url)
    assert settings.redis_place == place
    assert url not in repr(settings)


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://one/shop", "has no Sentinels"),
        ("unix:///redis.sock", "one of the cluster's nodes"),
        ("", "one of the cluster's nodes"),
    ],
)
def test_a_cluster_is_reached_by_one_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setenv("TURNWISE_REDIS_URL", url)
    read_settings()
    monkeypatch.setenv("TURNWISE_REDIS_CLUSTER", "true")
    with pytest.raises(SettingsError, match=message):
        read_settings()
