// The page at /: asks the model that this server serves. Plain JavaScript, no library, nothing from elsewhere.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360, HEIGHT = 250, LEFT = 52, RIGHT = 12, TOP = 26, BOTTOM = 42;
const POINTS = 41, NEAREST = 8, MOST_LEVELS = 12, MENU = 60;
const LEVELS = Array.from({ length: 160 }, (_, k) => (k + 0.5) / 160);

const state = { token: "", name: "", model: null, fields: [], waiting: 0, request: null };
const at = (id) => document.getElementById(id);

// --- small tools -------------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...content) {
  const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...content.filter((part) => part !== null));
  return made;
}

function shown(value) { // a number as people read it
  if (typeof value !== "number") return value === null ? "–" : typeof value === "boolean" ? (value ? "yes" : "no") : value;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

async function ask(path, question, kind = "application/json", signal = undefined) {
  const headers = { "X-Gpnn-Trying": "1" }; // inputs that are tried out here are no sign of drift
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const options = { headers, signal };
  if (question !== undefined) {
    options.method = "POST";
    options.body = kind === "application/json" ? JSON.stringify(question) : question;
    headers["Content-Type"] = kind;
  }
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  let error = { cause: `${answer.status} ${answer.statusText}`, cure: "Try again." };
  try { error = (await answer.json()).error; } catch { /* not ours: a proxy's */ }
  throw Object.assign(new Error(error.cause), { status: answer.status, cure: error.cure });
}

const asked = async (path, question, signal) => (await ask(path, question, "application/json", signal)).json();
const of = (what) => `/models/${encodeURIComponent(state.name)}${what}`;

function trouble(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401) {
    at("entry").hidden = false;
    at("lead").textContent = "";
    at("token").focus();
    if (!state.token) return;
  }
  const offline = error instanceof TypeError;
  at("trouble").replaceChildren(
    element("p", {}, element("b", {}, offline ? "The server does not answer." : error.message)),
    element("p", {}, offline ? "Check that it runs, then change an input to ask again." : error.cure || ""),
  );
  at("trouble").hidden = false;
}

// --- charts ------------------------------------------------------------------------------------------------------------

function ticks(low, high, about = 5) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((mantissa) => mantissa * power).find((size) => size >= 0.8 * raw);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found.map((tick) => Number(tick.toPrecision(12)));
}

function scale(values, margin = 0.05) {
  let low = Math.min(...values), high = Math.max(...values);
  const room = margin * (high - low) || 0.05 * Math.abs(high) || 1;
  low -= room;
  high += room;
  return { low, high, share: (value) => (value - low) / (high - low) };
}

class Plane {
  constructor(x, y) {
    this.x = x;
    this.y = y;
    this.parts = [];
  }

  place(x, y) {
    return [LEFT + this.x.share(x) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - this.y.share(y) * (HEIGHT - TOP - BOTTOM)];
  }

  path(points) {
    return points.map(([x, y]) => this.place(x, y).map((part) => part.toFixed(1)).join(",")).join(" ");
  }

  line(points, kind) { this.parts.push(element("svg:polyline", { points: this.path(points), class: `line ${kind}` })); }

  area(points, kind) { this.parts.push(element("svg:polygon", { points: this.path(points), class: kind })); }

  stroke(from, to, kind) {
    const [x1, y1] = this.place(...from), [x2, y2] = this.place(...to);
    this.parts.push(element("svg:line", { x1, y1, x2, y2, class: kind }));
  }

  dot(x, y, kind, r = 4.5) {
    const [cx, cy] = this.place(x, y);
    this.parts.push(element("svg:circle", { cx, cy, r, class: `dot ${kind}` }));
  }

  text(x, y, words, anchor = "middle", kind = "note") {
    const [left, top] = this.place(x, y);
    this.parts.push(element("svg:text", { x: left, y: top, "text-anchor": anchor, class: kind }, words));
  }

