// The contributions as a running sum: a bar a term, with its interval; it colours the maps.

import { fraction, make, save } from "./dom.js";
import { answered } from "./state.js";

const MOST = 5, SMALL = 0.02, MORE = "more", IDENTITIES = "identities";

export function bars(state, root, tip) {
  let every = false;
  const rows = make("div", { class: "rows", role: "group", "aria-label": "Contributions" });
  const axis = make("div", { class: "axis", "aria-hidden": true });
  root.append(rows, axis, make("div", { class: "foot" }, save(state, "why")));

  // The terms, small ones of many features together and identities too, until one asks for all.
  function grouped() {
    const { terms } = state.data, own = terms.filter(term => ["feature", "open"].includes(term.kind));
    if (every) return terms;
    const few = own.filter((term, at) => at < MOST || Math.abs(term.value) >= SMALL);
    const small = own.filter(term => !few.includes(term));
    const rest = terms.filter(term => term.kind === "rest" && term.name !== "unexplained");
    return [...few, ...together(small, MORE, `${small.length} more`),
      ...together(rest, IDENTITIES, "identities"), ...terms.filter(term => term.name === "unexplained")];
  }

  function together(terms, name, label) {
    if (terms.length < 2) return terms;
    const value = terms.reduce((sum, term) => sum + term.value, 0);
    const { kind } = terms[0];
    return [{ name, label, value, lower: null, upper: null, kind, chance: kind === "feature" }];
  }

  // Terms with the ends of their bars, and of their intervals.
  function laid() {
    let end = 0;
    return grouped().map(term => {
      const start = end;
      end += term.value;
      const sure = term.lower !== null;
      const reach = term.reach == null ? null : start + term.reach;
      return { ...term, start, end, reach, low: sure ? start + term.lower : null, high: sure ? start + term.upper : null };
    });
  }

  function redraw() {
    const terms = laid();
    root.hidden = !terms.length;
    if (!terms.length) return;
    const ends = terms.flatMap(one => [one.start, one.end, one.low ?? 0, one.high ?? 0, one.reach ?? 0]);
    const low = Math.min(0, ...ends), high = Math.max(...ends, 0.01), span = high - low;
    const at = value => `${(100 * (value - low)) / span}%`;
    const part = value => `${(100 * value) / span}%`;
    const open = terms.some(one => one.kind === "open");
    const tallest = terms.length > 14 ? 20 : terms.length > 10 ? 24 : 29;
    rows.style.setProperty("--row", `${tallest}px`);
    rows.replaceChildren(...terms.map(one => {
      const bar = make("i", { class: "bar" });
      bar.style.left = at(Math.min(one.start, one.end));
      bar.style.width = part(Math.abs(one.value));
      const whisker = one.low === null ? null : make("i", { class: "whisker" });
      if (whisker) {
        whisker.style.left = at(one.low);
        whisker.style.width = part(one.high - one.low);
      }
      const reach = one.reach === null ? null : make("i", { class: "reach" });
      if (reach) reach.style.left = at(one.reach);
      const sign = one.value >= 0.005 ? "+" : "";
      const text = one.kind === "open" || (open && one.kind === "rest") ? "" : sign + fraction(one.value);
      const number = make("span", { class: "value", text });
      number.style.left = at(Math.max(one.end, one.start, one.high ?? one.end));
      const kind = one.chance ? "chance" : one.kind;
      return make("button", {
        type: "button", class: `row ${kind}`, "data-term": one.name,
        "aria-pressed": one.name === state.feature, "aria-label": said(one),
        onpointerenter: event => point(one, event), onpointermove: event => point(one, event),
        onpointerleave: leave, onfocus: () => state.set("pointed", one.name), onblur: leave,
        onclick: () => choose(one),
      }, make("span", { class: "name", text: one.label, title: one.label }),
      make("span", { class: "track" }, bar, reach, whisker, number));
    }));
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find(size => span / size <= 9) ?? 0.5;
    const ticks = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9; tick += step) {
      const mark = make("span", { text: Math.abs(tick) < 1e-9 ? "0" : fraction(tick, step < 0.1 ? 2 : 1) });
      mark.style.left = at(tick);
      ticks.push(mark);
    }
    const name = state.data.similarity[0].name;
    const dashed = terms.some(one => one.reach !== null) ? "; dashed: random labels" : "";
    axis.replaceChildren(make("div", { class: "ticks" }, ...ticks),
      make("div", { class: "title", text: `contribution to ${name}${name === "RSA" ? " (ρ)" : ""}${dashed}` }));
    light();
  }

  function said(one) {
    if ([MORE, IDENTITIES].includes(one.name)) return `${one.label}, together ${fraction(one.value, 3)}: a click shows each`;
    if (one.kind === "open") return `${one.label}: not compared with chance yet`;
    const sure = one.lower === null ? "" : `, 95 % CI ${fraction(one.lower)} to ${fraction(one.upper)}`;
    return `${one.label}: contribution ${fraction(one.value, 3)}${sure}`
      + (one.chance ? ", no more than chance gives" : "");
  }

  function point(one, event) {
    if (state.pointed !== one.name) state.set("pointed", one.name);
    const own = one.name === "unexplained" && !state.data.alone ? ["Click for the pairs behind it."] : [];
    tip.show(event, said(one), ...own);
  }

  function leave() {
    tip.hide();
    if (state.pointed !== null) state.set("pointed", null);
  }

  function choose(one) {
    if ([MORE, IDENTITIES].includes(one.name)) {
      every = true;
      redraw();
      return;
    }
    if (state.data.features?.[one.name]) state.set("feature", one.name);
    else state.tell("details", one.name);
  }

  // The bar that colours the maps stands out.
  function light() {
    const now = state.pointed ?? state.feature;
    rows.classList.toggle("pointing", state.pointed !== null);
    for (const row of rows.children) {
      row.classList.toggle("on", row.dataset.term === now);
      row.setAttribute("aria-pressed", row.dataset.term === state.feature);
    }
    root.classList.toggle("stale", !answered(state));
  }

  state.listen(root, what => {
    if (what === "data") redraw();
    else if (["feature", "pointed", "pair"].includes(what)) light();
  });
}
