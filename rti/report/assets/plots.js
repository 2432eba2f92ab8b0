// Lines with bands, and bars, by uPlot.
const HEIGHT = 280;
// Distances of ticks where halves make no sense: steps, tokens, counts.
const WHOLE = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

// A uPlot in a figure, as wide as its place, redrawn when the theme changes.
function mount(options, columns, { caption, legend, reading, numbers }) {
  const place = el("div", { class: "plot", role: "img", "aria-label": caption });
  const figure = el("figure", {}, legend, place, reading, numbers);
  const width = () => Math.max(240, place.clientWidth);
  let drawn = null;
  new ResizeObserver(() => {
    if (!place.clientWidth) return;
    if (drawn) drawn.setSize({ width: width(), height: HEIGHT });
    else drawn = new uPlot({ ...options, width: width(), height: HEIGHT }, columns, place);
  }).observe(place);
  themed.push(() => drawn && drawn.redraw(false, true));
  return { figure, plot: () => drawn };
}

function axis(more) {
  const base = {
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--grid"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
    labelSize: 20,
    labelGap: 2,
  };
  return { ...base, ...more };
}

// The value at `index`, or the nearest one that the line has.
function nearest(values, index) {
  for (let reach = 0; reach < values.length; reach++) {
    for (const at of [index - reach, index + reach]) {
      if (values[at] !== null && values[at] !== undefined) return at;
    }
  }
  return null;
}

// Lines over training. `y` is "share" (0 to 1) or "log".
function lineChart(spec, { caption, y, yLabel, xLabel = "steps done" }) {
  const columns = [spec.x];
  const series = [{ label: "step" }];
  const bands = [];
  const members = spec.lines.map((line) => {
    const stroke = () => css(paint(line.colour));
    const own = [series.length];
    columns.push(line.mean);
    series.push({
      label: line.label,
      stroke,
      width: line.faint ? 1 : 2,
      alpha: line.faint ? 0.5 : 1,
      dash: line.dashed ? [6, 5] : undefined,
      points: { show: line.dots, size: 6, fill: stroke },
      spanGaps: true,
    });
    if (line.low) {
      for (const edge of [line.high, line.low]) {
        own.push(series.length);
        columns.push(edge);
        series.push({
          label: "",
          stroke: "transparent",
          width: 0,
          points: { show: false },
          spanGaps: true,
        });
      }
      // Bands of many arms lie on each other: fainter, so that the lines can be seen.
      const alpha = spec.lines.length > 8 ? "0a" : "1c";
      bands.push({ series: [own[1], own[2]], fill: () => `${css(paint(line.colour))}${alpha}` });
    }
    return own;
  });
  const values = spec.lines.map(() => el("span", { class: "value" }));
  const buttons = spec.lines.map((line, i) =>
    el(
      "button",
      { type: "button", "aria-pressed": "true", on: { click: () => toggle(i) } },
      el("span", {
        class: `swatch${line.dashed ? " dashed" : ""}${line.faint ? " faint" : ""}`,
        vars: { "--colour": colour(line.colour) },
      }),
      el("span", {}, line.label || line.arm),
      values[i],
    ),
  );
  const reading = el("p", { class: "reading", "aria-hidden": "true" });
  function toggle(i) {
    const show = buttons[i].getAttribute("aria-pressed") === "false";
    buttons[i].setAttribute("aria-pressed", String(show));
    for (const index of members[i]) made.plot().setSeries(index, { show });
  }
  function read(plot) {
    const at = plot.cursor.idx;
    spec.lines.forEach((line, i) => {
      const found = at === null || at === undefined ? null : nearest(line.mean, at);
      values[i].textContent = found === null ? "" : words(line, found);
    });
    reading.textContent = at === null || at === undefined ? "" : `${amount(spec.x[at])} ${xLabel}`;
  }
  const options = {
    scales: {
      x: { time: false, range: (u, low, high) => [low, high === low ? low + 1 : high] },
      y: y === "log" ? { distr: 3, log: 10 } : { range: [-0.02, 1.02] },
    },
    axes: [
      axis({ label: xLabel, size: 28, incrs: WHOLE, values: (u, ticks) => ticks.map(amount) }),
      axis({
        label: yLabel,
        size: 46,
        values: (u, ticks) => ticks.map((t) => (t === null ? "" : amount(t))),
      }),
    ],
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false } },
    padding: [10, 14, 0, 0],
    series,
    bands,
    hooks: { setCursor: [read] },
  };
  if (y === "log") {
    options.axes[1].filter = (u, ticks) =>
      ticks.map((t) => ([1, 2, 5].includes(Number(t.toExponential()[0])) ? t : null));
  }
  const numbers = numbersOf(() => [
    [xLabel, ...spec.lines.map((line) => line.label || line.arm)],
    spec.x.map((x, i) => [amount(x), ...spec.lines.map((line) => words(line, i))]),
  ]);
  const legend = el("div", { class: "legend" }, buttons);
  const made = mount(options, columns, { caption, legend, reading, numbers });
  return made.figure;
}

