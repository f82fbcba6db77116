// What is chosen on the canvas, and who is told when it changes.

export function newState(tell) {
  const listeners = [];
  return {
    data: null, // as `mlem_core.figures.canvas.canvas_data` makes it
    pair: [0, 0], // places of the two layers, at once after a click
    measure: 0, // which of the two matrices
    feature: null, // that colours the maps until another one is chosen
    pointed: null, // term under the pointer or with the focus
    word: null, // stimulus that is ringed
    marked: new Set(), // stimuli of a lasso or a search
    tell,
    listen(listener) { listeners.push(listener); },
    // What changes: "data", "pair", "measure", "feature", "pointed", "word" or "marked".
    set(what, value) {
      this[what] = value;
      for (const listener of listeners) listener(what);
    },
  };
}

// The feature that colours the maps now.
export function colouring(state) {
  const { pointed, data, feature } = state;
  return pointed !== null && data.features?.[pointed] ? pointed : feature;
}

// Whether all that is shown is of the pair that is chosen.
export function answered(state) {
  return state.pair.every((place, side) => place === state.data.pair[side]);
}

// Choose two layers; a slider waits, as it passes many on its way.
export function choosePair(state, one, other, wait = 0) {
  if (one === other || (one === state.pair[0] && other === state.pair[1])) return;
  state.set("pair", [one, other]);
  const name = place => `${state.data.layers[place].model}:${state.data.layers[place].number}`;
  clearTimeout(state.waiting);
  state.waiting = setTimeout(() => state.tell("pair", [name(one), name(other)]), wait);
}

// Take new data; what was chosen of the same stimuli stays.
export function receive(state, data) {
  const same = state.data && state.data.stimuli === data.stimuli;
  if (!same) {
    Object.assign(state, { feature: data.colour, word: null, marked: new Set(), pointed: null });
  }
  clearTimeout(state.waiting);
  state.pair = data.pair;
  state.set("data", data);
}

// Places of the layers of each model, in the order of the layers.
export function blocks(data) {
  const found = new Map();
  data.layers.forEach((layer, place) => {
    if (!found.has(layer.model)) found.set(layer.model, []);
    found.get(layer.model).push(place);
  });
  return found;
}
