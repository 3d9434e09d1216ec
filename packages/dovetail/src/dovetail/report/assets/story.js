// The story of one layer, beside the graph.

function factTable(rows) {
  const body = el("tbody");
  for (const [name, value] of rows) if (value !== null && value !== undefined && value !== "" && value !== DASH) body.append(el("tr", {}, el("td", {}, name), el("td", {}, value)));
  return el("table", { class: "facts" }, body);
}

function layerLink(node, text) {
  return el("button", { class: "link", onclick: () => goTo(node) }, el("code", {}, text ?? node.name));
}

function showStory() {
  const place = $("story");
  place.replaceChildren();
  place.scrollTop = 0;
  const box = state.selected;
  if (!box) place.append(...welcome());
  else if (box.leaf) place.append(...layerStory(box.leaf, box));
  else place.append(...groupStory(box));
}

function welcome() {
  const slow = nodes().filter((node) => node.time_us && !node.bodies.length).sort((a, b) => b.time_us - a.time_us).slice(0, 8);
  return [
    el("h3", {}, engine().name),
    el("p", { class: "quiet" }, "Click a box for its story; double-click opens or closes a group."),
    engine().bench ? null : el("p", { class: "verdict" }, "The engine was not run for this report: make it with --profile, or give it the answer of dovetail bench --profile --json with --times."),
    slow.length ? el("h2", {}, engine().bench ? "Slowest layers" : "Slowest layers that the tuner timed") : null,
    slow.length ? timeTable(slow) : null,
  ].filter(Boolean);
}

function timeTable(list) {
  const longest = Math.max(...list.map((node) => node.time_us ?? 0), 1e-9);
  return el("table", {}, el("tbody", {}, ...list.map((node) => el("tr", {},
    el("td", {}, el("b", {}, node.op), " ", layerLink(node)),
    el("td", { class: "number" }, showTime(node.time_us), el("div", { class: "meter", style: { width: `${(60 * (node.time_us ?? 0)) / longest}px`, "margin-left": "auto", background: heatColour(node.time_us, longest) } }))))));
}

function groupStory(box) {
  const leaves = leavesOf(box).sort((a, b) => (b.time_us ?? 0) - (a.time_us ?? 0));
  return [
    el("p", { class: "crumbs" }, pathText(box).slice(0, -1).join(" / ")), el("h3", {}, box.name),
    factTable([["layers", String(box.count)], ["time", box.time ? `${showTime(box.time)} (${showPercent(box.time / program().total)} of all)` : null], ["operations", showCount(sum(leaves, (node) => node.flops ?? 0) || null)]]),
    el("p", {}, el("button", { onclick: () => openGroup(box) }, "Open the group")),
    el("h2", {}, "Layers"), timeTable(leaves.slice(0, 25)),
    leaves.length > 25 ? el("p", { class: "quiet" }, `and ${leaves.length - 25} more`) : null,
  ].filter(Boolean);
}

function layerStory(node, box) {
  const all = nodes(), found = judge(node), parts = [];
  parts.push(el("p", { class: "crumbs" }, pathText(box).slice(0, -1).join(" / ") || engine().name), el("h3", {}, node.op), el("p", {}, el("code", {}, node.name)));
  const close = box.up !== view.tree.root ? el("button", { onclick: () => closeGroup(box.up) }, "Close its group") : null;
  parts.push(el("p", {}, close, " ", el("button", { onclick: (event) => copyLink(event.target) }, "Copy a link to it")));
  if (node.within >= 0) parts.push(el("p", { class: "verdict" }, "It runs within ", layerLink(all[node.within]), ", whose time has its own in it."));
  else if (found.text) parts.push(el("p", { class: "verdict" }, found.text));
  const source = { bench: "", tuner: ", as the tuner saw it" }[node.time_source] ?? "";
  parts.push(factTable([
    ["time", node.time_us == null ? null : `${showTime(node.time_us)}${source}${program().total && node.time_source === "bench" ? ` (${showPercent(node.time_us / program().total)} of all)` : ""}`],
    ["provider", node.provider], ["kind", `${{ part: "part of a partition", kernel: "kernel", plugin: "plugin layer", control: "control flow" }[node.kind] ?? node.kind}, step ${node.step}`],
    ["tactic", node.tactic], ["runs as", node.runs_as], ["operations", showCount(node.flops)], ["bytes moved", showBytes(node.bytes)],
    ["operations/s", found.flopsRate ? `${showCount(found.flopsRate)}FLOP/s` : null], ["bytes/s", found.bytesRate ? `${showBytes(found.bytesRate)}/s` : null],
    ["workspace", showBytes(node.workspace_bytes)], ["why it is there", node.reason], ["not better because", node.refusal],
  ]));
  parts.push(...tensorStory(node), ...originStory(node), ...tacticStory(node), ...placementStory(node), ...pairStory(node), ...neighbourStory(node, all));
  return parts;
}

