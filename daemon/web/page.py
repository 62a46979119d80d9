"""The page itself: one file, and the headers by which a browser lets it do what it does and no more."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re

from shmreplay.daemon.loop.http_server import Response

# Every answer has these: none is kept, framed, taken for something else, or read by another site's page.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def page() -> Response:
    """The page, read anew. Raises OSError if its file is missing."""
    text = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    headers = {**HEADERS, "Content-Security-Policy": _policy(text)}
    return Response("200 OK", "text/html; charset=utf-8", text.encode(), headers)


def _policy(text: str) -> str:
    """Its own script and its own style, known by their hashes; answers of this daemon; nothing else from anywhere."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(text, 'script')}",
            f"style-src {_hashes(text, 'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",  # no text becomes HTML, whatever a table or a process is called
        ]
    )


def _hashes(text: str, tag: str) -> str:
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)
