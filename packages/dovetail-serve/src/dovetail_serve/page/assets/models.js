// The list of models, and what is known of the one that was chosen.
const mean = (duration) => (duration?.count ? duration.ns / duration.count : NaN);

function showModels(models, chosen, choose) {
  $("models").replaceChildren(...models.map((entry) => showEntry(entry, chosen, choose)));
  if (!models.length) $("models").append(row(["there is no model in the repository"]));
}

function showEntry(entry, chosen, choose) {
  const times = entry.statistics?.inference_stats;
  const name = make("button", { className: "name", textContent: entry.name, onclick: () => choose(entry) });
  name.setAttribute("aria-pressed", String(isSame(entry, chosen)));
  const state = make("span", { className: `state ${stateClass(entry.state)}`, textContent: entry.state });
  const runs = entry.statistics?.execution_count ?? 0;
  const failed = times ? times.fail.count + entry.statistics.rejected + entry.statistics.timed_out : "-";
  const compute = times ? mean(times.compute_input) + mean(times.compute_infer) + mean(times.compute_output) : NaN;
  const cells = [
    name, entry.version, make("div", {}, state, entry.reason ? make("div", { className: "problem", textContent: entry.reason }) : null),
    String(times?.success.count ?? "-"), String(failed), showTime(mean(times?.queue)), showTime(compute),
    showTime(mean(times?.success)), runs ? (entry.statistics.inference_count / runs).toFixed(1) : "-",
    String(entry.statistics?.queue_size ?? "-"),
  ];
  return row(cells, "td", 3);
}

const isSame = (one, other) => one && other && one.name === other.name && one.version === other.version;
const stateClass = (state) => (/^[A-Z]+$/.test(state) ? state : "UNAVAILABLE");

function showTensors(title, tensors) {
  const rows = tensors.map((each) => [each.name, each.datatype, showShape(each.shape)]);
  return [make("h3", { textContent: title }), table(["name", "type", "shape"], rows)];
}

function showConfig(config, statistics) {
  const policy = config.dynamic_batching?.default_queue_policy;
  const facts = [
    ["instances", config.instance_group?.[0]?.count ?? 1],
    ["largest batch", config.max_batch_size || "requests run one by one"],
    ["waits for others", config.dynamic_batching ? `${config.dynamic_batching.max_queue_delay_microseconds} \u00b5s` : "no"],
    ["longest queue", policy?.max_queue_size ?? "-"],
    ["batching", statistics?.batching || "-"],
    ...Object.entries(config.parameters ?? {}).filter(([name]) => !["batching", "executor"].includes(name))
      .map(([name, value]) => [name.replaceAll("_", " "), value.string_value]),
  ];
  const rows = facts.map((fact) => row(fact.map(String)));
  return [make("h3", { textContent: "How it is served" }), make("table", {}, make("tbody", {}, ...rows))];
}
