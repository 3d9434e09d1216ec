// Charts on a canvas with a tip under the pointer.

function chart(place, drawOn, findAt) {
  const holder = el("div", { class: "chart" }), target = el("canvas"), tip = el("div", { class: "tip", hidden: "" });
  holder.append(target, tip);
  place.append(holder);
  const context = target.getContext("2d");
  const paint = () => { resize(target, context); drawOn(context, target.clientWidth, target.clientHeight); };
  target.addEventListener("pointermove", (event) => {
    const area = target.getBoundingClientRect(), found = findAt(event.clientX - area.left, event.clientY - area.top);
    tip.hidden = !found;
    target.style.setProperty("cursor", found?.node ? "pointer" : "");
    if (!found) return;
    tip.replaceChildren(...found.lines.map((line, i) => el("div", i ? { class: "quiet" } : {}, line)));
    const x = event.clientX - area.left, y = event.clientY - area.top;
    tip.style.setProperty("left", `${Math.min(x + 12, Math.max(0, target.clientWidth - tip.offsetWidth - 4))}px`);
    tip.style.setProperty("top", `${Math.max(0, Math.min(y + 12, target.clientHeight - tip.offsetHeight))}px`);
  });
  target.addEventListener("pointerleave", () => { tip.hidden = true; });
  target.addEventListener("click", (event) => { const area = target.getBoundingClientRect(), found = findAt(event.clientX - area.left, event.clientY - area.top); if (found?.node) goTo(found.node); });
  const watch = new ResizeObserver(paint);
  watch.observe(holder);
  panelCleanups.push(() => watch.disconnect());
  panelPaints.push(paint);
}

/** What lies in an arena over the steps of a run. */
function memoryChart(place, blocks, arenaBytes, numSteps) {
  const margin = { left: 66, right: 12, top: 10, bottom: 24 };
  let toX, toY, size;
  const live = new Array(numSteps + 1).fill(0);
  for (const block of blocks) for (let s = block.first; s <= Math.min(block.last, numSteps); s++) live[s] += block.bytes;
  const drawOn = (context, width, height) => {
    size = { width, height };
    toX = (s) => margin.left + ((width - margin.left - margin.right) * s) / (numSteps + 1);
    toY = (bytes) => height - margin.bottom - ((height - margin.top - margin.bottom) * bytes) / arenaBytes;
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui"; context.fillStyle = cssColour("--quiet"); context.strokeStyle = cssColour("--line");
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const y = toY(arenaBytes * share);
      context.beginPath(); context.moveTo(margin.left, y); context.lineTo(width - margin.right, y); context.stroke();
      context.textAlign = "right"; context.fillText(showBytes(arenaBytes * share), margin.left - 6, y + 4);
    }
    blocks.forEach((block, i) => {
      const top = toY(block.offset + block.bytes), x = toX(block.first);
      context.fillStyle = block.name.startsWith("workspace of ") ? OTHER : CATEGORIES[i % 7];
      context.globalAlpha = isDark() ? 0.75 : 0.85;
      context.fillRect(x, top, Math.max(1.5, toX(block.last + 1) - x - 0.5), Math.max(1.5, toY(block.offset) - top - 0.5));
    });
    context.globalAlpha = 1;
    context.strokeStyle = cssColour("--text"); context.lineWidth = 1.5; context.beginPath();
    live.forEach((bytes, s) => { context.lineTo(toX(s), toY(bytes)); context.lineTo(toX(s + 1), toY(bytes)); });
    context.stroke(); context.lineWidth = 1;
    context.fillStyle = cssColour("--quiet"); context.textAlign = "left"; context.fillText("step 0", margin.left, height - 7);
    context.textAlign = "right"; context.fillText(`step ${numSteps}`, width - margin.right, height - 7);
  };
  const findAt = (x, y) => {
    const at = ((x - margin.left) / (size.width - margin.left - margin.right)) * (numSteps + 1), bytes = ((size.height - margin.bottom - y) / (size.height - margin.top - margin.bottom)) * arenaBytes;
    if (at < 0 || at > numSteps + 1) return null;
    const block = blocks.find((each) => at >= each.first && at <= each.last + 1 && bytes >= each.offset && bytes < each.offset + each.bytes);
    const stepLine = `step ${Math.floor(at)}: ${showBytes(live[Math.floor(at)])} in use`;
    if (!block) return { lines: [stepLine] };
    const node = nodes().find((each) => each.makes.some((value) => value.name === block.name)) ?? nodes().find((each) => each.step === block.first);
    return { node, lines: [clip(block.name, 120), `${showBytes(block.bytes)} at ${block.offset.toLocaleString("en")}`, block.last >= numSteps ? `from step ${block.first} until the end` : `steps ${block.first} to ${block.last}`, stepLine] };
  };
  chart(place, drawOn, findAt);
  return Math.max(...live);
}

