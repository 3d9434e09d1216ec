// The tabs under the graph: each fills the panel, and most can be saved as CSV.

const panelCleanups = [], panelPaints = [];
const FIRST_ROWS = 200;

/**
 * A table whose columns can be sorted.
 * Each column: name, get(row) for sorting and CSV, show(row) for the cell, isNumber.
 */
function sortedTable(file, columns, rows, options = {}) {
  let by = options.sort ?? 0, isDown = options.isDown ?? true, shown = FIRST_ROWS;
  const holder = el("div"), body = el("tbody"), head = el("tr");
  const fill = () => {
    const get = columns[by].get, sorted = [...rows].sort((a, b) => { const x = get(a), y = get(b); const order = typeof x === "number" || typeof y === "number" ? (x ?? -Infinity) - (y ?? -Infinity) : String(x ?? "").localeCompare(String(y ?? "")); return isDown ? -order : order; });
    head.replaceChildren(...columns.map((column, i) => el("th", { class: column.isNumber ? "number" : "", scope: "col", tabindex: "0", "aria-sort": i === by ? (isDown ? "descending" : "ascending") : "none", onclick: () => sortBy(i), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sortBy(i); } } }, column.name + (i === by ? (isDown ? " ▾" : " ▴") : ""))));
    body.replaceChildren(...sorted.slice(0, shown).map((row) => el("tr", { class: options.rowClass?.(row) ?? "" }, ...columns.map((column) => el("td", { class: column.isNumber ? "number" : column.class ?? "" }, column.show ? column.show(row) : String(column.get(row) ?? DASH))))));
    more.hidden = shown >= rows.length;
  };
  const sortBy = (i) => { isDown = i === by ? !isDown : !!columns[i].isNumber; by = i; fill(); };
  const more = el("button", { onclick: () => { shown = rows.length; fill(); } }, `Show all ${rows.length.toLocaleString("en")}`);
  const saved = columns.filter((column) => column.get && !column.isShape);
  const button = el("button", { onclick: () => save(`${file}.csv`, toCsv(saved.map((column) => column.name), rows.map((row) => saved.map((column) => column.get(row)))), "text/csv") }, "Save as CSV");
  holder.append(el("div", { class: "bar-row" }, options.title ?? el("span"), button), el("table", {}, el("thead", {}, head), body), more);
  fill();
  return holder;
}

const meter = (share, colour) => el("div", { class: "meter", style: { width: `${Math.max(0, Math.min(100, 100 * share))}%`, background: colour } });
const fileName = (what) => `${engine().file.replace(/\.plan$/, "").replace(/[^\w.-]+/g, "_")}_${what}`;
const emptyText = (text) => el("p", { class: "quiet" }, text);