  drawn(title, xLabel, yLabel, { xTicks = null, yTicks = null } = {}) {
    const base = HEIGHT - BOTTOM, under = [];
    for (const [value, words] of yTicks || ticks(this.y.low, this.y.high, 4).map((tick) => [tick, shown(tick)])) {
      const [, top] = this.place(this.x.low, value);
      under.push(element("svg:line", { x1: LEFT, x2: WIDTH - RIGHT, y1: top, y2: top, class: "rule" }));
      under.push(element("svg:text", { x: LEFT - 6, y: top + 4, "text-anchor": "end", class: "tick" }, words));
    }
    for (const [value, words, anchor] of xTicks || ticks(this.x.low, this.x.high).map((tick) => [tick, shown(tick)])) {
      const [left] = this.place(value, this.y.low);
      under.push(element("svg:text", { x: left, y: base + 16, "text-anchor": anchor || "middle", class: "tick" }, words));
    }
    under.push(element("svg:line", { x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base, class: "axis" }));
    const middle = (LEFT + WIDTH - RIGHT) / 2;
    under.push(element("svg:text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle", class: "label" }, short(xLabel, 40)));
    under.push(element("svg:text", { x: 4, y: 14, class: "label" }, short(yLabel, 44)));
    return element(
      "svg:svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title, class: "plane" }, ...under, ...this.parts,
    );
  }
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function drawLaw(answer) {
  const points = answer.quantiles.map((values) => values[0]);
  const mean = answer.mean[0], sd = answer.sd[0];
  const apart = points.map((point, k) => Math.max(point - (points[k - 1] ?? -Infinity), (points[k + 1] ?? Infinity) - point));
  const widths = apart.map((gap) => Math.max(0.2 * sd, Number.isFinite(gap) ? 0.7 * gap : 0.4 * sd));
  const far = Math.max(Math.abs(points[0] - mean), Math.abs(points.at(-1) - mean), 2.2 * sd) + 0.9 * sd;
  const xs = Array.from({ length: 121 }, (_, k) => mean + far * (k / 60 - 1));
  const height = (x) => points.reduce((sum, point, k) => sum + Math.exp(-0.5 * ((x - point) / widths[k]) ** 2) / widths[k], 0);
  const curve = xs.map((x) => [x, height(x)]);
  const top = Math.max(...curve.map((point) => point[1]));
  const plane = new Plane(scale([xs[0], xs.at(-1)], 0), { low: 0, high: 1.12 * top, share: (value) => value / (1.12 * top) });
  const under = (low, high) => {
    const inner = [[low, height(low)], ...curve.filter(([x]) => x > low && x < high), [high, height(high)]];
    return [[low, 0], ...inner, [high, 0]];
  };
  plane.area(under(xs[0], xs.at(-1)), "area");
  plane.area(under(answer.lower[0], answer.upper[0]), "area inner");
  plane.line(curve, "one");
  plane.stroke([mean, 0], [mean, height(mean)], "stem");
  const title = `The law of ${state.model.target}: mean ${shown(mean)}, 90 % between ${shown(answer.lower[0])} and `
    + `${shown(answer.upper[0])}`;
  at("law").replaceChildren(plane.drawn(title, state.model.target, "how likely", { yTicks: [] }));
}

function drawSweep(field, values, answer, now) {
  const { column } = field;
  const points = values.map((value, k) => ({ value, k, mean: answer.mean[k], lower: answer.lower[k], upper: answer.upper[k] }))
    .filter((point) => point.mean !== null);
  const y = scale(points.flatMap((point) => [point.lower, point.upper]));
  const title = `How ${state.model.target} moves with ${column.name}: from ${shown(Math.min(...points.map((p) => p.mean)))} `
    + `to ${shown(Math.max(...points.map((p) => p.mean)))}`;
  if (column.kind === "category" || column.kind === "boolean") {
    const plane = new Plane({ low: -0.5, high: values.length - 0.5, share: (k) => (k + 0.5) / values.length }, y);
    for (const { value, k, mean, lower, upper } of points) {
      plane.stroke([k, lower], [k, upper], "whisker");
      plane.dot(k, mean, value === field.read() ? "three" : "one");
    }
    const most = Math.floor(46 / values.length);
    const xTicks = values.map((value, k) => [k, short(shown(value), Math.max(most, 3))]);
    at("sweep").replaceChildren(plane.drawn(title, column.name, state.model.target, { xTicks }));
    return;
  }
  const places = values.map((value) => field.place(value)), here = field.place(field.read());
  const plane = new Plane(scale([...places, ...(Number.isFinite(here) ? [here] : [])], 0.02), y);
  plane.area([...points.map((p) => [places[p.k], p.lower]), ...points.map((p) => [places[p.k], p.upper]).reverse()], "band");
  plane.line(points.map((p) => [places[p.k], p.mean]), "one");
  if (now !== null && Number.isFinite(here) && now >= y.low && now <= y.high) plane.dot(here, now, "three");
  const xTicks = field.ticks ? field.ticks(plane.x) : null;
  at("sweep").replaceChildren(plane.drawn(title, column.name, state.model.target, { xTicks }));
}

// --- fields ------------------------------------------------------------------------------------------------------------

