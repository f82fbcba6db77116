// The importance of each feature over the layers, a panel a model. The layers of A and B are lines.

import { badge, fraction, make, steps, vector } from "./dom.js";
import { blocks, colouring, moveTo } from "./state.js";

const LEFT = 30, TOP = 22, BOTTOM = 20, GAP = 12;

export function profiles(state, root, tip) {
  const key = make("div", { class: "key features", role: "group", "aria-label": "Features" });
  const place = make("div", {}), note = make("p", { class: "caption" });
  root.append(key, place, note);

  function redraw(what) {
    if (!state.data || !root.clientWidth) return;
    if (what === "pointed" || what === "feature") { light(); return; }
    const { importance, layers, models } = state.data, own = [...blocks(state.data)];
    const across = Math.min(own.length, root.clientWidth < 420 ? 2 : 3), width = Math.min(root.clientWidth, 660);
    const wide = (width - LEFT - GAP * (across - 1)) / across, down = Math.ceil(own.length / across);
    const high = Math.max(74, Math.min(190, 560 / down - TOP - BOTTOM));
    const ends = importance.features.flatMap(each => [...each.upper, ...each.values, ...each.lower]).filter(value => value !== null);
    const grey = [...importance.rho, ...importance.ceiling, ...importance.bands.flatMap(each => each.upper)];
    const most = Math.max(0.02, ...ends, ...grey.filter(value => value !== null));
    const least = Math.min(0, ...ends.map(value => Math.max(value, -0.2 * most)));
    const y = value => TOP + high * (1 - (value - least) / (most - least));
    const drawing = vector("svg", {
      width, height: down * (high + TOP + BOTTOM), role: "img",
      "aria-label": `Importance of ${importance.features.length} features over the layers of ${own.length} models.`,
    });
    own.forEach(([model, places], n) => {
      const group = vector("g", { transform: `translate(${LEFT + (n % across) * (wide + GAP)},${Math.floor(n / across) * (high + TOP + BOTTOM)})` });
      const x = at => (places.length < 2 ? wide / 2 : 6 + ((wide - 12) * at) / (places.length - 1));
      group.append(vector("text", { x: 0, y: TOP - 8, class: "title", text: models[model].name }));
      for (const tick of steps(least, most, 4)) {
        group.append(vector("line", { x1: 0, x2: wide, y1: y(tick.at), y2: y(tick.at), class: tick.text === "0" ? "zero" : "grid" }));
        if (n % across === 0) group.append(vector("text", { x: -5, y: y(tick.at) + 4, "text-anchor": "end", class: "tick", text: tick.text }));
      }
      [places[0], places.at(-1)].slice(0, places.length > 1 ? 2 : 1).forEach((layer, at) => group.append(vector("text", {
        x: x(at ? places.length - 1 : 0), y: TOP + high + 14, class: "tick", text: layers[layer].tick,
        "text-anchor": places.length < 2 ? "middle" : at ? "end" : "start",
      })));
      for (const band of importance.bands) group.append(area(band, places, x, y, "grey"));
      for (const [values, kind] of [[importance.rho, "score"], [importance.ceiling, "score ceiling"]]) {
        group.append(vector("path", { d: line(values, places, x, y), class: kind }));
      }
      for (const feature of importance.features) group.append(curve(feature, places, x, y));
      state.pair.forEach((chosen, side) => {
        const at = places.indexOf(chosen);
        if (at < 0) return;
        group.append(vector("line", { x1: x(at), x2: x(at), y1: TOP, y2: TOP + high, class: side ? "ruler b" : "ruler a" }));
        group.append(badge(side, x(at), TOP - 6 + (side && state.pair[0] === chosen ? 15 : 0), 6.5));
      });
      group.append(vector("rect", {
        x: 0, y: TOP, width: wide, height: high, fill: "transparent", class: "target",
        onpointermove: event => say(event, places, x, y), onpointerleave: () => { tip.hide(); state.set("pointed", null); },
        onclick: event => moveTo(state, nearest(event, places, x)),
      }));
      places.forEach((layer, at) => {
        if (!importance.flags[layer]) return;
        group.append(vector("path", { d: `M${x(at) - 4.5},${TOP + 8}h9l-4.5,-8z`, class: "flag" },
          vector("title", { text: `${layers[layer].title} is flagged: ${importance.flags[layer]}` })));
      });
      drawing.append(group);
    });
    place.replaceChildren(drawing);
    key.replaceChildren(...importance.features.map(feature => make("button", {
      type: "button", "data-term": feature.name, onclick: () => state.set("feature", state.data.features?.[feature.name] ? feature.name : state.feature),
      onpointerenter: () => state.set("pointed", feature.name), onpointerleave: () => state.set("pointed", null),
      onfocus: () => state.set("pointed", feature.name), onblur: () => state.set("pointed", null),
    }, make("i", { style: `background: ${feature.color}` }), feature.label)));
    const more = [...importance.bands.map(grey => `grey: ${grey.name}`), importance.flags.some(Boolean) ? "triangles: flagged layers" : ""];
    note.textContent = ["Drop in ρ when a feature is permuted", `bands are ${importance.spread}`, "dashed: held-out ρ of all features",
      "dotted: feature ceiling", ...more].filter(Boolean).join("; ") + ".";
    light();
  }

  // A path over the layers that have a value.
  function line(values, places, x, y) {
    let path = "", pen = "M";
    places.forEach((layer, at) => {
      if (values[layer] === null) { pen = "M"; return; }
      path += `${pen}${x(at).toFixed(1)},${y(values[layer]).toFixed(1)}`;
      pen = "L";
    });
    return path;
  }

  // The area between two ends; null where fewer than two layers have them.
  function area({ lower, upper }, places, x, y, kind) {
    const known = places.map((layer, at) => [layer, at]).filter(([layer]) => lower[layer] !== null);
    const ends = known.map(([layer, at]) => `${x(at).toFixed(1)},${y(upper[layer]).toFixed(1)}`)
      .concat([...known].reverse().map(([layer, at]) => `${x(at).toFixed(1)},${y(lower[layer]).toFixed(1)}`));
    return known.length < 2 ? "" : vector("polygon", { points: ends.join(" "), class: kind });
  }

  function curve(feature, places, x, y) {
    const only = places.length < 2 && feature.values[places[0]] !== null;
    return vector("g", { "data-term": feature.name, class: "curve", style: `color: ${feature.color}` },
      area(feature, places, x, y, "band"),
      vector("path", { d: line(feature.values, places, x, y) }),
      only ? vector("circle", { cx: x(0), cy: y(feature.values[places[0]]), r: 4 }) : null);
  }

  function nearest(event, places, x) {
    const offset = event.clientX - event.currentTarget.getBoundingClientRect().left;
    const away = places.map((_, at) => Math.abs(x(at) - offset));
    return places[away.indexOf(Math.min(...away))];
  }

  function say(event, places, x, y) {
    const layer = nearest(event, places, x), { importance, layers } = state.data;
    const height = event.clientY - event.currentTarget.getBoundingClientRect().top + TOP;
    const near = importance.features.filter(feature => feature.values[layer] !== null)
      .sort((one, other) => Math.abs(y(one.values[layer]) - height) - Math.abs(y(other.values[layer]) - height))[0];
    if (!near) return;
    if (state.pointed !== near.name) state.set("pointed", near.name);
    const [low, high] = [near.lower[layer], near.upper[layer]];
    tip.show(event, layers[layer].title, `${near.label}: ${fraction(near.values[layer], 3)}`
      + (low === null ? "" : ` (${fraction(low)} to ${fraction(high)})`));
  }

  function light() {
    const now = state.pointed;
    place.classList.toggle("pointing", now !== null);
    for (const each of root.querySelectorAll("[data-term]")) each.classList.toggle("on", each.dataset.term === now);
    for (const button of key.children) button.setAttribute("aria-pressed", button.dataset.term === colouring(state));
  }

  return redraw;
}
