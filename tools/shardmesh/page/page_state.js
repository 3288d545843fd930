// SPDX-License-Identifier: Apache-2.0
// What is chosen stands behind the # of the address, so that a link shows what its sender saw.

const page_state = {
  values: new URLSearchParams(location.hash.slice(1)),
  get(name) { return this.values.get(name) ?? ""; },
  set(name, value) {
    if (value) this.values.set(name, value); else this.values.delete(name);
    const hash = this.values.toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  },
};

// Colours: as the system has them, light, dark. `repaint` draws what takes its colours from the style by hand.
function theme_switch(repaint) {
  const button = document.getElementById("theme"), themes = ["auto", "light", "dark"];
  const apply = () => {
    const theme = themes.includes(page_state.get("theme")) ? page_state.get("theme") : "auto";
    document.documentElement.dataset.theme = theme;
    button.textContent = {auto: "◐ auto", light: "☀ light", dark: "☾ dark"}[theme];
    repaint();
    return theme;
  };
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(apply()) + 1) % themes.length];
    page_state.set("theme", next === "auto" ? "" : next);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  apply();
}

// Calls `draw` when the size of `area` changes, as a frame of its own.
function on_resize(area, draw) {
  let size = "";
  new ResizeObserver(() => {
    const now = `${area.clientWidth} ${area.clientHeight}`;
    if (now === size) return;
    size = now;
    requestAnimationFrame(draw);
  }).observe(area);
}
