// The first rows of a table: the names of its columns marked, and the stimulus in its sentence.

const make = (tag, more, ...children) => {
  const element = Object.assign(document.createElement(tag), more);
  element.append(...children);
  return element;
};

function content({ text, mark }) {
  if (!mark) return [text];
  const [start, end] = mark;
  return [text.slice(0, start), make("mark", { textContent: text.slice(start, end) }), text.slice(end)];
}

export default function ({ data, parentElement, setTriggerValue }) {
  const { rows, clickable, label } = data;
  const choose = row => setTriggerValue("header", row.number);
  const drawn = rows.map(row => {
    const head = row.kind === "header";
    const named = `${head ? "Header" : "Take as the header"}: row ${row.number} of the file`;
    const number = clickable
      ? make("button", { type: "button", textContent: row.shown, title: named, ariaLabel: named, ariaPressed: head })
      : row.shown;
    const cells = row.cells.map(cell => make("td", { title: cell.text }, ...content(cell)));
    return make("tr", { className: row.kind, onclick: clickable && !head ? () => choose(row) : null },
      make("th", { scope: "row" }, number), ...cells);
  });
  const table = make("table", { className: clickable ? "clickable" : "" }, make("tbody", {}, ...drawn));
  const holder = make("div", { tabIndex: 0, role: "region", ariaLabel: label }, table);
  parentElement.querySelector(".preview").replaceChildren(holder);
}
