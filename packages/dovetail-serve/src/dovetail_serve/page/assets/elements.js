// Elements, made from text that is never markup.
const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function row(cells, tag = "td", numbersFrom = Infinity) {
  const made = cells.map((cell, i) => make(tag, { className: i >= numbersFrom ? "number" : "" }, cell));
  return make("tr", {}, ...made);
}

function table(heads, rows, numbersFrom = Infinity) {
  const head = make("thead", {}, row(heads, "th", numbersFrom));
  const body = make("tbody", {}, ...rows.map((cells) => row(cells, "td", numbersFrom)));
  return make("div", { className: "scroll" }, make("table", {}, head, body));
}

function labelled(text, control) {
  return make("label", {}, text, control);
}

function choice(values, chosen) {
  const made = make("select", {}, ...values.map((value) => make("option", { value, textContent: value })));
  made.value = chosen ?? values[0];
  return made;
}

function showTime(ns) {
  if (!Number.isFinite(ns)) return "-";
  if (ns < 1e6) return `${(ns / 1e3).toFixed(ns < 1e4 ? 1 : 0)} \u00b5s`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(ns < 1e7 ? 2 : 1)} ms`;
  return `${(ns / 1e9).toFixed(2)} s`;
}

const showShape = (shape) => (shape.length ? shape.map((size) => (size < 0 ? "?" : size)).join(" \u00d7 ") : "scalar");
