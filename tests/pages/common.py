# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of pages: the command line, safetensors files, one browser per script."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from browser import Browser

TOOL = os.environ["SHARDMESH_TOOL"]
GOLDEN = Path(os.environ["SHARDMESH_TEST_DATA"]) / "golden"
WIDTHS = (1400, 420)


def run(*arguments, status=0):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, check=False)
    assert done.returncode == status, f"{arguments}: exit {done.returncode}: {done.stderr.decode()}"
    return done.stdout.decode()


def write_safetensors(path, tensors, byte=0):
    """tensors: {key: (dtype, shape, bytes)}; every byte has this value."""
    header, at = {}, 0
    for key, (dtype, shape, size) in tensors.items():
        header[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes([byte]) * at)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(os.environ["SHARDMESH_CHROMIUM"])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="shardmesh-page-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def make(self, command, *arguments, status=0):
        """The page of a command, and the document that the same command prints."""
        page = self.folder / "page.html"
        self.assertEqual(run(command, *arguments, "--html", page, "--force", status=status), "")
        return page, json.loads(run(command, *arguments, "--json", status=status))

    def check_quiet(self, page):
        """The page complained of nothing, made no other request, and is not wider than the window."""
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual({url.partition("#")[0] for url in self.browser.requests}, {page.resolve().as_uri()})
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), self.browser.value("innerWidth"))

    def embedded(self):
        return json.loads(self.browser.value("document.getElementById('data').textContent"))

    def figures(self):
        return self.browser.value("Object.fromEntries([...document.querySelectorAll('[data-title]')]"
                                  ".map((one) => [one.dataset.title, Number(one.dataset.value)]))")

    def rows(self, table):
        """The cells of the visible rows."""
        return self.browser.value(f"[...document.querySelectorAll('[aria-label={table}] .rows .row')]"
                                  ".map((row) => [...row.children].map((cell) => cell.textContent))")

    def keep_picture(self, name):
        self.browser.picture(Path(os.environ["SHARDMESH_PICTURES"]) / f"{name}.png")


def main():
    if not os.environ.get("SHARDMESH_CHROMIUM"):
        print("skipped: no chromium found (Debian's package chromium; ./dev installs it)")
        sys.exit(77)
    unittest.main()
