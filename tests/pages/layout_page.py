# SPDX-License-Identifier: Apache-2.0
"""The page of a layout shows the numbers of `layout --json`, at two widths, light and dark; a large layout is cut, and the
page says what it leaves out."""
from math import prod

from common import WIDTHS, PageTest, main

CALL = ["--shape", "10,7", "--mesh", "dp=2,tp=3", "--place", "S(0),S(1)", "--dtype", "bfloat16"]


class LayoutPage(PageTest):
    def test_numbers_are_those_of_the_document(self):
        page, document = self.make("layout", *CALL)
        held = [rank["bytes"] for rank in document["ranks"]]
        self.assertEqual(held, [2 * sum(prod(box["sizes"]) for box in rank["boxes"]) for rank in document["ranks"]])
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.open(page, width=width, scheme=scheme)
                    self.check_quiet(page)
                    self.assertEqual(self.embedded(), document)
                    self.assertEqual(self.figures(), {"bytes of the tensor": 140, "ranks": 6, "bytes on all ranks": 140,
                                                      "most on a rank": max(held), "least on a rank": min(held)})
                    self.assertEqual(self.browser.value("[...document.querySelectorAll('.amount')].map((one) => Number(one.dataset.value))"), held)
                    self.keep_picture(f"layout_{scheme}_{width}")

    def test_mesh_and_placements_are_labelled(self):
        page, _ = self.make("layout", *CALL)
        self.browser.open(page)
        self.assertEqual(self.browser.texts("#placements dt"), ["dp (2 ranks)", "tp (3 ranks)"])
        self.assertEqual(self.browser.texts("#placements dd"), ["S(0): cuts dimension 0, of size 10", "S(1): cuts dimension 1, of size 7"])
        page, _ = self.make("layout", "--shape", "9", "--mesh", "2,2,2", "--place", "R,P(sum),SS(0,3)")
        self.browser.open(page)
        self.assertEqual(self.browser.texts("#placements dt"), [f"mesh dimension {at} (2 ranks)" for at in range(3)])
        self.assertEqual(self.browser.texts("#placements dd"), ["R: every rank has a copy", "P(sum): every rank has a term of the reduction",
                                                                "SS(0,3): cuts dimension 0, of size 9, in strides"])
        page, _ = self.make("layout", "--shape", "9,4", "--mesh", "2", "--place", "SG(0,4:0:5)")
        self.browser.open(page)
        self.assertEqual(self.browser.texts("#placements dd"), ["SG(0,4:0:5): cuts dimension 0, of size 9, in each segment of 4, 0, 5"])

    def test_rows_are_the_ranks_and_search_finds_them(self):
        page, document = self.make("layout", *CALL)
        self.browser.open(page)
        rows = [[str(rank["rank"]), f"dp={rank['coordinate'][0]}, tp={rank['coordinate'][1]}", str(rank["local_shape"]),
                 "[" + ", ".join(f"{at}:{at + size}" for at, size in zip(rank["boxes"][0]["offsets"], rank["boxes"][0]["sizes"])) + ")",
                 str(rank["bytes"])] for rank in document["ranks"]]
        self.assertEqual(self.rows("ranks"), rows)
        self.browser.value("search('dp=1')")
        self.assertEqual(self.rows("ranks"), rows[3:])
        self.browser.value("search('4')")
        self.assertEqual(self.rows("ranks"), [rows[4]])
        self.check_quiet(page)

    def test_the_map_draws_each_box_with_its_ranks(self):
        page, _ = self.make("layout", "--shape", "4,6", "--mesh", "2,2", "--place", "R,S(0)")
        self.browser.open(page)
        self.assertEqual(self.browser.texts(".boxes text:not(.edge)"), ["0,2", "1,3"])
        self.assertEqual(self.browser.point_at("document.querySelector('rect.box')"), ["[0:2, 0:6)", "on 0,2"])

    def test_scalars_empty_tensors_and_parts_of_bytes_have_pages(self):
        for arguments in (["--shape", "[]", "--mesh", "2", "--place", "R"], ["--shape", "0,4", "--mesh", "3", "--place", "S(0)"],
                          ["--shape", "3", "--mesh", "2", "--place", "R", "--dtype", "float4_e2m1fn"]):
            with self.subTest(arguments=arguments):
                page, document = self.make("layout", *arguments)
                self.browser.open(page)
                self.check_quiet(page)
                self.assertEqual(len(self.rows("ranks")), len(document["ranks"]))
        self.assertEqual([row[-1] for row in self.rows("ranks")], ["unknown", "unknown"])
        self.assertEqual(set(self.figures()), {"bytes of the tensor", "ranks", "bytes on all ranks", "most on a rank", "least on a rank"})

    def test_a_layout_of_many_ranks_is_cut_and_says_so(self):
        page, document = self.make("layout", "--shape", "100000,8", "--mesh", "100000", "--place", "S(0)")
        self.browser.open(page, width=420)
        self.check_quiet(page)
        self.assertEqual(len(document["ranks"]), 100_000)
        self.assertEqual(self.figures()["ranks"], 100_000)
        self.assertEqual(self.browser.texts("#cut"), ["This page lists 65536 ranks. It leaves out 34464 ranks."])
        self.assertIn("65536 boxes are too many to draw", "".join(self.browser.texts("#page")))
        self.assertLess(self.browser.value("document.querySelectorAll('*').length"), 5000)


if __name__ == "__main__":
    main()
