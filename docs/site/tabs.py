# SPDX-License-Identifier: Apache-2.0
"""Turns headings between `<!-- tabs -->` and `<!-- end of tabs -->` into tabs.

Code forges show the headings with their blocks, one below the other.
"""
import re

TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.M | re.S)
# A heading, and everything up to the next one: blocks of code are taken whole, because a comment may look like a heading.
TAB = re.compile(r"^### ([^\n]*)\n((?:^```.*?^```\n|^(?!### )[^\n]*\n)*)", re.M | re.S)


def tabbed(text):
    """The page in the syntax of the extension pymdownx.tabbed."""

    def tab(found):
        inside = "".join(f"    {line}" if line.strip() else line for line in found[2].strip("\n").splitlines(keepends=True))
        return f'=== "{found[1]}"\n\n{inside}\n\n'

    return TABS.sub(lambda found: "".join(tab(one) for one in TAB.finditer(found[1])).rstrip("\n"), text)
