// An image as a tensor: drawn on a canvas of the input's size, its channels scaled and put in the input's order.
function findLayout(shape) {
  const sizes = shape.length === 4 ? shape.slice(1) : shape;
  if (sizes.length !== 3) return null;
  const isChannels = (size) => [1, 3, 4].includes(size);
  if (isChannels(sizes[0])) return { name: "NCHW", channels: sizes[0], height: sizes[1], width: sizes[2] };
  if (isChannels(sizes[2])) return { name: "NHWC", channels: sizes[2], height: sizes[0], width: sizes[1] };
  return null;
}

function drawImage(canvas, image, width, height, fit) {
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const scales = [width / image.width, height / image.height];
  const scale = fit === "crop" ? Math.max(...scales) : Math.min(...scales);
  const [wide, high] = fit === "stretch" ? [width, height] : [image.width * scale, image.height * scale];
  context.fillStyle = "#000000";
  context.fillRect(0, 0, width, height);
  context.drawImage(image, (width - wide) / 2, (height - high) / 2, wide, high);
  return context.getImageData(0, 0, width, height).data;
}

function pixelsToTensor(pixels, layout, { scale, mean, std, order }) {
  const { channels, width, height } = layout;
  const area = width * height;
  const values = new Float64Array(channels * area);
  for (let pixel = 0; pixel < area; pixel++) {
    for (let channel = 0; channel < channels; channel++) {
      const value = (readChannel(pixels, pixel * 4, channel, channels, order) * scale - pick(mean, channel)) / pick(std, channel);
      values[layout.name === "NCHW" ? channel * area + pixel : pixel * channels + channel] = value;
    }
  }
  return values;
}

function readChannel(pixels, at, channel, channels, order) {
  if (channels === 1) return 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
  return pixels[at + (order === "BGR" && channel < 3 ? 2 - channel : channel)];
}

const pick = (numbers, i) => numbers[Math.min(i, numbers.length - 1)];

function readNumbers(text, what) {
  const found = text.split(/[\s,]+/).filter(Boolean).map(Number);
  if (!found.length || found.some((each) => !Number.isFinite(each))) throw new Error(`${what}: expected numbers, got "${text}"`);
  return found;
}
