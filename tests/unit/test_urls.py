import pytest

from turnwise.service.urls import hide_secrets, show_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@redis:6379/0", "redis://redis:6379/0"),
        ("redis://ada:sec/ret@redis:6379", "redis://redis:6379"),
        ("redis://:sec@ret@redis", "redis://redis"),
        ("redis://:sec#ret@redis", "redis://redis"),
        ("redis://:sec?ret@redis", "redis://..."),
        ("redis://redis/0?password=sec@ret", "redis://..."),
        ("unix://:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        (
            "redis+sentinel://u:secret@a:1,b:2/main?sentinel_password=secret",
            "redis+sentinel://a:1,b:2/main",
        ),
        ("milvus://root:secret@milvus:19530", "milvus://milvus:19530"),
        ("https://ada:secret@[::1]:8000/turnwise", "https://[::1]:8000/turnwise"),
        ("https://hooks.example/chat?token=secret#top", "https://hooks.example/chat"),
        ("http://[", "http://["),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("ada:secret@redis", "redis"),
        ("backups/shop", "backups/shop"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert show_url(url) == shown


def test_the_rest_of_a_text_stays() -> None:
    text = "GET http://a:b@host/x?key=1 'redis://:c@redis' mail ada@host; see docs/runbook.md#redis"
    shown = "GET http://host/x 'redis://redis' mail ada@host; see docs/runbook.md#redis"
    assert hide_secrets(text) == shown
