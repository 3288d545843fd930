# SPDX-License-Identifier: Apache-2.0
"""The page of a tensor that a mapping makes shows the document of `map show --json`, at two widths, light and dark."""
from common import WIDTHS, PageTest, main, write_safetensors

MAPPING = """
left = "parts"
right = "fused"
[sizes]
g = 2
r = 2
d = 1
[[rule]]
name = "qk"
left.q = "q"
left.k = "<k>"
right = "qk"
index = "q: (g r d) h, k: (g d) h -> qk: (g [q:r | k] d) h"
"""


class MapPage(PageTest):
    def setUp(self):
        super().setUp()
        source, rules = self.folder / "parts.safetensors", self.folder / "rules.toml"
        write_safetensors(source, {"q": ("F32", (4, 3), 48), "<k>": ("F32", (2, 3), 24)})
        rules.write_text(MAPPING)
        self.page, self.document = self.make("map", "show", source, "qk", "--map", rules)

    def test_the_document_has_each_box_and_its_source(self):
        boxes = [(box["offsets"], box["sizes"], box["source"], box["from"]["offsets"], box["from"]["sizes"])
                 for box in self.document["boxes"]]
        self.assertEqual(sorted(boxes), [([0, 0], [2, 3], 0, [0, 0], [2, 3]), ([2, 0], [1, 3], 1, [0, 0], [1, 3]),
                                         ([3, 0], [2, 3], 0, [2, 0], [2, 3]), ([5, 0], [1, 3], 1, [1, 0], [1, 3])])
        del self.document["boxes"]
        self.assertEqual(self.document, {
            "key": "qk", "dtype": "float32", "shape": [6, 3], "from": "parts", "to": "fused", "rule": "qk",
            "index": "q: (g r d) h, k: (g d) h -> qk: (g [q:r | k] d) h", "values": [], "more_boxes": 0,
            "sources": [{"key": "q", "shape": [4, 3]}, {"key": "<k>", "shape": [2, 3]}]})

    def test_numbers_are_those_of_the_document(self):
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.open(self.page, width=width, scheme=scheme)
                    self.check_quiet(self.page)
                    self.assertEqual(self.embedded(), self.document)
                    self.assertEqual(self.figures(), {"elements": 18, "sources": 2, "boxes": 4})
                    self.assertEqual(self.browser.texts("#sources li"), ["q [4, 3]", "<k> [2, 3]"])
                    self.keep_picture(f"map_{scheme}_{width}")

    def test_search_finds_the_boxes_of_a_source(self):
        self.browser.open(self.page)
        self.browser.value("search('<k>')")
        self.assertEqual(sorted(self.rows("boxes")), [["[2:3, 0:3)", "<k>", "[0:1, 0:3)", "3"],
                                                      ["[5:6, 0:3)", "<k>", "[1:2, 0:3)", "3"]])
        self.check_quiet(self.page)


if __name__ == "__main__":
    main()
