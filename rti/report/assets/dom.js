// Elements from data. Text goes in as text nodes only: nothing here reads HTML.
const data = JSON.parse(document.getElementById("data").textContent);

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (name === "vars") {
      for (const [key, inner] of Object.entries(value)) node.style.setProperty(key, inner);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return node;
}

// A section of the page, unhidden, that has something to show.
function section(id, ...children) {
  const node = document.getElementById(id);
  node.append(...children.flat().filter(Boolean));
  node.hidden = false;
  return node;
}

function lead(...words) {
  return el("p", { class: "lead" }, ...words);
}

// A labelled choice; `options` are [value, words]. The name says no more than the label: without
// aria-label it would read out all options.
function choice(name, options, change) {
  const select = el(
    "select",
    { "aria-label": name, on: { change: () => change(select.value) } },
    options.map(([value, text]) => el("option", { value }, text)),
  );
  return [el("label", {}, name, select), select];
}

// A table; the first `text` columns hold words, the others numbers.
function table(head, rows, text) {
  const side = (i) => (i < text ? "said" : null);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((h, i) => el("th", { scope: "col", class: side(i) }, h)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((cell, i) => el("td", { class: side(i) }, cell)),
          ),
        ),
      ),
    ),
  );
}

// Custom property of a colour by number; below 0 is that of the text.
function paint(index) {
  return index < 0 ? "--ink" : `--c${index % 16}`;
}

// A cell with its small print.
function fine({ text, small }) {
  return small ? el("span", {}, text, el("small", {}, small)) : text;
}

function colour(index) {
  return `var(${paint(index)})`;
}

function amount(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(Math.abs(value) < 10 ? 3 : 4)));
}

function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(part && part < whole / 10 ? 1 : 0)} %` : "–";
}