function tensorStory(node) {
  const rows = [...node.reads.map((each) => [each.constant ? "weight" : "in", each]), ...node.makes.map((each) => ["out", each])];
  if (!rows.length) return [];
  return [el("h2", {}, "Tensors"), el("table", {}, el("tbody", {}, ...rows.map(([side, each]) => el("tr", {}, el("td", { class: "quiet" }, side), el("td", {}, each.name ? el("code", {}, each.name) : el("span", { class: "quiet" }, "inside the partition"), el("div", { class: "quiet" }, `${each.dtype} ${showShape(each.sizes)}${each.format === "LINEAR" ? "" : ` ${each.format}`}${each.memory ? ` on ${each.memory}` : ""}`))))))];
}

function originStory(node) {
  if (node.layers.length < 2 && !node.made_by) return [];
  return [el("h2", {}, node.made_by ? `Fused by ${node.made_by}` : "Made of"), el("ul", {}, ...node.layers.slice(0, 40).map((layer) => el("li", {}, el("code", {}, layer)))), node.layers.length > 40 ? el("p", { class: "quiet" }, `and ${node.layers.length - 40} more`) : ""];
}

function tacticStory(node) {
  return node.tables.flatMap((number) => {
    const table = engine().tuning[number];
    return [el("h2", {}, "Tactics timed"), table.layer !== node.name ? el("p", { class: "quiet" }, clip(table.layer, 200)) : "", tacticTable(table)];
  });
}

function tacticTable(table) {
  const longest = Math.max(...table.candidates.map((each) => each.time_us ?? 0), 1e-9);
  const body = el("tbody");
  for (const each of [...table.candidates].sort((a, b) => (b.chosen - a.chosen) || (a.time_us ?? 1e18) - (b.time_us ?? 1e18))) {
    const name = each.name || `tactic ${each.tactic}`, isBad = ["failed", "wrong", "timeout", "refused"].includes(each.status);
    const interval = each.low_us != null && each.high_us != null ? `${showTime(each.low_us)} to ${showTime(each.high_us)}, ${plural(each.rounds, "round")}` : "";
    body.append(el("tr", { class: each.chosen ? "chosen" : "" },
      el("td", {}, each.chosen ? "★ " : "", el("code", {}, name), each.formats.length ? el("div", { class: "quiet" }, each.formats.join(", ")) : ""),
      el("td", { class: "number" }, showTime(each.time_us), each.time_us == null ? "" : el("div", { class: "meter", style: { width: `${(70 * each.time_us) / longest}px`, "margin-left": "auto" } }), interval ? el("div", { class: "quiet" }, interval) : ""),
      el("td", {}, isBad ? el("span", { class: "bad" }, `✕ ${each.status}: `) : "", whyText(each))));
  }
  return el("table", { class: "narrow" }, body);
}

function refusalsOf(node) {
  const found = new Map();
  for (const layer of [node.name, ...node.layers]) for (const refusal of engine().refusalsOf.get(layer) ?? []) found.set(`${refusal.provider}\n${refusal.reason}`, refusal);
  return [...found.values()];
}

function placementStory(node) {
  const refusals = refusalsOf(node), note = [node.name, ...node.layers].map((layer) => engine().notesOf.get(layer)).find(Boolean);
  if (!refusals.length && !note) return [];
  return [el("h2", {}, "Who did not take it"), el("ul", {}, ...(refusals.length ? refusals.map((each) => el("li", {}, el("b", {}, each.provider), `: ${each.reason}`)) : [el("li", {}, note.text)]))];
}

function pairStory(node) {
  if (!node.pair) return [];
  const { here, there, hereUs, thereUs } = node.pair;
  if (!there.length) return [el("h2", {}, `In ${other().file}`), el("p", {}, "It is not there.")];
  const rows = there.slice(0, 12).map((each) => el("li", {}, el("b", {}, each.op), " ", el("code", {}, each.name), ` ${showTime(each.time_us)} on ${each.provider}`));
  const change = hereUs && thereUs ? ` ${hereUs > thereUs ? "▲ slower" : "▼ faster"} here by ${showTime(Math.abs(hereUs - thereUs))}` : "";
  return [el("h2", {}, `In ${other().file}`), el("p", {}, here.length > 1 ? `${here.length} layers here do the same work together. ` : "", hereUs && thereUs ? `${showTime(hereUs)} here, ${showTime(thereUs)} there:` : "The same work:", el("b", {}, change)), el("ul", {}, ...rows)];
}

function neighbourStory(node, all) {
  const list = (title, ids) => (ids.length ? [el("h2", {}, title), el("ul", {}, ...ids.slice(0, 12).map((id) => el("li", {}, all[id].op, " ", layerLink(all[id]))))] : []);
  return [...list(node.is_ordered ? "Runs after" : "Reads from", node.inputs), ...list(node.is_ordered ? "Runs before" : "Read by", node.outputs), ...list("In its bodies", node.bodies)];
}

async function copyLink(button) {
  writeLink();
  try { await navigator.clipboard.writeText(location.href); button.textContent = "Copied"; } catch { button.textContent = "It is in the address bar"; }
}
