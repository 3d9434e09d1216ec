// What is wrong with the page that is open: one sentence for each finding.
() => {
  const WIDTH_SLACK = 1; // pixels, for rounding
  const READABLE = 3; // ratio of luminances, WCAG's lower limit for contrast
  const found = [];
  const parse = (color) => {
    const numbers = color.match(/[\d.]+(?:e-?\d+)?/g).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1 };
  };
  const blend = (above, below) => above.rgb.map((value, i) => value * above.alpha + below[i] * (1 - above.alpha));
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => blend(layer, below), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (element) => {
    const below = background(element);
    const [dark, light] = [luminance(blend(parse(getComputedStyle(element).color), below)), luminance(below)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth + WIDTH_SLACK) {
    const wide = [...document.querySelectorAll("article *")].find((e) => e.getBoundingClientRect().right > innerWidth + 1);
    found.push(`scrolls sideways: ${root.scrollWidth}, from ${wide ? wide.outerHTML.slice(0, 120) : "?"}`);
  }
  for (const image of document.images) {
    if (!image.alt.trim()) found.push(`image without alt: ${image.src}`);
    if (image.complete && !image.naturalWidth) found.push(`image that cannot be drawn: ${image.src}`);
  }
  const main = document.querySelector("article");
  if (!main || main.innerText.trim().length < 40) found.push(`no text: ${main ? main.innerText : "no article"}`);
  const seen = new Set();
  for (const part of document.querySelectorAll("article code, article code span, article p, article li, article td, article .output *")) {
    if (part.closest("svg")) continue;
    const key = `${part.tagName}.${part.className}.${part.parentElement.className}.${part.closest("pre") !== null}`;
    if (seen.has(key) || !part.textContent.trim()) continue;
    seen.add(key);
    const ratio = contrast(part);
    if (!(ratio >= READABLE)) found.push(`contrast ${ratio.toFixed(2)} of <${part.tagName.toLowerCase()} class="${part.className}"> '${part.textContent.trim().slice(0, 30)}'`);
  }
  return found;
}
