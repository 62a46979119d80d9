"""A headless Chromium, driven over a pipe by the DevTools protocol: no package, and no port that others reach."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
from typing import Any

from tests.support.waiting import WAIT_S

BINARIES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-breakpad",
    "--disable-component-update", "--disable-background-networking", "--no-proxy-server", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


def find_browser() -> str | None:
    """The path of a Chromium, if there is one: `apt-get install chromium-headless-shell` has one."""
    return next((found for name in BINARIES if (found := shutil.which(name))), None)


class Browser:
    """One browser; a page of it is a `Page`."""

    def __init__(self, binary: str, profile: pathlib.Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads from descriptor 3 and writes to 4, whatever the pipes' own numbers are.
        script = f'exec "$@" 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}'
        command = ["sh", "-c", script, "sh", binary, *FLAGS, f"--user-data-dir={profile}"]
        self._log = (profile.parent / "browser.log").open("wb")
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._received = bytearray()
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its result. Events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            assert select.select([self._in], [], [], WAIT_S)[0], "the browser says nothing"
            piece = os.read(self._in, 2**20)
            assert piece, "the browser ended"
            self._received += piece
        message, _, rest = bytes(self._received).partition(b"\0")
        self._received = bytearray(rest)
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, address: str, width: int = 1280, height: int = 900, **media: str) -> "Page":
        """A page of its own, with nothing known from others; `media` as `prefers_color_scheme="dark"`."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        page.set_size(width, height)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        page.call("Emulation.setEmulatedMedia", features=features)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired", session)
        page.run("window.$ = id => document.getElementById(id)")  # tests are shorter with it
        return page

    def _wait_for(self, method: str, session: str) -> None:
        """Returns once there was such an event."""
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._receive())

    def close(self) -> None:
        """Ends it, and waits for its end."""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        self._process.wait(WAIT_S)
        os.close(self._in)
        os.close(self._out)
        self._log.close()


class Page:
    """One page, at one address."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def set_size(self, width: int, height: int) -> None:
        """In CSS pixels; narrow ones are those of a phone."""
        phone = width < 700
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )

    def run(self, source: str) -> Any:
        """The value of an expression, or of what it promises."""
        answer = self.call("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Looks at every frame until the expression is true; fails the test if it never is."""
        source = """new Promise(resolve => {
            const end = performance.now() + %d;
            const look = () => {
                let found = false;
                try { found = Boolean(%s); } catch (error) { if (!(error instanceof TypeError)) throw error; }
                if (found || performance.now() > end) resolve(found); else requestAnimationFrame(look);
            };
            look();
        })"""
        assert self.run(source % (WAIT_S * 800, condition)), f"never: {condition}\n{self.text()}"

    def text(self) -> str:
        """What there is to read on it."""
        found: str = self.run("document.body.innerText")
        return found

    def click(self, selector: str) -> None:
        """Where it is shown; fails the test if something else lies over it. At once, for what is drawn may move."""
        hit = self.run(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                found.scrollIntoView({{block: "center"}});
                const box = found.getBoundingClientRect();
                const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                if (!found.contains(hit)) return false;
                found.focus();
                hit.click();
                return true;
            }})()"""
        )
        assert hit, f"{selector} is covered"

    def type(self, text: str) -> None:
        """Into what has the focus, in place of what was there."""
        self.run("document.activeElement.select?.()")
        self.call("Input.insertText", text=text)

    def screenshot(self, path: pathlib.Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, what its policy refused, and exceptions nobody caught."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session or "method" not in event:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"{params['entry']['text']} ({params['entry'].get('url', '')})")
        return found

    def close(self) -> None:
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)