class NumberField {
  constructor(column, id) {
    const [low, high] = column.range, step = 10 ** Math.floor(Math.log10((high - low) / 100 || 1));
    this.column = column;
    this.slider = element("input", {
      type: "range", id: `${id}-slider`, min: low, max: high, step: Math.min(step, (high - low) / 100) || 1,
      "aria-label": `${column.name}, slider`, tabindex: 0,
    });
    this.number = element("input", { type: "number", id, step: "any", required: true });
    this.slider.addEventListener("input", () => { this.number.value = Number(Number(this.slider.value).toPrecision(6)); });
    this.number.addEventListener("input", () => { this.slider.value = this.number.value; });
    const reach = element("span", { class: "reach" }, element("span", {}, shown(low)), element("b", {}), element("span", {}, shown(high)));
    this.box = element("div", { class: "field" }, element("label", { for: id }, column.name),
      element("div", { class: "pair" }, this.slider, this.number), reach);
    this.reset();
  }

  reset() { this.write(this.column.typical); }
  write(value) { this.number.value = value; this.slider.value = value; }
  read() { return this.number.value === "" ? null : Number(this.number.value); }
  place(value) { return value; }

  values() {
    const [low, high] = this.column.range;
    return Array.from({ length: POINTS }, (_, k) => low + ((high - low) * k) / (POINTS - 1));
  }
}

class DateField {
  constructor(column, id) {
    this.column = column;
    this.kind = /^\d\d:\d\d$/.test(column.typical) ? "time" : column.typical.includes("T") ? "datetime-local" : "date";
    this.input = element("input", { type: this.kind, id, required: true });
    const [low, high] = column.range.map((moment) => String(moment).replace("T", " "));
    const ends = this.kind === "time" ? [] : [element("span", {}, low), element("b", {}), element("span", {}, high)];
    this.box = element("div", { class: "field" }, element("label", { for: id }, column.name), this.input,
      element("span", { class: "reach" }, ...ends));
    this.reset();
  }

  reset() { this.input.value = this.column.typical; }
  read() { return this.input.value || null; }

  place(value) { // days, or minutes
    if (value === null) return NaN;
    if (this.kind === "time") return Number(value.slice(0, 2)) * 60 + Number(value.slice(3, 5));
    return Date.parse(value.includes("T") ? `${value}Z` : `${value}T00:00Z`) / 864e5;
  }

  values() {
    if (this.kind === "time") {
      return Array.from({ length: 49 }, (_, k) => `${String(Math.floor((k * 30 - (k === 48)) / 60)).padStart(2, "0")}:${k === 48 ? "59" : k % 2 ? "30" : "00"}`);
    }
    const [low, high] = this.column.range.map((moment) => this.place(moment));
    const length = this.kind === "date" ? 10 : 16;
    const all = Array.from({ length: POINTS }, (_, k) => new Date((low + ((high - low) * k) / (POINTS - 1)) * 864e5).toISOString().slice(0, length));
    return [...new Set(all)];
  }

  ticks({ low, high }) {
    const words = this.kind === "time" ? (x) => `${Math.round(x / 60)} h` : (x) => new Date(x * 864e5).toISOString().slice(0, high - low > 1500 ? 7 : 10);
    return [0.12, 0.5, 0.88].map((share) => low + share * (high - low)).map((x) => [x, words(x)]);
  }
}

class LevelField {
  constructor(column, id) {
    this.column = column;
    const label = element("label", { for: id }, column.name);
    if (column.n_levels <= MENU) {
      this.input = element("select", { id }, ...column.levels.map((level) => element("option", { value: level }, level)));
      this.box = element("div", { class: "field" }, label, this.input, element("span", { class: "reach" }, element("b", {})));
    } else {
      const known = element("datalist", { id: `${id}-levels` }, ...column.levels.map((level) => element("option", { value: level })));
      this.input = element("input", { id, list: `${id}-levels`, autocomplete: "off", required: true });
      this.box = element("div", { class: "field" }, label, this.input, known,
        element("span", { class: "reach" }, element("span", {}, `${column.n_levels.toLocaleString("en")} levels`), element("b", {})));
    }
    this.reset();
  }

  reset() { this.input.value = this.column.typical; }
  read() { return this.input.value; }
  values() { return [...new Set([this.read(), ...this.column.levels.slice(0, MOST_LEVELS)])].slice(0, MOST_LEVELS).sort(); }
}

class YesField {
  constructor(column, id) {
    this.column = column;
    this.input = element("input", { type: "checkbox", id });
    this.box = element("div", { class: "field" }, element("label", { for: id }, column.name), this.input,
      element("span", { class: "reach" }, element("b", {})));
    this.reset();
  }

