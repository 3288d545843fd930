# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: names of our types in code become links to their pages.

In blocks of C++ every name that is one of our types' (not a member's, not of another namespace); in text `name` between
backticks, where it is all that stands there. Pages whose words are Python's or the command line's are left alone; of the
table of PyTorch's names, the middle column leads to functions too.

A <picture> with a light and a dark image follows the reader's system. On the site it follows the site's switch.
"""
import json
import re
from pathlib import Path

OTHER_WORDS = ("python.md", "commands.md")  # there `path` and `save` are not ours
TABLE = "from-pytorch.md"
MIDDLE = re.compile(r"(?<=<tr>\n)<td>.*?</td>\n<td>(.*?)</td>", re.S)
IN_BLOCK = re.compile(r'(<span class="(?:n|o|p)">(?:std|filesystem|chrono|ranges|::|\.|-&gt;)</span>\s*)*<span class="n[cf]?">(\w+)</span>')
IN_TEXT = re.compile(r"<code>(?:shardmesh::)?(errc::)?(\w+)(?:&lt;\w+&gt;|::\w+)?</code>(?!</a>)")
PICTURE = re.compile(r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]*)">\s*<img src="([^"]*)"([^>]*)>\s*</picture>')
names = {}
functions = {}


def on_files(files, config):
    known = json.loads(Path(config["docs_dir"]).with_name("names.json").read_text())  # build.py wrote it
    for places, found in (names, known["types"]), (functions, known["functions"]):
        places.clear()
        places.update({name: "reference/" + place.replace(".md", ".html") for name, place in found.items()})
    return files


def on_page_content(html, page, config, files):
    up = "../" * page.url.count("/")

    def in_block(found):
        name = found.group(2)
        before = found.group(1) or ""
        if name not in names or before:
            return found.group()
        return f'{found.group()[:-len("</span>") - len(name)]}<a href="{up}{names[name]}">{name}</a></span>'

    def in_text(found):
        name, code = found.group(2), found.group()
        if found.group(1):
            return f'<a href="{up}{names["errc"]}-{name}">{code}</a>' if "errc" in names else code
        return f'<a href="{up}{names[name]}">{code}</a>' if name in names else code

    def in_middle(found):
        row = re.sub(r"<code>(\w+)</code>", lambda code: f'<a href="{up}{functions[code.group(1)]}">{code.group()}</a>'
                     if code.group(1) in functions and code.group(1) not in names else code.group(), found.group(1))
        return found.group().replace(found.group(1), IN_TEXT.sub(in_text, row))

    html = PICTURE.sub(r'<img src="\2#only-light"\3><img src="\1#only-dark"\3>', html)
    if page.file.src_path == TABLE:
        return MIDDLE.sub(in_middle, html)
    pieces = re.split(r"(<div class=\"language-cpp highlight\">.*?</pre>|<pre.*?</pre>|<h\d.*?</h\d>|<a .*?</a>)", html, flags=re.S)
    for i, piece in enumerate(pieces):
        if piece.startswith('<div class="language-cpp'):
            pieces[i] = IN_BLOCK.sub(in_block, piece)
        elif i % 2 == 0 and page.file.src_path not in OTHER_WORDS:
            pieces[i] = IN_TEXT.sub(in_text, piece)
    return "".join(pieces)
