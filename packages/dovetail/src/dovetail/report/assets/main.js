// Putting it together: controls, search, links, keys.

const KEYS = [["/", "search"], ["↑ ↓", "to what a layer reads from, or is read by"], ["← →", "along the row"], ["Enter", "open the group"], ["Backspace", "close the group around"], ["f", "fit the graph"], ["+ −", "zoom"], ["e  c", "open or close all groups"], ["1 – 8", "a tab"], ["b", "hide or show the tables"], ["Esc", "select nothing"]];

function showProgram() {
  state.profile = Math.min(state.profile, engine().programs.length - 1);
  pairEngines();
  state.selected = null;
  view.tree = makeTree(nodes(), state.grouping);
  showHead();
  rearrange();
  showStory();
  showTab(state.tab);
}

function showHead() {
  const found = engine(), latency = found.bench?.latency_ms, facts = [];
  if (latency) facts.push(["median", `${latency.median.toFixed(3)} ms`], ["p99", `${latency.p99.toFixed(3)} ms`]);
  facts.push(["steps", String(program().num_steps)], ["layers", String(nodes().length)], ["arena", showBytes(sum(Object.values(program().arenas), (bytes) => bytes))], ["plan", showBytes(found.size_bytes)], ["on", found.devices.map((device) => `${device.provider} ${device.version}`).join(", ")]);
  $("title").textContent = found.name === found.file ? found.file : `${found.name} · ${found.file}`;
  document.title = `${found.name} · Dovetail report`;
  $("facts").replaceChildren(...facts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value))));
  const select = $("profile");
  select.replaceChildren(...found.programs.map((each, i) => el("option", { value: String(i) }, `${i}: ${Object.values(each.shapes).map(([, opt]) => showShape(opt)).join(", ") || "fixed"}`)));
  select.value = String(state.profile);
  $("profile-label").hidden = found.programs.length < 2;
}

// links to what is seen

function writeLink() {
  const parts = new URLSearchParams();
  if (state.engine) parts.set("engine", String(state.engine));
  if (state.profile) parts.set("profile", String(state.profile));
  if (state.selected?.leaf) parts.set("layer", state.selected.leaf.name);
  if (state.tab !== "Overview") parts.set("tab", state.tab);
  try { history.replaceState(null, "", `#${parts}`); } catch { /* a page from a file may not be allowed to */ }
}

function readLink() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name, end) => { const value = Number(parts.get(name) ?? 0); return Number.isInteger(value) && value >= 0 && value < end ? value : 0; };
  state.engine = number("engine", state.engines.length);
  state.profile = number("profile", engine().programs.length);
  state.tab = Object.hasOwn(TABS, parts.get("tab") ?? "") ? parts.get("tab") : "Overview";
  $("engine").value = String(state.engine);
  showProgram();
  const node = program().byName.get(parts.get("layer") ?? "");
  if (node) goTo(node);
}

// search

