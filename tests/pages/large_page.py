# SPDX-License-Identifier: Apache-2.0
"""The page of a checkpoint with 100,000 tensors stays usable: few elements, and immediate searching and scrolling."""
import time

from common import PageTest, main, write_safetensors

LAYERS, PARTS = 5000, 20


class LargePage(PageTest):
    def test_a_hundred_thousand_tensors(self):
        file = self.folder / "large.safetensors"
        write_safetensors(file, {f"model.layers.{layer}.part_{part}.weight": ("F32", (part + 1, 2), 8 * (part + 1))
                                 for layer in range(LAYERS) for part in range(PARTS)})
        page, document = self.make("inspect", file)
        started = time.monotonic()
        self.browser.open(page)
        opened = time.monotonic() - started
        self.assertEqual(self.figures()["tensors"], LAYERS * PARTS)
        self.assertEqual(self.figures()["bytes of tensors"], sum(tensor["bytes"] for tensor in document["tensors"].values()))
        self.assertLess(self.browser.value("document.querySelectorAll('*').length"), 5000)
        self.assertGreater(len(self.browser.texts(".tile.rest")), 20)

        started = time.monotonic()
        self.browser.value("search('layers.4321. part_7')")
        searched = time.monotonic() - started
        self.assertEqual(self.rows("tensors"), [["model.layers.4321.part_7.weight", "float32", "[8, 2]", "1", "large.safetensors", "64"]])

        self.browser.value("search('')")
        self.browser.value("(() => { const one = document.querySelector('[aria-label=tensors]'); one.scrollTop = one.scrollHeight; })()")
        self.browser.settle()
        self.assertEqual(self.rows("tensors")[-1][0], list(document["tensors"])[-1])
        self.browser.click(".tile.rest")
        self.assertGreater(len(self.browser.texts(".tile")), 10)
        self.check_quiet(page)
        print(f"opened in {opened:.1f} s, searched in {searched:.2f} s, {page.stat().st_size >> 20} MiB")
        self.assertLess(opened, 60)
        self.assertLess(searched, 10)


if __name__ == "__main__":
    main()
