// SPDX-License-Identifier: Apache-2.0
// Keeps the state of the page (the search, the choices, the theme) behind the # of its address, so that a link
// reproduces it.

const page_state = {
  values: new URLSearchParams(location.hash.slice(1)),
  get(name) { return this.values.get(name) ?? ""; },
  set(name, value) {
    if (value) this.values.set(name, value); else this.values.delete(name);
    const hash = this.values.toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  },
};

// The button that switches the colours: as in the system, light, or dark. `repaint` redraws canvases, which do not
// follow the style by themselves.
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

// Calls `draw` in an animation frame of its own when the size of `area` changes.
function on_resize(area, draw) {
  let size = "";
  new ResizeObserver(() => {
    const now = `${area.clientWidth} ${area.clientHeight}`;
    if (now === size) return;
    size = now;
    requestAnimationFrame(draw);
  }).observe(area);
}
