// The importance of each feature in A against that in B; on the diagonal it matters as much in both.

import { badge, fraction, make, steps, vector } from "./dom.js";

const EDGE = 56, TOP = 16;

export function scatter(state, root, tip) {
  const place = make("div", {}), note = make("p", { class: "caption" });
  root.append(place, note);

  function redraw(what) {
    if (!state.data || !root.clientWidth) return;
    if (what === "pointed" || what === "feature") { light(); return; }
    const size = Math.min(root.clientWidth, 560), inner = size - EDGE - TOP, { importance, layers } = state.data;
    const [a, b] = state.pair;
    const points = importance.features.filter(each => each.values[a] !== null && each.values[b] !== null).map(each => ({
      ...each, at: [each.values[a], each.values[b]],
      low: [each.lower[a] ?? each.values[a], each.lower[b] ?? each.values[b]],
      high: [each.upper[a] ?? each.values[a], each.upper[b] ?? each.values[b]],
    }));
    const all = points.flatMap(each => [...each.low, ...each.high, ...each.at]);
    const room = 0.06 * (Math.max(0.02, ...all) - Math.min(0, ...all));
    const least = Math.min(0, ...all) - room, most = Math.max(0.02, ...all) + room;
    const x = value => EDGE + (inner * (value - least)) / (most - least), y = value => TOP + inner - (inner * (value - least)) / (most - least);
    const drawing = vector("svg", { width: size, height: size, role: "img",
      "aria-label": `Importance of ${points.length} features in ${layers[a].title} and in ${layers[b].title}.` });
    for (const tick of steps(least, most, 6)) {
      const kind = tick.text === "0" ? "zero" : "grid";
      drawing.append(vector("line", { x1: EDGE, x2: EDGE + inner, y1: y(tick.at), y2: y(tick.at), class: kind }),
        vector("line", { x1: x(tick.at), x2: x(tick.at), y1: TOP, y2: TOP + inner, class: kind }),
        vector("text", { x: EDGE - 6, y: y(tick.at) + 4, "text-anchor": "end", class: "tick", text: tick.text }),
        vector("text", { x: x(tick.at), y: TOP + inner + 16, "text-anchor": "middle", class: "tick", text: tick.text }));
    }
    drawing.append(vector("line", { x1: x(least), y1: y(least), x2: x(most), y2: y(most), class: "diagonal" }));
    const pixels = each => [x(each.at[0]), y(each.at[1])];
    for (const each of points) {
      // Marks on one spot stand around it.
      const spot = points.filter(other => Math.hypot(...pixels(other).map((at, axis) => at - pixels(each)[axis])) < 8);
      const turn = (2 * Math.PI * spot.indexOf(each)) / spot.length, away = spot.length > 1 ? 4 + spot.length : 0;
      drawing.append(vector("g", { ...events(each), class: "point", style: `color: ${each.color}` },
      vector("line", { x1: x(each.low[0]), x2: x(each.high[0]), y1: y(each.at[1]), y2: y(each.at[1]) }),
      vector("line", { x1: x(each.at[0]), x2: x(each.at[0]), y1: y(each.low[1]), y2: y(each.high[1]) }),
      vector("circle", { cx: x(each.at[0]) + away * Math.cos(turn), cy: y(each.at[1]) + away * Math.sin(turn), r: 5 })));
    }
    label(drawing, points, x, y, EDGE + inner, TOP + inner);
    drawing.append(badge(0, EDGE + inner - 8, size - 10), badge(1, 12, TOP + 8),
      vector("text", { x: EDGE + inner - 20, y: size - 6, "text-anchor": "end", class: "title", text: `importance in ${layers[a].title}` }),
      vector("text", { transform: `translate(16,${TOP + 20}) rotate(-90)`, "text-anchor": "end", class: "title", text: `importance in ${layers[b].title}` }));
    place.replaceChildren(drawing);
    note.textContent = `Drop in ρ when a feature is permuted; bars are ${importance.spread}.`;
    light();
  }

  function events(each) {
    return {
      "data-term": each.name, onpointermove: event => say(event, each),
      onpointerleave: () => { tip.hide(); state.set("pointed", null); },
      onclick: () => { if (state.data.features?.[each.name]) state.set("feature", each.name); },
    };
  }

  // Names beside their points, where they cover no other name and no other point; points on one spot
  // share a list of names.
  function label(drawing, points, x, y, right, bottom) {
    const taken = points.map(each => [x(each.at[0]) - 6, y(each.at[1]) - 6, 12, 12]), crowd = [];
    taken.push([EDGE, y(0) - 1, right - EDGE, 2], [x(0) - 1, TOP, 2, bottom - TOP]);
    const free = box => taken.every(([left, top, wide, high]) =>
      box[0] + box[2] < left || left + wide < box[0] || box[1] + box[3] < top || top + high < box[1]);
    const write = (each, left, top) => drawing.append(vector("text", { x: left, y: top + 11, class: "label", text: each.label, ...events(each) }));
    for (const each of [...points].sort((one, other) => other.at[0] + other.at[1] - one.at[0] - one.at[1])) {
      const [left, top] = [x(each.at[0]), y(each.at[1])], wide = 6.6 * each.label.length;
      const near = points.some(other => other !== each && Math.hypot(x(other.at[0]) - left, y(other.at[1]) - top) < 9);
      const box = [[left + 9, top - 17], [left - wide - 9, top - 17], [left + 9, top + 5], [left - wide - 9, top + 5]]
        .map(([one, other]) => [one, other, wide, 14])
        .find(place => free(place) && place[0] > EDGE && place[0] + wide < right + 8 && place[1] > 0 && place[1] + 14 < bottom + 6);
      if (near || !box) { crowd.push(each); continue; }
      taken.push(box);
      write(each, box[0], box[1]);
    }
    if (!crowd.length) return;
    const middle = [0, 1].map(axis => crowd.map(each => each.at[axis]).sort((one, other) => one - other)[crowd.length >> 1]);
    const wide = 6.6 * Math.max(...crowd.map(each => each.label.length)), high = 15 * crowd.length;
    const places = [];
    for (let top = TOP + 4; top + high < bottom - 4; top += 20)
      for (let left = EDGE + 6; left + wide < right; left += 20) places.push([left, top]);
    const away = ([left, top]) => Math.hypot(left - x(middle[0]), top + high / 2 - y(middle[1]));
    const spot = places.filter(([left, top]) => free([left, top, wide, high])).sort((one, other) => away(one) - away(other))[0];
    if (!spot) return;
    drawing.append(vector("line", { x1: spot[0] - 3, y1: spot[1] + high / 2, x2: x(middle[0]), y2: y(middle[1]), class: "leader" }));
    crowd.forEach((each, at) => write(each, spot[0], spot[1] + 15 * at));
  }

  function say(event, each) {
    const [a, b] = state.pair;
    if (state.pointed !== each.name) state.set("pointed", each.name);
    const text = [a, b].map((layer, side) => `${"AB"[side]} ${fraction(each.values[layer], 3)}`
      + (each.lower[layer] === null ? "" : ` (${fraction(each.lower[layer])} to ${fraction(each.upper[layer])})`));
    tip.show(event, each.label, ...text);
  }

  function light() {
    place.classList.toggle("pointing", state.pointed !== null);
    for (const each of place.querySelectorAll("[data-term]")) each.classList.toggle("on", each.dataset.term === state.pointed);
  }

  return redraw;
}
