# SPDX-License-Identifier: Apache-2.0
"""Names in a checkpoint, and the checkpoint's name, are text on its page: they never become markup, scripts, or
requests."""
from common import WIDTHS, PageTest, main, write_safetensors

OWNED = "document.title='owned'"
KEYS = [
    f"</script><script>{OWNED}</script>", f"<img src=x onerror=\"{OWNED}\">", f"\"><svg onload={OWNED}>", "<!--<script>", "-->",
    "]]>&amp;&#60;b&#62;", "{{script}}{{data}}", "${1+1}`", "__proto__", "constructor", "toString.valueOf", "a\u202egnp.b", "zero\u200bwidth",
    "line\nbreak\r\ttab", "back\\slash'quote\"", "", ".", "..", "nul\0byte", "long" * 2000, ".".join("d" * 3000), "separator\u2028\u2029", "tag\U000e0041",
]


class HostilePage(PageTest):
    def test_names_stay_text(self):
        folder = self.folder / "<img src=x onerror=1>&'\"{{script}}\u202eabc"
        file = folder / f"</title><script>{OWNED}<" / "script>.safetensors"
        file.parent.mkdir(parents=True)
        write_safetensors(file, {key: ("F32", (2, 3), 24) for key in KEYS})
        page, document = self.make("inspect", file)
        self.assertEqual(set(document["tensors"]), set(KEYS))
        for width in WIDTHS:
            for view in ("", "view=holders"):
                with self.subTest(width=width, view=view):
                    self.browser.open(page, view, width=width, height=1600)
                    self.check_quiet(page)
                    self.assertEqual(self.embedded(), document)
                    self.assertTrue(self.browser.value("document.title").endswith(".safetensors - shardmesh"))
                    self.assertEqual(self.browser.value("[document.scripts.length, document.querySelectorAll('img, main script, main style, a, iframe').length]"), [2, 0])
                    shown = self.browser.texts("#page, #name, title")
                    for letter in "\u202e\u200b\u2028\U000e0041\n\0":
                        self.assertNotIn(letter, "".join(shown))
        tiles = self.browser.value("[...document.querySelectorAll('.tile')].map((one) => one.node.entry?.key).filter((key) => key !== undefined)")
        self.assertEqual(sorted(tiles), sorted(KEYS))
        rows = [row[0] for row in self.rows("tensors")]
        for key in KEYS[:11]:
            self.assertIn(key, rows)
        self.assertIn("a\\u{202e}gnp.b", rows)

    def test_every_hostile_tensor_can_be_chosen(self):
        file = self.folder / "names.safetensors"
        write_safetensors(file, {key: ("F32", (2, 3), 24) for key in KEYS})
        page, _ = self.make("inspect", file)
        self.browser.open(page)
        chosen = set()
        for at in range(len(KEYS)):
            self.browser.value(f"choose(checkpoint.tensors[{at}])")
            chosen.add(self.browser.value("decodeURIComponent(location.hash).length > 0 && document.querySelector('#detail dd').textContent"))
        self.assertEqual(len(chosen), len(KEYS))
        self.check_quiet(page)


if __name__ == "__main__":
    main()
