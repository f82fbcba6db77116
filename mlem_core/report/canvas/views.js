// The four views of all layers, one at a time; below them the pairs of layers that surprise.

import { make, save } from "./dom.js";
import { layerMap } from "./layermap.js";
import { matrix } from "./matrix.js";
import { profiles } from "./profiles.js";
import { scatter } from "./scatter.js";
import { choosePair } from "./state.js";

const VIEWS = {
  heatmap: ["Similarity heatmap", matrix], map: ["Layer map", layerMap],
  profiles: ["Importance profiles", profiles], scatter: ["Importance scatter", scatter],
};

export function views(state, root, tip) {
  const names = Object.keys(VIEWS), places = {}, redraw = {};
  const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "View of all layers" });
  const buttons = names.map(name => make("button", {
    type: "button", role: "tab", text: VIEWS[name][0], id: `canvas-tab-${name}`, onclick: () => choose(name),
  }));
  tabs.append(...buttons);
  root.append(tabs);
  for (const name of names) {
    places[name] = make("div", { class: `view ${name}`, role: "tabpanel", "aria-labelledby": `canvas-tab-${name}` });
    root.append(places[name]);
    redraw[name] = VIEWS[name][1](state, places[name], tip);
  }
  const surprises = make("p", { class: "surprises" });
  root.append(make("div", { class: "foot" }, surprises, save(state)));

  function choose(name) {
    state.set("view", name);
    state.tell("view", name);
  }
  tabs.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(state.view) + step + names.length) % names.length];
    choose(next);
    buttons[names.indexOf(next)].focus();
  });

  function show() {
    names.forEach((name, at) => {
      const shown = name === state.view;
      buttons[at].setAttribute("aria-selected", shown);
      buttons[at].tabIndex = shown ? 0 : -1;
      places[name].hidden = !shown;
    });
    redraw[state.view]();
  }

  function link() {
    const { layers } = state.data;
    const links = state.data.surprises.flatMap(({ pair, why }, at) => [at ? " · " : "", make("button", {
      type: "button", class: "link", title: why,
      text: pair.map(place => layers[place].title).join(" ↔ "),
      onclick: () => choosePair(state, ...pair),
    })]);
    surprises.hidden = !links.length;
    surprises.replaceChildren("Surprises: ", ...links);
  }

  state.listen(root, what => {
    if (what === "data") link();
    if (what === "data" || what === "view") show();
    else if (["pair", "measure", "open", "feature", "pointed", "side"].includes(what)) redraw[state.view](what);
  });
  return () => { if (state.data) redraw[state.view](); };
}
