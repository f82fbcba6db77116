// The two maps of the stimuli, linked and coloured by a feature: of A and of B.

import { between, make, save, sentence, surface, theme } from "./dom.js";
import { colouring } from "./state.js";

const DOT = 3, NEAR = 14, MISSING = "#9aa2ad", OWN = 7;
export const OTHER = "#8c8c8c";

// The colour of each level of a feature: the seven most frequent have one of their own, all others are grey.
export function levelColours(data, feature) {
  const { levels, values } = data.features[feature], counts = levels.map(() => 0);
  for (const at of values) if (at !== null) counts[at] += 1;
  const often = levels.map((_, at) => at).sort((one, other) => counts[other] - counts[one] || one - other);
  const named = new Set(levels.length > OWN + 1 ? often.slice(0, OWN) : often);
  let next = 0;
  return levels.map((_, at) => (named.has(at) ? data.palette[next++ % data.palette.length] : OTHER));
}

// The colour of each stimulus by a feature; null where it is missing.
export function colours(data, feature) {
  const { levels, values } = data.features[feature];
  if (levels) {
    const own = levelColours(data, feature);
    return values.map(at => at === null ? null : own[at]);
  }
  const there = values.filter(value => value !== null);
  const low = Math.min(...there), span = Math.max(...there) - low || 1;
  return values.map(value => value === null ? null : between(data.ramp, (value - low) / span));
}

