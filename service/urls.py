"""How logs, errors and findings show a URL: without its user, its password and its query."""

import re

_URL = re.compile(r"\w[\w+.-]*://[^\s'\"<>]+")


def show_url(url: str) -> str:
    """Return a URL without what may be secret. It need not be valid."""
    before, separator, after = url.partition("://")
    scheme, rest = (before, after) if separator else ("", before)
    place, _, query = rest.partition("?")
    if "@" in query:  # the ? may be a part of the password
        return f"{scheme}{separator}..."
    return f"{scheme}{separator}{place.rpartition('@')[2]}"


def hide_secrets(text: str) -> str:
    """Return a text in which every URL is shown by `show_url`."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: show_url(found[0]), text)
