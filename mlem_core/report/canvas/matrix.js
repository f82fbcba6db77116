// The matrix of similarities: families and their models as blocks; a click chooses two layers.
// Of many models a cell is of two families, whose layers a click opens.

import { between, fraction, make, short, surface, theme } from "./dom.js";
import { blocks, choosePair, families, similarity } from "./state.js";

const LIGHT = ["#f3f5f8", "#d7e6f3", "#8fbbdf", "#3b85bd", "#08406f"];
const DARK = ["#1a2129", "#1d3a55", "#2a6394", "#62a7d6", "#d9eefc"];
const BELOW = { light: ["#f3f5f8", "#e9a066", "#963f0f"], dark: ["#1a2129", "#a8642d", "#f6d3b3"] };
const chanceGrey = colors => (colors.dark ? "#4a525c" : "#c9cdd3");
const FAMILY = 0.9, MODEL = 0.35; // of a cell, between two families and two models
const TICK = 10, NAME = 12, LETTERS = 17, WIDEST = 640, MANY = 12, LEAST = 6; // px of a cell

// The two similarities as a switch.
export function measures(state) {
  const buttons = [0, 1].map(at => make("button", {
    class: "switch", type: "button", onclick: () => state.set("measure", at),
  }));
  return {
    box: make("p", { class: "caption" }, ...buttons),
    redraw() {
      state.data.similarity.forEach((each, at) => {
        buttons[at].textContent = `${each.label} (${each.name})`;
        buttons[at].setAttribute("aria-pressed", at === state.measure);
      });
    },
  };
}

