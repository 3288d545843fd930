# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools protocol through two pipes with only Python's standard library."""
import base64
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path


class Browser:
    """One browser process. Keeps every complaint of a page, and every address that it requests."""

    def __init__(self, chromium):
        self.profile = tempfile.TemporaryDirectory(prefix="shardmesh-browser-", ignore_cleanup_errors=True)
        to_read, self.commands = os.pipe()
        self.events, to_write = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                 "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        # The browser reads commands from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", chromium, *flags],
                                        pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last, self.session = b"", 0, None
        self.complaints, self.requests, self.loads = [], [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.events)
        self.profile.cleanup()

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.events], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            got = os.read(self.events, 1 << 20)
            if not got:
                raise ConnectionError("the browser has ended")
            self.buffer += got
        message, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(message)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, params):
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loads += 1

    def call(self, method, seconds=60, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(seconds)
            if answer.get("id") == self.last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, file, fragment="", width=1400, height=1000, scheme="light"):
        """Loads a file afresh in a window of this size, for a user whose system has this colour scheme."""
        self.call("Page.navigate", url="about:blank")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.complaints, self.requests, self.loads = [], [], 0
        self.call("Page.navigate", url=Path(file).resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        while self.loads == 0:
            self.receive(60)
        self.settle()

    def settle(self):
        """Waits two frames, until everything is drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def value(self, script):
        """The value of an expression, or of a promise, in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer.get('exceptionDetails')}"
        return answer["result"].get("value")

    def texts(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")

    def picture(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def click(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def point_at(self, script):
        """Moves the pointer to the middle of the element that an expression yields; returns the tooltip's lines, if
        any."""
        place = self.value(f"(() => {{ const one = {script}; one.scrollIntoView({{block: 'center'}});"
                           " const {x, y, width, height} = one.getBoundingClientRect(); return [x + width / 2, y + height / 2]; })()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        self.settle()
        return self.value("document.getElementById('tip').hidden ? [] : [...document.getElementById('tip').children].map((line) => line.textContent)")
