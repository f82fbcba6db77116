// The canvas: what makes two layers similar. Its parts stand in one page, or in places of their own,
// and share what is chosen. `mount` draws a part into an element, from data alone.

import { bars } from "./bars.js";
import { make, tooltip } from "./dom.js";
import { finding } from "./finding.js";
import { map } from "./maps.js";
import { newState, receive } from "./state.js";
import { strip } from "./strip.js";
import { views } from "./views.js";
import { words } from "./words.js";

const mounted = new WeakMap();

// The state of this window, which parts of different scripts share.
export function sharedState() {
  window.mlemCanvas ??= newState();
  return window.mlemCanvas;
}

// Draw a part: "strip" (A and B), "views" (all layers), "finding" (the two), "maps" (their stimuli).
// Data (of `canvas_data`, and "of", the analysis) goes to all parts; each says of which it is.
// send(CHOICES) gets what was chosen: "pair" (["model:3", "other:5"]), "view", "details" (of a term,
// "checks" or "rest"), "figure", and "told", the number of the last; data has it back as "heard".
export function mount(element, part, data, send) {
  const state = sharedState();
  if (!mounted.get(element)?.isConnected) {
    const root = make("section", { class: `canvas ${part}` });
    element.append(root);
    mounted.set(element, root);
    build(state, root, part);
  }
  if (send) state.send = send;
  if (data?.layers) receive(state, data);
  // Until data of this analysis is there, what is known of another one is not shown.
  state.set("of", data?.of);
}

function build(state, root, part) {
  const tip = tooltip(root), redraw = [];
  root.classList.add("empty");
  state.listen(root, () => {
    root.classList.toggle("empty", state.data?.of !== state.of);
    root.classList.toggle("alone", Boolean(state.data.alone));
  });
  if (part === "strip") strip(state, root);
  if (part === "views") redraw.push(views(state, root, tip));
  if (part === "finding") {
    finding(state, root);
    const sums = make("div", { class: "bars" });
    root.append(sums);
    bars(state, sums, tip);
  }
  if (part === "maps") {
    for (const side of [0, 1]) {
      const figure = make("div", { class: "map" });
      root.append(figure);
      redraw.push(map(state, figure, side, tip));
    }
    const aside = make("aside", { "aria-label": "Stimuli" });
    root.append(aside);
    words(state, aside);
  }
  const again = () => redraw.forEach(each => each());
  new ResizeObserver(again).observe(root);
  // A change of the theme changes the colours of what is drawn.
  new MutationObserver(again).observe(document.documentElement, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(again, 300));
}
