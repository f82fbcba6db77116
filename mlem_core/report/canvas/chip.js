// The finding with its numbers in colour, and the chip that says how sure it is.

import { make } from "./dom.js";
import { answered } from "./state.js";

const INTERVAL = /^\(−?\d+\s% to −?\d+\s%\)$/;
const NUMBERS = /(\([^()]*−?\d*\.\d+\)|\(−?\d+\s% to −?\d+\s%\)|\d+\s%)/;

export function finding(state, root) {
  const head = make("h1", { "aria-live": "polite" });
  const rest = make("p", { class: "rest" });
  const coding = make("span", { class: "mute" });
  const more = make("div", { class: "more", role: "tooltip", id: "canvas-sure" });
  const chip = make("button", { class: "chip", type: "button", "aria-describedby": "canvas-sure" });
  const details = make("button", {
    class: "link", type: "button", text: "Details ▸", onclick: () => state.tell("details", "all"),
  });
  root.append(head, rest, make("div", { class: "line" }, chip, more, coding, details));

  function redraw(what) {
    head.classList.toggle("stale", !answered(state));
    if (what !== "data") return;
    const text = state.data.finding.replace(/(\d) %/g, "$1\u00a0%");
    head.replaceChildren(...text.split(NUMBERS).map((part, at) => (
      at % 2 ? make(INTERVAL.test(part) ? "small" : "b", { text: part }) : part)));
    rest.textContent = state.data.more.replace(/(\d) %/g, "$1\u00a0%");
    rest.hidden = !state.data.more;
    coding.textContent = state.data.coding;
    details.hidden = Boolean(state.data.alone);
    const { state: how, text: said, more: lines } = state.data.chip;
    chip.className = `chip ${how}`;
    chip.replaceChildren(make("i", { "aria-hidden": true }), said);
    more.replaceChildren(...lines.split("\n").map(line => make("p", { text: line })));
    more.hidden = !lines;
  }
  state.listen(redraw);
}
