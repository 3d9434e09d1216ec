// Elements, texts and colours. Names come from plans: they are only ever set as text, never as markup.

const $ = (id) => document.getElementById(id);

/** A new element; children that are strings become text. */
function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    if (key === "class") made.className = value;
    else if (key === "style") for (const [name, text] of Object.entries(value)) made.style.setProperty(name, text);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const DASH = "–";
const showTime = (us) => (us == null ? DASH : us < 1e3 ? `${us.toFixed(us < 10 ? 2 : 1)} µs` : us < 1e6 ? `${(us / 1e3).toFixed(2)} ms` : `${(us / 1e6).toFixed(2)} s`);
const showBytes = (bytes) => (bytes == null ? DASH : scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]));
const showCount = (count) => (count == null ? DASH : scaled(count, 1000, ["", "k", "M", "G", "T", "P"]));
const showPercent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const showShape = (sizes) => (sizes == null ? "?" : sizes.length ? sizes.join("×") : "scalar");
const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base && unit < units.length - 1) { value /= base; unit++; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en")} ${units[unit]}`.trim();
}

// Okabe and Ito's colours, which people with any kind of colour vision tell apart.
const CATEGORIES = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#7fa6d6", "#b8b8b8"];
const PRECISIONS = { float32: "#56b4e9", float16: "#e69f00", bfloat16: "#f0e442", int8: "#009e73", uint8: "#3fbf9a", float8_e4m3fn: "#cc79a7", float8_e5m2: "#d79bbd", float64: "#7fa6d6", int4: "#d55e00", uint4: "#d55e00" };
const OTHER = "#a7adb4";
const LIGHT_HEAT = [[0, [240, 241, 238]], [0.3, [254, 227, 145]], [0.6, [251, 154, 61]], [0.82, [204, 76, 2]], [1, [112, 30, 4]]];
const DARK_HEAT = [[0, [41, 45, 51]], [0.3, [91, 48, 94]], [0.6, [190, 62, 76]], [0.82, [246, 140, 50]], [1, [252, 236, 150]]];
const SAME = { light: [226, 228, 230], dark: [58, 63, 69] };
const SLOWER = [213, 94, 0], FASTER = [0, 114, 178];

const colourScheme = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => { const chosen = document.documentElement.style.colorScheme; return chosen ? chosen === "dark" : colourScheme.matches; };
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const toRgb = (parts) => `rgb(${parts.map(Math.round).join(",")})`;
const mix = (from, to, share) => from.map((part, i) => part + share * (to[i] - part));

/** The colour of a time against the longest; the scale is bent, so that layers of middling time differ too. */
function heatColour(us, longest) {
  const stops = isDark() ? DARK_HEAT : LIGHT_HEAT;
  const heat = us > 0 && longest > 0 ? Math.min(1, (us / longest) ** 0.6) : 0;
  let i = 0;
  while (i < stops.length - 2 && heat > stops[i + 1][0]) i++;
  return toRgb(mix(stops[i][1], stops[i + 1][1], (heat - stops[i][0]) / (stops[i + 1][0] - stops[i][0])));
}

/** Blue for faster and orange for slower than in the other engine, full at twice the time. */
function differenceColour(here, there) {
  const ratio = Math.max(-1, Math.min(1, Math.log2((here + 0.05) / (there + 0.05))));
  return toRgb(mix(isDark() ? SAME.dark : SAME.light, ratio > 0 ? SLOWER : FASTER, Math.abs(ratio) < 0.03 ? 0 : 0.15 + 0.85 * Math.abs(ratio)));
}

/** Black or white, whichever is read better on a colour. */
function inkOn(colour) {
  const [r, g, b] = colour[0] === "#" ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)) : colour.match(/[\d.]+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#15171a" : "#ffffff";
}

function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** CSV in which no cell is a formula: a spreadsheet must not compute what a layer is called. */
function toCsv(head, rows) {
  const cell = (value) => {
    const text = value == null ? "" : typeof value === "number" ? String(value) : /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
