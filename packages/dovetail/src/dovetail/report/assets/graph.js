// The graph on its canvas: drawing, the map, pointers and keys, and the same picture as SVG.

const canvas = $("canvas"), pen = canvas.getContext("2d"), map = $("minimap"), mapPen = map.getContext("2d");
let isDrawing = false;
const matches = new Set();

function redraw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => { isDrawing = false; draw(); drawMap(); });
}

function resize(target, context) {
  const scale = devicePixelRatio || 1;
  target.width = Math.max(1, target.clientWidth * scale);
  target.height = Math.max(1, target.clientHeight * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
}

function boxColour(box) {
  const leaves = box.leaf ? [box.leaf] : box.leaves ?? (box.leaves = leavesOf(box));
  if (state.colour === "time") return heatColour(box.time, view.longest);
  if (state.colour === "provider") return providerColour(heaviest(leaves, "provider"));
  if (state.colour === "precision") return precisionColour(heaviest(leaves, "dtype"));
  const pairs = [...new Set(leaves.map((node) => node.pair))].filter(Boolean);
  if (!pairs.length || pairs.every((pair) => !pair.there.length)) return "#b07cc6";
  return differenceColour(sum(pairs, (pair) => pair.hereUs), sum(pairs, (pair) => pair.thereUs));
}

function heaviest(leaves, field) {
  const weights = new Map();
  for (const node of leaves) if (node[field]) weights.set(node[field], (weights.get(node[field]) ?? 0) + (node.time_us ?? 0) + 1e-6);
  return [...weights].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

const boxTitle = (box) => (box.leaf ? box.leaf.op : box.name);
function boxTime(box) {
  if (box.leaf && box.leaf.within >= 0) return "↳";
  return box.time > 0 ? showTime(box.time) : "";
}
const boxText = (box) => (box.leaf ? box.leaf.name.replace(/^\/|\/$/g, "") : [pathText(box).slice(0, -1).join("/"), plural(box.count, "layer")].filter(Boolean).join(" · "));

/** A text that fits; of a path the end is kept, which tells layers apart. */
function fitEnd(text, room) {
  if (pen.measureText(text).width <= room) return text;
  let start = Math.max(0, text.length - Math.floor(room / 3));
  while (start < text.length - 1 && pen.measureText(`…${text.slice(start)}`).width > room) start++;
  return `…${text.slice(start)}`;
}

/** The points of an edge: where it starts, its bends, where it ends. */
function edgePoints(edge) {
  return [{ x: edge.from.x, y: edge.from.y + BOX.height / 2 }, ...edge.bends.map((each) => ({ x: each.x, y: each.y })), { x: edge.to.x, y: edge.to.y - BOX.height / 2 }];
}

function draw() {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1, { x, y, zoom } = view;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.setTransform(scale * zoom, 0, 0, scale * zoom, scale * x, scale * y);
  const top = -y / zoom - 80, bottom = (height - y) / zoom + 80, left = -x / zoom - 200, right = (width - x) / zoom + 200;
  const colours = { line: cssColour("--line"), edge: cssColour("--edge"), accent: cssColour("--accent"), found: cssColour("--found"), card: cssColour("--card"), text: cssColour("--text") };
  for (const edge of view.edges) {
    if (Math.max(edge.from.y, edge.to.y) < top || Math.min(edge.from.y, edge.to.y) > bottom) continue;
    drawEdge(edge, colours);
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  for (const box of view.boxes) if (box.x > left && box.x < right && box.y > top && box.y < bottom) drawBox(box, colours);
}

function drawEdge(edge, colours) {
  const isOn = state.selected && (edge.from === state.selected || edge.to === state.selected);
  pen.strokeStyle = isOn ? colours.accent : colours.edge;
  pen.globalAlpha = isOn ? 1 : 0.75;
  pen.lineWidth = (isOn ? 2 : 1.1) / Math.min(1, Math.max(view.zoom, 0.4));
  pen.setLineDash(edge.isDashed ? [5, 4] : []);
  const [start, ...rest] = edgePoints(edge);
  pen.beginPath();
  pen.moveTo(start.x, start.y);
  let last = start;
  for (const point of rest) { const middle = (last.y + point.y) / 2; pen.bezierCurveTo(last.x, middle, point.x, middle, point.x, point.y); last = point; }
  pen.stroke();
  if (view.zoom > 0.3) {
    pen.setLineDash([]);
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath(); pen.moveTo(last.x, last.y); pen.lineTo(last.x - 3.5, last.y - 6); pen.lineTo(last.x + 3.5, last.y - 6); pen.fill();
  }
}

function drawBox(box, colours) {
  const colour = boxColour(box), { width, height } = BOX, left = box.x - width / 2, top = box.y - height / 2;
  const isSelected = box === state.selected, isMatch = matches.size && (box.leaf ? matches.has(box.leaf.id) : (box.leaves ?? (box.leaves = leavesOf(box))).some((node) => matches.has(node.id)));
  if (!box.leaf) { // a stack of cards behind a group
    pen.fillStyle = colour; pen.strokeStyle = colours.edge; pen.lineWidth = 1;
    pen.beginPath(); pen.roundRect(left + 4, top + 4, width, height, 7); pen.fill(); pen.stroke();
  }
  pen.globalAlpha = matches.size && !isMatch && !isSelected ? 0.35 : 1;
  pen.fillStyle = colour;
  pen.strokeStyle = isSelected ? colours.accent : isMatch ? colours.found : colours.edge;
  pen.lineWidth = (isSelected || isMatch ? 3 : 1) / Math.max(0.5, Math.min(1, view.zoom));
  pen.beginPath(); pen.roundRect(left, top, width, height, box.leaf ? 5 : 7); pen.fill(); pen.stroke();
  if (view.zoom > 0.35) {
    pen.fillStyle = inkOn(colour);
    pen.textBaseline = "middle";
    pen.font = "11px system-ui";
    pen.textAlign = "right";
    const time = boxTime(box);
    pen.fillText(time, left + width - 8, top + 13);
    pen.textAlign = "left";
    const room = width - 22 - pen.measureText(time).width;
    pen.font = "600 12px system-ui";
    pen.fillText(fitText((box.leaf ? "" : "▸ ") + boxTitle(box), room), left + 8, top + 13);
    pen.font = "10.5px system-ui";
    pen.fillText(fitEnd(boxText(box), width - 16), left + 8, top + 28);
  }
  pen.globalAlpha = 1;
}

function fitText(text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = Math.min(text.length, Math.floor(room / 4));
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}

function mapScale() {
  const { left, right, top, bottom } = view.bounds, width = map.clientWidth - 8, height = map.clientHeight - 8;
  const scaleX = width / Math.max(1, right - left), scaleY = height / Math.max(1, bottom - top);
  return { scaleX: Math.min(scaleX, scaleY * 6), scaleY, x: 4 + (width - Math.min(scaleX, scaleY * 6) * (right - left)) / 2 - left * Math.min(scaleX, scaleY * 6), y: 4 - top * scaleY };
}

function drawMap() {
  const scale = devicePixelRatio || 1;
  mapPen.setTransform(scale, 0, 0, scale, 0, 0);
  mapPen.clearRect(0, 0, map.clientWidth, map.clientHeight);
  if (!view.bounds || !view.boxes.length) return;
  const { scaleX, scaleY, x, y } = mapScale();
  for (const box of view.boxes) {
    mapPen.fillStyle = box === state.selected ? cssColour("--accent") : boxColour(box);
    mapPen.fillRect(x + (box.x - BOX.width / 2) * scaleX, y + (box.y - BOX.height / 2) * scaleY, Math.max(2, BOX.width * scaleX), Math.max(1.2, BOX.height * scaleY));
  }
  mapPen.strokeStyle = cssColour("--accent");
  mapPen.lineWidth = 1.5;
  mapPen.strokeRect(x - (view.x / view.zoom) * scaleX, y - (view.y / view.zoom) * scaleY, (canvas.clientWidth / view.zoom) * scaleX, (canvas.clientHeight / view.zoom) * scaleY);
}

// where one looks

function fit() {
  const { left, right, top, bottom } = view.bounds, width = canvas.clientWidth, height = canvas.clientHeight;
  const whole = Math.min(width / (right - left + 80), height / (bottom - top + 60));
  view.zoom = Math.min(1.15, Math.max(whole, 0.78));
  view.x = width / 2 - (view.zoom * (left + right)) / 2;
  view.y = whole >= 0.78 ? height / 2 - (view.zoom * (top + bottom)) / 2 : 24 - view.zoom * top;
  if (whole < 0.78 && (right - left) * view.zoom > width) view.x = width / 2 - view.zoom * view.boxes[0].x;
  redraw();
}

function lookAt(box) {
  view.zoom = Math.max(view.zoom, 0.8);
  view.x = canvas.clientWidth / 2 - view.zoom * box.x;
  view.y = canvas.clientHeight / 2 - view.zoom * box.y;
  redraw();
}

function zoomBy(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const zoom = Math.max(0.03, Math.min(4, view.zoom * factor));
  view.x = x - ((x - view.x) * zoom) / view.zoom;
  view.y = y - ((y - view.y) * zoom) / view.zoom;
  view.zoom = zoom;
  redraw();
}

/** Work out boxes anew; the box that is kept stays where it is on the screen. */
function rearrange(keep) {
  const place = keep?.x === undefined ? null : { x: view.x + keep.x * view.zoom, y: view.y + keep.y * view.zoom };
  findVisible();
  layOut();
  if (keep && place && view.boxes.includes(keep)) { view.x = place.x - keep.x * view.zoom; view.y = place.y - keep.y * view.zoom; redraw(); }
  else fit();
  drawLegend();
}

function openGroup(group) {
  const place = { x: view.x + group.x * view.zoom, y: view.y + group.y * view.zoom };
  group.isOpen = true;
  rearrange(group);
  let first = view.tree.leaves[leavesOf(group)[0].id];
  while (first.up !== group && !view.boxes.includes(first)) first = first.up;
  if (view.boxes.includes(first)) { view.x = place.x - first.x * view.zoom; view.y = place.y - first.y * view.zoom; }
  select(first);
}

function closeGroup(group) {
  if (!group || group === view.tree.root) return;
  group.isOpen = false;
  rearrange();
  select(group);
  lookAt(group);
}

function setAllOpen(isOpen) {
  const left = [...view.tree.root.children];
  while (left.length) { const group = left.pop(); if (!group.leaf) { group.isOpen = isOpen; left.push(...group.children); } }
  state.selected = null;
  rearrange();
  showStory();
}

/** Show a layer, with every group around it open. */
function goTo(node) {
  const leaf = view.tree.leaves[node.id];
  let isChanged = false;
  for (let group = leaf.up; group && group !== view.tree.root; group = group.up) if (!group.isOpen) { group.isOpen = true; isChanged = true; }
  if (isChanged) rearrange();
  select(leaf);
  lookAt(leaf);
}

function select(box) {
  state.selected = box ?? null;
  showStory();
  redraw();
  writeLink();
}

// pointers and keys

function boxAt(event) {
  const area = canvas.getBoundingClientRect(), x = (event.clientX - area.left - view.x) / view.zoom, y = (event.clientY - area.top - view.y) / view.zoom;
  return view.boxes.find((box) => Math.abs(box.x - x) < BOX.width / 2 && Math.abs(box.y - y) < BOX.height / 2);
}

const touches = new Map();
let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  touches.set(event.pointerId, event);
  drag = { x: event.clientX, y: event.clientY, viewX: view.x, viewY: view.y, moved: 0, spread: spread() };
});
canvas.addEventListener("pointermove", (event) => {
  if (!touches.has(event.pointerId)) { canvas.title = ""; const box = boxAt(event); canvas.style.setProperty("cursor", box ? "pointer" : ""); if (box) canvas.title = (box.leaf?.name ?? pathText(box).join("/")).slice(0, 400); return; }
  touches.set(event.pointerId, event);
  if (touches.size > 1) {
    const now = spread(), area = canvas.getBoundingClientRect();
    if (drag?.spread) zoomBy(now.distance / drag.spread.distance, now.x - area.left, now.y - area.top);
    drag = { ...drag, spread: now, moved: 9 };
    return;
  }
  if (!drag) return;
  drag.moved = Math.max(drag.moved, Math.hypot(event.clientX - drag.x, event.clientY - drag.y));
  view.x = drag.viewX + event.clientX - drag.x;
  view.y = drag.viewY + event.clientY - drag.y;
  redraw();
});
const release = (event) => { touches.delete(event.pointerId); if (drag && drag.moved < 4 && event.type === "pointerup") select(boxAt(event)); drag = null; };
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
function spread() {
  if (touches.size < 2) return null;
  const [a, b] = [...touches.values()];
  return { distance: Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY)), x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2 };
}
canvas.addEventListener("dblclick", (event) => { const box = boxAt(event); if (box) box.leaf ? closeGroup(box.up) : openGroup(box); });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const area = canvas.getBoundingClientRect();
  zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - area.left, event.clientY - area.top);
}, { passive: false });

