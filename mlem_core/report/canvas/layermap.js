// The map of the layers: similar ones lie close together. The paths of the models of A and B are lit;
// where a map would show what is not there, the nearest layers of both are listed.

import { badge, fraction, make, theme, vector } from "./dom.js";
import { blocks, choosePair, families, moveTo, similarity } from "./state.js";
import { measures } from "./matrix.js";

const NEAREST = 8;

export function layerMap(state, root, tip) {
  const choice = measures(state), place = make("div", {}), key = make("p", { class: "key" });
  root.append(choice.box, place, key);
  let pointed = null; // the family under the pointer

  function redraw(what) {
    if (!state.data || !root.clientWidth || ["pointed", "feature", "side"].includes(what)) return;
    choice.redraw();
    const map = state.data.layerMap[state.measure];
    if (map) drawMap(map); else list();
    key.hidden = !map;
  }

  function drawMap({ x, y, stress }) {
    const width = Math.min(root.clientWidth, 620), height = Math.round(width * 0.86), edge = 26;
    const { layers, models } = state.data;
    const [x0, x1, y0, y1] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
    const unit = Math.min((width - 2 * edge) / (x1 - x0 || 1), (height - 2 * edge) / (y1 - y0 || 1));
    const left = at => width / 2 + unit * (x[at] - (x0 + x1) / 2), top = at => height / 2 - unit * (y[at] - (y0 + y1) / 2);
    const chosen = state.pair.map(at => layers[at].model);
    const drawing = vector("svg", {
      width, height, class: "plane", role: "img",
      "aria-label": `Map of ${layers.length} layers by ${state.data.similarity[state.measure].name}; `
        + `A is ${layers[state.pair[0]].title}, B is ${layers[state.pair[1]].title}.`,
    });
    const paths = [...blocks(state.data)].map(([model, places]) => {
      const side = chosen.indexOf(model);
      const lit = side >= 0 ? (side ? "b" : "a") : models[model].family === pointed ? "lit" : "";
      const line = places.map(at => `${left(at)},${top(at)}`).join(" ");
      return { lit, group: vector("g", { class: `path ${lit}` },
        vector("polyline", { points: line, fill: "none" }),
        ...places.map((at, n) => vector("circle", {
          cx: left(at), cy: top(at), r: 3 + (3 * n) / Math.max(places.length - 1, 1), class: "dot",
          onpointermove: event => say(event, at, stress), onpointerleave: () => tip.hide(),
          onclick: () => moveTo(state, at),
        })),
        ...(lit ? [places[0], places.at(-1)].map(at => vector("text", {
          x: left(at) + 13, y: top(at) + 4, text: layers[at].tick,
        })) : [])) };
    });
    paths.sort((one, other) => Number(Boolean(one.lit)) - Number(Boolean(other.lit)));
    drawing.append(...paths.map(each => each.group));
    drawing.append(...state.pair.map((at, side) => vector("circle", { cx: left(at), cy: top(at), r: 10, class: side ? "ring b" : "ring a" })));
    drawing.append(...state.pair.map((at, side) => badge(side, left(at), top(at) - 18)));
    place.replaceChildren(drawing);
    key.replaceChildren("Grey: other models. Dots grow with depth. ", ...[...families(state.data).keys()].flatMap(family => [make("button", {
      type: "button", class: "link", text: family,
      onpointerenter: () => light(family), onpointerleave: () => light(null), onfocus: () => light(family), onblur: () => light(null),
    }), " "]));
  }

  function light(family) {
    if (pointed === family) return;
    pointed = family;
    const { models } = state.data, drawn = place.querySelectorAll(".path");
    if (!drawn.length) return;
    const order = [...blocks(state.data).keys()];
    const chosen = new Set(state.pair.map(at => state.data.layers[at].model));
    const sorted = [...order.filter(model => !chosen.has(model)), ...order.filter(model => chosen.has(model))];
    drawn.forEach((group, at) => {
      if (!chosen.has(sorted[at])) group.classList.toggle("lit", models[sorted[at]].family === pointed);
    });
  }

  function say(event, at, stress) {
    const { name } = state.data.similarity[state.measure];
    const values = state.pair.map(other => similarity(state.data, state.measure, at, other));
    const text = values.map((value, side) => `${"AB"[side]} ${value === null ? "–" : fraction(value)}`).join(", ");
    tip.show(event, state.data.layers[at].title, `${name} with ${text}`, make("small", { text: `stress of this map ${fraction(stress)}` }));
  }

  function list() {
    const { layers, similarity: [...kinds] } = state.data;
    const columns = state.pair.map((own, side) => {
      const near = layers.map((_, at) => [at, similarity(state.data, state.measure, own, at)])
        .filter(([at, value]) => at !== own && value !== null && layers[at].model !== layers[own].model);
      if (!near.length) near.push(...layers.map((_, at) => [at, similarity(state.data, state.measure, own, at)]).filter(([at]) => at !== own));
      near.sort((one, other) => other[1] - one[1]);
      return make("div", {}, make("h2", {}, make("span", { class: side ? "letter b" : "letter a", text: "AB"[side] }), ` Nearest to ${layers[own].title}`),
        make("ol", { class: "nearest" }, ...near.slice(0, NEAREST).map(([at, value]) => make("li", {}, make("button", {
          type: "button", class: "link", text: layers[at].title,
          onclick: () => choosePair(state, ...(side ? [at, own] : [own, at])),
        }), make("span", { class: "mute", text: value === null ? "–" : fraction(value) })))));
    });
    const why = layers.length < 4 ? "A map needs four layers or more." : "In two dimensions these layers cannot be drawn faithfully (stress above .2), so their neighbours are listed.";
    place.replaceChildren(make("p", { class: "mute", text: `${why} ${kinds[state.measure].name}:` }), make("div", { class: "columns" }, ...columns));
  }

  return redraw;
}
