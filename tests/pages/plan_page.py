# SPDX-License-Identifier: Apache-2.0
"""The page of a plan shows the numbers of `plan --json`, at two widths."""
from math import prod

from common import WIDTHS, PageTest, main

CALL = ["--shape", "16,12,10", "--from-mesh", "4", "--from", "S(0)", "--to-mesh", "dp=2,tp=3", "--to", "S(1),S(2)", "--dtype", "bfloat16"]


class PlanPage(PageTest):
    def setUp(self):
        super().setUp()
        self.page, self.document = self.make("plan", *CALL)

    def amounts(self, title):
        return self.browser.value("[...[...document.querySelectorAll('.card')].find((one) => one.querySelector('h2').textContent === "
                                  f"'{title}').querySelectorAll('.amount')].map((one) => Number(one.dataset.value))")

    def test_the_document_adds_up(self):
        links = {(link["from"], link["to"]): link["bytes"] for link in self.document["links"]}
        counted = {}
        for copy in self.document["copies"]:
            if copy["from"] != copy["to"]:
                pair = (copy["from"], copy["to"])
                counted[pair] = counted.get(pair, 0) + 2 * prod(copy["sizes"])
        self.assertEqual(links, counted)
        self.assertEqual(sum(links.values()), self.document["bytes_moved"])
        self.assertEqual({name: self.document[name] for name in ("shape", "dtype", "from", "to")}, {
            "shape": [16, 12, 10], "dtype": "bfloat16", "from": {"mesh": [4], "mesh_names": [], "placements": ["S(0)"]},
            "to": {"mesh": [2, 3], "mesh_names": ["dp", "tp"], "placements": ["S(1)", "S(2)"]}})

    def test_numbers_are_those_of_the_document(self):
        links, peaks = self.document["links"], self.document["peak_bytes"]
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.open(self.page, width=width, scheme=scheme)
                    self.check_quiet(self.page)
                    self.assertEqual(self.embedded(), self.document)
                    self.assertEqual(self.figures(), {
                        "moves between ranks": self.document["bytes_moved"], "lower bound": self.document["lower_bound"],
                        "in all": self.document["bytes_total"], "most messages on a rank": max(peaks.values()), "links": len(links)})
                    self.assertEqual(self.amounts("Busiest links"), sorted((link["bytes"] for link in links), reverse=True))
                    for title, end in (("Sent per rank", "from"), ("Received per rank", "to")):
                        self.assertEqual(self.amounts(title), [sum(link["bytes"] for link in links if link[end] == rank) for rank in range(6)])
                    self.assertEqual(self.amounts("Messages held per rank"), [peaks[str(rank)] for rank in range(6)])
                    self.keep_picture(f"plan_{scheme}_{width}")

    def test_the_matrix_is_drawn_and_finds_the_copies_of_a_link(self):
        self.browser.open(self.page)
        colors = self.browser.value("(() => { const one = document.querySelector('canvas'); const all = one.getContext('2d')"
                                    ".getImageData(0, 0, one.width, one.height).data; return new Set(all).size; })()")
        self.assertGreater(colors, 10)
        place = self.browser.value("(() => { const {x, y, width} = document.querySelector('canvas').getBoundingClientRect();"
                                   " const cell = (width - 34) / 6; return [x + 34 + 3.5 * cell, y + 34 + 1.5 * cell]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.browser.settle()
        wanted = [[str(one["from"]), str(one["to"]), str(prod(one["sizes"]))] for one in self.document["copies"] if (one["from"], one["to"]) == (1, 3)]
        self.assertEqual([[row[0], row[1], row[3]] for row in self.rows("copies")], wanted)
        self.assertGreater(len(wanted), 0)

    def test_both_meshes_are_labelled(self):
        self.browser.open(self.page)
        self.assertEqual(self.browser.texts("#sides"), ["bfloat16 [16, 12, 10]: from mesh dimension 0 (4 ranks): S(0) → "
                                                        "to dp (2 ranks): S(1), tp (3 ranks): S(2)"])

    def test_slices_of_the_outer_dimension_can_be_chosen(self):
        self.browser.open(self.page)
        self.assertEqual(self.browser.texts("option"), [f"slice [{at}:{at + 4})" for at in range(0, 16, 4)])
        labels = []
        for at in range(4):
            self.browser.value(f"(() => {{ const one = document.querySelector('select'); one.selectedIndex = {at}; one.dispatchEvent(new Event('change')); }})()")
            labels.append(set(self.browser.texts(".boxes text:not(.edge)")))
        self.assertEqual(labels, [{"0"}, {"1"}, {"2"}, {"3"}])
        self.check_quiet(self.page)


if __name__ == "__main__":
    main()
