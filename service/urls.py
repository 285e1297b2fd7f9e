"""How logs, errors and findings show a URL: without its user, its password and its query."""

import re

_URL = re.compile(r"\w[\w+.-]*://[^\s'\"<>]+")


def show_url(url: str) -> str:
    """Return a URL without what may be secret. It need not be valid."""
    scheme = ""
    if "://" in url:
        scheme, separator, url = url.partition("://")
        scheme += separator
    place, _, query = url.partition("?")
    if "@" in query:  # the ? may be a part of the password
        return f"{scheme}..."
    return scheme + place.rpartition("@")[2]


def hide_secrets(text: str) -> str:
    """Return a text in which every URL is shown by `show_url`."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: show_url(found[0]), text)
