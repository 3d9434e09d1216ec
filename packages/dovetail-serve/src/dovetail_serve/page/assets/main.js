// The page as a whole: what is shown follows the server, and the address says which model.
const REFRESH_MS = 2000;
const state = { chosen: null, shown: "" };

function readHash() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  return parameters.has("model") ? { name: parameters.get("model"), version: parameters.get("version") ?? "" } : null;
}

function choose(entry) {
  location.hash = new URLSearchParams({ model: entry.name, version: entry.version }).toString();
}

async function refresh() {
  try {
    const [server, models] = [await askJson("v2"), await readModels()];
    $("server").textContent = `${server.name} ${server.version}`;
    showProblem("");
    state.chosen = readHash();
    showModels(models, state.chosen, choose);
    await showChosen(models.find((entry) => isSame(entry, state.chosen)));
  } catch (error) {
    if (error.status === 401) askForKey();
    else showProblem(error.status ? error.message : "the server does not answer");
  }
  document.documentElement.dataset.ready = "true";
}

function showProblem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
  $("list").hidden = false;
  if (!text) $("key-form").hidden = true;
}

function askForKey() {
  if (apiKey) $("problem").textContent = "the server refused the key";
  $("problem").hidden = !apiKey;
  $("key-form").hidden = false;
  $("list").hidden = true;
  $("model").hidden = true;
  state.shown = "";
}

// What is chosen is shown anew when it is another model or state, so that a form keeps what was typed.
async function showChosen(entry) {
  const key = entry ? JSON.stringify([entry.name, entry.version, entry.state, entry.reason]) : "";
  if (key === state.shown) return;
  state.shown = key;
  const panel = $("model");
  panel.hidden = !entry;
  if (!entry) return;
  const parts = [make("h2", { textContent: `${entry.name}, version ${entry.version}` })];
  if (entry.reason) parts.push(make("p", { className: "problem", textContent: entry.reason }));
  if (entry.state === "READY") {
    const { metadata, config } = await describeModel(entry);
    parts.push(...showTensors("Inputs", metadata.inputs), ...showTensors("Outputs", metadata.outputs));
    parts.push(...showForm(entry, metadata), ...showConfig(config, entry.statistics));
  }
  panel.replaceChildren(...parts);
}

$("key-form").onsubmit = (event) => {
  event.preventDefault();
  apiKey = $("key").value.trim();
  sessionStorage.setItem("dovetail-key", apiKey);
  $("key").value = "";
  refresh();
};
addEventListener("hashchange", refresh);
setInterval(() => { if (!document.hidden && $("key-form").hidden) refresh(); }, REFRESH_MS);
refresh();
