# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: names of our types in code become links to their pages.

In blocks of C++ every name that is one of our types' (not a member's, not of another namespace); in text `name` between
backticks, where it is all that stands there. Pages whose words are Python's or the command line's are left alone.
"""
import re
from pathlib import Path

OTHER_WORDS = ("python.md", "commands.md", "from-pytorch.md")  # there `path` and `save` are not ours
IN_BLOCK = re.compile(r'(<span class="(?:n|o|p)">(?:std|filesystem|chrono|ranges|::|\.|-&gt;)</span>\s*)*<span class="n[cf]?">(\w+)</span>')
IN_TEXT = re.compile(r"(?<!<pre>)<code>(?:shardmesh::)?(errc::)?(\w+)(&lt;\w+&gt;)?</code>(?!</a>)")
names = {}


def on_files(files, config):
    folder = Path(config["docs_dir"]) / "reference"
    names.clear()
    names.update({page.stem: f"reference/{page.stem}.html" for page in folder.glob("*.md") if page.stem != "index"})
    return files


def on_page_content(html, page, config, files):
    up = "../" * page.url.count("/")
    here = page.url.rpartition("/")[2].removesuffix(".html") if page.url.startswith("reference/") else None

    def in_block(found):
        name = found.group(2)
        before = found.group(1) or ""
        if name not in names or name == here or before:
            return found.group()
        return f'{found.group()[:-len("</span>") - len(name)]}<a href="{up}{names[name]}">{name}</a></span>'

    def in_text(found):
        name, code = found.group(2), found.group()
        if found.group(1):
            return f'<a href="{up}reference/errc.html#{name}">{code}</a>' if here != "errc" else code
        return f'<a href="{up}{names[name]}">{code}</a>' if name in names and name != here else code

    pieces = re.split(r"(<pre>.*?</pre>|<h\d.*?</h\d>|<a .*?</a>)", html, flags=re.S)
    for i, piece in enumerate(pieces):
        if piece.startswith("<pre>"):
            pieces[i] = IN_BLOCK.sub(in_block, piece)
        elif i % 2 == 0 and page.file.src_path not in OTHER_WORDS:
            pieces[i] = IN_TEXT.sub(in_text, piece)
    return "".join(pieces)
