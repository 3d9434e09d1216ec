// Groups, which of them are open, and where boxes lie: layers of a directed graph, without recursion.

const BOX = { width: 188, height: 40, gapX: 24, gapY: 36 };
const MAX_SHOWN = 90;
const MAX_SPAN = 60;
const view = { tree: null, boxes: [], edges: [], rows: [], x: 0, y: 0, zoom: 1, longest: 1, bounds: null };

const splitName = (name) => { const parts = name.split(name.includes("/") ? "/" : ".").filter(Boolean); return parts.length ? parts : [name]; };
const bodyName = (node, parent) => (parent.op === "If" ? ["then", "else"][node.body ?? 0] ?? "body" : "body");

function pathOf(node, all, grouping) {
  const inBody = node.parent >= 0 ? [...pathOf(all[node.parent], all, grouping), `${bodyName(node, all[node.parent])} of ${all[node.parent].op}`] : [];
  const own = splitName(node.name);
  if (node.parent >= 0) return [...inBody, own.at(-1)];
  return grouping === "step" && node.kind === "part" ? [`step ${node.step} · ${node.provider}`, ...own] : grouping === "step" ? [node.name] : own;
}

function makeTree(all, grouping) {
  const root = { name: "", children: [], byName: new Map(), isOpen: true, leaf: null, up: null };
  const leaves = [];
  for (const node of all) {
    const path = pathOf(node, all, grouping);
    let group = root;
    for (const part of path.slice(0, -1)) {
      let next = group.byName.get(part);
      if (!next) { next = { name: part, children: [], byName: new Map(), isOpen: false, leaf: null, up: group }; group.byName.set(part, next); group.children.push(next); }
      group = next;
    }
    const leaf = { name: path.at(-1), leaf: node, children: [], up: group };
    group.children.push(leaf);
    leaves[node.id] = leaf;
  }
  sumUp(root);
  openLargest(root);
  return { root, leaves };
}

function sumUp(root) {
  const order = [], left = [root];
  while (left.length) { const group = left.pop(); order.push(group); left.push(...group.children); }
  for (const group of order.reverse()) {
    if (group.leaf) Object.assign(group, { time: group.leaf.time_us ?? 0, outer: group.leaf.parent < 0 ? group.leaf.time_us ?? 0 : 0, count: 1, first: group.leaf.id });
    else Object.assign(group, { time: sum(group.children, (c) => c.outer) || sum(group.children, (c) => c.time), outer: sum(group.children, (c) => c.outer), count: sum(group.children, (c) => c.count), first: Math.min(...group.children.map((c) => c.first)) });
  }
}

/** Open the groups that take most time while there is room for their boxes; a group of one box is no group. */
function openLargest(root) {
  let shown = root.children.length;
  const queue = root.children.filter((child) => !child.leaf);
  while (queue.length) {
    queue.sort((a, b) => b.time - a.time || b.count - a.count);
    const group = queue.shift();
    if (group.children.length > 1 && shown + group.children.length - 1 > MAX_SHOWN) continue;
    group.isOpen = true;
    shown += group.children.length - 1;
    queue.push(...group.children.filter((child) => !child.leaf));
  }
}

function leavesOf(group) {
  const found = [], left = [group];
  while (left.length) { const each = left.pop(); if (each.leaf) found.push(each.leaf); else left.push(...each.children); }
  return found.sort((a, b) => a.id - b.id);
}

function pathText(group) {
  const parts = [];
  for (let each = group; each && each.up; each = each.up) parts.unshift(each.name);
  return parts;
}

/** The boxes that are seen now, and the edges between them; edges against the order of steps go around and are dashed. */
function findVisible() {
  const all = nodes(), owner = new Array(all.length), boxes = [], left = [view.tree.root];
  while (left.length) {
    const group = left.pop();
    if (group !== view.tree.root && (group.leaf || !group.isOpen)) {
      boxes.push(group);
      for (const leaf of group.leaf ? [group.leaf] : leavesOf(group)) owner[leaf.id] = group;
    } else left.push(...group.children);
  }
  boxes.sort((a, b) => a.first - b.first);
  boxes.forEach((box, index) => Object.assign(box, { index, before: [], after: [] }));
  const seen = new Set(), edges = [];
  const connect = (source, node, kind) => {
    const from = owner[source], to = owner[node.id];
    if (from === to) return;
    const key = from.index * boxes.length + to.index;
    if (seen.has(key)) return;
    seen.add(key);
    const isBack = from.index > to.index;
    if (!isBack) { from.after.push(to); to.before.push(from); }
    edges.push({ from, to, isBack, isDashed: isBack || kind !== "data", bends: [] });
  };
  for (const node of all) {
    for (const source of node.inputs) connect(source, node, node.is_ordered ? "order" : "data");
    if (node.parent >= 0 && !node.inputs.length) connect(node.parent, node, "body");
  }
  view.boxes = boxes;
  view.edges = edges;
}

