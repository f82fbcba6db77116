// A and B: which two layers all of the page is about. A click on a letter says which one moves next.

import { make } from "./dom.js";
import { blocks, moveTo } from "./state.js";

export function strip(state, root) {
  const sides = [0, 1].map(side => picker(state, side));
  root.append(sides[0].box, make("span", { class: "mute", text: "↔", "aria-hidden": true }), sides[1].box);
  state.listen(root, what => {
    if (["data", "pair", "side"].includes(what)) sides.forEach(each => each.redraw());
  });
}

function picker(state, side) {
  const letter = make("button", {
    type: "button", class: "letter", text: "AB"[side],
    title: `A click on a layer moves ${"AB"[side]}`, onclick: () => state.set("side", side),
  });
  const name = make("select", { "aria-label": `Model of layer ${"AB"[side]}` });
  const slider = make("input", { type: "range", min: 0, step: 1 });
  const at = make("span", { class: "at" });
  const box = make("div", { class: side ? "pick b" : "pick a" }, letter, name, at, slider);
  const places = () => blocks(state.data).get(state.data.layers[state.pair[side]].model);

  name.addEventListener("change", () => {
    const own = blocks(state.data).get(name.value), other = state.pair[1 - side];
    const same = own[Math.min(Number(slider.value), own.length - 1)];
    moveTo(state, same === other ? own.find(place => place !== other) ?? same : same, side);
  });
  slider.addEventListener("input", () => {
    const place = places()[Number(slider.value)];
    if (place === state.pair[1 - side]) redraw(); else moveTo(state, place, side, 80);
  });

  function redraw() {
    const { layers, models } = state.data, layer = layers[state.pair[side]], own = places();
    letter.setAttribute("aria-pressed", state.side === side);
    name.replaceChildren(...Object.entries(models).map(([model, called]) =>
      make("option", { value: model, text: called.name, selected: model === layer.model })));
    slider.max = own.length - 1;
    slider.value = own.indexOf(state.pair[side]);
    slider.hidden = own.length < 2;
    slider.setAttribute("aria-label", `Layer ${"AB"[side]} of ${models[layer.model].name}`);
    slider.setAttribute("aria-valuetext", layer.label);
    at.textContent = layer.label;
  }
  return { box, redraw };
}
