// What every part of the page uses, and its charts. Words from files go in as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const styles = new Map(data.methods.map((method) => [method.label, method]));
const hidden = new Set();

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "path", "circle"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Plotly reads a little markup in its labels; names from files must not speak it.
const plain = (words) => words.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const faded = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
const charts = []; // {plot, traces: () => [...], axes: {x, y}}
const touch = matchMedia("(pointer: coarse)").matches;

function layout(axes) {
  const axis = { gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true };
  const title = (words) => ({ text: plain(words), font: { size: 12, color: colour("faint") }, standoff: 8 });
  return {
    margin: { l: 46, r: 12, t: 28, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("soft") },
    xaxis: { ...axis, title: title(axes.x), rangemode: "tozero", ...axes.xaxis },
    yaxis: { ...axis, title: title(axes.y), ...axes.yaxis },
    showlegend: false, hovermode: "x unified", dragmode: touch ? false : "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("faint"), activecolor: colour("ink") },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
  };
}

const config = {
  responsive: true, displaylogo: false, scrollZoom: false, doubleClick: "reset",
  // Chosen one by one: the default set offers to upload the chart.
  modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]], showSendToCloud: false, plotlyServerURL: "",
};

function addChart(chart) {
  charts.push(chart);
  chart.plot.addEventListener("keydown", (event) => moveChart(chart, event));
}

function draw(chart) {
  if (chart.figure) chart.figure.hidden = !chart.recorded(); // without a gate, say, there is no chart of one
  if (chart.figure?.hidden) return;
  const axes = chart.axes();
  const fresh = layout(axes);
  if (chart.shown === axes.y) { // the same quantity: hiding a method must not undo a zoom
    const { xaxis, yaxis } = chart.plot.layout;
    fresh.xaxis.range = xaxis.range;
    if (yaxis.autorange === false) Object.assign(fresh.yaxis, { range: yaxis.range, autorange: false });
  }
  chart.shown = axes.y;
  Plotly.react(chart.plot, chart.traces(), fresh, config);
}

const drawAll = () => charts.forEach(draw);

const backwards = (list) => [...list].reverse();

function line(label, x, band) {
  const { colour: tone, dash } = styles.get(label);
  const known = x.map((_, i) => i).filter((i) => band[1][i] !== null && band[2][i] !== null);
  const traces = [];
  if (known.length > 1) {
    const there = known.map((i) => x[i]);
    traces.push({
      x: [...there, ...backwards(there)],
      y: [...known.map((i) => band[2][i]), ...backwards(known.map((i) => band[1][i]))],
      fill: "toself", fillcolor: faded(tone, 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip", type: "scatter",
    });
  }
  const ends = x.map((_, i) => (band[1][i] === null ? "" : ` [${short(band[1][i])}, ${short(band[2][i])}]`));
  traces.push({
    x, y: band[0], customdata: ends, name: plain(label), type: "scatter", mode: x.length > 1 ? "lines" : "markers",
    line: { color: tone, width: 2.4, dash }, marker: { color: tone, size: 8 }, connectgaps: true,
    hovertemplate: "%{y:.3~g}%{customdata}",
  });
  return traces;
}

const short = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });

function curveTraces(setting, metric, centre, single) {
  const shown = setting.groups.filter((group) => !hidden.has(group.label) && group.metrics[metric]);
  return backwards(shown).flatMap((group) => {
    const values = group.metrics[metric];
    const { colour: tone } = styles.get(group.label);
    const seeds = single ? values.runs.map((y, i) => ({
      x: group.steps, y, mode: "lines", type: "scatter", line: { color: faded(tone, 0.45), width: 1 },
      hoverinfo: "skip", name: `seed ${plain(group.seeds[i])}`,
    })) : [];
    return [...seeds, ...line(group.label, group.steps, values[centre] ?? values.mean)];
  });
}

// What the seeds reached: the intervals of two or three of them may lie far outside and would flatten every curve.
function heights(setting, metric) {
  const values = setting.groups.flatMap((group) => (group.metrics[metric]?.runs ?? []).flat()).filter((y) => y !== null);
  if (!values.length) return {};
  const [low, high] = values.reduce(([a, b], y) => [Math.min(a, y), Math.max(b, y)], [Infinity, -Infinity]);
  const room = 0.08 * (high - low) || 0.5;
  return { range: [low - room, high + room] };
}

