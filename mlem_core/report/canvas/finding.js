// The finding with its numbers in colour, and the chips that say how sure it is.

import { make } from "./dom.js";
import { answered } from "./state.js";

const INTERVAL = /^\(−?\d+\s% to −?\d+\s%\)$/;
const NUMBERS = /(\([^()]*−?\d*\.\d+\)|\(−?\d+\s% to −?\d+\s%\)|\d+\s%)/;

export function finding(state, root) {
  const head = make("h1", { "aria-live": "polite" }), line = make("div", { class: "line" });
  const rest = make("p", { class: "rest" });
  root.append(head, line, rest);

  function chip({ state: how, text, more }, at) {
    const lines = make("div", { class: "more", role: "tooltip", id: `canvas-sure-${at}` },
      ...more.split("\n").filter(Boolean).map(text => make("p", { text })));
    lines.hidden = !more;
    const button = make("button", {
      class: `chip ${how}`, type: "button", "aria-describedby": `canvas-sure-${at}`,
      onclick: () => state.tell("details", "checks"),
    }, make("i", { "aria-hidden": true }), text);
    return make("span", { class: "sure" }, button, lines);
  }

  state.listen(root, what => {
    head.classList.toggle("stale", !answered(state));
    if (what !== "data") return;
    const text = state.data.finding.replace(/(\d) %/g, "$1\u00a0%");
    head.replaceChildren(...text.split(NUMBERS).map((part, at) => (
      at % 2 ? make(INTERVAL.test(part) ? "small" : "b", { text: part }) : part)));
    const more = state.data.more.replace(/(\d) %/g, "$1\u00a0%");
    rest.replaceChildren(state.data.alone ? more : make("button", {
      type: "button", class: "link", text: more, title: "What else explains it", onclick: () => state.tell("details", "rest"),
    }));
    rest.hidden = !state.data.more;
    line.replaceChildren(...state.data.chips.map(chip));
  });
}
