"""A real browser for tests of pages: Debian's Chromium, over its DevTools protocol."""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
#: How long a browser may take for an answer on a machine that is busy.
ANSWERS_WITHIN_SECONDS = 300
#: What a page can complain with.
COMPLAINTS = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
#: Keys by name, as Windows numbers them.
KEYS = {"ArrowLeft": 37, "End": 35, "Enter": 13, "Escape": 27, "Home": 36, "Space": 32, "Tab": 9}
TEXTS = {"Enter": "\r", "Space": " "}

#: See :meth:`Tab.lowest_contrast`.
LOWEST_CONTRAST = """
(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parse(color).slice(0, 3).map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (parse(color)[3] !== 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  let lowest = 21;
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own || !element.checkVisibility() || ['SCRIPT', 'title', 'desc'].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [element.ownerSVGElement ? style.fill : style.color, ground(element)].map(light);
    lowest = Math.min(lowest, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return lowest;
})()
"""


class Chromium:
    """A browser that is driven through a pipe."""

    def __init__(self, program: str, profile: Path) -> None:
        from_test, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        line = (
            f'exec "$0" {" ".join(FLAGS)} --remote-debugging-pipe --user-data-dir="$1" 3<&{from_test} 4>&{from_browser}'
        )
        self._log = (profile.parent / "chromium.log").open("wb")
        self.process = subprocess.Popen(
            ["bash", "-c", line, program, str(profile)],
            pass_fds=(from_test, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(from_test)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._rest = b""
        #: What the browser has told without being asked.
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Ask for something, and wait for the answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], ANSWERS_WITHIN_SECONDS)
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 16)
            assert got, "the browser has died; see chromium.log in the folder of the test"
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for descriptor in (self._read, self._write):
            os.close(descriptor)
        self._log.close()


@attrs.frozen
class Tab:
    """A page that is open."""

    chromium: Chromium
    session: str

    def call(self, method: str, **parameters: Any) -> Any:
        return self.chromium.call(method, self.session, **parameters)

    def js(self, expression: str) -> Any:
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + 600  # some wait for a whole run
        while time.monotonic() < end:
            if found := self.js(expression):
                return found
            time.sleep(0.02)
        raise AssertionError(f"waited in vain for {expression}")

    def enter(self, field: str, value: object) -> None:
        """Change a field, as somebody who types does."""
        changed = f"one.value = {json.dumps(value)}; one.dispatchEvent(new Event('input'));"
        self.js(f"{{ const one = document.querySelector('{field}'); {changed} }}")

    def resize(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Give the window a size, in pixels of the page; ``scale`` is how far it is zoomed in."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, media: Mapping[str, str]) -> None:
        """Answer media queries as somebody does who likes it so: ``{"prefers-color-scheme": "dark"}``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in media.items()])

    def screenshot(self) -> bytes:
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        return base64.b64decode(picture)

    def mouse(self, kind: str, x: float, y: float, *, pressed: bool = False) -> None:
        button = "left" if pressed or kind != "mouseMoved" else "none"
        buttons = int(pressed)
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press a key and let go of it."""
        text = {"text": TEXTS[key]} if key in TEXTS else {}
        named = {"key": text.get("text", key) if key == "Space" else key, "code": key, "modifiers": 8 if shift else 0}
        for kind, more in (("keyDown" if text else "rawKeyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, windowsVirtualKeyCode=KEYS[key], **named, **more)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def forget(self) -> None:
        """Leave the page, and keep nothing of it."""
        self.call("Emulation.setScriptExecutionDisabled", value=False)
        origin = self.js("try { sessionStorage.clear() } catch {} location.origin")
        self.call("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        if origin.startswith("http"):
            self.call("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.call("Network.setBlockedURLs", urls=[])
        self.call("Page.resetNavigationHistory")

    def lowest_contrast(self) -> float:
        """The lowest contrast (WCAG 2) of any text that is seen with what lies behind it."""
        return self.js(LOWEST_CONTRAST)

    def requests(self) -> list[str]:
        """The addresses that were asked for; those within the page are not."""
        self.js("1")  # whatever came before has been told by then
        sent = [one["params"] for one in self.chromium.events if one["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if not one["request"]["url"].startswith("data:")]

    def complaints(self) -> list[Any]:
        """Errors, warnings and other words in the console."""
        self.js("1")
        return [one["params"] for one in self.chromium.events if one["method"] in COMPLAINTS]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    if program is None:
        assert not os.environ.get("CI"), "chromium is not installed"
        pytest.skip("chromium is not installed")
    started = Chromium(program, tmp_path_factory.mktemp("browser") / "profile")
    yield started
    started.close()


def _new_tab(chromium: Chromium) -> tuple[Tab, str]:
    """An empty tab, and its context: it finds nothing that another has stored."""
    context = chromium.call("Target.createBrowserContext")["browserContextId"]
    target = chromium.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    tab = Tab(chromium, chromium.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
        tab.call(f"{domain}.enable")
    return tab, context


@pytest.fixture(scope="session")
def first_tab(chromium: Chromium) -> Tab:
    """The first tab of each test: another one takes a process of its own, and a second to start it."""
    return _new_tab(chromium)[0]


@pytest.fixture
def open_tab(chromium: Chromium, first_tab: Tab) -> Iterator[Callable[..., Tab]]:
    """``open_tab(url, width=400, dark=True)``: a page in a tab that knows nothing of those before."""
    free = [first_tab]
    opened: list[str] = []

    def go(
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        scale: float = 1,
        dark: bool = False,
        scripts: bool = True,
        media: Mapping[str, str] | None = None,
    ) -> Tab:
        if free:
            tab = free.pop()
        else:
            tab, context = _new_tab(chromium)
            opened.append(context)
        chromium.events.clear()
        tab.resize(width, height, scale)
        tab.prefer({"prefers-color-scheme": "dark" if dark else "light", **(media or {})})
        tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        tab.call("Page.navigate", url=url)
        tab.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return tab

    yield go
    if not free:
        first_tab.forget()
    for context in opened:
        chromium.call("Target.disposeBrowserContext", browserContextId=context)
