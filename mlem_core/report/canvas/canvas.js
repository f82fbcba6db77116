// The canvas: why two layers are similar. `mount` draws it into an element, from data alone.

import { bars } from "./bars.js";
import { finding } from "./chip.js";
import { make, tooltip } from "./dom.js";
import { map } from "./maps.js";
import { matrix } from "./matrix.js";
import { newState, receive } from "./state.js";
import { words } from "./words.js";

const mounted = new WeakMap();

// Draw data (of `canvas_data`) into an element, or into what is there of it already.
// tell("pair", ["model:3", "other:5"]) and tell("details", TERM) say what was chosen.
export function mount(element, data, tell) {
  let canvas = mounted.get(element);
  if (!canvas || !canvas.root.isConnected) {
    canvas = build(element, data.maps !== null);
    mounted.set(element, canvas);
  }
  canvas.state.tell = tell;
  receive(canvas.state, data);
}

// Without an extension that adds maps of the stimuli, `data.maps` is null and there is no place for them.
function build(element, hasMaps) {
  const state = newState(() => {});
  const root = make("div", { class: "canvas" });
  element.append(root);
  const tip = tooltip(root);
  const part = (name, label) => {
    const section = make("section", { class: name, "aria-label": label });
    root.append(section);
    return section;
  };
  const left = part("all", "Similarity of all layers"), right = part("two", "The two layers");
  const redraw = [matrix(state, left, tip)];
  finding(state, right);
  const sums = make("div", { class: "bars" });
  right.append(sums);
  bars(state, sums, tip);
  if (hasMaps) {
    const below = part("maps", "Maps of the stimuli in both layers");
    for (const side of [0, 1]) {
      const figure = make("div", { class: "map" });
      below.append(figure);
      redraw.push(map(state, figure, side, tip));
    }
    const aside = make("aside", { "aria-label": "Stimuli" });
    below.append(aside);
    words(state, aside);
  }
  const again = () => redraw.forEach(each => each());
  new ResizeObserver(again).observe(root);
  // A change of the theme changes the colours of what is drawn.
  new MutationObserver(again).observe(document.documentElement, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(again, 300));
  return { root, state };
}