function words(line, i) {
  if (line.mean[i] === null) return "";
  const band = line.low && line.low[i] !== null;
  return (
    amount(line.mean[i]) + (band ? ` (${amount(line.low[i])} to ${amount(line.high[i])})` : "")
  );
}

// The same as a table, made when it is asked for.
function numbersOf(make) {
  const details = el("details", { class: "numbers" }, el("summary", {}, "Numbers"));
  const fill = () => details.append(table(...make(), 1));
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

// Bars over bins with `edges`. `layers` are [{label, colour, counts}], the first one at the bottom;
// `marks` are [{at, words}] in the unit of the edges; `ticks` the values to write below.
function barChart({ edges, layers, marks, ticks, log }, { caption, xLabel, yLabel }) {
  const count = edges.length - 1;
  const scale = log ? Math.log : (v) => v;
  const place = (v) =>
    ((scale(v) - scale(edges[0])) / (scale(edges[count]) - scale(edges[0]))) * count - 0.5;
  const xs = Array.from({ length: count }, (_, i) => i);
  // Drawn from the tallest sum down, so that each layer covers all but its own part.
  const sums = layers.map((_, k) =>
    xs.map((i) => layers.slice(0, k + 1).reduce((s, l) => s + l.counts[i], 0)),
  );
  const order = layers.map((_, k) => k).reverse();
  const options = {
    scales: {
      x: { time: false, range: [-0.5, count - 0.5] },
      y: { range: (u, low, high) => [0, Math.max(1, high * 1.08)] },
    },
    axes: [
      axis({
        label: xLabel,
        size: 28,
        splits: () => ticks.map(place),
        values: () => ticks.map(amount),
        grid: { show: false },
      }),
      axis({
        label: yLabel,
        size: 50,
        incrs: WHOLE,
        values: (u, t) => t.map(amount),
      }),
    ],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    padding: [22, 14, 0, 0],
    series: [
      {},
      ...order.map((k) => ({
        label: layers[k].label,
        fill: () => css(paint(layers[k].colour)),
        stroke: () => css(paint(layers[k].colour)),
        width: 0,
        points: { show: false },
        paths: uPlot.paths.bars({ size: [0.9], align: 0 }),
      })),
    ],
    hooks: {
      draw: [(u) => marks.forEach((m) => mark(u, place(m.at), m.words))],
      setCursor: [read],
    },
  };
  const reading = el("p", { class: "reading", "aria-hidden": "true" });
  const bin = (i) => `${amount(edges[i])} – ${amount(edges[i + 1])}`;
  function read(u) {
    const i = u.cursor.idx;
    reading.textContent =
      i === null || i === undefined
        ? ""
        : `${bin(i)}: ${layers.map((l) => `${amount(l.counts[i])} ${l.label}`).join(", ")}`;
  }
  const legend = el(
    "div",
    { class: "legend" },
    layers.length < 2
      ? ""
      : layers.map((l) =>
          el(
            "span",
            { class: "plain" },
            el("span", { class: "swatch box", vars: { "--colour": colour(l.colour) } }),
            l.label,
          ),
        ),
  );
  const numbers = numbersOf(() => [
    [xLabel, ...layers.map((l) => l.label)],
    xs.map((i) => [bin(i), ...layers.map((l) => amount(l.counts[i]))]),
  ]);
  const columns = [xs, ...order.map((k) => sums[k])];
  return mount(options, columns, { caption, legend, reading, numbers }).figure;
}

// A vertical line with a word at its top.
function mark(u, at, text) {
  const x = Math.round(u.valToPos(at, "x", true));
  const ratio = window.devicePixelRatio || 1;
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = css("--ink");
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  ctx.fillText(text, x, bbox.top - 3 * ratio);
  ctx.restore();
}
