// Elements, colours of the theme, numbers as text, and tooltips.

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The link to the file of a figure, by default that of the view that is shown; none in a page of its own.
export function save(state, figure, text = "⤓ Export") {
  return make("button", {
    type: "button", class: "link save", text, "aria-label": "Export this figure", title: "This figure as a file", onclick: () => state.tell("figure", figure ?? state.view),
  });
}

// An element of a drawing by vectors.
export function vector(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// The letter of a layer in its ring, at a place of a drawing.
export function badge(side, x, y, radius = 7) {
  return vector("g", { class: side ? "badge b" : "badge a", "pointer-events": "none" },
    vector("circle", { cx: x, cy: y, r: radius }),
    vector("text", { x, y: y + 3.5, "text-anchor": "middle", text: "AB"[side] }));
}

// Steps of an axis: at most so many round numbers between two ends.
export function steps(low, high, most) {
  const span = high - low || 1;
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find(size => span / size <= most) ?? 1;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step) ticks.push(at);
  return ticks.map(tick => ({ at: tick, text: Math.abs(tick) < 1e-9 ? "0" : fraction(tick, step < 0.1 ? 2 : 1) }));
}

// ".77", "−.05", "1.00"
export function fraction(value, digits = 2) {
  const text = Math.abs(value).toFixed(digits);
  const sign = value < 0 && Number(text) !== 0 ? "−" : "";
  return sign + (text.startsWith("0.") ? text.slice(1) : text);
}

export function theme(element) {
  const style = getComputedStyle(element);
  const of = (name, other) => style.getPropertyValue(name).trim() || other;
  const ground = of("--ground", "#ffffff");
  return {
    ground, dark: lightness(ground) < 0.5,
    ink: of("--ink", "#1b2430"), mute: of("--mute", "#5b6472"), line: of("--line", "#d8dce2"),
    accent: of("--accent", "#0b63a5"), a: of("--a", "#b84a00"), b: of("--b", "#6a4c93"), field: of("--field", "#f4f5f7"), font: of("--font", "sans-serif"),
  };
}

function parts(color) {
  const hex = /^#([0-9a-f]{6})/i.exec(color);
  if (hex) return [0, 2, 4].map(at => parseInt(hex[1].slice(at, at + 2), 16));
  return (color.match(/[\d.]+/g) || [255, 255, 255]).slice(0, 3).map(Number);
}

function lightness(color) {
  const [r, g, b] = parts(color);
  return (0.3 * r + 0.59 * g + 0.11 * b) / 255;
}

// A colour at a place in [0, 1] between evenly spaced ones.
export function between(colors, place) {
  const at = Math.min(Math.max(place, 0), 1) * (colors.length - 1);
  const low = Math.min(Math.floor(at), colors.length - 2);
  const [one, other] = [parts(colors[low]), parts(colors[low + 1])];
  return `rgb(${one.map((part, i) => Math.round(part + (other[i] - part) * (at - low))).join()})`;
}

// A drawing surface in the pixels of the screen.
export function surface(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, { width: wide, height: high });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

export function short(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1).trimEnd()}…`;
}

// One tooltip for all that is drawn; its lines are text or elements.
export function tooltip(root) {
  const box = make("div", { class: "tip", role: "tooltip", hidden: true });
  root.append(box);
  return {
    show(event, ...lines) {
      box.replaceChildren(...lines.map(line => make("div", {}, line)));
      box.hidden = false;
      const frame = root.getBoundingClientRect();
      const x = event.clientX - frame.left, y = event.clientY - frame.top;
      const left = x + 14 + box.offsetWidth > frame.width ? x - 14 - box.offsetWidth : x + 14;
      box.style.transform = `translate(${Math.max(0, left)}px, ${y + 16}px)`;
    },
    hide() { box.hidden = true; },
  };
}

// A sentence with its word marked.
export function sentence(data, at) {
  const place = data.places[at];
  if (place == null) return make("span", { text: data.sentences[at] });
  const words = data.sentences[at].split(/\s+/);
  return make("span", {}, `${words.slice(0, place).join(" ")} `,
    make("mark", { text: words[place] ?? "" }), ` ${words.slice(place + 1).join(" ")}`);
}
