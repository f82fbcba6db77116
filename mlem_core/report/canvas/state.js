// What is chosen on the canvas, shared by its parts, and who is told when it changes.

export function newState() {
  let listeners = [];
  return {
    of: undefined, // the analysis that the page is about
    data: null, // as `mlem_core.figures.canvas.canvas_data` makes it
    pair: [0, 0], // places of A and B, at once after a click
    side: 1, // which of the two a click on one layer moves
    view: "heatmap", // of all layers
    measure: 0, // which of the two similarities
    open: null, // families whose layers the matrix shows; null: as many as there is room for
    feature: null, // that colours the maps until another one is chosen
    pointed: null, // term under the pointer or with the focus
    word: null, // stimulus that is ringed
    marked: new Set(), // stimuli of a lasso or a search
    told: 0, // number of the last choice that was told
    unheard: {}, // choices that the data does not know yet, by name: number and value
    send: () => {},
    // Tell a choice. All that are not known yet go together: of two messages one may be lost.
    tell(what, value, wait = 0) {
      this.unheard[what] = { number: ++this.told, value };
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => {
        const choices = Object.entries(this.unheard).map(([name, { value }]) => [name, value]);
        this.send({ told: this.told, ...Object.fromEntries(choices) });
      }, wait);
    },
    // A part listens as long as it stands in the page; what is known already it hears at once.
    listen(root, listener) {
      listeners = [...listeners.filter(([place]) => place.isConnected), [root, listener]];
      if (this.data) listener("data");
    },
    // What changes: a name of the above.
    set(what, value) {
      this[what] = value;
      if (!this.data) return;
      for (const [root, listener] of listeners) if (root.isConnected) listener(what);
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
  state.tell("pair", [name(one), name(other)], wait);
}

// Move A or B to a layer; where the other one is there, they change places.
export function moveTo(state, layer, side = state.side, wait = 0) {
  const pair = [...state.pair];
  if (pair[1 - side] === layer) pair[1 - side] = pair[side];
  pair[side] = layer;
  choosePair(state, ...pair, wait);
}

// Take new data; what was chosen of the same stimuli stays.
export function receive(state, data) {
  const same = state.data && state.data.stimuli === data.stimuli;
  if (!same) {
    Object.assign(state, { feature: data.colour, word: null, marked: new Set(), pointed: null });
  }
  const layers = each => each && each.layers.map(layer => `${layer.model}:${layer.number}`).join();
  const { unheard } = state, others = layers(state.data) !== layers(data);
  for (const [name, { number }] of Object.entries(unheard)) {
    if (others || number <= (data.heard ?? state.told)) delete unheard[name];
  }
  if (others) state.open = null;
  if (!unheard.pair) state.pair = data.pair;
  if (data.view && !unheard.view) state.view = data.view;
  state.set("data", data);
}

// Places of the layers of each model, in the order of the layers.
export function blocks(data) {
  const places = new Map();
  data.layers.forEach((layer, place) => {
    if (!places.has(layer.model)) places.set(layer.model, []);
    places.get(layer.model).push(place);
  });
  return places;
}

// Models of each family, in the order of the layers.
export function families(data) {
  const models = new Map();
  for (const model of blocks(data).keys()) {
    const { family } = data.models[model];
    if (!models.has(family)) models.set(family, []);
    models.get(family).push(model);
  }
  return models;
}

const unpacked = new Map();

// The similarity of two layers, from the hundredths of the upper triangle; null: not defined.
export function similarity(data, measure, i, j) {
  const { values } = data.similarity[measure], n = data.layers.length;
  if (!unpacked.has(values)) {
    if (unpacked.size > 8) unpacked.clear();
    unpacked.set(values, Int8Array.from(atob(values), letter => letter.charCodeAt(0)));
  }
  const [a, b] = i < j ? [i, j] : [j, i];
  const hundredths = unpacked.get(values)[a * n - (a * (a - 1)) / 2 + b - a];
  return hundredths === -128 ? null : hundredths / 100;
}
