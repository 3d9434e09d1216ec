// The server, asked as any client asks it.
let apiKey = sessionStorage.getItem("dovetail-key") ?? "";

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...(options.headers ?? {}), ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}) };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (!response.ok) throw new ServerError(response.status, await readError(response));
  return response;
}

async function readError(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text || `the server answered ${response.status}`;
  }
}

const askJson = async (path, options) => (await ask(path, options)).json();
const pathOf = (entry) =>
  `v2/models/${encodeURIComponent(entry.name)}${entry.version ? `/versions/${encodeURIComponent(entry.version)}` : ""}`;

async function readModels() {
  const [index, statistics] = await Promise.all([
    askJson("v2/repository/index", { method: "POST", body: "{}" }),
    askJson("v2/models/stats"),
  ]);
  const found = new Map(statistics.model_stats.map((each) => [`${each.name}\n${each.version}`, each]));
  return index.map((entry) => ({ ...entry, statistics: found.get(`${entry.name}\n${entry.version}`) }));
}

const describeModel = async (entry) => {
  const [metadata, config] = await Promise.all([askJson(pathOf(entry)), askJson(`${pathOf(entry)}/config`)]);
  return { metadata, config };
};

// A request of the binary extension: JSON first, then the bytes of inputs that have any.
async function infer(entry, inputs, outputs) {
  const texts = inputs.map(({ tensor, shape, json, bytes }) => {
    const head = `"name":${JSON.stringify(tensor.name)},"datatype":"${tensor.datatype}","shape":${JSON.stringify(shape)}`;
    return bytes ? `{${head},"parameters":{"binary_data_size":${bytes.byteLength}}}` : `{${head},"data":${json}}`;
  });
  const wanted = outputs.map((each) => ({ name: each.name, parameters: { binary_data: true } }));
  const header = new TextEncoder().encode(`{"inputs":[${texts}],"outputs":${JSON.stringify(wanted)}}`);
  const body = new Blob([header, ...inputs.filter((each) => each.bytes).map((each) => each.bytes)]);
  const headers = { "Inference-Header-Content-Length": String(header.byteLength) };
  const start = performance.now();
  const response = await ask(`${pathOf(entry)}/infer`, { method: "POST", body, headers });
  const data = await response.arrayBuffer();
  const elapsedNs = (performance.now() - start) * 1e6;
  const length = Number(response.headers.get("Inference-Header-Content-Length") ?? data.byteLength);
  const answer = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 0, length)));
  let offset = length;
  for (const output of answer.outputs) {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) output.values = output.data.flat(Infinity);
    else {
      output.values = decode(output.datatype, data.slice(offset, offset + size));
      offset += size;
    }
  }
  return { outputs: answer.outputs, elapsedNs };
}