let hitIndex = -1;
function search() {
  const text = $("query").value.trim().toLowerCase(), place = $("hits");
  matches.clear();
  hitIndex = -1;
  place.replaceChildren();
  place.hidden = !text;
  $("query").setAttribute("aria-expanded", String(!!text));
  if (text) {
    const found = nodes().filter((node) => node.name.toLowerCase().includes(text) || node.op.toLowerCase().includes(text) || node.layers.some((layer) => layer.toLowerCase().includes(text)));
    found.forEach((node) => matches.add(node.id));
    place.append(...found.slice(0, 40).map((node) => el("div", { role: "option", "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); choose(node); } }, el("b", {}, node.op), el("code", {}, node.name), el("span", { class: "quiet number" }, showTime(node.time_us)))), el("div", { class: "quiet" }, found.length ? `${found.length} found` : "Nothing found"));
    place.hits = found;
  }
  redraw();
}
function choose(node) { $("hits").hidden = true; $("query").setAttribute("aria-expanded", "false"); goTo(node); canvas.focus(); }
function moveHit(by) {
  const options = [...$("hits").querySelectorAll("[role=option]")];
  if (!options.length) return;
  hitIndex = (hitIndex + by + options.length) % options.length;
  options.forEach((option, i) => option.setAttribute("aria-selected", String(i === hitIndex)));
  options[hitIndex].scrollIntoView({ block: "nearest" });
}

// controls

function toggleTheme() {
  document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  repaint();
}
function repaint() { drawLegend(); redraw(); showStory(); showTab(state.tab); }

function setDetails(height) { document.body.style.setProperty("--details", `${Math.max(0, Math.min(innerHeight - 260, height))}px`); }

function onKey(event) {
  if (event.target === $("query")) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); moveHit(event.key === "ArrowDown" ? 1 : -1); }
    if (event.key === "Enter" && $("hits").hits?.length) choose($("hits").hits[Math.max(0, hitIndex)]);
    if (event.key === "Escape") { $("query").value = ""; search(); canvas.focus(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(event.target.tagName) || $("keys").open) return;
  const isGraph = event.target === canvas || event.target === document.body, box = state.selected;
  const actions = { "/": () => $("query").focus(), f: fit, e: () => setAllOpen(true), c: () => setAllOpen(false), "+": () => zoomBy(1.25), "=": () => zoomBy(1.25), "-": () => zoomBy(0.8), "?": showKeys, b: () => setDetails($("details").clientHeight > 20 ? 0 : 290), Escape: () => select(null) };
  if (/^[1-8]$/.test(event.key)) actions[event.key] = () => showTab(Object.keys(TABS)[Number(event.key) - 1]);
  if (isGraph) {
    for (const key of ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]) actions[key] = () => step(key);
    if (box) Object.assign(actions, { Enter: () => (box.leaf ? undefined : openGroup(box)), Backspace: () => closeGroup(box.up) });
  }
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
}

function showKeys() {
  $("keys").replaceChildren(el("h3", {}, "Keys"), el("table", { class: "facts" }, el("tbody", {}, ...KEYS.map(([key, what]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, what))))), el("p", {}, el("button", { onclick: () => $("keys").close() }, "Close")));
  $("keys").showModal();
}

function connectControls() {
  const pick = (id, change) => $(id).addEventListener("change", (event) => change(event.target.value));
  pick("colour", (value) => { state.colour = value; drawLegend(); redraw(); });
  pick("grouping", (value) => { state.grouping = value; showProgram(); });
  pick("profile", (value) => { state.profile = Number(value); showProgram(); });
  pick("engine", (value) => { state.engine = Number(value); showProgram(); });
  const press = (id, action) => $(id).addEventListener("click", action);
  press("fit", fit); press("open-all", () => setAllOpen(true)); press("close-all", () => setAllOpen(false)); press("theme", toggleTheme); press("help", showKeys);
  press("svg", () => save(`${fileName("graph")}.svg`, toSvg(), "image/svg+xml"));
  $("query").addEventListener("input", search);
  $("query").addEventListener("blur", () => { $("hits").hidden = true; });
  addEventListener("keydown", onKey);
  addEventListener("hashchange", readLink);
  colourScheme.addEventListener("change", repaint);
  const splitter = $("splitter");
  splitter.addEventListener("pointerdown", (event) => splitter.setPointerCapture(event.pointerId));
  splitter.addEventListener("pointermove", (event) => { if (event.buttons) setDetails(innerHeight - event.clientY - 4); });
  splitter.addEventListener("keydown", (event) => { if (event.key === "ArrowUp" || event.key === "ArrowDown") { event.stopPropagation(); event.preventDefault(); setDetails($("details").clientHeight + (event.key === "ArrowUp" ? 40 : -40)); } });
  $("tabs").addEventListener("keydown", (event) => {
    const names = Object.keys(TABS), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.stopPropagation();
    showTab(names[(names.indexOf(state.tab) + by + names.length) % names.length]);
    $("tabs").querySelector("[aria-selected=true]").focus();
  });
  new ResizeObserver(() => { resize(canvas, pen); resize(map, mapPen); redraw(); }).observe(canvas);
}

async function main() {
  state.engines = (await readData()).engines;
  state.engines.forEach(prepareEngine);
  state.engines.flatMap((each) => each.providers).forEach(providerColour);
  $("tabs").append(...Object.keys(TABS).map((name) => el("button", { role: "tab", id: `tab-${name}`, "data-tab": name, "aria-controls": "panel", onclick: () => showTab(name) }, name)));
  $("engine").append(...state.engines.map((each, i) => el("option", { value: String(i) }, each.file)));
  $("engine-label").hidden = state.engines.length < 2;
  if (state.engines.length < 2) $("colour").querySelector("[value=difference]").remove();
  state.colour = state.engines.some((each) => each.bench) ? "time" : "provider";
  $("colour").value = state.colour;
  resize(canvas, pen);
  resize(map, mapPen);
  connectControls();
  readLink();
  requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
}

main();
