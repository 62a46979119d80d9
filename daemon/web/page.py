"""The page: its files, and headers that tell the browser to allow what the page needs and nothing else."""

from __future__ import annotations

import pathlib

from shmreplay.daemon.loop.http_server import Response

FOLDER = pathlib.Path(__file__).with_name("browser")
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

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
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",  # the daemon serves nothing as a script but the files of this folder
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # so that no name of a table or a process can become HTML
    ]
)


def page_files() -> dict[str, Response]:
    """Reads the files of the page: the answer by path. `/` is the page itself.

    They are read once, so that a page and its scripts are of one version also while the package is being upgraded.
    Raises OSError if a file cannot be read.
    """
    found = {}
    for file in sorted(FOLDER.iterdir()):
        if kind := _KINDS.get(file.suffix):
            headers = {"Content-Security-Policy": _POLICY} if file.suffix == ".html" else {}
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = Response("200 OK", f"{kind}; charset=utf-8", file.read_bytes(), headers)
    return found
