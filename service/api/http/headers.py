"""Headers that tell browsers and proxies what they may do with an answer."""

UNCACHED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of JSON answers: nobody stores them, and browsers do not guess another type."""


def page_headers(*directives: str) -> dict[str, str]:
    """Return the headers of a page and its files.

    Args:
        directives: More directives of its Content-Security-Policy. The page loads scripts and
            styles from this service only, calls only this service, and cannot be framed.
    """
    policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        *directives,
    ]
    return {
        "Cache-Control": "no-cache",  # browsers revalidate it, so that updates show at once
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