const TABS = {
  Overview(place) {
    const timed = nodes().filter((node) => node.time_us != null && node.parent < 0), found = engine(), total = program().total;
    const byOp = groupTimes(timed, (node) => node.op), byProvider = groupTimes(timed, (node) => node.provider);
    const list = (title, groups, colour) => (groups.length ? el("div", {}, el("h2", {}, title), el("table", {}, el("tbody", {}, ...groups.slice(0, 9).map(([name, time, count]) => el("tr", {}, el("td", {}, name), el("td", { class: "number quiet" }, `${count}×`), el("td", { class: "number" }, showTime(time)), el("td", { class: "number quiet" }, showPercent(time / total)), el("td", { class: "meter-cell" }, meter(time / groups[0][1], colour?.(name)))))))) : null);
    const phases = found.phases.filter((phase) => !phase.parent), longest = Math.max(...phases.map((phase) => phase.seconds), 1e-9);
    place.append(el("div", { class: "columns" },
      list("Time by operator", byOp), list("Time by provider", byProvider, providerColour),
      el("div", {}, el("h2", {}, "The engine"), factTable([
        ["plan", `${found.file}, ${showBytes(found.size_bytes)}, ${showBytes(found.weights_bytes)} of weights`], ["made by", `${found.producer}, manifest ${found.format_version}`],
        ["shapes", found.open ? "any" : Object.entries(program().shapes).map(([name, [low, opt, high]]) => `${name} ${showShape(low)} : ${showShape(opt)} : ${showShape(high)}`).join(", ") || "fixed"],
        ["measured with", found.bench ? `${Object.entries(found.bench.inputs).map(([name, sizes]) => `${name} ${showShape(sizes)}`).join(", ")}; ${plural(found.bench.iterations, "run")}` : null],
        ...found.devices.map((device) => [device.provider, `${device.name || "device"}, version ${device.version}`]),
        ...Object.entries(found.bench?.peaks ?? {}).map(([name, peak]) => [`peak of ${name}`, `${showCount(peak.flops)}FLOP/s, ${showBytes(peak.bytes)}/s, measured`]),
        ["arenas", Object.entries(program().arenas).map(([memory, bytes]) => `${memory || "host"} ${showBytes(bytes)}`).join(", ")], ["refit", found.refittable ? `${plural(found.refittable, "weight")} can be replaced` : null]])),
      phases.length ? el("div", {}, el("h2", {}, "Build"), el("table", {}, el("tbody", {}, ...phases.map((phase) => el("tr", {}, el("td", {}, phase.name), el("td", { class: "number" }, showTime(phase.seconds * 1e6)), el("td", { class: "meter-cell" }, meter(phase.seconds / longest))))))) : null));
  },

  Layers(place) {
    const total = program().total, longest = Math.max(...nodes().map((node) => node.time_us ?? 0), 1e-9);
    place.append(sortedTable(fileName("layers"), [
      { name: "layer", get: (n) => n.name, show: (n) => layerLink(n) },
      { name: "time in µs", get: (n) => n.time_us, show: (n) => (n.within >= 0 ? "in another" : showTime(n.time_us)), isNumber: true },
      { name: "%", get: (n) => (n.time_us == null || !total ? null : (100 * n.time_us) / total), show: (n) => (n.time_us == null || !total ? DASH : ((100 * n.time_us) / total).toFixed(1)), isNumber: true },
      { name: "", get: (n) => n.time_us, show: (n) => (n.time_us ? meter(n.time_us / longest, heatColour(n.time_us, longest)) : ""), class: "meter-cell", isShape: true },
      { name: "operator", get: (n) => n.op },
      { name: "provider", get: (n) => n.provider, show: (n) => el("span", {}, el("span", { class: "swatch", style: { background: providerColour(n.provider) } }), n.provider) },
      { name: "type", get: (n) => n.dtype ?? "" }, { name: "shape", get: (n) => showShape(n.makes[0]?.sizes) },
      { name: "operations", get: (n) => n.flops, show: (n) => showCount(n.flops), isNumber: true }, { name: "bytes", get: (n) => n.bytes, show: (n) => showBytes(n.bytes), isNumber: true },
    ], nodes(), { sort: hasTimes() ? 1 : 0, isDown: hasTimes(), rowClass: (n) => (state.selected?.leaf === n ? "current" : ""), title: el("span", { class: "quiet" }, `${plural(nodes().length, "layer")} in ${plural(program().num_steps, "step")}${hasTimes() ? `, ${showTime(total)} in all` : ""}`) }));
  },

  Tactics(place) {
    const tables = engine().tuning.filter((table) => table.profile === program().profile);
    if (!tables.length) return place.append(emptyText("The tuner had nothing to choose: every layer has one way to run."));
    const rows = tables.flatMap((table) => table.candidates.map((each) => ({ table, each })));
    place.append(el("div", { class: "bar-row" }, el("span", { class: "quiet" }, `${plural(tables.length, "question")}, ${plural(rows.length, "candidate")}`), el("button", { onclick: () => save(`${fileName("tactics")}.csv`, toCsv(["layer", "tactic", "name", "formats", "time in µs", "low", "high", "rounds", "status", "chosen", "slower by %", "why"], rows.map(({ table, each }) => [table.layer, each.tactic, each.name, each.formats.join(" "), each.time_us, each.low_us, each.high_us, each.rounds, each.status, String(each.chosen), each.slower_percent, whyText(each)])), "text/csv") }, "Save as CSV")));
    tables.slice(0, FIRST_ROWS).forEach((table) => { const node = program().byName.get(table.layer); place.append(el("h2", {}, node ? layerLink(node) : clip(table.layer, 300)), tacticTable(table)); });
  },

  Placement(place) {
    const groups = groupTimes(nodes(), (node) => node.provider), total = sum(groups, ([, time]) => time), count = nodes().length;
    const share = ([, time, many]) => (total ? time / total : many / count);
    place.append(el("div", { class: "stack" }, ...groups.map((group) => el("div", { style: { width: `${100 * share(group)}%`, background: providerColour(group[0]) }, title: group[0] }))),
      el("table", { class: "narrow" }, el("tbody", {}, ...groups.map((group) => el("tr", {}, el("td", {}, el("span", { class: "swatch", style: { background: providerColour(group[0]) } }), group[0]), el("td", { class: "number" }, plural(group[2], "layer")), el("td", { class: "number" }, total ? showTime(group[1]) : ""), el("td", { class: "number" }, showPercent(share(group))))))));
    const rows = engine().refusals;
    place.append(el("h2", {}, "Who refused what, and why"));
    if (!rows.length) place.append(emptyText("No provider refused a layer, or the plan was built before plans kept it."));
    else place.append(layerGroups(fileName("refusals"), rows));
    const reasons = new Map();
    for (const note of engine().notes.filter((each) => each.layer)) { const key = `${note.provider}\n${note.text}`; if (!reasons.has(key)) reasons.set(key, { provider: note.provider, reason: note.text, layers: [] }); reasons.get(key).layers.push(note.layer); }
    if (reasons.size) place.append(el("h2", {}, "Layers that are not with the first provider"), layerGroups(fileName("placement"), [...reasons.values()]));
    const moves = nodes().filter((node) => node.reason);
    if (moves.length) place.append(el("h2", {}, "Copies, reformats and casts"), sortedTable(fileName("moves"), [{ name: "step", get: (n) => n.name, show: (n) => layerLink(n) }, { name: "kind", get: (n) => n.op }, { name: "before", get: (n) => typeText(n.reads[0]) }, { name: "after", get: (n) => typeText(n.makes[0]) }, { name: "bytes", get: (n) => n.bytes, show: (n) => showBytes(n.bytes), isNumber: true }, { name: "time in µs", get: (n) => n.time_us, show: (n) => showTime(n.time_us), isNumber: true }, { name: "why", get: (n) => n.reason }], moves, { sort: 5 }));
    const general = engine().notes.filter((note) => !note.layer);
    if (general.length) place.append(el("h2", {}, "Notes of the build"), el("ul", {}, ...general.map((note) => el("li", {}, note.text))));
  },

  Fusions(place) {
    const fused = nodes().filter((node) => node.layers.length > 1 || node.made_by);
    const passes = engine().passes;
    if (passes.length) place.append(el("div", { class: "columns" }, el("div", {}, el("h2", {}, "What passes changed"), el("table", {}, el("tbody", {}, ...passes.map((each) => el("tr", {}, el("td", {}, each.name), el("td", { class: "quiet" }, each.provider ? `for ${each.provider}` : "for all"), el("td", { class: "number" }, plural(each.changes, "change"))))))), fusionSums(fused)));
    if (!fused.length) return place.append(emptyText("Nothing was fused."));
    place.append(el("h2", {}, "Fused layers"), sortedTable(fileName("fusions"), [{ name: "layer", get: (n) => n.name, show: (n) => layerLink(n) }, { name: "operator", get: (n) => n.op }, { name: "by", get: (n) => n.made_by ?? "" }, { name: "layers", get: (n) => n.layers.length, isNumber: true }, { name: "time in µs", get: (n) => n.time_us, show: (n) => showTime(n.time_us), isNumber: true }, { name: "made of", get: (n) => n.layers.join(" "), show: (n) => el("code", {}, clip(n.layers.join("  "), 260)) }], fused, { sort: hasTimes() ? 4 : 3 }));
  },

  Memory(place) {
    const memories = Object.keys(program().arenas).filter((memory) => program().arenas[memory] > 0 && program().blocks.some((block) => block.memory === memory));
    if (!memories.length) return place.append(emptyText(engine().open ? "An open engine plans its memory when shapes are known: there is nothing to show before." : "There is no arena: nothing lives between steps of this program."));
    for (const memory of memories) {
      const blocks = program().blocks.filter((block) => block.memory === memory), arena = program().arenas[memory], holder = el("div", { class: "panel-chart" });
      const head = el("div", { class: "bar-row" });
      holder.append(head);
      place.append(holder);
      const most = memoryChart(holder, blocks, arena, program().num_steps);
      head.append(el("span", {}, el("b", {}, memory || "host"), ` arena ${showBytes(arena)}, ${showBytes(most)} in use at most (${showPercent(most / arena)}), ${plural(blocks.length, "block")} that would take ${showBytes(sum(blocks, (block) => block.bytes))} without sharing. The line is what is in use.`),
        el("button", { onclick: () => save(`${fileName("memory")}.csv`, toCsv(["name", "memory", "offset", "bytes", "first step", "last step"], blocks.map((block) => [block.name, block.memory, block.offset, block.bytes, block.first, block.last])), "text/csv") }, "Save as CSV"));
    }
  },

  Roofline(place) {
    const points = nodes().filter((node) => node.flops && node.bytes && node.time_us && node.time_source === "bench" && node.within < 0).map((node) => ({ node, intensity: node.flops / node.bytes, rate: node.flops / (node.time_us / 1e6) }));
    if (!points.length) return place.append(emptyText("No layer has a time, a number of operations and a number of bytes: make the report with --profile."));
    const roofs = engine().providers.filter((name) => peakOf(name) && points.some(({ node }) => node.provider === name)).map((name) => ({ name, ...peakOf(name), colour: providerColour(name), isMeasured: true }));
    if (!roofs.length) roofs.push({ name: "best seen here", flops: Math.max(...points.map((each) => each.rate)), bytes: Math.max(...points.map(({ node }) => node.bytes / (node.time_us / 1e6))), colour: cssColour("--quiet"), isMeasured: false });
    const holder = el("div", { class: "panel-chart" });
    holder.append(el("div", { class: "bar-row" }, el("span", {}, ...roofs.flatMap((roof) => [el("span", { class: "swatch", style: { background: roof.colour } }), `${roof.name}${roof.isMeasured ? ", measured" : ""}: ${showCount(roof.flops)}FLOP/s, ${showBytes(roof.bytes)}/s  `]), el("span", { class: "quiet" }, "A larger dot takes more time; one far below the line leaves time to gain.")), el("button", { onclick: () => save(`${fileName("roofline")}.csv`, toCsv(["layer", "operator", "provider", "operations", "bytes", "time in µs"], points.map(({ node }) => [node.name, node.op, node.provider, node.flops, node.bytes, node.time_us])), "text/csv") }, "Save as CSV")));
    place.append(holder);
    rooflineChart(holder, points, roofs);
  },

  Difference(place) {
    if (!other()) return place.append(emptyText("Give a second engine to compare with: dovetail report a.plan b.plan"));
    const pairs = program().pairs, both = pairs.filter((pair) => pair.here.length && pair.there.length), mine = pairs.filter((pair) => !pair.there.length), theirs = pairs.filter((pair) => !pair.here.length);
    const total = program().total, otherTotal = otherProgram().total;
    const change = total && otherTotal ? el("b", {}, `${engine().file} takes ${showTime(total)}, ${other().file} ${showTime(otherTotal)}: ${showRatio(total, otherTotal)}. `) : el("b", {}, "Nothing was timed in one of them: only what they consist of is compared. ");
    const cost = (pair) => pair.hereUs - pair.thereUs, most = Math.max(...pairs.map((pair) => Math.abs(cost(pair))), 1e-9);
    const names = (list, isHere) => el("span", {}, ...list.slice(0, 3).flatMap((node) => [isHere ? layerLink(node) : el("code", {}, node.name), " "]), list.length > 3 ? `and ${list.length - 3} more` : "");
    place.append(sortedTable(fileName("difference"), [
      { name: "here", get: (p) => p.here.map((n) => n.name).join(" "), show: (p) => (p.here.length ? names(p.here, true) : el("span", { class: "quiet" }, "not here")) },
      { name: "there", get: (p) => p.there.map((n) => n.name).join(" "), show: (p) => (p.there.length ? names(p.there, false) : el("span", { class: "quiet" }, "not there")) },
      { name: "µs here", get: (p) => p.hereUs, show: (p) => showTime(p.hereUs || null), isNumber: true }, { name: "µs there", get: (p) => p.thereUs, show: (p) => showTime(p.thereUs || null), isNumber: true },
      { name: "difference", get: cost, show: (p) => el("span", { class: cost(p) > 0 ? "bad" : "good" }, cost(p) ? `${cost(p) > 0 ? "▲ +" : "▼ −"}${showTime(Math.abs(cost(p)))}` : DASH), isNumber: true },
      { name: "", get: (p) => Math.abs(cost(p)), show: (p) => meter(Math.abs(cost(p)) / most, cost(p) > 0 ? toRgb(SLOWER) : toRgb(FASTER)), class: "meter-cell", isShape: true }, { name: "what changed", get: changeText },
    ], pairs, { sort: 5, title: el("span", {}, change, `${both.length} pieces of work in both, ${mine.length} only here, ${theirs.length} only there`) }));
  },
};

