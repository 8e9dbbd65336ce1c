"use strict";
// The moving parts of the page: charts, the grid-world maps, the theme. All words go in as text, never as HTML.
(() => {
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

  // ---- charts -------------------------------------------------------------------------------------------------------
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

  function draw(chart) {
    Plotly.react(chart.plot, chart.traces(), layout(chart.axes()), config);
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

  function addCharts(holder, metric, centre) {
    data.settings.forEach((setting) => {
      const seeds = [...new Set(setting.groups.map((group) => group.seeds.length))].sort((a, b) => a - b);
      const count = seeds.length > 1 ? `${seeds[0]}–${seeds.at(-1)} seeds` : `${seeds[0]} seed${seeds[0] > 1 ? "s" : ""}`;
      const last = Math.max(...setting.groups.flatMap((group) => group.steps));
      const plot = element("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `chart of ${setting.name}` });
      const caption = element("figcaption", {}, setting.name, " ", element("span", {}, count));
      const figure = element("figure", { class: "card" }, caption, plot);
      byId(holder).append(figure);
      const chart = {
        plot,
        traces: () => curveTraces(setting, metric(), centre(), byId("single").checked),
        axes: () => ({
          x: "environment steps", y: data.titles[metric()] ?? metric(), xaxis: { tickformat: "~s", range: [0, 1.02 * last] },
        }),
      };
      charts.push(chart);
      plot.addEventListener("keydown", (event) => moveChart(chart, event));
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
    const home = { "xaxis.range": chart.axes().xaxis.range, "yaxis.autorange": true };
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
      charts.push({
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

  // ---- maps ---------------------------------------------------------------------------------------------------------
  const MOVES = { up: [-1, 0], left: [0, -1], down: [1, 0], right: [0, 1] };
  const ANY = -1; // the action that is most broken
  const PANELS = [
    ["gate", "Gate", "hot", "probability that the symmetry is broken"],
    ["oracle", "Oracle", "hot", ""],
    ["disagreement", "Disagreement", "cold", "how far the two predictions differ"],
    ["greedy", "Greedy moves", "", ""],
  ];
  const choice = { map: 0, goal: -1, action: 0, agent: null };
  let world = null;
  let panels = {};

  const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  function openMap(number) {
    const stored = data.maps[number];
    const cells = stored.size ** 2;
    const count = stored.actions.length;
    const raw = Object.fromEntries(["gate", "disagreement", "greedy", "minority", "strict"].map((name) =>
      [name, stored[name] === null ? null : decode(stored[name])]));
    const at = (agent, goal, action) => (agent * cells + goal) * count + action;
    const bit = (bits, place) => (bits[place >> 3] >> (7 - (place & 7))) & 1;
    const readers = {
      gate: (place) => raw.gate[place] / 255,
      disagreement: (place) => (raw.disagreement[place] / 255) * stored.scale,
      minority: (place) => bit(raw.minority, place),
      strict: (place) => bit(raw.strict, place),
    };
    const blocked = new Set(stored.blocked);
    world = {
      ...stored, cells, count, blockedSet: blocked,
      has: (name) => raw[name] !== null,
      value: (name, agent, goal, action) => (action === ANY
        ? Math.max(...stored.actions.map((_, one) => readers[name](at(agent, goal, one))))
        : readers[name](at(agent, goal, action))),
      greedyOf: (agent, goal) => raw.greedy[agent * cells + goal],
      live: (agent, goal) => !blocked.has(agent) && agent !== goal,
      move: (agent, action) => {
        const [down, right] = MOVES[stored.actions[action]] ?? [0, 0];
        const row = Math.floor(agent / stored.size) + down;
        const column = (agent % stored.size) + right;
        const next = row * stored.size + column;
        const inside = row >= 0 && column >= 0 && row < stored.size && column < stored.size;
        return inside && !blocked.has(next) ? next : agent;
      },
    };
  }

  const centreOf = (cell) => [(cell % world.size) + 0.5, Math.floor(cell / world.size) + 0.5];

  function keyWords(name, words) {
    if (name === "oracle") {
      return [element("span", { class: "key hot" }), "broken (minority) ", element("span", { class: "key image", style: "opacity:.35" }), "its images (strict)"];
    }
    if (name === "greedy" && world.has("gate")) {
      return [element("span", { class: "key cold" }), "equivariant expert ", element("span", { class: "key hot" }), "free expert"];
    }
    if (name === "greedy") return ["what the agent does in each cell"];
    const top = name === "gate" ? "1" : String(Number(world.scale.toPrecision(2)));
    const ramp = element("span", { class: `ramp ${name === "gate" ? "hot" : "cold"}` });
    const ring = name === "gate" ? [" ", element("span", { class: "key ring" }), "oracle"] : [];
    return [`${words}: 0`, ramp, top, ...ring];
  }

  function buildPanels() {
    const holder = byId("map-panels");
    holder.replaceChildren();
    panels = {};
    for (const [name, title, tone, words] of PANELS) {
      if ((name === "gate" || name === "disagreement") && !world.has(name)) continue;
      const svg = element("svg", { viewBox: `-.1 -.1 ${world.size + 0.2} ${world.size + 0.2}`, role: "img", "aria-label": title });
      const floor = element("g");
      const values = element("g");
      const marks = element("g");
      svg.append(floor, values, marks);
      const squares = [];
      for (let cell = 0; cell < world.cells; cell += 1) {
        const [x, y] = [cell % world.size, Math.floor(cell / world.size)];
        const wall = world.blockedSet.has(cell);
        floor.append(element("rect", { x, y, width: 1, height: 1, class: wall ? "wall" : "floor" }));
        if (world.penalty.includes(cell)) {
          floor.append(element("rect", { x: x + 0.1, y: y + 0.1, width: 0.8, height: 0.8, class: "penalty" }));
        }
        squares.push(element("rect", { x: x + 0.03, y: y + 0.03, width: 0.94, height: 0.94, class: tone, "fill-opacity": 0 }));
      }
      if (name !== "greedy") values.append(...squares);
      const cellAt = (event) => {
        const box = svg.getBoundingClientRect();
        const unit = (world.size + 0.2) / box.width;
        const [column, row] = [(event.clientX - box.left) * unit - 0.1, (event.clientY - box.top) * unit - 0.1].map(Math.floor);
        const inside = row >= 0 && column >= 0 && row < world.size && column < world.size;
        return inside ? row * world.size + column : null;
      };
      svg.addEventListener("click", (event) => {
        const cell = cellAt(event);
        if (cell !== null && !world.blockedSet.has(cell)) select({ goal: cell });
      });
      svg.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(cellAt(event)));
      svg.addEventListener("pointerleave", () => point(null));
      const note = element("p", {}, ...keyWords(name, words));
      holder.append(element("div", { class: "panel card", "data-panel": name }, element("h3", {}, title), note, svg));
      panels[name] = { squares, marks };
    }
  }

  const star = (cell) => {
    const [x, y] = centreOf(cell);
    const points = Array.from({ length: 10 }, (_, i) => {
      const radius = i % 2 ? 0.2 : 0.47;
      const angle = (i * Math.PI) / 5;
      return `${(x + radius * Math.sin(angle)).toFixed(3)} ${(y - radius * Math.cos(angle)).toFixed(3)}`;
    });
    return element("path", { class: "star", d: `M${points.join("L")}Z` });
  };

  function arrow(cell, action) {
    const [down, right] = MOVES[world.actions[action]] ?? [0, 0];
    const [x, y] = centreOf(cell);
    const tip = [x + 0.3 * right, y + 0.3 * down];
    const tail = [x - 0.3 * right, y - 0.3 * down];
    const barb = (side) => `${tip[0] - 0.24 * right + side * 0.2 * down} ${tip[1] - 0.24 * down + side * 0.2 * right}`;
    const expert = !world.has("gate") ? "" : world.value("gate", cell, choice.goal, action) > 0.5 ? "free" : "tied";
    return element("path", { class: `arrow ${expert}`, d: `M${tail}L${tip}M${barb(1)}L${tip}L${barb(-1)}` });
  }

  /** The cells on the greedy way from a cell to the goal, moves that always succeed; the last one repeats if it circles. */
  function way(agent) {
    const cells = [agent];
    const seen = new Set(cells);
    while (cells.at(-1) !== choice.goal) {
      const next = world.move(cells.at(-1), world.greedyOf(cells.at(-1), choice.goal));
      if (seen.has(next)) return { cells, arrives: false };
      seen.add(next);
      cells.push(next);
    }
    return { cells, arrives: true };
  }

  function paintMap() {
    const { goal, action } = choice;
    for (const [name, { squares, marks }] of Object.entries(panels)) {
      marks.replaceChildren();
      for (let agent = 0; agent < world.cells; agent += 1) {
        const live = world.live(agent, goal);
        const square = squares[agent];
        if (name === "greedy") {
          if (live) marks.append(arrow(agent, world.greedyOf(agent, goal)));
        } else if (name === "oracle") {
          const minority = live && world.value("minority", agent, goal, action);
          const strict = live && world.value("strict", agent, goal, action);
          square.setAttribute("class", minority ? "hot" : "image");
          square.setAttribute("fill-opacity", minority || strict ? 1 : 0);
        } else {
          const scale = name === "gate" ? 1 : world.scale;
          square.setAttribute("fill-opacity", live ? (world.value(name, agent, goal, action) / scale).toFixed(3) : 0);
          if (name === "gate" && live && world.value("minority", agent, goal, action)) {
            const [x, y] = centreOf(agent);
            marks.append(element("rect", { x: x - 0.42, y: y - 0.42, width: 0.84, height: 0.84, rx: 0.1, class: "truth" }));
          }
        }
      }
      marks.append(star(goal));
    }
    const holder = byId("map-panels");
    holder.dataset.goal = goal;
    holder.dataset.action = action === ANY ? "any" : action;
    byId("map-scores").replaceChildren(...scoreWords());
    point(choice.agent);
  }

  const place = (cell) => `row ${Math.floor(cell / world.size) + 1}, column ${(cell % world.size) + 1}`;

  function scoreWords() {
    const starts = Array.from({ length: world.cells }, (_, cell) => cell).filter((cell) => world.live(cell, choice.goal));
    const arriving = starts.filter((cell) => way(cell).arrives).length;
    const words = ["Goal at ", element("b", {}, place(choice.goal)), ": the greedy moves reach it from ",
      element("b", {}, `${arriving} of ${starts.length}`), " cells. "];
    if (world.has("gate")) {
      words.push("Over all goals the gate has AUROC ", element("b", { id: "auroc-minority" }, world.auroc.minority),
        " against the minority oracle and ", element("b", {}, world.auroc.strict), " against the strict one.");
    }
    return words;
  }

  function point(cell) {
    choice.agent = cell;
    document.querySelectorAll(".agent, .path").forEach((mark) => mark.remove());
    const said = byId("map-readout");
    if (cell === null || !world.live(cell, choice.goal)) {
      said.textContent = cell === null ? "" : cell === choice.goal ? "The goal." : "A wall.";
      return;
    }
    const [x, y] = centreOf(cell);
    for (const { marks } of Object.values(panels)) marks.append(element("circle", { class: "agent", cx: x, cy: y, r: 0.4 }));
    const path = way(cell);
    const drawn = path.cells.map((one) => centreOf(one).join(" ")).join("L");
    panels.greedy.marks.prepend(element("path", { class: `path ${path.arrives ? "" : "lost"}`, d: `M${drawn}` }));
    const values = world.actions.map((action, one) => {
      const parts = ["gate", "disagreement"].filter(world.has).map((name) => `${name} ${world.value(name, cell, choice.goal, one).toFixed(2)}`);
      const truth = world.value("minority", cell, choice.goal, one) ? "broken" : world.value("strict", cell, choice.goal, one) ? "image of a broken one" : "intact";
      return `${action}: ${[...parts, truth].join(", ")}`;
    });
    const end = path.arrives ? `arrives in ${path.cells.length - 1} moves` : "never arrives";
    said.replaceChildren(element("b", {}, `Agent at ${place(cell)}`), ` ${end}. ${values.join(" · ")}`);
  }

  function select(change) {
    Object.assign(choice, change);
    document.querySelectorAll("#map-actions input").forEach((radio) => { radio.checked = Number(radio.value) === choice.action; });
    paintMap();
    try {
      const action = choice.action === ANY ? "any" : choice.action;
      history.replaceState(null, "", `#goal=${choice.goal}&action=${action}&map=${choice.map}`);
    } catch (refused) {
      // Some browsers keep the address of a local file as it is.
    }
  }

  function chooseMap(number) {
    choice.map = number;
    choice.agent = null;
    openMap(number);
    buildPanels();
    const names = [...world.actions.map((action, one) => [action, one]), ["any", ANY]];
    byId("map-actions").replaceChildren(...names.map(([name, value]) => {
      const radio = element("input", { type: "radio", name: "action", value });
      radio.addEventListener("change", () => select({ action: value }));
      return element("label", {}, radio, name);
    }));
    if (choice.action >= world.count) choice.action = 0;
    if (choice.goal < 0 || choice.goal >= world.cells || world.blockedSet.has(choice.goal)) choice.goal = firstFree();
    byId("map-run").value = String(number);
  }

  /** The free cell nearest to the middle of the upper right quarter, where walls are seen from most sides. */
  function firstFree() {
    const [row, column] = [Math.floor(world.size / 4), Math.floor((3 * world.size) / 4)];
    const far = (cell) => Math.abs(Math.floor(cell / world.size) - row) + Math.abs((cell % world.size) - column);
    return Array.from({ length: world.cells }, (_, cell) => cell)
      .filter((cell) => !world.blockedSet.has(cell)).sort((a, b) => far(a) - far(b) || a - b)[0];
  }

  function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!asked.has("goal") && !asked.has("action") && !asked.has("map")) return false;
    const whole = (name, below) => {
      const value = Number.parseInt(asked.get(name), 10);
      return value >= 0 && value < below ? value : null;
    };
    chooseMap(whole("map", data.maps.length) ?? choice.map);
    const goal = whole("goal", world.cells);
    if (goal !== null && !world.blockedSet.has(goal)) choice.goal = goal;
    if (asked.has("action")) choice.action = whole("action", world.count) ?? ANY;
    return true;
  }

  function step(cell, key) {
    const [down, right] = MOVES[key.slice(5).toLowerCase()];
    let [row, column] = [Math.floor(cell / world.size), cell % world.size];
    for (;;) { // over walls, up to the edge
      row += down;
      column += right;
      if (row < 0 || column < 0 || row >= world.size || column >= world.size) return cell;
      if (!world.blockedSet.has(row * world.size + column)) return row * world.size + column;
    }
  }

  function setUpMaps() {
    if (!data.maps.length) return;
    reveal("map");
    data.maps.forEach((map, number) => byId("map-run").append(element("option", { value: number }, map.name)));
    byId("map-run").addEventListener("change", (event) => {
      chooseMap(Number(event.target.value));
      select({});
    });
    byId("map-panels").addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.startsWith("Arrow")) {
        event.preventDefault();
        if (event.shiftKey) point(step(choice.agent ?? choice.goal, event.key));
        else select({ goal: step(choice.goal, event.key) });
      } else if (/^[0-9]$/.test(event.key) && Number(event.key) <= world.count) {
        select({ action: Number(event.key) - 1 });
      }
    });
    addEventListener("hashchange", () => readAddress() && select({}));
    if (!readAddress()) chooseMap(0);
    document.querySelectorAll("#map-actions input").forEach((radio) => { radio.checked = Number(radio.value) === choice.action; });
    paintMap();
  }

  // ---- theme --------------------------------------------------------------------------------------------------------
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("symbreak-theme", root.dataset.theme);
    } catch (refused) {
      // Kept for this visit only.
    }
    drawAll();
  });
  darkness.addEventListener("change", drawAll);

  setUpCharts();
  setUpMaps();
  document.documentElement.dataset.ready = "true";
})();
