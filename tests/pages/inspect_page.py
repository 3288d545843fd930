# SPDX-License-Identifier: Apache-2.0
"""The page of a checkpoint shows the numbers of `inspect --json`, at two widths, light and dark."""
import json
import shutil
from math import prod

from common import GOLDEN, WIDTHS, PageTest, main, run


def held_bytes(document):
    """Bytes of tensors and chunks by rank, from the document."""
    held = {}
    for tensor in document["tensors"].values():
        for chunk in tensor["chunks"]:
            rank = document["files"][chunk["file"]]["rank"]
            held[rank] = held.get(rank, 0) + prod(chunk["sizes"]) * tensor["bytes"] // max(1, prod(tensor["shape"]))
    return held


class InspectPage(PageTest):
    def setUp(self):
        super().setUp()
        self.page, self.document = self.make("inspect", GOLDEN / "fsdp2_tp_2x2/checkpoint")
        self.tensors = self.document["tensors"]

    def test_numbers_are_those_of_the_document(self):
        for width in WIDTHS:
            with self.subTest(width=width):
                self.browser.open(self.page, width=width)
                self.check_quiet(self.page)
                self.assertEqual(self.embedded(), self.document)
                chunks = [chunk for tensor in self.tensors.values() for chunk in tensor["chunks"]]
                self.assertEqual(self.figures(), {
                    "tensors": len(self.tensors), "objects": len(self.document["objects"]), "files": len(self.document["files"]),
                    "bytes of tensors": sum(tensor["bytes"] for tensor in self.tensors.values()),
                    "bytes stored": sum(chunk["length"] for chunk in chunks)})
                amounts = self.browser.value("[...document.querySelector('.bars').querySelectorAll('.amount')].map((one) => Number(one.dataset.value))")
                held = held_bytes(self.document)
                self.assertEqual(amounts, [held[rank] for rank in sorted(held)])
                self.keep_picture(f"inspect_light_{width}")

    def test_rows_are_the_tensors_and_sort_by_a_click(self):
        self.browser.open(self.page)
        rows = self.rows("tensors")
        expected = [[key, tensor["dtype"], str(tensor["shape"]), str(len(tensor["chunks"])), str(tensor["bytes"])]
                    for key, tensor in self.tensors.items()]
        self.assertEqual([row[:4] + row[5:] for row in rows], expected[:len(rows)])
        self.assertGreater(len(rows), 15)
        self.browser.value("[...document.querySelectorAll('[aria-label=tensors] .titles button')].at(-1).click()")
        self.browser.settle()
        sizes = [int(row[5]) for row in self.rows("tensors")]
        self.assertEqual(sizes, sorted((tensor["bytes"] for tensor in self.tensors.values()), reverse=True)[:len(sizes)])
        self.check_quiet(self.page)

    def test_search_filters_table_and_map(self):
        self.browser.open(self.page, "search=HEAD.weight+exp_avg_sq")
        found = [key for key in self.tensors if "head.weight" in key and "exp_avg_sq" in key]
        self.assertEqual([row[0] for row in self.rows("tensors")], found)
        self.assertEqual(len(self.browser.texts(".tile.leaf")), len(found))
        self.browser.open(self.page, "search=no+such+key")
        self.assertEqual((self.rows("tensors"), self.browser.texts(".tile")), ([], []))
        self.check_quiet(self.page)

    def test_map_is_in_proportion_and_says_who_holds_what(self):
        self.browser.open(self.page)
        tiles = self.browser.value("[...document.querySelectorAll('.tile.leaf')].filter((one) => one.node.entry)"
                                   ".map((one) => [one.node.entry.key, one.offsetWidth * one.offsetHeight])")
        areas = dict(tiles)
        large = {key: tensor["bytes"] for key, tensor in self.tensors.items() if tensor["bytes"] >= 300}
        scale = [areas[key] / size for key, size in large.items()]
        self.assertLess(max(scale), 1.4 * min(scale))  # titles of groups take some space
        key = "model.mlp.up.weight"
        lines = self.browser.point_at(f"[...document.querySelectorAll('.tile.leaf')].find((one) => one.node.entry?.key === '{key}')")
        self.assertEqual(lines[0], key)
        self.assertTrue(lines[1].startswith("float32 [16, 10], 640 bytes ("), lines[1])
        self.assertEqual(lines[2:], [f"rank {rank}: 160 bytes (25 %)" for rank in range(4)])

    def test_sizes_read_as_the_command_line_prints_them(self):
        self.browser.open(self.page)
        for size, text in {0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1280: "1.2 KiB", 1792: "1.8 KiB", 10752: "10 KiB",
                           11776: "12 KiB", 1331: "1.3 KiB", 10189: "10.0 KiB", 3 << 30: "3.0 GiB"}.items():
            self.assertEqual(self.browser.value(f"human_bytes({size})"), text)

    def test_a_chosen_tensor_shows_its_chunks(self):
        key = "model.mlp.down.weight"
        self.browser.open(self.page, f"tensor={key}")
        facts = self.browser.texts("#detail dd")
        tensor = self.tensors[key]
        stored = sum(chunk["length"] for chunk in tensor["chunks"])
        self.assertEqual(facts, [key, "float32", "[6, 16]", "384 (384 bytes)", f"{stored} in 4 chunks"])
        self.assertEqual(self.browser.value("document.querySelectorAll('#detail rect.box').length"), 4)
        chunk = tensor["chunks"][1]
        lines = self.browser.point_at("document.querySelectorAll('#detail rect.box')[1]")
        self.assertEqual(lines, ["[0:3, 8:16)", f"{chunk['file']}: {chunk['length']} bytes from {chunk['offset']}"])

    def test_by_rank_the_groups_are_ranks(self):
        self.browser.open(self.page, "view=holders")
        names = self.browser.texts(".tile.group")
        self.assertEqual(sorted(name for name in names if name.startswith("rank")), [f"rank {rank}" for rank in range(4)])
        self.browser.value("[...document.querySelectorAll('.tile.group')].find((one) => one.textContent === 'rank 2').click()")
        self.browser.settle()
        self.assertEqual(self.browser.texts(".crumbs button")[1:], ["rank 2"])
        self.check_quiet(self.page)

    def test_problems_stand_at_the_top_of_what_can_be_shown(self):
        damaged = self.folder / "damaged"
        shutil.copytree(GOLDEN / "fsdp2_tp_2x2/checkpoint", damaged)
        for file in damaged.glob("*.distcp"):
            file.write_bytes(file.read_bytes()[:100])
        page = self.folder / "damaged.html"
        document = json.loads(run("inspect", damaged, "--json", "--html", page, status=1))
        self.browser.open(page)
        self.assertEqual(self.embedded(), document)
        texts = [problem["text"] for problem in document["problems"]]
        self.assertEqual(self.browser.texts(".problems li"), texts)
        self.assertGreater(len(texts), 5)
        self.check_quiet(page)

    def test_colours_follow_the_system_and_the_switch(self):
        background = "getComputedStyle(document.body).backgroundColor"
        self.browser.open(self.page, scheme="light")
        light = self.browser.value(background)
        self.browser.open(self.page, scheme="dark")
        dark = self.browser.value(background)
        self.assertNotEqual(light, dark)
        seen = []
        for _ in range(3):
            self.browser.click("#theme")
            seen.append(self.browser.value(background))
        self.assertEqual(seen, [light, dark, dark])  # light, dark, the system's scheme
        self.keep_picture("inspect_dark_1400")
        self.check_quiet(self.page)


if __name__ == "__main__":
    main()
