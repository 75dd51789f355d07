// Draws the charts of the page from the figures in it. No library, nothing fetched.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const ENGINES = new Map(DATA.engines.map((engine) => [engine.name, engine]));
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "14 4", "4 2 1 2 1 2", "1 5", "12 2 2 2 2 2"];

/** An element of the drawing, with attributes and children. Text is never parsed as markup. */
function shape(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The same in HTML. */
function tag(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Three digits that matter, or whole numbers with commas: as in the tables. */
function figure(value) {
  if (value === null || !Number.isFinite(value)) return "∞";
  const size = Math.abs(value);
  if (size >= 1e12 || (size > 0 && size < 1e-7)) return value.toExponential(1);
  if (size >= 99.95 || size === 0) return Math.round(value).toLocaleString("en-US");
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.9995) return value.toFixed(2);
  return value.toFixed(Math.floor(-Math.log10(size)) + 3);
}

/** A tick of an axis: 20k, 1.5M. */
function brief(value) {
  const size = Math.abs(value);
  const trim = (number) => String(Number(number.toPrecision(3)));
  if (size >= 1e9) return trim(value / 1e9) + "G";
  if (size >= 1e6) return trim(value / 1e6) + "M";
  if (size >= 1e3) return trim(value / 1e3) + "k";
  return trim(value);
}

/** Microseconds as µs, ms or s. */
function duration(us) {
  if (us >= 1e6) return Number((us / 1e6).toPrecision(3)) + " s";
  if (us >= 1e3) return Number((us / 1e3).toPrecision(3)) + " ms";
  return Number(us.toPrecision(3)) + " µs";
}

const colourOf = (engine) => ENGINES.get(engine)?.colour ?? 11;

/** The marker of an engine at a place: each colour has a form of its own too. */
function marker(colour, x, y, r, attributes) {
  const at = (...points) => "M" + points.map(([dx, dy]) => `${x + dx * r},${y + dy * r}`).join("L") + "Z";
  const forms = [
    () => shape("circle", { cx: x, cy: y, r, ...attributes }),
    () => shape("path", { d: at([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]), ...attributes }),
    () => shape("path", { d: at([0, -1.2], [1.1, 0.8], [-1.1, 0.8]), ...attributes }),
    () => shape("path", { d: at([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]), ...attributes }),
    () => shape("path", { d: at([0, 1.2], [1.1, -0.8], [-1.1, -0.8]), ...attributes }),
    () => shape("path", { d: at([-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]), ...attributes }),
    () => shape("path", { d: at([-1.1, 0], [-0.55, -1], [0.55, -1], [1.1, 0], [0.55, 1], [-0.55, 1]), ...attributes }),
    () => shape("path", { d: at([-1.2, -0.5], [1.2, -0.5], [1.2, 0.5], [-1.2, 0.5]), ...attributes }),
    () => shape("path", { d: at([-0.5, -1.2], [0.5, -1.2], [0.5, 1.2], [-0.5, 1.2]), ...attributes }),
    () => shape("path", { d: at([-1, -1], [0, -0.4], [1, -1], [0.4, 0], [1, 1], [0, 0.4], [-1, 1], [-0.4, 0]), ...attributes }),
    () => shape("path", { d: at([0.8, -1.1], [0.8, 1.1], [-1.1, 0]), ...attributes }),
    () => shape("path", { d: at([-0.8, -1.1], [-0.8, 1.1], [1.1, 0]), ...attributes }),
  ];
  return forms[colour % forms.length]();
}

/** The series of a chart whose engines are shown, each with its colour and dash. */
function shownSeries(chart, hidden) {
  const seen = new Map();
  return chart.series.map((series) => {
    const number = seen.get(series.engine) ?? 0;
    seen.set(series.engine, number + 1);
    return { ...series, colour: colourOf(series.engine), dash: DASHES[number % DASHES.length] };
  }).filter((series) => !hidden.has(series.engine));
}

const shownGhosts = (chart, hidden) => chart.published.filter((ghost) => !hidden.has(ghost.engine))
  .map((ghost) => ({ ...ghost, colour: colourOf(ghost.engine) }));

/** An axis from values to places. Logarithmic axes leave out what is not above nought. */
function scale(values, from, to, logarithmic, fromNought) {
  const usable = values.filter((value) => Number.isFinite(value) && (!logarithmic || value > 0));
  let low = Math.min(...usable), high = Math.max(...usable);
  if (!usable.length) [low, high] = logarithmic ? [1, 10] : [0, 1];
  if (fromNought && !logarithmic) low = Math.min(0, low);
  const ticks = [];
  if (logarithmic) {
    const [first, last] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
    const stride = Math.ceil(Math.max(1, last - first) / 7);
    // A whole number of strides, so that the axis ends with a tick.
    const decades = stride * Math.ceil(Math.max(1, last - first) / stride);
    low = 10 ** first; high = 10 ** (first + decades);
    const steps = decades <= 2 ? [1, 2, 5] : [1];
    for (let power = first; power <= first + decades; power += stride) {
      for (const step of steps) if (step * 10 ** power <= high * 1.0001) ticks.push(step * 10 ** power);
    }
  } else {
    if (high === low) high = low + 1;
    const rough = (high - low) / 5;
    const base = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * base).find((s) => s >= rough);
    low = Math.floor(low / step) * step; high = Math.ceil(high / step - 1e-9) * step;
    for (let tick = low; tick <= high + step / 2; tick += step) ticks.push(Number(tick.toPrecision(12)));
  }
  const map = logarithmic ? Math.log10 : (value) => value;
  const place = (value) => from + (to - from) * (map(value) - map(low)) / (map(high) - map(low));
  return { place, ticks, low, high, shows: (value) => Number.isFinite(value) && (!logarithmic || value > 0) };
}