  reset() { this.input.checked = this.column.typical; }
  read() { return this.input.checked; }
  values() { return [false, true]; }
}

const KINDS = { number: NumberField, date: DateField, category: LevelField, boolean: YesField };

// --- asking ------------------------------------------------------------------------------------------------------------

function values() { return Object.fromEntries(state.fields.map((field) => [field.column.name, field.read()])); }

function later() { // while a slider moves, the last place counts
  clearTimeout(state.waiting);
  state.waiting = setTimeout(update, 40);
}

async function update() {
  if (!state.fields.every((field) => field.read() !== null && field.read() !== "")) return;
  state.request?.abort();
  state.request = new AbortController();
  const { signal } = state.request, row = values();
  const moved = state.fields[at("moved").selectedIndex] || state.fields[0];
  const sweep = moved.values();
  const columns = Object.fromEntries(state.fields.map(({ column }) => [column.name, sweep.map((value) => (column === moved.column ? value : row[column.name]))]));
  try {
    const [answer, others] = await Promise.all([
      asked(of("/predict"), { rows: [row], quantiles: LEVELS, neighbors: NEAREST }, signal),
      asked(of("/predict"), { columns }, signal),
    ]);
    at("trouble").hidden = true;
    if (answer.version !== state.model.version) return void start(); // the file was replaced
    show(answer);
    drawSweep(moved, sweep, others, answer.mean[0]);
  } catch (error) {
    trouble(error);
  }
}

function show(answer) {
  const { target } = state.model;
  if (answer.mean[0] === null) {
    at("headline").textContent = "No prediction: a value is missing";
    return;
  }
  at("headline").textContent = `${target}: ${shown(answer.mean[0])}`;
  const outside = answer.outside[0];
  at("lead").textContent = `Between ${shown(answer.lower[0])} and ${shown(answer.upper[0])} with probability 90\u00a0%. `
    + (outside.length ? `Beyond the training rows in ${outside.join(", ")}: take it with care.` : "Every input is within the range of the training rows.");
  at("law-text").textContent = `Mean ${shown(answer.mean[0])}, standard deviation ${shown(answer.sd[0])}, noise included. The darker part holds 90\u00a0%.`;
  for (const field of state.fields) {
    const beyond = outside.includes(field.column.name);
    field.box.classList.toggle("beyond", beyond);
    field.box.querySelector(".reach b")?.replaceChildren(beyond ? "outside the training rows" : "");
  }
  drawLaw(answer);
  const near = answer.neighbors[0], names = state.fields.map((field) => field.column.name);
  const numeric = (name) => typeof near[0]?.values[name] === "number";
  const head = [["row", true], ["distance", true], [target, true], ...names.map((name) => [name, numeric(name)])];
  at("near").replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, ...head.map(([name, right]) => element("th", { scope: "col", class: right && "number" }, name)))),
    element("tbody", {}, ...near.map((one) => element("tr", {},
      ...[String(one.row), one.distance.toPrecision(3), shown(one.y)].map((text) => element("td", { class: "number" }, text)),
      ...names.map((name) => element("td", { class: numeric(name) && "number" }, shown(one.values[name] ?? null))))))));
}

// --- a whole table -----------------------------------------------------------------------------------------------------

async function table(file) {
  const text = at("table-text");
  text.replaceChildren(`${file.name}: predicting…`);
  try {
    const answer = await ask(of("/predict?keep=*"), file, "text/csv");
    const content = await answer.blob();
    const rows = (await content.text()).trimEnd().split("\n").length - 1;
    const link = element("a", { href: URL.createObjectURL(content), download: file.name.replace(/(\.csv)?$/i, "_predicted.csv") });
    link.textContent = link.download;
    text.replaceChildren(`${rows.toLocaleString("en")} rows predicted: `, link);
    link.focus();
  } catch (error) {
    text.replaceChildren(`${file.name}: ${error.message} ${error.cure || ""}`);
  }
}

function listen() {
  const drop = at("drop");
  at("file").addEventListener("change", (event) => event.target.files[0] && table(event.target.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) table(event.dataTransfer.files[0]);
    });
  }
  at("inputs").addEventListener("input", later);
  at("inputs").addEventListener("submit", (event) => event.preventDefault());
  at("inputs").addEventListener("reset", (event) => {
    event.preventDefault();
    state.fields.forEach((field) => field.reset());
    update();
  });
  at("moved").addEventListener("change", update);
  at("models").addEventListener("change", () => { state.name = at("models").value; start(); });
  at("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = at("token").value.trim();
    at("entry").hidden = true;
    at("trouble").hidden = true;
    start();
  });
}

