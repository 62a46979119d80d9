"""The page: its file, and headers that tell the browser to allow what the page needs and nothing else."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re

from shmreplay.daemon.loop.http_server import Response

# Every answer has these headers. A browser must not cache it, show it in a frame, guess another content type, or let
# another site's page read it.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def page() -> Response:
    """Reads the page from its file. Raises OSError if the file is missing."""
    text = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    headers = {**HEADERS, "Content-Security-Policy": _policy(text)}
    return Response("200 OK", "text/html; charset=utf-8", text.encode(), headers)


def _policy(text: str) -> str:
    """Allows the script and the style of the page, by their hashes, and requests to this daemon; nothing else."""
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
            "require-trusted-types-for 'script'",  # so that no name of a table or a process can become HTML
        ]
    )


def _hashes(text: str, tag: str) -> str:
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)
