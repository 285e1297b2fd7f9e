import pytest

from turnwise.service.app.wiring import make_fallback
from turnwise.service.settings import Settings, SettingsError


def test_a_proxy_to_the_fallback_that_needs_a_package_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    settings = {"fallback_url": "http://llm.example/v1", "fallback_model": "m"}
    with pytest.raises(SettingsError, match=r"^TURNWISE_FALLBACK_URL: Using SOCKS proxy.*$"):
        make_fallback(Settings.model_validate(settings), None)