/** Operations a second over operations a byte, under the roof of what the device can do. */
function rooflineChart(place, points, roofs) {
  const margin = { left: 78, right: 16, top: 12, bottom: 30 };
  const xs = points.map((each) => each.intensity), ys = points.map((each) => each.rate);
  const low = { x: Math.floor(Math.log10(Math.min(0.1, ...xs))), y: Math.floor(Math.log10(Math.min(...ys))) };
  const high = { x: Math.ceil(Math.log10(Math.max(100, ...xs))), y: Math.ceil(Math.log10(Math.max(...ys, ...roofs.map((roof) => roof.flops))) + 0.05) };
  const longest = Math.max(...points.map((each) => each.node.time_us));
  let toX, toY;
  const radius = (node) => 3.5 + 9 * Math.sqrt(node.time_us / longest);
  const drawOn = (context, width, height) => {
    toX = (v) => margin.left + ((width - margin.left - margin.right) * (Math.log10(v) - low.x)) / (high.x - low.x);
    toY = (v) => height - margin.bottom - ((height - margin.top - margin.bottom) * (Math.log10(v) - low.y)) / (high.y - low.y);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui"; context.strokeStyle = cssColour("--line"); context.fillStyle = cssColour("--quiet");
    for (let e = low.x; e <= high.x; e++) { context.beginPath(); context.moveTo(toX(10 ** e), margin.top); context.lineTo(toX(10 ** e), height - margin.bottom); context.stroke(); context.textAlign = "center"; context.fillText(`${10 ** e}`, toX(10 ** e), height - margin.bottom + 13); }
    for (let e = low.y; e <= high.y; e++) { context.beginPath(); context.moveTo(margin.left, toY(10 ** e)); context.lineTo(width - margin.right, toY(10 ** e)); context.stroke(); context.textAlign = "right"; context.fillText(`${showCount(10 ** e)}FLOP/s`, margin.left - 6, toY(10 ** e) + 4); }
    context.textAlign = "right"; context.fillText("operations a byte →", width - margin.right, height - 4);
    context.save(); context.beginPath(); context.rect(margin.left, margin.top, width - margin.left - margin.right, height - margin.top - margin.bottom); context.clip();
    for (const roof of roofs) {
      context.strokeStyle = roof.colour; context.lineWidth = 2; context.setLineDash(roof.isMeasured ? [] : [5, 4]); context.beginPath();
      for (let e = low.x; e <= high.x + 0.01; e += 0.02) context.lineTo(toX(10 ** e), toY(Math.min(roof.flops, roof.bytes * 10 ** e)));
      context.stroke();
    }
    context.setLineDash([]); context.lineWidth = 1; context.restore();
    for (const { node, intensity, rate } of points) {
      context.fillStyle = providerColour(node.provider); context.globalAlpha = 0.7; context.strokeStyle = state.selected?.leaf === node ? cssColour("--accent") : cssColour("--card");
      context.lineWidth = state.selected?.leaf === node ? 3 : 1;
      context.beginPath(); context.arc(toX(intensity), toY(rate), radius(node), 0, 7); context.fill(); context.stroke();
    }
    context.globalAlpha = 1;
  };
  const findAt = (x, y) => {
    const near = points.map((each) => [each, Math.hypot(toX(each.intensity) - x, toY(each.rate) - y) - radius(each.node)]).filter(([, away]) => away < 4).sort((a, b) => a[1] - b[1])[0]?.[0];
    return near ? { node: near.node, lines: [clip(near.node.name, 100), `${near.node.op} on ${near.node.provider}: ${showTime(near.node.time_us)}`, `${showCount(near.rate)}FLOP/s at ${near.intensity.toFixed(2)} operations a byte`] } : null;
  };
  chart(place, drawOn, findAt);
}
