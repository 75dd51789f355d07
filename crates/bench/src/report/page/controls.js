// The filter by engine, the theme, the tooltip, and the list of wins and losses.

const CHARTS = DATA.charts.map((chart) => ({
  chart,
  element: [...document.querySelectorAll("figure.chart")].find((figure) => figure.dataset.chart === chart.id),
})).filter(({ element }) => element);
const BOXES = [...document.querySelectorAll("input[name=engine]")];
const SHOWN_AT_FIRST = { loss: 8, "no-difference": 3, win: 8 };
const opened = new Set();
let hidden = new Set();

/** What the address holds: `#hide=lmdb,redb&at=machine`. */
function readAddress() {
  const state = new URLSearchParams(location.hash.slice(1));
  hidden = new Set((state.get("hide") ?? "").split(",").filter((name) => ENGINES.has(name)));
  const plain = location.hash.includes("=") ? state.get("at") : location.hash.slice(1);
  return plain ? document.getElementById(plain) : null;
}

function writeAddress(at) {
  const parts = [];
  if (hidden.size) parts.push("hide=" + [...hidden].join(","));
  if (at) parts.push("at=" + at);
  history.replaceState(null, "", "#" + parts.join("&"));
}

const tip = document.getElementById("tip");

/** Says something beside the pointer, or nothing. */
function speak(what, event) {
  tip.hidden = !what;
  if (!what) return;
  tip.replaceChildren(tag("b", {}, what.title), tag("span", { class: "soft" }, what.under));
  for (const [kind, text] of what.lines) tip.append(tag("span", { class: kind, style: "display:block" }, text));
  const [wide, tall] = [tip.offsetWidth, tip.offsetHeight];
  const left = event.clientX + 16 + wide > innerWidth ? event.clientX - wide - 16 : event.clientX + 16;
  const top = event.clientY + 16 + tall > innerHeight ? event.clientY - tall - 12 : event.clientY + 16;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

/** A ratio beside one, on a logarithmic axis from 1/16 to 16. */
function forest(rival) {
  const svg = shape("svg", { class: `forest ${rival.verdict}`, viewBox: "0 0 180 26", preserveAspectRatio: "xMinYMid meet", "aria-hidden": "true" });
  const at = (ratio) => 90 + 86 * Math.max(-1, Math.min(1, Math.log(ratio ?? 1e9) / Math.log(16)));
  svg.append(shape("line", { class: "base", x1: 4, x2: 176, y1: 13, y2: 13 }), shape("line", { class: "one", x1: 90, x2: 90, y1: 3, y2: 23 }));
  const [low, middle, high] = [rival.ratio_low, rival.ratio, rival.ratio_high].map(at);
  svg.append(shape("line", { class: "span", x1: low, x2: Math.max(high, low + 1), y1: 13, y2: 13 }), shape("circle", { class: "dot", cx: middle, cy: 13, r: 4.5 }));
  return svg;
}

const times = (ratio) => (ratio === null ? "∞" : figure(ratio)) + "×";
const TUNED = { default: "defaults", tuned: "tuned" };
const SURVIVES = { none: "no promise", process: "survives a crash of the process", "power-cut": "survives a power cut" };

function standingRow(standing, rival) {
  const chart = CHARTS.find(({ chart }) => chart.id === standing.chart);
  const link = tag("a", { href: "#" + (chart?.element.id ?? "") }, standing.title);
  const where = tag("div", { class: "where" }, link);
  const mode = standing.mode === "historical" ? `${standing.study}, as published` : standing.study;
  where.append(tag("span", {}, `${standing.place} · ${mode} · ${SURVIVES[standing.durability]}`));
  const who = tag("div", { class: "who" }, `${standing.label} (${TUNED[standing.tuning]}): ${figure(standing.value.median)}`);
  who.append(tag("span", {}, `${rival.label} (${TUNED[rival.tuning]}): ${figure(rival.value.median)} · ${standing.unit}, ${standing.better} is better`));
  const ratio = tag("div", { class: "ratio" }, tag("b", { class: rival.verdict }, times(rival.ratio)));
  ratio.append(tag("span", {}, `${times(rival.ratio_low)} – ${times(rival.ratio_high)}`));
  const row = tag("div", { class: "standing", "data-verdict": rival.verdict, "data-rival": rival.engine });
  row.append(where, who, ratio, tag("div", { class: "plot-cell" }, forest(rival)));
  return row;
}

/** Plait against the best rival that is shown, losses first. */
function drawStandings() {
  const box = document.getElementById("standings");
  box.replaceChildren();
  const pairs = hidden.has(DATA.ours) ? [] : DATA.standings
    .map((standing) => ({ standing, rival: standing.rivals.find((rival) => !hidden.has(rival.engine)) }))
    .filter(({ rival }) => rival);
  const alone = hidden.has(DATA.ours) ? 0 : DATA.standings.length - pairs.length;
  if (!pairs.length) {
    box.append(tag("p", { class: "note" }, "Nothing to compare: Plait or all ranked rivals are absent, filtered away or not ranked."));
    return;
  }
  const kinds = [["loss", "Losses", "Plait is worse"], ["no-difference", "No difference shown", "the intervals overlap, or there are fewer than four trials"], ["win", "Wins", "Plait is better"]];
  const tally = tag("ul", { class: "tally" });
  const lists = [];
  for (const [verdict, title, says] of kinds) {
    const chosen = pairs.filter(({ rival }) => rival.verdict === verdict);
    const size = ({ rival }) => rival.ratio ?? Infinity;
    chosen.sort((a, b) => (verdict === "win" ? size(b) - size(a) || 0 : size(a) - size(b) || 0));
    tally.append(tag("li", { class: verdict }, tag("b", {}, String(chosen.length)), title));
    if (!chosen.length) continue;
    const list = tag("div", { class: "verdicts", "data-verdict": verdict });
    list.append(tag("h3", {}, tag("span", { class: verdict }, title), tag("small", {}, says)));
    const shown = opened.has(verdict) ? chosen.length : SHOWN_AT_FIRST[verdict];
    for (const { standing, rival } of chosen.slice(0, shown)) list.append(standingRow(standing, rival));
    if (chosen.length > shown) {
      const more = tag("button", { type: "button" }, `Show all ${chosen.length}`);
      more.addEventListener("click", () => { opened.add(verdict); drawStandings(); });
      list.append(more);
    }
    lists.push(list);
  }
  box.append(tally, ...lists);
  if (alone) box.append(tag("p", { class: "note" }, `Without a ranked rival that survives as much: Plait at ${alone} more ${alone === 1 ? "place" : "places"}.`));
}

/** Shows what the filter lets through. */
function apply() {
  for (const box of BOXES) box.checked = !hidden.has(box.value);
  for (const row of document.querySelectorAll("main tr[data-engine], main dl [data-engine]")) row.hidden = hidden.has(row.dataset.engine);
  for (const { chart, element } of CHARTS) draw(chart, element, hidden, speak);
  drawStandings();
}

for (const swatch of document.querySelectorAll("svg.swatch")) swatch.append(marker(Number(swatch.dataset.colour), 9, 7, 5, { class: "symbol" }));
for (const box of BOXES) {
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(box.value); else hidden.add(box.value);
    writeAddress();
    apply();
  });
}
document.getElementById("all").addEventListener("click", () => { hidden.clear(); writeAddress(); apply(); });
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const { chart, element } of CHARTS) element.querySelector(".log").addEventListener("change", () => draw(chart, element, hidden, speak));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!target) return;
  event.preventDefault();
  writeAddress(target.id);
  target.scrollIntoView();
});
addEventListener("hashchange", () => { const at = readAddress(); apply(); at?.scrollIntoView(); });
addEventListener("scroll", () => speak(null), { passive: true });
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; apply(); } });
addEventListener("toggle", (event) => {
  const figure = event.target.closest?.("figure.chart");
  const drawn = figure && CHARTS.find(({ element }) => element === figure);
  if (drawn) draw(drawn.chart, drawn.element, hidden, speak);
}, true);
const startAt = readAddress();
apply();
startAt?.scrollIntoView();
