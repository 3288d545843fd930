# SPDX-License-Identifier: Apache-2.0
"""Primitives of the site's pictures: letters that a narrow screen shows, colours of ranks, a light and a dark style."""
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 852  # of every picture: at 420 pixels its letters are still 10 pixels high
RANKS = ("hsl(0,60%,75%)", "hsl(138,60%,75%)", "hsl(275,60%,75%)", "hsl(53,60%,75%)")  # those of `layout --svg`
COMMON = ".head{font-weight:bold}.code{font-family:monospace}.small{font-size:20px}"
STYLES = {
    "light": ".page{fill:#fff}text{fill:#222}.edge{fill:#666}.on{fill:#111}.cell{stroke:#222}.frame{fill:none;stroke:#444}"
             ".plain{fill:#f0eef5;stroke:#444}.dim{fill:#ddd;stroke:#444}.arrow{fill:none;stroke:#444;stroke-width:3}"
             ".line{stroke:#999;stroke-width:2}",
    "dark": ".page{fill:#16181d}text{fill:#ddd}.edge{fill:#999}.on{fill:#111}.cell{stroke:#222}.frame{fill:none;stroke:#aaa}"
            ".plain{fill:#2b2a38;stroke:#aaa}.dim{fill:#3a3a40;stroke:#aaa}.arrow{fill:none;stroke:#aaa;stroke-width:3}"
            ".line{stroke:#777;stroke-width:2}",
}


def text(x, y, content, css="", anchor="middle"):
    return f'<text class="{css}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>'


def rect(x, y, width, height, css, fill="", about=""):
    colour = f' fill="{fill}"' if fill else ""
    title = f"<title>{escape(about)}</title>" if about else ""
    return f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{colour}>{title}</rect>'


def box(x, y, width, height, lines, css="plain", fill="", letters="small"):
    """A rectangle with its lines in the middle."""
    out = [rect(x, y, width, height, css, fill)]
    top = y + height / 2 + 7 - 13 * (len(lines) - 1)
    on = f"{letters} on" if fill else letters
    return out + [text(x + width / 2, top + 26 * i, line, on) for i, line in enumerate(lines)]


def arrow(x, y, to_x, to_y):
    """A straight arrow, to the right, to the left, or down."""
    head = {(1, 0): "-11 -9l11 9l-11 9", (-1, 0): "11 -9l-11 9l11 9", (0, 1): "-9 -11l9 11l9 -11"}
    way = ((to_x > x) - (to_x < x), (to_y > y) - (to_y < y))
    return f'<path class="arrow" d="M{x:g} {y:g}L{to_x:g} {to_y:g}m{head[way]}"/>'


def picture(title, about, height, parts, style):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="22" role="img">',
        f"<title>{escape(title)}</title><desc>{escape(about)}</desc>", f"<style>{style}{COMMON}</style>",
        '<rect class="page" width="100%" height="100%" rx="8"/>', *parts, "</svg>"]) + "\n"


def files_of(pictures):
    """pictures: {name: (title, about, height, parts)}. The texts of NAME-light.svg and NAME-dark.svg, by file name."""
    return {f"{name}-{mode}.svg": picture(title, about, height, parts, style)
            for name, (title, about, height, parts) in pictures.items() for mode, style in STYLES.items()}


def write_or_check(files, folder, check, command):
    """files: {name: text}. Writes them, or compares them with those that are there; returns the exit status."""
    wrong = []
    for name, text_now in files.items():
        file = Path(folder) / name
        if not check:
            file.write_text(text_now)
        elif not file.is_file() or file.read_text() != text_now:
            wrong.append(f"{file} is not what the script draws: run {command}")
    print("\n".join(wrong) or f"{len(files)} pictures in {folder} are {'up to date' if check else 'written'}")
    return 1 if wrong else 0
