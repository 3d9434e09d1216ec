// The form to try a model: each input from JSON, an image or made-up numbers, and the outputs of the last run.
const MOST_SHOWN = 100;
const MOST_TYPED = 256;

class InputField {
  constructor(tensor) {
    this.tensor = tensor;
    this.image = null;
    this.layout = findLayout(tensor.shape);
    const canDraw = this.layout && ARRAYS[tensor.datatype];
    const shape = tensor.shape.map((size, i) => (size >= 0 ? size : this.layout && i >= tensor.shape.length - 3 ? 224 : 1));
    const isSmall = count(shape) <= MOST_TYPED || tensor.datatype === "BYTES";
    const sources = ["JSON", ...(canDraw ? ["image"] : []), ...(tensor.datatype === "BYTES" ? [] : ["random", "zeros"])];
    this.source = choice(sources, canDraw ? "image" : isSmall ? "JSON" : "random");
    this.shape = make("input", { value: shape.join(", "), spellcheck: false });
    this.text = make("textarea", { value: isSmall ? sampleText(tensor.datatype, shape) : "", spellcheck: false });
    this.text.setAttribute("aria-label", `values of ${tensor.name}`);
    this.picture = new ImageField(this);
    this.source.onchange = () => this.update();
    this.element = make("fieldset", {}, make("legend", { textContent: tensor.name }),
      make("p", { className: "note", textContent: `${tensor.datatype}, ${showShape(tensor.shape)}` }),
      make("div", { className: "row" }, labelled("from", this.source), labelled("shape", this.shape)),
      this.text, this.picture.element);
    this.update();
  }

  update() {
    this.text.hidden = this.source.value !== "JSON";
    this.picture.element.hidden = this.source.value !== "image";
  }

  readShape() {
    const text = this.shape.value.trim();
    const shape = text ? readNumbers(text, `shape of ${this.tensor.name}`) : [];
    if (shape.some((size) => !Number.isInteger(size) || size < 0)) throw new Error(`shape of ${this.tensor.name}: expected whole numbers, got "${text}"`);
    return shape;
  }

  read() {
    const { tensor } = this;
    if (this.source.value === "JSON") return this.readJson();
    const shape = this.readShape();
    if (this.source.value === "image") return { tensor, shape, bytes: encode(tensor.datatype, this.picture.read(shape)) };
    const isFloat = FLOATS.has(tensor.datatype);
    const next = this.source.value === "zeros" ? () => 0 : isFloat ? () => Math.random() * 2 - 1 : () => Number(Math.random() < 0.5);
    return { tensor, shape, bytes: encode(tensor.datatype, Array.from({ length: count(shape) }, next)) };
  }

  readJson() {
    const { tensor } = this;
    let value;
    try {
      value = JSON.parse(this.text.value);
    } catch (error) {
      throw new Error(`${tensor.name}: this is no JSON: ${error.message}`);
    }
    const nested = shapeOf(value);
    if (nested === null) throw new Error(`${tensor.name}: the lists have different lengths`);
    const shape = nested.length > 1 ? nested : this.readShape();
    if (nested.length > 1) this.shape.value = nested.join(", ");
    const isHalf = tensor.datatype === "FP16" || tensor.datatype === "BF16";
    const flat = [value].flat(Infinity);
    // What was typed goes as it is: numbers of 64 bits would lose digits in JavaScript.
    return isHalf ? { tensor, shape, bytes: encode(tensor.datatype, flat) } : { tensor, shape, json: Array.isArray(value) ? this.text.value : `[${this.text.value}]` };
  }
}

class ImageField {
  constructor(field) {
    this.field = field;
    this.bitmap = null;
    this.file = make("input", { type: "file", accept: "image/*" });
    this.fit = choice(["crop", "stretch", "letterbox"]);
    this.order = choice(["RGB", "BGR"]);
    this.scale = make("input", { value: field.tensor.datatype === "UINT8" ? "1" : String((1 / 255).toFixed(8)) });
    this.mean = make("input", { value: "0" });
    this.std = make("input", { value: "1" });
    this.canvas = make("canvas");
    this.canvas.setAttribute("aria-label", "the image as the model gets it");
    this.file.onchange = () => this.open();
    this.fit.onchange = () => this.preview();
    this.element = make("div", {},
      make("div", { className: "row" }, labelled("image", this.file), labelled("fit", this.fit), labelled("colours", this.order)),
      make("div", { className: "row" }, labelled("scale", this.scale), labelled("mean", this.mean), labelled("std", this.std)),
      make("p", { className: "note", textContent: "Each value is (pixel \u00d7 scale \u2212 mean) / std; mean and std may be one number or one for each channel." }),
      this.canvas);
  }

