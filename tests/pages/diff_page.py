# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison shows the differences of `diff --json`, at two widths, light and dark. Keys stay text, keep their
ends where they do not fit, and many of them are cut with a count."""
from common import GOLDEN, WIDTHS, PageTest, main, write_safetensors

OWNED = "document.title='owned'"
KEYS = [f"</script><script>{OWNED}</script>", f"<img src=x onerror=\"{OWNED}\">", "<!--<script>", "{{script}}{{data}}", "__proto__",
        "constructor", "a\u202egnp.b", "line\nbreak", "", "nul\0byte", "long" * 2000]


class DiffPage(PageTest):
    def write_sides(self, left, right):
        paths = [self.folder / "left.safetensors", self.folder / "right.safetensors"]
        for path, tensors, byte in zip(paths, (left, right), (1, 2)):
            write_safetensors(path, tensors, byte)
        return paths

    def test_numbers_are_those_of_the_document(self):
        same = {"model.w": ("U8", (4,), 4), "model.shape": ("U8", (2, 3), 6), "model.dtype": ("U8", (2,), 2)}
        paths = self.write_sides({**same, "gone": ("U8", (1,), 1)}, {**same, "model.shape": ("U8", (3, 2), 6), "model.dtype": ("I8", (2,), 2)})
        page, document = self.make("diff", *paths, status=1)
        self.assertEqual(document["kinds"], {"dtype": 1, "only-left": 1, "shape": 1, "values": 1})
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.open(page, width=width, scheme=scheme)
                    self.check_quiet(page)
                    self.assertEqual(self.embedded(), document)
                    figures = self.figures()
                    del figures["the checkpoints are"]
                    self.assertEqual(figures, {"keys that differ": 4, "only on the left": 1, "only on the right": 0, "compared tensors": 3, "compared objects": 0})
                    self.assertEqual(self.browser.texts("#sides dd"), [str(path) for path in paths])
                    self.keep_picture(f"diff_{scheme}_{width}")
        rows = [[d["key"], d["kind"].replace("only-left", "only on the left"), d["text"]] for d in document["differences"]]
        self.assertEqual([row[:3] for row in self.rows("differences")], rows)
        self.assertEqual(self.rows("differences")[-1][3:], ["4 of 4", "1"])

    def test_kinds_and_search_choose_rows_and_a_row_shows_the_whole_difference(self):
        tensors = {f"layer.{i}.{part}": ("U8", (1,), 1) for i in range(3) for part in ("weight", "bias")}
        page, _ = self.make("diff", *self.write_sides({**tensors, "gone": ("U8", (1,), 1)}, tensors), status=1)
        self.browser.open(page)
        self.assertEqual(self.browser.texts(".choice button"), ["all (7)", "only on the left (1)", "values (6)"])
        self.browser.value("[...document.querySelectorAll('.choice button')][1].click()")
        self.browser.settle()
        self.assertEqual([row[0] for row in self.rows("differences")], ["gone"])
        self.browser.open(page, "search=bias")
        self.assertEqual([row[0] for row in self.rows("differences")], [f"layer.{i}.bias" for i in range(3)])
        self.browser.value("choose(differences.find((one) => one.key === 'layer.1.weight'))")
        facts = self.browser.texts("#detail dd")
        self.assertEqual(facts[0], "layer.1.weight")
        self.assertEqual(facts[3:], ["1 of 1 differ (100 %)", "[0]", "1"])

    def test_equal_checkpoints_and_objects_have_a_page(self):
        path = GOLDEN / "fsdp2_tp_2x2/checkpoint"
        page, document = self.make("diff", path, path)
        self.browser.open(page)
        self.check_quiet(page)
        self.assertEqual(self.browser.texts("[data-title='the checkpoints are']"), ["equal"])
        self.assertEqual(self.figures()["compared objects"], document["objects"])
        self.assertEqual(self.rows("differences"), [])

    def test_keys_stay_text(self):
        page, document = self.make("diff", *self.write_sides({key: ("U8", (1,), 1) for key in KEYS}, {"other": ("U8", (1,), 1)}), status=1)
        self.assertEqual({one["key"] for one in document["differences"]}, {*KEYS, "other"})
        for width in WIDTHS:
            self.browser.open(page, width=width, height=1600)
            self.check_quiet(page)
            self.assertEqual(self.embedded(), document)
            self.assertTrue(self.browser.value("document.title").endswith(" - shardmesh"))
            self.assertEqual(self.browser.value("[document.scripts.length, document.querySelectorAll('img, main script, main style, a, iframe').length]"), [2, 0])
            for at in range(len(document["differences"])):
                self.browser.value(f"choose(differences[{at}])")
            shown = "".join(self.browser.texts("#page"))
            for letter in "\u202e\n\0":
                self.assertNotIn(letter, shown)

    def test_a_long_key_shows_its_end(self):
        prefix = "model." + "decoder." * 30
        tensors = {prefix + end: ("U8", (1,), 1) for end in ("weight", "bias")}
        page, _ = self.make("diff", *self.write_sides(tensors, tensors), status=1)
        for width in WIDTHS:
            self.browser.open(page, width=width)
            overflow = self.browser.value("[...document.querySelectorAll('.rows .cell.tail')].map((one) => {"
                                          " const cell = one.getBoundingClientRect(), text = one.firstChild.getBoundingClientRect();"
                                          " return [text.left < cell.left, text.right <= cell.right]; })")
            self.assertEqual(overflow, [[True, True], [True, True]])
        self.assertEqual(self.browser.value("shortened('model.layers.10.mlp.weight', 15)"), "mode...p.weight")

    def test_many_differences_are_cut_and_counted(self):
        keys = {f"model.layers.{i}.weight": ("U8", (1,), 1) for i in range(100_010)}
        paths = self.write_sides(keys, {"other": ("U8", (1,), 1)})
        page, document = self.make("diff", *paths, status=1)
        self.assertEqual(len(document["differences"]), 100_011)
        self.browser.open(page)
        self.check_quiet(page)
        self.assertEqual(self.figures()["only on the left"], 100_010)
        self.assertEqual(self.browser.texts("#cut"), ["This page lists 100000 of 100011 differences. It leaves out 11 differences: pass --limit 0 to list all."])
        self.assertLess(self.browser.value("document.querySelectorAll('*').length"), 5000)


if __name__ == "__main__":
    main()