function jumpOnMap(event) {
  if (event.type === "pointermove" && !event.buttons) return;
  const area = map.getBoundingClientRect(), { scaleX, scaleY, x, y } = mapScale();
  view.x = canvas.clientWidth / 2 - ((event.clientX - area.left - x) / scaleX) * view.zoom;
  view.y = canvas.clientHeight / 2 - ((event.clientY - area.top - y) / scaleY) * view.zoom;
  redraw();
}
map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jumpOnMap(event); });
map.addEventListener("pointermove", jumpOnMap);

/** Go to a neighbour: along edges up and down, along the row to the sides. */
function step(key) {
  const box = state.selected && view.boxes.includes(state.selected) ? state.selected : null;
  if (!box) return view.boxes.length ? (select(view.boxes[0]), lookAt(view.boxes[0])) : undefined;
  const row = view.rows[box.row].filter((item) => item.index !== undefined), at = row.indexOf(box);
  const next = { ArrowDown: box.after[0], ArrowUp: box.before[0], ArrowLeft: row[at - 1], ArrowRight: row[at + 1] }[key];
  if (next) { select(next); lookAt(next); }
}

// the legend, and the picture for other programs

function legendEntries() {
  if (state.colour === "time") return hasTimes() ? [0.01, 0.15, 0.45, 1].map((share) => [heatColour(view.longest * share, view.longest), showTime(view.longest * share)]) : [[heatColour(0, 1), "no times: make the report with --profile"]];
  if (state.colour === "provider") return engine().providers.map((name) => [providerColour(name), name]);
  if (state.colour === "precision") return [...new Set(nodes().map((node) => node.dtype).filter(Boolean))].map((name) => [precisionColour(name), name]);
  return [[differenceColour(2, 1), `slower than in ${other().file}`], [differenceColour(1, 1), "the same"], [differenceColour(1, 2), "faster"], ["#b07cc6", "only here"]];
}

