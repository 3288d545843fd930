# SPDX-License-Identifier: Apache-2.0
"""Finds lists that do not render: lines of a paragraph or of a list item that begin with the marker of a list.

Markdown on code forges begins a list inside a paragraph. The site's Markdown wants an empty line before the list, and
otherwise shows the markers as text.
"""
import re
from html.parser import HTMLParser

MARKER = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])[ \t]+\S.*", re.M)
PROSE = ("p", "li", "dd", "td")
APART = ("pre", "code", "script", "style", "svg", "nav")  # what is in them is no prose


class _Prose(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.found = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag in PROSE or tag in APART:
            self.open.append(tag)
            self.texts.append("")

    def handle_endtag(self, tag):
        if tag not in self.open:
            return
        while self.open:
            closed, text = self.open.pop(), self.texts.pop()
            if closed in PROSE and not any(one in APART for one in self.open):
                # The first line of an item follows its own marker, which the page does not have any more.
                self.found += MARKER.findall("\n" + text.partition("\n")[2])
            if closed == tag:
                return

    def handle_data(self, data):
        if self.open and self.open[-1] in PROSE:
            self.texts[-1] += data


def unrendered(html):
    """The lines of a page's prose that begin with the marker of a list."""
    return [" ".join(line.split())[:80] for line in _Prose(html).found]