// --- outcomes ----------------------------------------------------------------------------------------------------------

function drawHistory(history, name, value, interval, right) {
  const ys = history.flatMap((point) => [point[value], ...point[interval]]);
  const plane = new Plane({ low: 0.5, high: history.length + 0.5, share: (k) => (k - 0.5) / history.length }, scale([...ys, right]));
  const bounds = (end) => history.flatMap((point, k) => [[k + 0.5, point[interval][end]], [k + 1.5, point[interval][end]]]);
  plane.area([...bounds(0), ...bounds(1).reverse()], "band");
  plane.stroke([0.5, right], [history.length + 0.5, right], "line right");
  plane.line(history.map((point, k) => [k + 1, point[value]]), "one");
  history.forEach((point, k) => {
    const bad = point[value] < point[interval][0] || point[value] > point[interval][1];
    plane.dot(k + 1, point[value], bad ? "three" : "one", 3.5);
  });
  const ends = [history[0].until, history.at(-1).until];
  const words = (moment) => (ends[0].slice(0, 10) === ends[1].slice(0, 10) ? moment.slice(11, 16) : moment.slice(0, 10));
  const xTicks = history.length > 3 ? [[0.5, words(ends[0]), "start"], [history.length + 0.5, words(ends[1]), "end"]] : [[1, words(ends[0])]];
  return element("figure", {}, element("h3", {}, name), plane.drawn(`${name} over time`, "outcomes, the oldest first", "", { xTicks }));
}

async function outcomes() {
  at("outcomes").hidden = !state.model?.observes;
  if (!state.model?.observes) return;
  try {
    const found = await asked(of("/observations"));
    if (!found.n) {
      at("outcomes-text").textContent = "No outcome has been sent to /observe for this version of the model yet.";
      at("outcome-charts").replaceChildren();
      return;
    }
    const range = ([low, high]) => `${low.toFixed(2)} to ${high.toFixed(2)}`;
    at("outcomes-text").replaceChildren(
      element("span", { class: found.alarm ? "alarm" : "fine" }, found.alarm ? "Alarm: they do not. " : "Yes, as far as outcomes tell. "),
      `Of the latest ${found.n.toLocaleString("en")} outcomes, ${(100 * found.coverage).toFixed(1)} % lie in their 90 % intervals `
      + `(by chance ${found.coverage_interval.map((end) => (100 * end).toFixed(1)).join(" to ")} %); mean z² is `
      + `${found.mean_z2.toFixed(2)} (by chance ${range(found.mean_z2_interval)}).`,
    );
    at("outcome-charts").replaceChildren(
      drawHistory(found.history, "Share inside 90 % intervals", "coverage", "coverage_interval", 0.9),
      drawHistory(found.history, "Mean z²", "mean_z2", "mean_z2_interval", 1),
    );
  } catch (error) {
    at("outcomes-text").textContent = `${error.message} ${error.cure || ""}`;
  }
}

// --- the beginning -----------------------------------------------------------------------------------------------------

async function start() {
  try {
    const { models } = await asked("/models");
    state.name = state.name || models[0].name;
    at("models").replaceChildren(...models.map(({ name }) => element("option", { value: name, selected: name === state.name }, name)));
    at("choice").hidden = models.length < 2;
    const before = state.fields.length ? values() : {};
    state.model = await asked(of(""));
    const { model } = state;
    state.fields = model.columns.map((column, k) => new KINDS[column.kind](column, `field-${k}`));
    for (const field of state.fields) { // what was entered stays, where the column is still there
      const kept = before[field.column.name];
      if (field.write && typeof kept === "number") field.write(kept);
      else if (field.input && field.input.type !== "checkbox" && typeof kept === "string") field.input.value = kept;
    }
    at("fields").replaceChildren(...state.fields.map((field) => field.box));
    at("moved").replaceChildren(...state.fields.map(({ column }) => element("option", {}, column.name)));
    document.title = `gpnn: ${model.target}`;
    at("kicker").replaceChildren("Model ", element("b", {}, model.name), ` for ${model.target}, fitted on ${model.rows.toLocaleString("en")} rows`);
    at("footer").replaceChildren(element("p", {}, `Version ${model.version}; ${model.kernel} kernel, ${model.neighbors} neighbours. `,
      element("a", { href: "/docs" }, "What can be asked")));
    at("asking").hidden = at("table-card").hidden = false;
    await update();
    await outcomes();
  } catch (error) {
    trouble(error);
  }
}

listen();
start();
setInterval(outcomes, 30000);
