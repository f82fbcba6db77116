// Beside the maps: search for a word, the sentence of the one under the pointer, its neighbours.

import { between, make, sentence, short } from "./dom.js";
import { OTHER, levelColours } from "./maps.js";
import { colouring } from "./state.js";

const MOST = 6, LISTED = 12;

export function words(state, root) {
  const search = make("input", { type: "search", autocomplete: "off", oninput: find });
  const found = make("p", { class: "mute", role: "status" });
  const said = make("p", { class: "said", "aria-live": "polite" });
  const heading = make("h2", { text: "Nearest on both maps" });
  const near = make("ul", { class: "near" });
  const select = make("select", { "aria-label": "Feature that colours the maps", onchange: () => state.set("feature", select.value) });
  const legend = make("ul", { class: "legend" });
  const larger = make("button", {
    type: "button", class: "link", text: "⤢ Larger", hidden: !document.fullscreenEnabled, onclick: () => {
      if (document.fullscreenElement) document.exitFullscreen(); else root.closest(".canvas").requestFullscreen();
    },
  });
  root.append(make("h2", {}, "Colour ", select, " ", larger), legend, search, found, said, heading, near);

  const name = at => state.data.words ? state.data.words[at] : state.data.sentences[at];

  function find() {
    const text = search.value.trim().toLowerCase();
    const hits = text ? state.data.sentences.flatMap((_, at) => {
      const own = name(at).toLowerCase();
      return (state.data.words ? own.startsWith(text) : own.includes(text)) ? [at] : [];
    }) : [];
    const exact = hits.filter(at => name(at).toLowerCase() === text);
    const those = exact.length ? exact : hits;
    state.set("marked", new Set(those));
    if (those.length) state.set("word", those[0]);
    if (text && !those.length) found.textContent = "Not on these maps.";
  }

  // What is marked: how many, and which.
  function list() {
    const what = state.data.called, { marked } = state;
    found.replaceChildren();
    if (!marked.size) return;
    const own = [...new Set([...marked].map(name))];
    const shown = own.slice(0, LISTED).map(one => short(one, 40)).join(", ");
    found.append(`${marked.size} ${what}: ${shown}${own.length > LISTED ? " …" : ""} `,
      make("button", {
        type: "button", class: "link", text: "Clear",
        onclick: () => { search.value = ""; state.set("marked", new Set()); },
      }));
  }

  // How many points are nearer to a stimulus, on one map.
  function ranks(at, place) {
    const [xs, ys] = state.data.maps[place];
    const away = xs.map((x, i) => (x - xs[at]) ** 2 + (ys[i] - ys[at]) ** 2);
    const order = away.map((_, i) => i).sort((a, b) => away[a] - away[b]);
    const rank = [];
    order.forEach((i, n) => { rank[i] = n; });
    return rank;
  }

  function neighbours() {
    const { word, data, pair } = state;
    said.replaceChildren(word === null ? make("span", { class: "mute", text: "Point at a map for a stimulus, draw around several, click a colour for its own." }) : sentence(data, word));
    near.replaceChildren();
    const there = word !== null && pair.every(place => data.maps[place]);
    heading.hidden = !there;
    if (!there) return;
    const [one, other] = pair.map(place => ranks(word, place)), seen = new Set([name(word)]);
    const worse = one.map((rank, i) => Math.max(rank, other[i]));
    for (const i of worse.map((_, i) => i).sort((a, b) => worse[a] - worse[b])) {
      if (seen.size > MOST) break;
      if (i === word || seen.has(name(i))) continue;
      seen.add(name(i));
      near.append(make("li", {}, make("button", {
        type: "button", class: "link", text: short(name(i), 60), onclick: () => state.set("word", i),
      })));
    }
  }

  function key() {
    const { data } = state, feature = colouring(state), { levels, values } = data.features[feature];
    select.value = feature;
    const own = levels ? levelColours(data, feature) : [];
    // A click leaves only these stimuli lit, and a second one all.
    const isolate = those => {
      const found = new Set(values.flatMap((value, at) => those(value) ? [at] : []));
      const same = found.size === state.marked.size && [...found].every(at => state.marked.has(at));
      state.set("marked", same ? new Set() : found);
    };
    const swatch = (color, text, those) => {
      const dot = make("i");
      dot.style.background = color;
      return make("li", {}, make("button", {
        type: "button", title: `Only ${text}`, onclick: () => isolate(those),
      }, dot, short(text, 22)));
    };
    const missing = values.includes(null) ? [swatch("#9aa2ad55", "missing", value => value === null)] : [];
    if (levels) {
      const shown = levels.flatMap((level, at) => own[at] === OTHER ? [] : [swatch(own[at], level, value => value === at)]);
      const rest = own.includes(OTHER) ? [swatch(OTHER, "other", value => own[value] === OTHER)] : [];
      legend.replaceChildren(...shown, ...rest, ...missing);
      return;
    }
    const there = values.filter(value => value !== null), bar = make("i", { class: "ramp" });
    bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(at => between(data.ramp, at)).join()})`;
    legend.replaceChildren(make("li", {}, String(Math.min(...there)), bar, String(Math.max(...there))), ...missing);
  }

  state.listen(root, what => {
    if (what === "data") {
      const label = state.data.words ? "Search a word" : `Search the ${state.data.called}`;
      search.placeholder = label;
      search.setAttribute("aria-label", label);
      select.replaceChildren(...Object.entries(state.data.features).map(([feature, { label }]) =>
        make("option", { value: feature, text: label })));
    }
    if (["data", "pair", "word"].includes(what)) neighbours();
    if (["data", "marked"].includes(what)) list();
    if (["data", "feature", "pointed"].includes(what)) key();
  });
}
