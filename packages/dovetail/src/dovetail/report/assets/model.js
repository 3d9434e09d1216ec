// What the report knows: engines with their programs, nodes with those before and after, and what two engines share.

const state = { engines: [], engine: 0, profile: 0, selected: null, tab: "Overview", colour: "time", grouping: "module" };

const engine = () => state.engines[state.engine];
const other = () => state.engines[1 - state.engine];
const program = () => engine().programs[Math.min(state.profile, engine().programs.length - 1)];
const otherProgram = () => other()?.programs[Math.min(state.profile, other().programs.length - 1)];
const nodes = () => program().nodes;
const hasTimes = () => program().total > 0;

async function readData() {
  const packed = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function prepareEngine(found, index) {
  found.index = index;
  for (const each of found.programs) {
    each.nodes.forEach((node, id) => {
      Object.assign(node, { id, inputs: node.inputs ?? [], outputs: [], layers: node.layers ?? [], parent: node.parent ?? -1, within: node.within ?? -1, reads: node.reads ?? [], makes: node.makes ?? [], tables: node.tables ?? [], bodies: [] });
    });
    for (const node of each.nodes) {
      for (const source of node.inputs) each.nodes[source].outputs.push(node.id);
      if (node.parent >= 0) each.nodes[node.parent].bodies.push(node.id);
    }
    // The time of control flow contains that of its bodies.
    each.total = sum(each.nodes.filter((node) => node.parent < 0), (node) => node.time_us ?? 0);
    each.byName = new Map();
    for (const node of each.nodes) if (!each.byName.has(node.name)) each.byName.set(node.name, node);
    for (const node of each.nodes) for (const layer of node.layers) if (!each.byName.has(layer)) each.byName.set(layer, node);
  }
  found.refusalsOf = new Map();
  for (const refusal of found.refusals) {
    for (const layer of refusal.layers) {
      if (!found.refusalsOf.has(layer)) found.refusalsOf.set(layer, []);
      found.refusalsOf.get(layer).push(refusal);
    }
  }
  found.notesOf = new Map(found.notes.filter((note) => note.layer).map((note) => [note.layer, note]));
  found.providers = [...new Set(found.programs.flatMap((each) => each.nodes.map((node) => node.provider)))];
}

/** Nodes of two engines that have layers in common are compared together: one may have fused what the other has not. */
function pairEngines() {
  const here = nodes(), there = otherProgram()?.nodes;
  if (!there) return;
  const up = [...Array(here.length + there.length).keys()];
  const root = (i) => { while (up[i] !== i) i = up[i] = up[up[i]]; return i; };
  const owners = new Map();
  const add = (node, offset) => {
    for (const layer of node.layers.length ? node.layers : [node.name]) {
      if (owners.has(layer)) up[root(node.id + offset)] = root(owners.get(layer));
      else owners.set(layer, node.id + offset);
    }
  };
  here.forEach((node) => add(node, 0));
  there.forEach((node) => add(node, here.length));
  const pairs = new Map();
  const pairOf = (i) => { const key = root(i); if (!pairs.has(key)) pairs.set(key, { here: [], there: [] }); return pairs.get(key); };
  here.forEach((node) => { node.pair = pairOf(node.id); node.pair.here.push(node); });
  there.forEach((node) => { node.pair = pairOf(node.id + here.length); node.pair.there.push(node); });
  for (const pair of pairs.values()) {
    pair.hereUs = sum(pair.here, (node) => node.time_us ?? 0);
    pair.thereUs = sum(pair.there, (node) => node.time_us ?? 0);
  }
  program().pairs = [...pairs.values()];
}

const providerColours = new Map();
function providerColour(name) {
  if (!providerColours.has(name)) providerColours.set(name, CATEGORIES[providerColours.size % CATEGORIES.length]);
  return providerColours.get(name);
}
const precisionColour = (dtype) => PRECISIONS[dtype] ?? OTHER;

/** The best that a provider does: what was measured, or what a layer of the engine reached beyond it. */
function peakOf(provider) {
  const measured = engine().bench?.peaks?.[provider];
  if (!measured) return null;
  const peaks = (program().peaks ??= new Map());
  if (!peaks.has(provider)) {
    const timed = nodes().filter((node) => node.provider === provider && node.time_source === "bench" && node.time_us > 0 && !node.bodies.length);
    const best = (field) => Math.max(measured[field], ...timed.map((node) => (node[field] ?? 0) / (node.time_us / 1e6)));
    peaks.set(provider, { flops: best("flops"), bytes: measured.bytes });
  }
  return peaks.get(provider);
}

/** What bounds a node, by its operations, its bytes and the best that the device does. */
function judge(node) {
  const seconds = (node.time_us ?? 0) / 1e6;
  const found = { flopsRate: seconds && node.flops ? node.flops / seconds : null, bytesRate: seconds && node.bytes ? node.bytes / seconds : null };
  const peak = peakOf(node.provider);
  if (!peak || !seconds || node.bodies.length || ["If", "Loop", "Scan"].includes(node.op) || !(node.flops || node.bytes)) return found;
  const computeShare = (found.flopsRate ?? 0) / peak.flops, memoryShare = (found.bytesRate ?? 0) / peak.bytes;
  found.share = Math.min(1, Math.max(computeShare, memoryShare)); // small tensors come from caches, which are faster than memory
  const intensity = node.flops && node.bytes ? node.flops / node.bytes : 0;
  const isCompute = intensity > peak.flops / peak.bytes;
  const best = Math.max((node.flops ?? 0) / peak.flops, (node.bytes ?? 0) / peak.bytes) * 1e6;
  found.bestUs = best;
  if (found.share >= 0.5) found.text = `Bound by ${isCompute ? "arithmetic" : "memory"}: it reaches ${showPercent(found.share)} of what the device can do. A faster kernel gains little; less work would.`;
  else if (node.time_us < 20) found.text = `Bound by the overhead of starting it: ${showTime(node.time_us)} for work of ${showTime(best)}. Fusing it with a neighbour would help.`;
  else found.text = `It reaches ${showPercent(found.share)} of what ${isCompute ? "arithmetic" : "memory"} allows: the device could do it in ${showTime(best)}. Another tactic, layout or provider may help.`;
  return found;
}

function slowerText(candidate) {
  if (candidate.chosen) return "chosen";
  return candidate.slower_percent == null ? "" : `${candidate.slower_percent >= 0 ? "slower" : "faster"} by ${Math.abs(candidate.slower_percent).toFixed(1)} %`;
}

/** Why a candidate was not chosen, or was. */
function whyText(candidate) {
  if (candidate.reason) return candidate.reason;
  if (candidate.chosen) return candidate.time_us == null ? "the only way" : "the fastest that is right";
  if (candidate.time_us != null && candidate.slower_percent != null && candidate.slower_percent < 2) return "not faster by more than the 2 % that count";
  return candidate.time_us != null ? slowerText(candidate) : "";
}