function layOut() {
  const rows = [], put = (row, item) => (rows[row] ??= []).push(item);
  for (const box of view.boxes) box.row = Math.max(0, ...box.before.map((each) => each.row + 1));
  for (const box of [...view.boxes].reverse()) if (!box.before.length && box.after.length) box.row = Math.max(0, Math.min(...box.after.map((each) => each.row)) - 1);
  for (const box of view.boxes) { Object.assign(box, { width: BOX.width, ups: [], downs: [] }); put(box.row, box); }
  for (const edge of view.edges) if (!edge.isBack) bend(edge, put);
  for (let r = 0; r < rows.length; r++) (rows[r] ??= []).forEach((item, position) => { item.position = position; });
  orderRows(rows);
  placeRows(rows);
  rows.forEach((row, r) => row.forEach((item) => { item.y = r * (BOX.height + BOX.gapY); }));
  view.rows = rows;
  const xs = view.boxes.map((box) => box.x), ys = view.boxes.map((box) => box.y);
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity), most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
  view.bounds = { left: least(xs) - BOX.width / 2, right: most(xs) + BOX.width / 2, top: least(ys) - BOX.height / 2, bottom: most(ys) + BOX.height / 2 };
  view.longest = most([1e-9, ...view.boxes.map((box) => box.time)]);
}

/** Give an edge over several rows a place in each, so that it goes around the boxes between. */
function bend(edge, put) {
  let last = edge.from;
  if (edge.to.row - edge.from.row < MAX_SPAN) {
    for (let row = edge.from.row + 1; row < edge.to.row; row++) {
      const point = { row, width: 14, ups: [last], downs: [] };
      last.downs.push(point);
      put(row, point);
      edge.bends.push(point);
      last = point;
    }
  }
  last.downs.push(edge.to);
  edge.to.ups.push(last);
}

/** Put each item near the mean of its neighbours, down and up again, which removes most crossings. */
function orderRows(rows) {
  for (let pass = 0; pass < 6; pass++) {
    const isDown = pass % 2 === 0;
    for (let step = 1; step < rows.length; step++) {
      const row = rows[isDown ? step : rows.length - 1 - step];
      for (const item of row) {
        const near = isDown ? item.ups : item.downs;
        item.weight = near.length ? (sum(near, (each) => (each.position + 0.5) / rows[each.row].length) / near.length) * row.length : item.position + 0.5;
      }
      row.sort((a, b) => a.weight - b.weight);
      row.forEach((item, position) => { item.position = position; });
    }
  }
}

/** Move items to the median of their neighbours without overlap. */
function placeRows(rows) {
  for (const row of rows) {
    let x = -sum(row, (item) => item.width + BOX.gapX) / 2;
    for (const item of row) { item.x = x + item.width / 2; x += item.width + BOX.gapX; }
  }
  for (let pass = 0; pass < 10; pass++) {
    const isDown = pass % 2 === 0;
    for (let step = 0; step < rows.length; step++) {
      const row = rows[isDown ? step : rows.length - 1 - step];
      for (const item of row) {
        const near = (isDown ? item.ups : item.downs).map((each) => each.x).sort((a, b) => a - b);
        item.wanted = near.length ? (near[(near.length - 1) >> 1] + near[near.length >> 1]) / 2 : item.x;
      }
      row.forEach((item, i) => { item.x = i ? Math.max(item.wanted, row[i - 1].x + (row[i - 1].width + item.width) / 2 + BOX.gapX) : item.wanted; });
      const shift = sum(row, (item) => item.wanted - item.x) / (row.length || 1);
      for (const item of row) item.x += shift;
    }
  }
}