/** Layers that share a provider and a reason. */
function layerGroups(file, rows) {
  const which = (row) => el("span", {}, ...row.layers.slice(0, 6).flatMap((layer) => { const node = program().byName.get(layer); return [node ? layerLink(node, layer) : el("code", {}, layer), " "]; }), row.layers.length > 6 ? `and ${row.layers.length - 6} more` : "");
  return sortedTable(file, [{ name: "provider", get: (r) => r.provider }, { name: "layers", get: (r) => r.layers.length, isNumber: true }, { name: "why", get: (r) => r.reason }, { name: "which", get: (r) => r.layers.join(" "), show: which }], rows, { sort: 1 });
}

function groupTimes(list, keyOf) {
  const groups = new Map();
  for (const node of list) { const group = groups.get(keyOf(node)) ?? [keyOf(node), 0, 0]; group[1] += node.parent < 0 ? node.time_us ?? 0 : 0; group[2]++; groups.set(keyOf(node), group); }
  return [...groups.values()].sort((a, b) => b[1] - a[1] || b[2] - a[2]);
}

/** How two times compare, in percent or, where they are far apart, in how many times. */
function showRatio(here, there) {
  const sign = here < there ? "▼" : "▲", word = here < there ? "faster" : "slower", ratio = Math.max(here, there) / Math.min(here, there);
  return ratio >= 2 ? `${sign} ${ratio.toFixed(ratio < 10 ? 1 : 0)} times ${here < there ? "as fast" : "as slow"}` : `${sign} ${word} by ${showPercent(Math.abs(here / there - 1))}`;
}

