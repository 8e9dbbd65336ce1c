// Grid-worlds: what gate, oracle, predictors and policy say in every cell, for a chosen goal and action.
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
  const whole = (...parts) => element("span", { class: "whole" }, ...parts);
  const key = (tone, said) => whole(element("span", { class: `key ${tone}` }), said);
  if (name === "oracle") return [key("hot", "broken (minority)"), " ", key("image", "its images (strict)")];
  if (name === "greedy" && world.has("gate")) return [key("cold", "equivariant expert"), " ", key("hot", "free expert")];
  if (name === "greedy") return ["what the agent does in each cell"];
  const ramp = element("span", { class: `ramp ${name === "gate" ? "hot" : "cold"}` });
  const top = name === "gate" ? "1" : String(Number(world.scale.toPrecision(2)));
  return [`${words} `, whole("0", ramp, top), ...(name === "gate" ? [" ", key("ring", "oracle")] : [])];
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
