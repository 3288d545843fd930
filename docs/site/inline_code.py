# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: names in inline code stay whole on narrow screens.

Browsers break a line after any hyphen, also within `--skip-unsupported`. Words of code with a hyphen are therefore kept
together. A word too long for a narrow screen may break behind `::`, `.`, `_`, `/`, and `,`.
"""
import re

LONG = 28  # letters that fit beside others in a column of 420 pixels
CODE = re.compile(r"(<pre.*?</pre>)|<code>([^<]*)</code>", re.S)
ENTITY = re.compile(r"&\w+;|&#\d+;")


def word(text):
    if len(ENTITY.sub("x", text)) > LONG:
        return re.sub(r"(::|[._/,])(?=\S)", r"\1<wbr>", text)
    return f'<span class="whole">{text}</span>' if "-" in text else text


def kept(html):
    def code(found):
        if found[1]:
            return found[1]
        return f"<code>{' '.join(word(one) for one in found[2].split(' '))}</code>"

    return CODE.sub(code, html)


def on_page_content(html, page, config, files):
    return kept(html)