export function map(state, root, side, tip) {
  const name = make("p", { class: "layer" });
  const canvas = make("canvas", { tabindex: 0, role: "application" });
  const wait = make("p", { class: "wait", text: "Laying out the stimuli …", hidden: true });
  root.append(name, make("div", { class: "field" }, canvas, wait));
  let points = null; // x and y in pixels of each stimulus
  let view = { scale: 1, x: 0, y: 0 }, lasso = null, drag = null, queued = false;
  const size = () => ({ width: canvas.parentElement.clientWidth, height: canvas.parentElement.clientHeight });

  const place = () => state.pair[side];

  function title() {
    const layer = state.data.layers[place()];
    name.replaceChildren(make("span", { class: side ? "letter b" : "letter a", text: "AB"[side] }), ` ${layer.title} `,
      save(state, `stimulus_map_${"ab"[side]}`, "⤓"));
    canvas.setAttribute("aria-label", `Map of ${state.data.called} in `
      + `${layer.title}: close points are represented similarly. Arrow keys go from one to the next.`);
  }

  // Both axes have one scale, as only distances mean something.
  function lay() {
    const found = state.data.maps[place()], { width, height } = size();
    wait.hidden = Boolean(found);
    points = null;
    if (!found || !width) return;
    const [xs, ys] = found, edge = 14;
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const unit = Math.min((width - 2 * edge) / (x1 - x0 || 1), (height - 2 * edge) / (y1 - y0 || 1)) * view.scale;
    const x = width / 2 + view.x - (unit * (x0 + x1)) / 2, y = height / 2 + view.y + (unit * (y0 + y1)) / 2;
    points = [xs.map(value => x + unit * value), ys.map(value => y - unit * value)];
  }

  function draw() {
    queued = false;
    const { width, height } = size(), colors = theme(root);
    if (!width) return;
    const pen = surface(canvas, width, height);
    if (!points) return;
    const [xs, ys] = points, feature = colouring(state), tints = colours(state.data, feature);
    const groups = new Map(), { marked } = state;
    tints.forEach((tint, i) => {
      const out = marked.size > 0 && !marked.has(i);
      const key = `${tint ?? MISSING} ${out || tint === null ? 0.22 : 0.78}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(i);
    });
    for (const [key, those] of [...groups].sort(([a], [b]) => (a.endsWith("0.22") ? 0 : 1) - (b.endsWith("0.22") ? 0 : 1))) {
      const cut = key.lastIndexOf(" ");
      pen.fillStyle = key.slice(0, cut);
      pen.globalAlpha = Number(key.slice(cut));
      pen.beginPath();
      for (const i of those) {
        const r = marked.has(i) ? DOT + 1.5 : DOT;
        pen.moveTo(xs[i] + r, ys[i]);
        pen.arc(xs[i], ys[i], r, 0, 7);
      }
      pen.fill();
    }
    pen.globalAlpha = 1;
    names(pen, colors, feature);
    if (state.word !== null) ring(pen, colors);
    if (lasso) {
      pen.beginPath();
      lasso.forEach(([x, y]) => pen.lineTo(x, y));
      pen.closePath();
      Object.assign(pen, { strokeStyle: colors.accent, lineWidth: 1.5, fillStyle: colors.accent });
      pen.stroke();
      pen.globalAlpha = 0.08;
      pen.fill();
      pen.globalAlpha = 1;
    }
  }

  function ring(pen, colors) {
    const [x, y] = [points[0][state.word], points[1][state.word]];
    for (const [color, line] of [[colors.ground, 5], [colors.ink, 2.5]]) {
      pen.beginPath();
      pen.arc(x, y, 8, 0, 7);
      Object.assign(pen, { strokeStyle: color, lineWidth: line });
      pen.stroke();
    }
  }

  // The names of the levels at their medians; those that would cover another one are left out.
  function names(pen, colors, feature) {
    const { levels, values } = state.data.features[feature], { width, height } = size();
    if (!levels || levels.length > 9) return;
    const taken = [], middle = list => list.sort((a, b) => a - b)[list.length >> 1];
    pen.font = `600 12px ${colors.font}`;
    Object.assign(pen, { textAlign: "center", textBaseline: "middle" });
    const count = level => values.filter(value => value === level).length;
    const order = levels.map((_, level) => level).sort((a, b) => count(b) - count(a));
    for (const level of order) {
      const those = values.flatMap((value, i) => value === level ? [i] : []);
      if (!those.length) continue;
      const half = pen.measureText(levels[level]).width / 2 + 3;
      const inside = (value, edge, room) => Math.min(Math.max(value, edge + 2), room - edge - 2);
      const x = inside(middle(those.map(i => points[0][i])), half, width);
      const y = inside(middle(those.map(i => points[1][i])), 9, height);
      if (taken.some(([a, b, wide]) => Math.abs(a - x) < wide + half && Math.abs(b - y) < 18)) continue;
      taken.push([x, y, half]);
      pen.globalAlpha = 0.8;
      pen.fillStyle = colors.ground;
      pen.fillRect(x - half, y - 9, 2 * half, 18);
      pen.globalAlpha = 1;
      pen.fillStyle = colors.ink;
      pen.fillText(levels[level], x, y + 0.5);
    }
  }

  function later() {
    if (!queued) requestAnimationFrame(draw);
    queued = true;
  }

  function nearest(x, y, most = NEAR) {
    if (!points) return null;
    let best = null, least = most * most;
    points[0].forEach((px, i) => {
      const away = (px - x) ** 2 + (points[1][i] - y) ** 2;
      if (away < least) [best, least] = [i, away];
    });
    return best;
  }

  function inside(x, y) {
    let found = false;
    lasso.forEach(([x1, y1], i) => {
      const [x2, y2] = lasso[(i || lasso.length) - 1];
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) found = !found;
    });
    return found;
  }

  function say(event, word) {
    if (word !== state.word && word !== null) state.set("word", word);
    if (word === null) { tip.hide(); return; }
    const feature = state.data.features[colouring(state)], value = feature.values[word];
    const text = value === null ? "missing" : feature.levels ? feature.levels[value] : value;
    tip.show(event, sentence(state.data, word), make("small", { text: `${feature.label}: ${text}` }));
  }

  function where(event) {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  canvas.addEventListener("pointerdown", event => {
    if (event.button) return;
    drag = { from: where(event), pan: event.shiftKey ? { ...view } : null };
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const [x, y] = where(event);
    if (!drag || event.pointerType === "touch") { say(event, nearest(x, y)); return; }
    tip.hide();
    if (drag.pan) {
      view = { ...drag.pan, x: drag.pan.x + x - drag.from[0], y: drag.pan.y + y - drag.from[1] };
      lay();
    } else if (lasso || Math.hypot(x - drag.from[0], y - drag.from[1]) > 4) {
      lasso = [...(lasso ?? [drag.from]), [x, y]];
    }
    later();
  });
  canvas.addEventListener("pointerup", event => {
    if (lasso && points) {
      state.set("marked", new Set(points[0].flatMap((x, i) => inside(x, points[1][i]) ? [i] : [])));
    } else if (drag && !drag.pan) {
      const word = nearest(...where(event));
      if (word === null) state.set("marked", new Set()); else say(event, word);
    }
    drag = lasso = null;
    later();
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("pointercancel", () => { drag = lasso = null; later(); });
  canvas.addEventListener("dblclick", () => { view = { scale: 1, x: 0, y: 0 }; lay(); later(); });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    const by = Math.exp(-event.deltaY / 300), { width, height } = size(), [x, y] = where(event);
    const scale = Math.min(Math.max(view.scale * by, 1), 20), grown = scale / view.scale;
    view = { scale, x: (view.x - x + width / 2) * grown + x - width / 2, y: (view.y - y + height / 2) * grown + y - height / 2 };
    lay();
    later();
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    if (event.key === "Escape") state.set("marked", new Set());
    if (!way || !points) return;
    event.preventDefault();
    const [xs, ys] = points, from = state.word ?? 0;
    let best = from, least = Infinity;
    xs.forEach((x, i) => {
      const along = (x - xs[from]) * way[0] + (ys[i] - ys[from]) * way[1];
      const aside = Math.abs((x - xs[from]) * way[1]) + Math.abs((ys[i] - ys[from]) * way[0]);
      if (along > 0.5 && aside <= 2 * along && along + 2 * aside < least) [best, least] = [i, along + 2 * aside];
    });
    const frame = canvas.getBoundingClientRect();
    say({ clientX: frame.left + xs[best], clientY: frame.top + ys[best] }, best);
  });
  canvas.addEventListener("blur", () => tip.hide());

  state.listen(root, what => {
    if (what === "data" || what === "pair") {
      title();
      lay();
    }
    if (["data", "pair", "feature", "pointed", "word", "marked"].includes(what)) later();
  });
  return () => { if (state.data) { lay(); draw(); } };
}