/** Which of some places in order bear a text beside each other: the first and the last always, others where there is room. */
function labelled(places) {
  const last = places.length - 1, shown = [];
  const room = (a, b) => Math.abs(b.at - a.at) >= 8 + 3.5 * (a.text.length + b.text.length);
  places.forEach((place, i) => {
    if (i === last) {
      while (shown.length > 1 && !room(shown.at(-1), place)) shown.pop();
      shown.push(place);
    } else if (!shown.length || room(shown.at(-1), place)) shown.push(place);
  });
  return shown;
}

/** What a tooltip says of a place. */
function says(chart, series, place) {
  const time = chart.metric === "latency";
  const lines = [];
  if (place.value) {
    lines.push(["big", `${figure(place.value.median)} ${time ? "µs (p99)" : chart.unit}`]);
    if (place.value.trials > 1) lines.push(["soft", `${figure(place.value.low)} to ${figure(place.value.high)}, ${place.value.trials} trials`]);
    else lines.push(["soft", "one trial"]);
  } else {
    lines.push(["bad", { failed: "failed", "not-applicable": "not applicable" }[place.state] ?? "not measured"]);
  }
  if (place.unranked && place.value) lines.push(["bad", `not ranked: ${place.unranked}`]);
  if (place.stolen !== null) lines.push(["bad", `disturbed: others got up to ${figure(100 * place.stolen)} % of the processor`]);
  if (place.why) lines.push(["soft", place.why]);
  if (place.saturated) lines.push(["bad", "saturated: less was done than was due"]);
  const x = typeof place.x === "number" ? `${chart.x_title} ${place.x}` : place.x;
  return { title: series.label, under: x, lines };
}

const ghostSays = (chart, ghost, x, value) => ({
  title: ghost.label, under: `published · ${typeof x === "number" ? `${chart.x_title} ${x}` : x}`,
  lines: [["big", `${figure(value)} ${chart.unit}`]],
});

