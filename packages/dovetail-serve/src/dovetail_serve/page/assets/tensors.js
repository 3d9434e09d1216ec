// Numbers as bytes of each type, and back.
const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array,
  INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, INT64: BigInt64Array, FP32: Float32Array, FP64: Float64Array,
  FP16: Uint16Array, BF16: Uint16Array,
};
const FLOATS = new Set(["FP16", "BF16", "FP32", "FP64"]);
const scratch = new DataView(new ArrayBuffer(4));

function toBf16(value) {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(value)) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBf16(bits) {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

function toFp16(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | roundEven(size * 2 ** 24);
  const power = Math.min(15, Math.floor(Math.log2(size)));
  return sign | ((power + 14) * 1024 + roundEven((size / 2 ** power) * 1024));
}

function roundEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2) ? floor + 1 : floor;
}

function fromFp16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const power = (bits >>> 10) & 31;
  const part = bits & 1023;
  if (power === 31) return part ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : part * 2 ** -24);
}

function encode(datatype, values) {
  const Kind = ARRAYS[datatype];
  if (Kind === BigInt64Array || Kind === BigUint64Array) return Kind.from(values, (value) => BigInt(Math.trunc(value))).buffer;
  if (datatype === "FP16") return Kind.from(values, toFp16).buffer;
  if (datatype === "BF16") return Kind.from(values, toBf16).buffer;
  return Kind.from(values, Number).buffer;
}

function decode(datatype, buffer) {
  if (datatype === "BYTES") return decodeStrings(buffer);
  const values = Array.from(new ARRAYS[datatype](buffer));
  if (datatype === "FP16") return values.map(fromFp16);
  if (datatype === "BF16") return values.map(fromBf16);
  return datatype === "BOOL" ? values.map(Boolean) : values;
}

function decodeStrings(buffer) {
  const view = new DataView(buffer);
  const found = [];
  for (let offset = 0; offset < buffer.byteLength; ) {
    const size = view.getUint32(offset, true);
    found.push(new TextDecoder().decode(new Uint8Array(buffer, offset + 4, size)));
    offset += 4 + size;
  }
  return found;
}

const count = (shape) => shape.reduce((product, size) => product * size, 1);

// The shape of nested lists; null where they are ragged.
function shapeOf(value) {
  if (!Array.isArray(value)) return [];
  const inner = value.map(shapeOf);
  const first = inner[0] ?? [];
  const isEven = inner.every((each) => each !== null && String(each) === String(first));
  return isEven ? [value.length, ...first] : null;
}
