// The matrix of similarities: models as blocks on both axes, a click chooses two layers.

import { between, fraction, make, short, surface, theme, tooltip } from "./dom.js";
import { blocks, choosePair } from "./state.js";

const LIGHT = ["#f3f5f8", "#d7e6f3", "#8fbbdf", "#3b85bd", "#08406f"];
const DARK = ["#1a2129", "#1d3a55", "#2a6394", "#62a7d6", "#d9eefc"];
const BELOW = { light: ["#f3f5f8", "#e9a066", "#963f0f"], dark: ["#1a2129", "#a8642d", "#f6d3b3"] };
const chanceGrey = colors => (colors.dark ? "#4a525c" : "#c9cdd3");
const GAP = 0.6; // of a cell, between two models
const TICK = 10, NAME = 12, LETTERS = 17;

export function matrix(state, root, tip) {
  const canvas = make("canvas", { class: "matrix", tabindex: 0, role: "application" });
  const names = ["RSA", "τ"].map((name, at) => make("button", {
    class: "switch", type: "button", onclick: () => state.set("measure", at),
  }));
  const scale = make("div", { class: "scale", "aria-hidden": true });
  root.append(make("p", { class: "caption" }, ...names), canvas, scale);
  let place = null, cells = null, cursor = null, lowest = 0;

  const ramp = (value, colors) => value >= 0
    ? between(colors.dark ? DARK : LIGHT, value)
    : between(colors.dark ? BELOW.dark : BELOW.light, Math.min(1, -value));

  // The similarity of two layers, from the hundredths of the upper triangle; null: not defined.
  const packed = ["", ""], unpacked = [null, null];
  function valueAt(i, j) {
    const at = state.measure, { values } = state.data.similarity[at], n = state.data.layers.length;
    if (packed[at] !== values) {
      packed[at] = values;
      unpacked[at] = Int8Array.from(atob(values), letter => letter.charCodeAt(0));
    }
    const [a, b] = i < j ? [i, j] : [j, i], found = unpacked[at][a * n - (a * (a - 1)) / 2 + b - a];
    return found === -128 ? null : found / 100;
  }

  // Where cells and names are, for the width that there is.
  function lay() {
    const width = Math.min(root.clientWidth, 470);
    const own = [...blocks(state.data)], at = [];
    let end = 0;
    for (const [, places] of own) {
      for (const one of places) at[one] = end++;
      end += GAP;
    }
    end -= GAP;
    const pen = canvas.getContext("2d");
    pen.font = `${NAME}px ${theme(root).font}`;
    const called = own.map(([model]) => short(state.data.models[model], LETTERS));
    const widest = Math.max(...called.map(name => pen.measureText(name).width));
    const ticks = 16, left = Math.ceil(widest) + ticks + 10;
    const lean = called.some((name, i) => pen.measureText(name).width
      > ((own[i][1].length + GAP) * (width - left)) / end);
    // A name at the right end leans out of the matrix.
    const out = lean ? Math.max(0, Math.ceil(widest * 0.71) - (own.at(-1)[1].length * (width - left)) / end / 2) : 0;
    const pitch = (width - left - Math.max(out, 8)) / end, slanted = lean; // half a tick
    const top = ticks + 6 + (slanted ? Math.ceil(widest * 0.71) + 8 : NAME + 4);
    place = { width, height: top + end * pitch + 2, left, top, pitch, at, own, called, slanted };
  }

  function drawCells(colors) {
    const { chance } = state.data.similarity[state.measure], colorOf = new Map();
    const { pitch, at, left, top, width, height } = place, n = state.data.layers.length;
    cells = document.createElement("canvas");
    const pen = surface(cells, width, height);
    const side = Math.max(pitch - (pitch > 6 ? 1 : 0), 0.8);
    const grey = new Set(chance.flatMap(([a, b]) => [`${a} ${b}`, `${b} ${a}`]));
    lowest = 0;
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const value = valueAt(i, j);
        if (value === null) continue;
        lowest = Math.min(lowest, value);
        if (!colorOf.has(value)) colorOf.set(value, ramp(value, colors));
        pen.fillStyle = grey.size && grey.has(`${i} ${j}`) ? chanceGrey(colors) : colorOf.get(value);
        pen.fillRect(left + at[j] * pitch, top + at[i] * pitch, side, side);
      }
    }
    label_(pen, colors);
  }

  function label_(pen, colors) {
    const { pitch, at, left, top, own, called, slanted } = place;
    const ends = { left: -Infinity, top: -Infinity }; // of the last tick of the model before
    own.forEach(([, places], b) => {
      const first = at[places[0]] * pitch, size = places.length * pitch, middle = first + size / 2;
      pen.fillStyle = colors.ink;
      pen.font = `${NAME}px ${colors.font}`;
      const room = size > NAME - 2;
      Object.assign(pen, { textAlign: "right", textBaseline: "middle" });
      if (room) pen.fillText(called[b], left - 22, top + middle);
      pen.save();
      pen.translate(left + middle, top - 22);
      if (slanted) pen.rotate(-Math.PI / 4);
      Object.assign(pen, { textAlign: slanted ? "left" : "center", textBaseline: "alphabetic" });
      if (room) pen.fillText(called[b], 0, 0);
      pen.restore();
      pen.fillStyle = colors.mute;
      pen.font = `${TICK}px ${colors.font}`;
      ends.left = ticks(pen, places, "left", TICK + 1, ends.left);
      ends.top = ticks(pen, places, "top", 15, ends.top);
    });
  }

  // Numbers of layers as close as they can be read, from the last layer of a model backwards.
  function ticks(pen, places, side, room, before) {
    const { pitch, at, left, top } = place;
    let free = Infinity;
    for (const one of [...places].reverse()) {
      const centre = (at[one] + 0.5) * pitch, text = short(state.data.layers[one].tick, 3);
      if (free - centre < room || (free < Infinity && centre - before < room)) continue;
      free = centre;
      Object.assign(pen, side === "top" ? { textAlign: "center", textBaseline: "bottom" }
        : { textAlign: "right", textBaseline: "middle" });
      if (side === "top") pen.fillText(text, left + centre, top - 4);
      else pen.fillText(text, left - 5, top + centre);
    }
    return (at[places.at(-1)] + 0.5) * pitch;
  }

  function outline(pen, [i, j], color, line) {
    const { pitch, at, left, top } = place;
    const grown = Math.max(0, 9 - pitch) / 2 + 1; // small cells are seen too
    pen.strokeStyle = color;
    pen.lineWidth = line;
    for (const [row, column] of [[i, j], [j, i]]) {
      pen.strokeRect(left + at[column] * pitch - grown, top + at[row] * pitch - grown,
        pitch + 2 * grown - 1, pitch + 2 * grown - 1);
    }
  }

  function draw() {
    const colors = theme(root), pen = surface(canvas, place.width, place.height);
    pen.drawImage(cells, 0, 0, place.width, place.height);
    if (cursor) outline(pen, cursor, colors.ink, 1.5);
    outline(pen, state.pair, "#D55E00", 2.5);
  }

  function label() {
    const { name, label: text } = state.data.similarity[state.measure];
    const [a, b] = state.pair.map(at => state.data.layers[at].title);
    canvas.setAttribute("aria-label", `${text}: ${name} of ${state.data.layers.length} layers, `
      + `arrow keys go to a cell, Enter chooses its two layers. Chosen: ${a} and ${b}`);
    state.data.similarity.forEach((one, at) => {
      const text = at ? one.label : `${one.label} (${one.name})`;
      names[at].textContent = at === state.measure && at ? `${text} (${one.name})` : text;
      names[at].setAttribute("aria-pressed", at === state.measure);
    });
    const colors = theme(root);
    const ends = lowest < -0.05 ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    const bar = make("i", { style: `background: linear-gradient(to right, ${
      ends.map(value => ramp(value, colors)).join()})` });
    const grey = state.data.similarity[state.measure].chance.length > 0;
    scale.replaceChildren(make("span", { text: fraction(ends[0], 0) }), bar, make("span", { text: "1" }),
      ...(grey ? [make("b", { style: `background: ${chanceGrey(colors)}` }), make("span", { text: "not above chance" })] : []));
    scale.style.marginLeft = `${place.left}px`;
  }

  function redraw() {
    if (!state.data || !root.clientWidth) return;
    lay();
    drawCells(theme(root));
    label();
    draw();
  }

  function cellAt(event) {
    const frame = canvas.getBoundingClientRect();
    const find = (offset, start) => {
      const at = (offset - start) / place.pitch;
      return place.at.findIndex(one => at >= one && at < one + 1);
    };
    const j = find(event.clientX - frame.left, place.left), i = find(event.clientY - frame.top, place.top);
    return i < 0 || j < 0 ? null : [i, j];
  }

  function say(event, [i, j]) {
    const { name, chance } = state.data.similarity[state.measure], { layers } = state.data;
    const found = valueAt(i, j);
    const grey = chance.some(([a, b]) => (a === i && b === j) || (a === j && b === i));
    const value = found === null ? "not defined" : fraction(found);
    tip.show(event, layers[i].title, layers[j].title,
      `${name} ${value}${grey ? ", not above chance" : ""}`);
  }

  canvas.addEventListener("pointermove", event => {
    cursor = cellAt(event);
    draw();
    if (cursor) say(event, cursor); else tip.hide();
  });
  canvas.addEventListener("pointerleave", () => { cursor = null; draw(); tip.hide(); });
  canvas.addEventListener("click", event => {
    const at = cellAt(event);
    if (at) choosePair(state, ...at);
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" && cursor) choosePair(state, ...cursor);
    if (!step) return;
    event.preventDefault();
    const last = state.data.layers.length - 1;
    cursor = (cursor || state.pair).map((at, n) => Math.min(last, Math.max(0, at + step[n])));
    draw();
    const frame = canvas.getBoundingClientRect(), { at, pitch, left, top } = place;
    say({ clientX: frame.left + left + at[cursor[1]] * pitch,
      clientY: frame.top + top + at[cursor[0]] * pitch }, cursor);
  });
  canvas.addEventListener("blur", () => { cursor = null; draw(); tip.hide(); });
  state.listen(what => {
    if (what === "data" || what === "measure") redraw();
    else if (what === "pair") { label(); draw(); }
  });
  return redraw;
}
