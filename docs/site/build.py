# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation site.

    build.py ROOT BUILD    the pages in BUILD/pages, the site in BUILD/site, the links that leave it in BUILD/external_links.txt

Exit status 1 with every warning of mkdocs, every link of the site that leads nowhere, and every list that does not
render.
"""
import json
import logging
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from mkdocs.commands import build as mkdocs_build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import c_reference
from flowchart import drawn
from lists import unrendered
from pages import Pages
from reference import Reference
from tabs import tabbed

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+)([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "cpp", ".c": "c", ".cppm": "cpp", ".py": "python", ".sh": "bash"}


def named(nav):
    """The pages that a nav names."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from named(value) if isinstance(value, list) else [value]


def with_reference(nav, groups):
    """The nav with the rooms of the reference, and their groups, behind the index of the reference."""
    rooms = {}
    for room, group in groups:
        rooms.setdefault(room, [f"reference/{room}/index.md"]).append({group: f"reference/{room}/{group}.md"})
    made = []
    for entry in nav:
        pages = next(iter(entry.values())) if isinstance(entry, dict) else []
        if isinstance(pages, list) and pages[:1] == ["reference/index.md"]:
            pages[1:1] = [{room: below} for room, below in rooms.items()]
        made.append(entry)
    return made


def weight(name):
    """How much a page counts in the search: tasks before explanations, and these before lists of every name."""
    return {"recipes": 4, "reference": 0.2, "project": 0.1, "decisions": 0.3, "rooms": 0.3}.get(name.partition("/")[0], 1)


class Staging:
    """The pages, and the files of the project that they lead to, which become pages below project/."""

    def __init__(self, root, folder):
        self.root, self.folder, self.wanted = root, folder, set()

    def rewritten(self, text, of):
        """Links of page `of` that leave docs/ lead to a copy on the site."""

        def link(found):
            target = (self.root / of).parent.joinpath(found.group(2) + found.group(3)).resolve()
            if not target.is_file() or target.is_relative_to(self.root / "docs"):
                return found.group()
            name = target.relative_to(self.root).as_posix()
            self.wanted.add(name)
            page = "project/" + name.removesuffix(".md") + ".md"
            up = "../" * (Path(of).relative_to("docs").as_posix().count("/"))
            return f"[{found.group(1)}]({up}{page}{found.group(4) or ''})"

        parts = FENCE.split(text)
        return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))

    def write(self, name, text):
        path, name = self.folder / name, str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        head = f"---\nsearch:\n  boost: {weight(name)}\n---\n\n" if name.endswith(".md") else ""
        path.write_text(head + text)

    def run(self):
        """Writes all pages; returns the (room, group) pairs of the reference."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for page in sorted((self.root / "docs").rglob("*.md")):
            of = page.relative_to(self.root).as_posix()
            self.write(page.relative_to(self.root / "docs"), drawn(tabbed(self.rewritten(page.read_text(), of))))
        for image in sorted((self.root / "docs/images").glob("*.svg")):
            self.write(f"images/{image.name}", image.read_text())
        for asset in sorted((self.root / "docs/site/assets").iterdir()):
            self.write(f"assets/{asset.name}", asset.read_text())
        for name in sorted(self.wanted):
            text = (self.root / name).read_text()
            if name.endswith(".md"):
                # Its links lead from where it lies; on the site docs/ is the top.
                up = "../" * (name.count("/") + 1)
                self.write(f"project/{name}", re.sub(r'(\]\(|src="|srcset=")docs/', rf"\g<1>{up}", text))
            else:
                self.write(f"project/{name}.md", f"# {name}\n\n```{LANGUAGES.get(Path(name).suffix, 'text')}\n{text}```\n")
        pages = Pages(Reference(self.root))
        for name, text in {**pages.all(), **c_reference.pages(self.root)}.items():
            self.write(f"reference/{name}", text)
        self.folder.with_name("names.json").write_text(json.dumps(pages.names()))  # for links.py
        return list(pages.groups)


class Links(HTMLParser):
    """What a page of HTML leads to, and the places in it that can be led to."""

    def __init__(self, page):
        super().__init__()
        self.found, self.ids = [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        for key in ("href", "src"):
            if attributes.get(key):
                self.found.append(attributes[key])


def check_links(site):
    """(links that lead nowhere, addresses elsewhere)."""
    pages = {page: Links(page) for page in sorted(site.rglob("*.html"))}
    broken, external = [], set()
    for page, links in pages.items():
        if page.name == "404.html":
            continue
        for link in links.found:
            if re.match(r"\w+:|//", link):
                external.add(link)
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append(f"{page.relative_to(site)}: {link} leads nowhere")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                broken.append(f"{page.relative_to(site)}: {link}: no such place in that page")
    return broken, external


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.found = []

    def emit(self, record):
        self.found.append(record.getMessage())


def main(root, folder):
    groups = Staging(root, folder / "pages").run()
    warnings = Warnings()
    logging.getLogger("mkdocs").addHandler(warnings)
    config = load_config(str(Path(__file__).with_name("mkdocs.yml")), docs_dir=str(folder / "pages"), site_dir=str(folder / "site"), strict=False)
    config["nav"] = with_reference(config["nav"], groups)
    listed = set(named(config["nav"]))
    more = [page for page in sorted(path.name for path in (root / "docs").glob("*.md")) if page not in listed]
    if more:  # a page that nobody put into its place is found all the same
        config["nav"] = [*config["nav"], {"More": more}]
    try:
        mkdocs_build.build(config)
    except Abort as problem:
        warnings.found.append(str(problem))
    broken, external = check_links(folder / "site")
    for page in sorted((folder / "site").rglob("*.html")):
        broken += [f"{page.relative_to(folder / 'site')}: a list without an empty line before it: {line!r}"
                   for line in unrendered(page.read_text())]
    (folder / "external_links.txt").write_text("".join(f"{link}\n" for link in sorted(external)))
    wrong = warnings.found + broken
    print("\n".join(wrong) or f"{len(list((folder / 'site').rglob('*.html')))} pages, no warning, no broken link: {folder / 'site/index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