function drawLegend() {
  $("legend").replaceChildren(...legendEntries().map(([colour, text]) => el("span", {}, el("i", { style: { background: colour } }), text)));
}

const escapeXml = (text) => String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "?").replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function toSvg() {
  const { left, right, top, bottom } = view.bounds, parts = [];
  for (const edge of view.edges) {
    const [start, ...rest] = edgePoints(edge);
    let path = `M${start.x.toFixed(1)} ${start.y.toFixed(1)}`, last = start;
    for (const point of rest) { const middle = ((last.y + point.y) / 2).toFixed(1); path += `C${last.x.toFixed(1)} ${middle} ${point.x.toFixed(1)} ${middle} ${point.x.toFixed(1)} ${point.y.toFixed(1)}`; last = point; }
    parts.push(`<path d="${path}" fill="none" stroke="${cssColour("--edge")}"${edge.isDashed ? ' stroke-dasharray="5 4"' : ""}/>`);
  }
  for (const box of view.boxes) {
    const colour = boxColour(box), x = box.x - BOX.width / 2, y = box.y - BOX.height / 2, ink = inkOn(colour);
    parts.push(`<g><title>${escapeXml(box.leaf?.name ?? pathText(box).join("/"))}</title><rect x="${x.toFixed(1)}" y="${y}" width="${BOX.width}" height="${BOX.height}" rx="6" fill="${colour}" stroke="${cssColour("--edge")}"/>`,
      `<text x="${(x + 8).toFixed(1)}" y="${y + 17}" font-weight="600" font-size="12" fill="${ink}">${escapeXml(clip((box.leaf ? "" : "▸ ") + boxTitle(box), 18))}</text>`,
      `<text x="${(x + BOX.width - 8).toFixed(1)}" y="${y + 17}" font-size="11" text-anchor="end" fill="${ink}">${escapeXml(boxTime(box))}</text>`,
      `<text x="${(x + 8).toFixed(1)}" y="${y + 32}" font-size="10.5" fill="${ink}">${escapeXml(boxText(box).length > 31 ? `…${boxText(box).slice(-30)}` : boxText(box))}</text></g>`);
  }
  const width = right - left + 40, height = bottom - top + 40;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${(left - 20).toFixed(1)} ${(top - 20).toFixed(1)} ${width.toFixed(1)} ${height.toFixed(1)}" width="${width.toFixed(0)}" height="${height.toFixed(0)}" font-family="system-ui, sans-serif">${parts.join("\n")}</svg>\n`;
}