function frame(width, height, chart) {
  const label = `${chart.title}, ${chart.unit}. The table below holds all its figures.`;
  return shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

/** The vertical axis: lines and their figures. */
function verticalAxis(svg, axis, left, right, text) {
  for (const tick of axis.ticks) {
    const y = axis.place(tick);
    svg.append(shape("line", { class: "gridline", x1: left, x2: right, y1: y, y2: y }));
    svg.append(shape("text", { class: "soft tick", x: left - 6, y: y + 4, "text-anchor": "end" }, text(tick)));
  }
}

function whisker(svg, x, axis, value, engine, kind) {
  if (value.trials < 2 || !axis.shows(value.low) || value.high === value.low) return;
  const [high, low] = [axis.place(value.high), axis.place(value.low)];
  svg.append(shape("path", { class: kind, "data-engine": engine, d: `M${x - 3},${high}h6M${x},${high}V${low}M${x - 3},${low}h6` }));
}

/** The horizontal axis of a line chart: logarithmic where the numbers ask for it. */
function numbersAxis(svg, xs, left, right, bottom) {
  const numbers = xs.filter((x) => typeof x === "number");
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const logarithmic = low > 0 && high / low >= 16;
  const map = logarithmic ? Math.log : (value) => value;
  const inner = [left + 10, right - 10];
  const place = (x) => (high === low ? (left + right) / 2 : inner[0] + (inner[1] - inner[0]) * (map(x) - map(low)) / (map(high) - map(low)));
  const places = [...numbers].sort((a, b) => a - b).map((x) => ({ at: place(x), text: brief(x) }));
  for (const { at, text } of labelled(places)) {
    svg.append(shape("text", { class: "soft tick", x: at, y: bottom + 16, "text-anchor": "middle" }, text));
  }
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  return place;
}

/** Lines over a number. Gives the places that a tooltip can speak of. */
function drawLines(chart, box, width, logarithmic, hidden) {
  const height = Math.round(Math.min(340, Math.max(230, width * 0.56)));
  const [left, right, top, bottom] = [52, width - 14, 10, height - 38];
  const svg = frame(width, height, chart), hits = [];
  const series = shownSeries(chart, hidden), ghosts = shownGhosts(chart, hidden);
  const values = series.flatMap((s) => s.places.flatMap((p) => (p.value ? [p.value.low, p.value.high] : [])));
  const axis = scale(values.concat(ghosts.flatMap((g) => g.points.map(([, value]) => value))), bottom, top, logarithmic, true);
  verticalAxis(svg, axis, left, right, brief);
  const x = numbersAxis(svg, chart.xs, left, right, bottom);
  svg.append(shape("text", { class: "soft", x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, chart.x_title));
  const path = (points) => points.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`).join("");
  for (const ghost of ghosts) {
    const points = ghost.points.filter(([at, v]) => typeof at === "number" && axis.shows(v));
    const group = shape("g", { class: `ghost c${ghost.colour}`, "data-engine": ghost.engine });
    group.append(shape("path", { class: "line", d: path(points.map(([at, v]) => [x(at), axis.place(v)])) }));
    for (const [at, v] of points) {
      group.append(marker(ghost.colour, x(at), axis.place(v), 4, { class: "symbol" }));
      hits.push({ x: x(at), y: axis.place(v), says: ghostSays(chart, ghost, at, v) });
    }
    svg.append(group);
  }
  for (const line of series) {
    const group = shape("g", { class: `series c${line.colour}`, "data-engine": line.engine });
    const places = line.places.filter((p) => typeof p.x === "number").sort((a, b) => a.x - b.x);
    const points = places.filter((p) => p.value && axis.shows(p.value.median));
    group.append(shape("path", { class: "line", "stroke-dasharray": line.dash, d: path(points.map((p) => [x(p.x), axis.place(p.value.median)])) }));
    for (const place of points) whisker(group, x(place.x), axis, place.value, line.engine, "whisker");
    for (const place of places) {
      const at = x(place.x);
      const y = points.includes(place) ? axis.place(place.value.median) : bottom;
      if (points.includes(place)) {
        const hollow = place.unranked || place.saturated ? " hollow" : "";
        group.append(marker(line.colour, at, y, 4, { class: `mark symbol${hollow}`, "data-engine": line.engine, "data-x": place.x }));
      } else if (place.state === "failed") {
        group.append(shape("path", { class: "cross", d: `M${at - 4},${y - 4}l8,8M${at - 4},${y + 4}l8,-8` }));
      }
      hits.push({ x: at, y, says: says(chart, line, place) });
    }
    svg.append(group);
  }
  box.append(svg);
  return { svg, hits };
}

/** The rows of a bar chart: a heading for each category, then a bar for each series, its ghost behind it. */
function barRows(chart, hidden) {
  const rows = [], ghosts = shownGhosts(chart, hidden), series = shownSeries(chart, hidden);
  for (const x of chart.xs) {
    const bars = [];
    series.forEach((line, i) => {
      const place = line.places.find((p) => p.x === x);
      if (place || line.absent) bars.push({ line, place });
      const lastOfEngine = !series.slice(i + 1).some((other) => other.engine === line.engine);
      for (const ghost of lastOfEngine ? ghosts.filter((g) => g.engine === line.engine) : []) {
        const point = ghost.points.find(([at]) => at === x);
        if (point) bars.push({ ghost, value: point[1] });
      }
    });
    if (bars.length) rows.push({ heading: typeof x === "number" ? `${chart.x_title} ${x}` : x, x }, ...bars);
  }
  return rows;
}

function shortened(text, pixels) {
  const most = Math.max(4, Math.floor(pixels / 6.4));
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

/** Groups of bars, lying, so that names can be read. A bar begins at nought, which a logarithmic axis has not: there a
 *  symbol stands at the figure instead. */
function drawBars(chart, box, width, logarithmic, hidden) {
  const rows = barRows(chart, hidden);
  const stacked = width < 520, one = chart.xs.length === 1;
  const step = stacked ? 35 : 21;
  const all = rows.flatMap((row) => (row.ghost ? [row.value] : row.place?.value ? [row.place.value.low, row.place.value.high] : []));
  const names = rows.map((row) => (row.line ?? row.ghost)?.label.length ?? 0);
  const left = stacked ? 4 : Math.min(width * 0.38, 16 + 6.5 * Math.max(4, ...names));
  const right = width - 84;
  const positive = all.filter((value) => value > 0);
  const axis = scale(positive.length ? all : [1], left, right, logarithmic && positive.length > 0, true);
  let y = 4;
  for (const row of rows) {
    if (row.heading && one) { row.y = y; continue; }
    row.y = y + (row.heading && y > 4 ? 8 : 0);
    y = row.y + (row.heading ? 22 : step);
  }
  const svg = frame(width, y + 22, chart), hits = [];
  const ticks = axis.ticks.map((tick) => ({ at: axis.place(tick), text: brief(tick) }));
  for (const { at } of ticks) svg.append(shape("line", { class: "gridline", x1: at, x2: at, y1: 2, y2: y + 4 }));
  for (const { at, text } of labelled(ticks)) {
    svg.append(shape("text", { class: "soft tick", x: at, y: y + 18, "text-anchor": "middle" }, text));
  }
  let category = null;
  for (const row of rows) {
    if (row.heading) {
      category = row.x;
      if (!one) svg.append(shape("text", { class: "head", x: stacked ? 4 : 0, y: row.y + 15 }, shortened(row.heading, width)));
      continue;
    }
    drawBar(svg, hits, chart, category, row, { axis, left, right, stacked, width, symbols: logarithmic && positive.length > 0 });
  }
  box.append(svg);
  return { svg, hits, byRow: step };
}

function drawBar(svg, hits, chart, category, row, { axis, left, right, stacked, width, symbols }) {
  const line = row.line ?? row.ghost, value = row.ghost ? row.value : row.place?.value?.median;
  const top = row.y + (stacked ? 17 : 3), tall = stacked ? 13 : 14;
  const group = shape("g", { class: `${row.ghost ? "ghost" : "series"} c${line.colour}`, "data-engine": line.engine });
  const room = stacked ? width : left - 12;
  const label = shape("text", { class: row.ghost ? "soft" : "", x: stacked ? 4 : left - 8, y: stacked ? row.y + 13 : top + 11, "text-anchor": stacked ? "start" : "end" }, shortened(line.label, room));
  group.append(label);
  const end = value !== undefined && axis.shows(value) ? Math.max(axis.place(value), left + 1) : left;
  const hollow = row.place?.unranked ? " hollow" : "";
  if (symbols && value !== undefined && axis.shows(value)) {
    const own = row.ghost ? { class: "symbol" } : { class: `mark symbol${hollow}`, "data-engine": line.engine, "data-x": category };
    group.append(marker(line.colour, end, top + tall / 2, 4.5, own));
  } else if (!symbols && value !== undefined && value !== null) {
    const kind = row.ghost ? "bar" : `mark bar${hollow}`;
    group.append(shape("rect", { class: kind, x: left, y: top, width: end - left, height: tall, rx: 2, "data-engine": line.engine, "data-x": category }));
  }
  const interval = row.place?.value;
  let past = end;
  if (interval && interval.trials > 1 && axis.shows(interval.low) && interval.high > interval.low) {
    const [from, to, middle] = [axis.place(interval.low), axis.place(interval.high), top + tall / 2];
    group.append(shape("path", { class: "bar-whisker", d: `M${from},${middle - 3}v6M${from},${middle}H${to}M${to},${middle - 3}v6` }));
    past = Math.max(past, to);
  }
  const state = row.ghost ? figure(value) : textOf(row);
  const bad = row.place?.state === "failed" ? "bad" : value === undefined || row.ghost ? "soft" : "";
  group.append(shape("text", { class: bad, x: past + 6, y: top + 11 }, state));
  svg.append(group);
  const told = row.ghost ? ghostSays(chart, row.ghost, category, value)
    : row.place ? says(chart, row.line, row.place)
    : { title: line.label, under: "absent", lines: [["soft", `${line.absent.why}; ${line.absent.install}`]] };
  hits.push({ x: symbols ? end : (left + Math.min(end, right)) / 2, y: top + tall / 2, says: told });
}

function textOf(row) {
  if (!row.place) return "absent";
  const doubt = (row.place.failed ? " !" : row.place.unranked ? " ?" : "") + (row.place.stolen === null ? "" : " ~");
  if (row.place.value) return figure(row.place.value.median) + doubt + (row.place.saturated ? " ↓" : "");
  return { failed: "failed", "not-applicable": "n/a" }[row.place.state] ?? "–";
}

/** Latency over percentile; the axis stretches towards the slowest, as far as they were measured. */
function drawDistribution(chart, box, width, logarithmic, hidden) {
  const height = Math.round(Math.min(340, Math.max(240, width * 0.6)));
  const [left, right, top, bottom] = [62, width - 22, 10, height - 38];
  const svg = frame(width, height, chart), hits = [];
  const series = shownSeries(chart, hidden);
  const curves = series.flatMap((line) => line.places.filter((p) => p.curve.length).map((place) => ({ line, place })));
  const axis = scale(curves.flatMap(({ place }) => place.curve.map((at) => at.value.median)), bottom, top, logarithmic, true);
  verticalAxis(svg, axis, left, right, duration);
  const depth = (percentile) => (percentile >= 100 ? 4.7 : -Math.log10(1 - percentile / 100));
  const x = (percentile) => left + 4 + (right - left - 8) * depth(percentile) / 4.7;
  for (const [percentile, text] of [[50, "p50"], [90, "p90"], [99, "p99"], [99.9, "p99.9"], [99.99, "p99.99"], [100, "max"]]) {
    svg.append(shape("line", { class: "gridline", x1: x(percentile), x2: x(percentile), y1: top, y2: bottom }));
    svg.append(shape("text", { class: "soft", x: x(percentile), y: bottom + 16, "text-anchor": "middle" }, text));
  }
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  svg.append(shape("text", { class: "soft", x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "share of operations that were no slower"));
  for (const { line, place } of curves) {
    const points = place.curve.filter((at) => axis.shows(at.value.median));
    const group = shape("g", { class: `series c${line.colour}`, "data-engine": line.engine });
    const d = points.map((at, i) => `${i ? "L" : "M"}${x(at.percentile).toFixed(1)},${axis.place(at.value.median).toFixed(1)}`).join("");
    group.append(shape("path", { class: "mark line", "stroke-dasharray": place.saturated ? "3 3" : line.dash, d, "data-engine": line.engine, "data-x": place.x }));
    for (const at of points) {
      if (at.percentile < 50) continue;
      const [px, py] = [x(at.percentile), axis.place(at.value.median)];
      const hollow = place.unranked || place.saturated ? " hollow" : "";
      if ([50, 90, 99, 99.9, 99.99, 100].includes(at.percentile)) {
        whisker(group, px, axis, at.value, line.engine, "whisker");
        group.append(marker(line.colour, px, py, 3.5, { class: `symbol${hollow}` }));
      }
      const told = says(chart, line, place);
      const name = at.percentile === 100 ? "slowest" : `p${at.percentile}`;
      told.lines[0] = ["big", `${name}: ${duration(at.value.median)}`];
      told.lines[1] = ["soft", `${duration(at.value.low)} to ${duration(at.value.high)}, ${at.value.trials} trials`];
      hits.push({ x: px, y: py, says: told });
    }
    svg.append(group);
  }
  box.append(svg);
  return { svg, hits };
}

/** Which series a chart shows, and what became of those that it does not. Bars bear their names themselves. */
function drawLegend(chart, box, hidden) {
  box.replaceChildren();
  if (chart.shape === "bars") return;
  for (const line of shownSeries(chart, hidden)) {
    const has = line.places.some((place) => place.value);
    const item = tag("span", { class: `c${line.colour}${has ? "" : " gone"}`, "data-engine": line.engine });
    const sample = shape("svg", { width: 30, height: 12, "aria-hidden": "true" });
    sample.append(shape("path", { class: "line", "stroke-dasharray": line.dash, d: "M1,6H29" }), marker(line.colour, 15, 6, 4, { class: "symbol" }));
    const states = line.absent ? " (absent)" : !line.places.length || !has ? " (nothing measured)" : "";
    const doubt = line.places.some((p) => p.value && p.unranked) ? " (not ranked)" : "";
    const full = line.places.some((p) => p.saturated) ? " (saturated)" : "";
    item.append(sample, line.label + states + doubt + full);
    box.append(item);
  }
  for (const ghost of shownGhosts(chart, hidden)) {
    const item = tag("span", { class: `ghost c${ghost.colour}`, "data-engine": ghost.engine });
    const sample = shape("svg", { width: 30, height: 12, "aria-hidden": "true" });
    sample.append(shape("path", { class: "line", d: "M1,6H29" }), marker(ghost.colour, 15, 6, 4, { class: "symbol" }));
    item.append(sample, `${ghost.label} (published)`);
    box.append(item);
  }
}

/** Draws one chart anew and lets the tooltip follow the pointer. */
function draw(chart, element, hidden, speak) {
  const box = element.querySelector(".plot");
  box.replaceChildren();
  const logarithmic = element.querySelector(".log").checked;
  const width = Math.max(260, Math.floor(box.clientWidth));
  drawLegend(chart, element.querySelector(".legend"), hidden);
  const kind = { lines: drawLines, bars: drawBars, distribution: drawDistribution }[chart.shape];
  const { svg, hits, byRow } = kind(chart, box, width, logarithmic, hidden);
  if (!hits.length) {
    box.replaceChildren(tag("p", { class: "empty" }, "Nothing to show: absent, not measured, or filtered away."));
    return;
  }
  let lit = null;
  const follow = (event) => {
    const frame = svg.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    const far = (hit) => (byRow ? Math.abs(hit.y - py) * 2 : Math.hypot(hit.x - px, (hit.y - py) * 0.8));
    const nearest = hits.reduce((best, hit) => (far(hit) < far(best) ? hit : best));
    lit?.remove();
    if (far(nearest) > 46) return speak(null);
    if (!byRow) svg.append(lit = shape("circle", { class: "lit", cx: nearest.x, cy: nearest.y, r: 8 }));
    speak(nearest.says, event);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", () => { lit?.remove(); speak(null); });
}
