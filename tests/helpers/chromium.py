"""A headless Chromium, driven through the DevTools protocol over two pipes: no package and no port is needed.

``--remote-debugging-pipe`` reads commands from file descriptor 3 and answers on 4, each a JSON text and a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LOOK_S = 0.1
STILL_S = 0.3
PATIENCE_S = 60.0


class BrowserError(Exception):
    """The browser refused, or what was waited for did not show."""


def installed() -> str | None:
    """Return the path of a Chromium (``FEDPRINT_CHROMIUM`` names another), or None."""
    named = os.environ.get("FEDPRINT_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One open page; what is waited for has ``patience_s`` to show."""

    def __init__(self, write: int, read: int, patience_s: float = PATIENCE_S) -> None:
        self._write, self._read, self._patience_s = write, read, patience_s
        self._rest, self._last = b"", 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Page.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are dropped."""
        self._last += 1
        call = {"id": self._last, "method": method, "params": params}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._write, json.dumps(call).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], 2 * self._patience_s)[0]:
                raise BrowserError(f"no answer in {2 * self._patience_s:.0f} s")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise BrowserError("the browser ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def open(self, address: str) -> None:
        """Go to an address."""
        self.send("Page.navigate", url="about:blank")  # an address that differs after its # alone would not load
        self.send("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(json.dumps(found["exceptionDetails"])[:500])
        return found["result"].get("value")

    def text(self) -> str:
        """Return the text that is shown."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def wait(self, script: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        end = time.monotonic() + self._patience_s
        while not (value := self.run(script)):
            if time.monotonic() > end:
                said = f"not true in {self._patience_s:.0f} s: {script}"
                raise BrowserError(f"{said}; the page shows: {self.text()[:1500]}")
            time.sleep(LOOK_S)
        return value

    def wait_for_text(self, *texts: str) -> None:
        """Wait until all texts are shown."""
        for text in texts:
            self.wait(f"document.body && document.body.innerText.includes({json.dumps(text)})")

    def wait_until_drawn(self) -> None:
        """Wait until pictures and fonts are loaded, and two frames have been painted since."""
        self.wait("document.readyState === 'complete' && [...document.images].every(image => image.complete)")
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
        self.wait(f"document.fonts.ready.then(() => {frames})")

    def click(self, selector: str, text: str | None = None) -> None:
        """Click the first visible element of a CSS selector whose text is ``text``, the innermost, as a mouse does."""
        wanted = "true" if text is None else f'(e.innerText || "").trim() === {json.dumps(text)}'
        script = f"""(() => {{
          const all = [...document.querySelectorAll({json.dumps(selector)})]
            .filter(e => {wanted} && e.getClientRects().length && !e.disabled);
          const shown = all.find(e => !all.some(other => other !== e && e.contains(other)));
          if (!shown) return null;
          shown.scrollIntoView({{block: "center"}});
          const box = shown.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        found, before = self.wait(script), None
        while found != before:  # what is shown may still move
            time.sleep(STILL_S)
            found, before = self.wait(script), found
        where = {"x": found[0], "y": found[1], "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=found[0], y=found[1])
        self.send("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def screenshot(self, file: Path) -> None:
        """Write what is shown as PNG."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(width: int = 1280, height: int = 800, patience_s: float = PATIENCE_S) -> Iterator[Page]:
    """Start a browser with an empty profile and yield its page."""
    command = installed()
    if command is None:
        raise BrowserError(f"no Chromium: install one of {', '.join(NAMES)}")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def as_3_and_4() -> None:
        high = os.dup(to_read), os.dup(from_write)  # the pipes' own numbers may be 3 or 4
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        quiet = ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        own = [f"--user-data-dir={profile}", f"--window-size={width},{height}", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            [command, *flags, *quiet, *own],
            preexec_fn=as_3_and_4,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            page = Page(to_write, from_read, patience_s)
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            page.send("Emulation.setDeviceMetricsOverride", **size)
            yield page
        finally:
            process.terminate()
            process.wait()
            os.close(to_write)
            os.close(from_read)