function addCharts(holder, metric, centre) {
  data.settings.forEach((setting) => {
    const seeds = [...new Set(setting.groups.map((group) => group.seeds.length))].sort((a, b) => a - b);
    const count = seeds.length > 1 ? `${seeds[0]}–${seeds.at(-1)} seeds` : `${seeds[0]} seed${seeds[0] > 1 ? "s" : ""}`;
    const last = Math.max(...setting.groups.flatMap((group) => group.steps));
    const plot = element("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `chart of ${setting.name}` });
    const caption = element("figcaption", {}, setting.name, " ", element("span", {}, count));
    const figure = element("figure", { class: "card" }, caption, plot);
    byId(holder).append(figure);
    addChart({
      plot,
      figure,
      recorded: () => setting.groups.some((group) => group.metrics[metric()]),
      traces: () => curveTraces(setting, metric(), centre(), byId("single").checked),
      axes: () => ({
        x: "environment steps", y: data.titles[metric()] ?? metric(), xaxis: { tickformat: "~s", range: [0, 1.02 * last] },
        yaxis: heights(setting, metric()),
      }),
    });
  });
}

function moveChart(chart, event) {
  const from = chart.plot.layout?.xaxis?.range?.map(Number);
  if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
  const [low, high] = from;
  const width = high - low;
  const moves = {
    "+": [low + width / 4, high - width / 4], "=": [low + width / 4, high - width / 4],
    "-": [low - width / 2, high + width / 2], "0": null,
    ArrowLeft: [low - width / 4, high - width / 4], ArrowRight: [low + width / 4, high + width / 4],
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const range = moves[event.key];
  const { xaxis, yaxis } = chart.axes();
  const home = { "xaxis.range": xaxis.range, ...(yaxis?.range ? { "yaxis.range": yaxis.range } : { "yaxis.autorange": true }) };
  Plotly.relayout(chart.plot, range ? { "xaxis.range": range } : home);
}

function fillMetrics(select, metrics, preferred) {
  for (const metric of metrics) select.append(element("option", { value: metric }, data.titles[metric] ?? metric));
  select.value = preferred.find((metric) => metrics.includes(metric)) ?? metrics[0];
}

function setUpCharts() {
  if (!byId("curves")) return;
  const names = Object.keys(data.titles);
  const gates = names.filter((name) => name.startsWith("gate/"));
  const rest = names.filter((name) => !name.startsWith("gate/"));
  const order = (name) => (name === "eval/return" ? 0 : name.startsWith("eval/") ? 1 : 2);
  fillMetrics(byId("curve-metric"), [...rest].sort((a, b) => order(a) - order(b)), ["eval/return"]);
  addCharts("curve-charts", () => byId("curve-metric").value, () => byId("centre").value);
  if (gates.length) {
    reveal("gates");
    fillMetrics(byId("gate-metric"), gates, ["gate/rate", "gate/mean"]);
    addCharts("gate-charts", () => byId("gate-metric").value, () => "mean");
  }
  if (data.profile) {
    const { thresholds, curves } = data.profile;
    addChart({
      plot: byId("profile"),
      traces: () => backwards(Object.entries(curves)).filter(([label]) => !hidden.has(label))
        .flatMap(([label, band]) => line(label, thresholds, band)),
      axes: () => ({
        x: "scaled final return", y: "share of runs", xaxis: { range: [0, 1] }, yaxis: { range: [-0.02, 1.02] },
      }),
    });
  }
  for (const name of ["curve-metric", "centre", "single", "gate-metric"]) byId(name).addEventListener("change", drawAll);
  byId("methods").addEventListener("click", (event) => {
    const chip = event.target.closest("[data-method]");
    if (!chip) return;
    const { label } = data.methods[chip.dataset.method];
    if (!hidden.delete(label)) hidden.add(label);
    showMethods();
  });
  byId("methods").addEventListener("dblclick", (event) => {
    const chip = event.target.closest("[data-method]");
    if (!chip) return;
    const { label } = data.methods[chip.dataset.method];
    const alone = data.methods.every((method) => method.label === label || hidden.has(method.label));
    hidden.clear();
    if (!alone) data.methods.forEach((method) => method.label !== label && hidden.add(method.label));
    showMethods();
  });
  drawAll();
}

function showMethods() {
  document.querySelectorAll("[data-method]").forEach((chip) =>
    chip.setAttribute("aria-pressed", String(!hidden.has(data.methods[chip.dataset.method].label))));
  drawAll();
}

function reveal(section) {
  byId(section).hidden = false;
  document.querySelectorAll(`[data-needs="${section}"]`).forEach((link) => { link.hidden = false; });
}