export function matrix(state, root, tip) {
  const canvas = make("canvas", { class: "matrix", tabindex: 0, role: "application" });
  const choice = measures(state), scale = make("div", { class: "scale" });
  const back = make("button", {
    class: "link", type: "button", text: "◂ All families", onclick: () => state.set("open", null),
  });
  choice.box.append(back);
  root.append(choice.box, canvas, scale);
  let rows = [], place = null, cells = null, cursor = null, lowest = 0;

  const ramp = (value, colors) => value >= 0
    ? between(colors.dark ? DARK : LIGHT, value)
    : between(colors.dark ? BELOW.dark : BELOW.light, Math.min(1, -value));

  // What a row and a column are: layers, each alone, or families, each with all its layers.
  function choose() {
    const own = blocks(state.data), all = [...families(state.data)];
    const layerRows = all.filter(([family]) => !state.open || state.open.includes(family)).flatMap(([family, models]) =>
      models.flatMap(model => own.get(model).map(at => ({ family, model, places: [at] }))));
    const few = own.size < MANY && Math.min(root.clientWidth, WIDEST) - 110 >= LEAST * layerRows.length;
    const byFamily = !state.open && !few && all.length > 1;
    rows = byFamily ? all.map(([family, models]) =>
      ({ family, model: family, places: models.flatMap(model => own.get(model)) })) : layerRows;
    back.hidden = !state.open;
    return byFamily;
  }

  // The similarity of the layers of two rows, on average; null: not defined.
  function valueAt(i, j) {
    const values = [];
    for (const a of rows[i].places) {
      for (const b of rows[j].places) {
        if (a === b && (rows[i].places.length > 1 || i !== j)) continue;
        const value = similarity(state.data, state.measure, a, b);
        if (value !== null) values.push(value);
      }
    }
    return values.length ? Math.round((100 * values.reduce((sum, value) => sum + value, 0)) / values.length) / 100 : null;
  }

  const runs = key => {
    const found = [];
    rows.forEach((row, at) => {
      if (!found.length || found.at(-1).name !== row[key]) found.push({ name: row[key], first: at, last: at });
      found.at(-1).last = at;
    });
    return found;
  };

  // Where cells and names are, for the width that there is.
  function lay() {
    const byFamily = choose(), width = Math.min(root.clientWidth, WIDEST), at = [];
    let end = 0;
    rows.forEach((row, n) => {
      if (n && row.family !== rows[n - 1].family) end += byFamily ? 0.06 : FAMILY;
      else if (n && row.model !== rows[n - 1].model) end += MODEL;
      at.push(end++);
    });
    const pen = canvas.getContext("2d"), groups = runs("family"), models = runs("model");
    pen.font = `${NAME}px ${theme(root).font}`;
    const called = groups.map(({ name }) => short(name, LETTERS));
    const widest = Math.max(...called.map(name => pen.measureText(name).width));
    const inner = 16, left = Math.ceil(widest) + inner + 10;
    const size = ({ first, last }, pitch) => (at[last] - at[first] + 1) * pitch;
    const slanted = groups.some((group, n) => pen.measureText(called[n]).width > size(group, (width - left) / end) + 6);
    const out = slanted ? Math.max(0, Math.ceil(widest * 0.71) - size(groups.at(-1), (width - left) / end) / 2) : 0;
    const pitch = Math.min((width - left - Math.max(out, 4)) / end, byFamily ? 90 : 46);
    const top = inner + 6 + (slanted ? Math.ceil(widest * 0.71) + 8 : NAME + 4);
    place = { width, height: top + end * pitch + 2, left, top, pitch, at, groups, models, called, slanted, byFamily };
  }

  function drawCells(colors) {
    const { chance } = state.data.similarity[state.measure];
    const { pitch, at, left, top, width, height, byFamily } = place;
    cells = document.createElement("canvas");
    const pen = surface(cells, width, height), side = Math.max(pitch - (pitch > 6 ? 1 : 0), 0.8);
    const grey = new Set(byFamily ? [] : chance.flatMap(([a, b]) => [`${a} ${b}`, `${b} ${a}`]));
    lowest = 0;
    for (let i = 0; i < rows.length; i++) {
      for (let j = 0; j <= i; j++) {
        const value = valueAt(i, j);
        if (value === null) continue;
        lowest = Math.min(lowest, value);
        pen.fillStyle = grey.has(`${rows[i].places[0]} ${rows[j].places[0]}`) ? chanceGrey(colors) : ramp(value, colors);
        pen.fillRect(left + at[j] * pitch, top + at[i] * pitch, side, side);
        pen.fillRect(left + at[i] * pitch, top + at[j] * pitch, side, side);
        if (byFamily && pitch > 30) number(pen, colors, value, i, j);
      }
    }
    label_(pen, colors);
  }

  function number(pen, colors, value, i, j) {
    const { pitch, at, left, top } = place;
    Object.assign(pen, { textAlign: "center", textBaseline: "middle", font: `12px ${colors.font}` });
    pen.fillStyle = (value > 0.55) !== colors.dark ? "#fff" : "#1b2430";
    if (colors.dark && value <= 0.55) pen.fillStyle = "#e6eaf0";
    for (const [row, column] of i === j ? [[i, j]] : [[i, j], [j, i]]) {
      pen.fillText(fraction(value), left + (at[column] + 0.5) * pitch, top + (at[row] + 0.5) * pitch);
    }
  }

  function label_(pen, colors) {
    const { pitch, at, left, top, groups, models, called, slanted, byFamily } = place;
    const middle = ({ first, last }) => ((at[first] + at[last] + 1) / 2) * pitch;
    const wide = ({ first, last }) => (at[last] - at[first] + 1) * pitch;
    pen.fillStyle = colors.ink;
    pen.font = `${NAME}px ${colors.font}`;
    groups.forEach((group, n) => {
      if (wide(group) <= NAME - 2) return;
      Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
      pen.fillText(called[n], left - 22, top + middle(group));
      pen.save();
      pen.translate(left + middle(group), top - 22);
      if (slanted) pen.rotate(-Math.PI / 4);
      Object.assign(pen, { textAlign: slanted ? "left" : "center", textBaseline: "alphabetic" });
      pen.fillText(called[n], 0, 0);
      pen.restore();
    });
    pen.fillStyle = colors.mute;
    pen.font = `${TICK}px ${colors.font}`;
    if (byFamily) return;
    // Inside a family its members have numbers; where each family is one model, layers have.
    const nested = models.length > groups.length;
    for (const model of models) {
      const own = nested ? [[middle(model), state.data.models[model.name].member]]
        : ticks(model).map(([centre, row]) => [centre, short(state.data.layers[rows[row].places[0]].tick, 3)]);
      for (const [centre, text] of own) {
        if (nested && wide(model) < TICK) continue;
        Object.assign(pen, { textAlign: "center", textBaseline: "bottom" });
        pen.fillText(text, left + centre, top - 4);
        Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
        pen.fillText(text, left - 5, top + centre);
      }
    }
  }

  // Numbers of layers as close as they can be read, the first and the last always.
  function ticks({ first, last }) {
    const { pitch, at } = place, found = [], apart = Math.max(1, Math.ceil(15 / pitch));
    for (let row = last; row >= first; row -= apart) found.push([(at[row] + 0.5) * pitch, row]);
    if (found.at(-1)[1] !== first && found.length > 1) found.pop();
    if (found.at(-1)[1] !== first && last - first >= apart) found.push([(at[first] + 0.5) * pitch, first]);
    return found;
  }

  function outline(pen, [i, j], color, line) {
    const { pitch, at, left, top } = place, grown = Math.max(0, 9 - pitch) / 2 + 1;
    pen.strokeStyle = color;
    pen.lineWidth = line;
    for (const [row, column] of [[i, j], [j, i]]) {
      pen.strokeRect(left + at[column] * pitch - grown, top + at[row] * pitch - grown,
        pitch + 2 * grown - 1, pitch + 2 * grown - 1);
    }
  }

  const rowOf = layer => rows.findIndex(row => row.places.includes(layer));

  function draw() {
    if (!cells) return;
    const colors = theme(root), pen = surface(canvas, place.width, place.height);
    pen.drawImage(cells, 0, 0, place.width, place.height);
    if (cursor) outline(pen, cursor, colors.ink, 1.5);
    const chosen = state.pair.map(rowOf);
    if (chosen.includes(-1)) return;
    outline(pen, chosen, colors.a, 2.5);
    const { pitch, at, left, top } = place;
    chosen.forEach((row, side) => {
      const centre = (at[row] + 0.5) * pitch;
      for (const [x, y] of [[left - 9, top + centre], [left + centre, top - 9]]) {
        pen.beginPath();
        pen.arc(x, y, 7, 0, 7);
        pen.fillStyle = side ? colors.b : colors.a;
        pen.fill();
        Object.assign(pen, { fillStyle: "#fff", font: `700 10px ${colors.font}`, textAlign: "center", textBaseline: "middle" });
        pen.fillText("AB"[side], x, y + 0.5);
      }
    });
  }

  function label() {
    const { name, label: text } = state.data.similarity[state.measure];
    const [a, b] = state.pair.map(at => state.data.layers[at].title);
    canvas.setAttribute("aria-label", `${text}: ${name} of ${rows.length} ${place.byFamily ? "families" : "layers"}, `
      + `arrow keys go to a cell, Enter chooses it. A is ${a}, B is ${b}.`);
    choice.redraw();
    const colors = theme(root);
    const ends = lowest < -0.05 ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    const bar = make("i", { style: `background: linear-gradient(to right, ${
      ends.map(value => ramp(value, colors)).join()})` });
    const grey = !place.byFamily && state.data.similarity[state.measure].chance.length > 0;
    const nested = !place.byFamily && place.models.length > place.groups.length;
    const notes = [
      grey ? make("b", { style: `background: ${chanceGrey(colors)}` }) : null, grey ? make("span", { text: "not above chance" }) : null,
      nested ? make("span", { class: "note", text: "numbers: seeds" }) : null,
      place.byFamily ? make("span", { class: "note", text: "means of families; a click opens their layers" }) : null,
    ];
    scale.replaceChildren(make("span", { text: `${name} ${fraction(ends[0], 0)}` }), bar, make("span", { text: "1" }), ...notes.filter(Boolean));
    scale.style.marginLeft = `${place.left}px`;
  }

  function redraw(what) {
    if (!state.data || !root.clientWidth || ["pointed", "feature", "side"].includes(what)) return;
    if (what !== "pair") {
      lay();
      drawCells(theme(root));
    }
    label();
    draw();
  }

  function cellAt(event) {
    const frame = canvas.getBoundingClientRect();
    const find = (offset, start) => {
      const at = (offset - start) / place.pitch;
      return place.at.findIndex(row => at >= row && at < row + 1);
    };
    const j = find(event.clientX - frame.left, place.left), i = find(event.clientY - frame.top, place.top);
    return i < 0 || j < 0 ? null : [i, j];
  }

  function say(event, [i, j]) {
    const { name, chance } = state.data.similarity[state.measure], { layers } = state.data, value = valueAt(i, j);
    const [one, other] = [i, j].map(row => (place.byFamily ? rows[row].family : layers[rows[row].places[0]].title));
    const grey = !place.byFamily && chance.some(pair => pair.includes(rows[i].places[0]) && pair.includes(rows[j].places[0]));
    tip.show(event, one, other, `${place.byFamily ? "mean " : ""}${name} ${value === null ? "not defined" : fraction(value)}${grey ? ", not above chance" : ""}`);
  }

  function take([i, j]) {
    if (place.byFamily) state.set("open", [...new Set([rows[i].family, rows[j].family])]);
    else choosePair(state, rows[i].places[0], rows[j].places[0]);
  }

  canvas.addEventListener("pointermove", event => {
    cursor = cellAt(event);
    draw();
    if (cursor) say(event, cursor); else tip.hide();
  });
  canvas.addEventListener("pointerleave", () => { cursor = null; draw(); tip.hide(); });
  canvas.addEventListener("click", event => {
    const cell = cellAt(event);
    cursor = null;
    if (cell) take(cell);
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" && cursor) take(cursor);
    if (!step) return;
    event.preventDefault();
    const start = cursor || state.pair.map(layer => Math.max(0, rowOf(layer)));
    cursor = start.map((at, n) => Math.min(rows.length - 1, Math.max(0, at + step[n])));
    draw();
    const frame = canvas.getBoundingClientRect(), { at, pitch, left, top } = place;
    say({ clientX: frame.left + left + at[cursor[1]] * pitch,
      clientY: frame.top + top + at[cursor[0]] * pitch }, cursor);
  });
  canvas.addEventListener("blur", () => { cursor = null; draw(); tip.hide(); });
  return redraw;
}