const typeText = (tensor) => (tensor ? `${tensor.dtype} ${tensor.format}${tensor.memory ? ` on ${tensor.memory}` : ""}` : "");

function fusionSums(fused) {
  const groups = new Map();
  for (const node of fused) for (const by of (node.made_by || "compiled together").split(", ")) { const group = groups.get(by) ?? [by, 0, 0]; group[1]++; group[2] += node.layers.length; groups.set(by, group); }
  return el("div", {}, el("h2", {}, "What became of layers"), el("table", {}, el("tbody", {}, ...[...groups.values()].sort((a, b) => b[2] - a[2]).map(([by, count, layers]) => el("tr", {}, el("td", {}, by), el("td", { class: "number" }, `${plural(layers, "layer")} in ${count}`))))));
}

function changeText(pair) {
  if (!pair.here.length || !pair.there.length) return "";
  const all = (list, field) => [...new Set(list.map((node) => node[field]).filter(Boolean))].sort().join("+");
  const changes = ["op", "provider", "dtype", "tactic"].map((field) => [all(pair.there, field), all(pair.here, field)]).filter(([before, after]) => before !== after && before && after).map(([before, after]) => `${clip(before, 60)} → ${clip(after, 60)}`);
  return changes.join(", ");
}

function showTab(name) {
  state.tab = name;
  panelCleanups.splice(0).forEach((clean) => clean());
  panelPaints.length = 0;
  const panel = $("panel");
  panel.replaceChildren();
  panel.scrollTop = 0;
  for (const button of $("tabs").children) { const isOn = button.dataset.tab === name; button.setAttribute("aria-selected", String(isOn)); button.tabIndex = isOn ? 0 : -1; if (isOn) panel.setAttribute("aria-labelledby", button.id); }
  TABS[name](panel);
  writeLink();
}
