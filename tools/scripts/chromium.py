"""Drives a headless Chromium over its debugging pipe: opens pages, listens, takes pictures.

Nothing but Python's standard library, and no port: messages are JSON with a zero byte after each.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import time

PATIENCE_S = 60


def find():
    """The browser's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """A browser with its profile in `folder`. Use it in a `with`."""

    def __init__(self, folder):
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # The browser reads commands at descriptor 3 and answers at 4.
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{read_commands} 4>&{write_answers}', "sh", find(),
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--user-data-dir={folder}/profile", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(read_commands, write_answers), env={**os.environ, "HOME": str(folder)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        self._unread = b""
        self._number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.send("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self):
        while b"\0" not in self._unread:
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise RuntimeError("the browser is gone")
            self._unread += data
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, session=None, **params):
        """Sends a command and returns its result; keeps the events that come before it."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if session:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") != self._number:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return message["result"]


class Page:
    """One file, or the page of an address, opened in a tab of its own and drawn."""

    def __init__(self, browser, path, width=1280, height=900, dark=False, scripts=True,
                 media="screen"):
        self._browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.send(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.send("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.url = path if "://" in path else pathlib.Path(path).resolve().as_uri()
        self.send("Page.navigate", url=self.url)
        self._wait("document.readyState === 'complete'")
        if scripts:
            self._wait("!document.querySelector('.chart') || document.documentElement.dataset.drawn"
                       " === 'true'", must=False)

    def send(self, method, **params):
        return self._browser.send(method, self._session, **params)

    def _wait(self, condition, must=True):
        end = time.monotonic() + (PATIENCE_S if must else 10)
        while not self.evaluate(condition):
            if time.monotonic() > end:
                if must:
                    raise RuntimeError(f"{self.url}: waited in vain for {condition}")
                return
            time.sleep(0.05)

    def evaluate(self, expression):
        """The value of a JavaScript expression; works where the page's scripts are off, too."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def _events(self, method):
        return [event["params"] for event in self._browser.events
                if event.get("sessionId") == self._session and event["method"] == method]

    def messages(self):
        """Everything that reached the console: calls, uncaught errors, the browser's own words."""
        called = [" ".join(str(each.get("value", each.get("description"))) for each in call["args"])
                  for call in self._events("Runtime.consoleAPICalled")]
        thrown = [event["exceptionDetails"].get("exception", {}).get("description", "exception")
                  for event in self._events("Runtime.exceptionThrown")]
        logged = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        return called + thrown + logged

    def requests(self):
        """Every address it asked for, but for its own and data in the page itself."""
        asked = [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in asked if url != self.url and not url.startswith("data:")]

    def screenshot(self, scale=1, whole=False, height=900):
        """The page from its top as PNG bytes."""
        size = self.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1] if whole else height,
                "scale": scale}
        answer = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])