  async open() {
    const [file] = this.file.files;
    this.bitmap = null;
    if (!file) return;
    try {
      this.bitmap = await createImageBitmap(file);
      this.preview();
    } catch {
      showOutcome(make("p", { className: "problem", textContent: `${file.name} is no image that this browser can read` }));
    }
  }

  preview() {
    if (this.bitmap) this.draw(this.field.readShape());
  }

  draw(shape) {
    const layout = findLayout(shape);
    if (!layout) throw new Error(`shape of ${this.field.tensor.name}: an image needs 1, 3 or 4 channels`);
    return { layout, pixels: drawImage(this.canvas, this.bitmap, layout.width, layout.height, this.fit.value) };
  }

  read(shape) {
    if (!this.bitmap) throw new Error(`${this.field.tensor.name}: choose an image first`);
    const { layout, pixels } = this.draw(shape);
    const [scale] = readNumbers(this.scale.value, "scale");
    const options = { scale, mean: readNumbers(this.mean.value, "mean"), std: readNumbers(this.std.value, "std"), order: this.order.value };
    const one = pixelsToTensor(pixels, layout, options);
    const copies = count(shape) / one.length;
    return copies === 1 ? one : Float64Array.from({ length: count(shape) }, (_, i) => one[i % one.length]);
  }
}

function sampleText(datatype, shape) {
  const fill = (sizes) => (sizes.length ? Array.from({ length: sizes[0] }, () => fill(sizes.slice(1))) : datatype === "BYTES" ? "text" : datatype === "BOOL" ? false : 0);
  return JSON.stringify(fill(shape));
}

function showForm(entry, metadata) {
  const fields = metadata.inputs.map((tensor) => new InputField(tensor));
  const button = make("button", { textContent: "Run", id: "run" });
  const form = make("form", { id: "try" }, ...fields.map((field) => field.element), button);
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const inputs = fields.map((field) => field.read());
      const { outputs, elapsedNs } = await infer(entry, inputs, metadata.outputs);
      showOutcome(make("p", { className: "note", textContent: `${showTime(elapsedNs)} with the way there and back` }), ...outputs.flatMap(showOutput));
    } catch (error) {
      showOutcome(make("p", { className: "problem", textContent: error.message }));
    }
    button.disabled = false;
  };
  return [make("h3", { textContent: "Try it" }), form, make("div", { id: "outcome" })];
}

function showOutcome(...children) {
  $("outcome").replaceChildren(...children);
}

function showOutput(output) {
  const shown = output.values.slice(0, MOST_SHOWN);
  const rest = output.values.length - shown.length;
  const text = shown.map((value) => (typeof value === "number" ? Number(value.toPrecision(6)) : value)).join(", ");
  const size = output.shape.at(-1);
  const isScores = FLOATS.has(output.datatype) && output.shape.length <= 2 && output.values.length === size && size > 1;
  return [
    make("h3", { textContent: `${output.name}: ${output.datatype}, ${showShape(output.shape)}` }),
    isScores ? showLargest(output.values) : null,
    make("pre", { textContent: rest > 0 ? `${text}, and ${rest} more` : text }),
  ].filter(Boolean);
}

function showLargest(values) {
  const ranked = values.map((value, i) => [i, value]).filter(([, value]) => Number.isFinite(value)).sort((a, b) => b[1] - a[1]);
  if (!ranked.length) return null;
  const [most, least] = [ranked[0][1], Math.min(ranked.at(-1)[1], 0)];
  const rows = ranked.slice(0, 5).map(([i, value]) => {
    const bar = make("meter", { min: 0, max: 1, value: most > least ? (value - least) / (most - least) : 0 });
    return [String(i), value.toPrecision(5), bar];
  });
  return table(["index", "value", ""], rows);
}
