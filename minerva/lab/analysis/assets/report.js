// Hovering, switching entries on and off, enlarging, downloading. The page is whole without it.
"use strict";

const data = JSON.parse(document.getElementById("raw").textContent);
const tip = document.getElementById("tip");
const SVG = "http://www.w3.org/2000/svg";
const off = new Set(); // entries that are switched off
const charts = [];

// --- entries -------------------------------------------------------------------------------------------------

const legend = document.querySelector(".legend");
legend.classList.remove("unscripted");

function show(entry, shown) {
  shown ? off.delete(entry) : off.add(entry);
  for (const part of document.querySelectorAll(`[data-entry="${entry}"]`)) part.classList.toggle("off", !shown);
  for (const chart of charts) chart.rescale();
}

const switches = [...legend.querySelectorAll("input[data-switch]")];
for (const box of switches) box.addEventListener("change", () => show(+box.dataset.switch, box.checked));
for (const button of legend.querySelectorAll("button[data-all]"))
  button.addEventListener("click", () => {
    for (const box of switches) {
      box.checked = button.dataset.all === "on";
      show(+box.dataset.switch, box.checked);
    }
  });
for (const box of legend.querySelectorAll("input[data-view]"))
  box.addEventListener("change", () => document.body.classList.toggle(`no-${box.dataset.view}`, !box.checked));

// --- values under the pointer ----------------------------------------------------------------------------------

const number = (value) =>
  Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));

const short = (value, digits) => {
  for (const [size, mark] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(digits ?? 4))}${mark}`;
  return String(Number(value.toPrecision(digits ?? 3)));
};

const place = (axis, value) => {
  const scale = axis.log ? Math.log10 : (v) => v;
  const share = (scale(Math.max(value, axis.log ? axis.low : value)) - scale(axis.low)) / (scale(axis.high) - scale(axis.low));
  return axis.start + share * (axis.end - axis.start);
};

function nearest(values, wanted) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (Math.abs(values[i] - wanted) < Math.abs(values[best] - wanted)) best = i;
  return best;
}

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.svg = figure.querySelector("svg");
    this.values = JSON.parse(figure.dataset.chart);
    this.drawn = this.values.y; // the axis that the paths were drawn for
    this.marks = element("g", { class: "marks", "aria-hidden": "true" }, this.svg);
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.button();
  }

  button() {
    const button = document.createElement("button");
    button.className = "enlarge";
    button.textContent = "⤢";
    button.setAttribute("aria-label", "Enlarge");
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () =>
      button.setAttribute("aria-pressed", String(this.figure.classList.toggle("big"))));
    this.figure.append(button);
  }

  // The height is made use of by what is shown: paths are stretched, ticks drawn anew.
  rescale() {
    const ranges = this.lines().map((line) => line.range);
    if (this.values.fixed || !ranges.length) return;
    const all = ranges.length === this.values.lines.length;
    const low = Math.min(...ranges.map((range) => range[0]));
    const high = Math.max(...ranges.map((range) => range[1]));
    const pad = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
    const axis = all ? this.drawn : { ...this.drawn, low: low - pad, high: high + pad };
    const at = (pixel) => place(axis, this.drawn.low + ((pixel - axis.start) / (axis.end - axis.start)) * (this.drawn.high - this.drawn.low));
    const stretch = at(1) - at(0);
    for (const group of this.svg.querySelectorAll("g[data-entry]"))
      group.setAttribute("transform", `matrix(1 0 0 ${stretch} 0 ${at(0)})`);
    for (const level of this.svg.querySelectorAll(".level-group")) {
      const value = +level.dataset.value;
      level.setAttribute("transform", `translate(0 ${place(axis, value) - place(this.drawn, value)})`);
      level.classList.toggle("off", value < axis.low || value > axis.high);
    }
    this.values.y = axis;
    this.ticks(axis);
  }

  ticks(axis) {
    const group = this.svg.querySelector(".y-ticks");
    group.replaceChildren();
    const rough = (axis.high - axis.low) / 5;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = size * [1, 2, 2.5, 5, 10].find((factor) => size * factor >= rough * (1 - 1e-9));
    const largest = Math.max(Math.abs(axis.low), Math.abs(axis.high));
    const digits = Math.min(Math.ceil(Math.log10(largest / step)) + 3, 15);  // enough to show a quarter of a step
    for (let n = Math.ceil(axis.low / step - 1e-9); n <= Math.floor(axis.high / step + 1e-9); n++) {
      const y = place(axis, n * step);
      element("line", { class: "grid", x1: this.values.x.start, x2: this.values.x.end, y1: y, y2: y }, group);
      const text = element("text", { class: "tick", x: this.values.x.start - 6, y: y + 3.5, "text-anchor": "end" }, group);
      text.textContent = short(n * step, digits);
    }
  }

  lines() {
    return this.values.lines.filter((line) => !off.has(line.entry));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const { low, high, start, end } = this.values.x;
    const pixel = ((event.clientX - box.left) / box.width) * this.svg.viewBox.baseVal.width;
    this.move(low + ((pixel - start) / (end - start)) * (high - low), event.clientX, event.clientY);
  }

  key(event) {
    const steps = [...new Set(this.lines().flatMap((line) => line.x))].sort((a, b) => a - b);
    if (event.key === "Escape") return this.leave();
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || !steps.length) return;
    event.preventDefault();
    const now = this.at === null ? (event.key === "ArrowLeft" ? steps.length : -1) : nearest(steps, this.at);
    const next = { Home: 0, End: steps.length - 1, ArrowLeft: now - 1, ArrowRight: now + 1 }[event.key];
    const step = steps[Math.max(0, Math.min(next, steps.length - 1))];
    const box = this.svg.getBoundingClientRect();
    const x = box.left + (place(this.values.x, step) / this.svg.viewBox.baseVal.width) * box.width;
    this.move(step, x, box.top + 20);
  }

  move(wanted, clientX, clientY) {
    const lines = this.lines();
    if (!lines.length) return this.leave();
    const all = lines.flatMap((line) => line.x);
    this.at = all[nearest(all, wanted)];
    const x = place(this.values.x, this.at);
    this.marks.replaceChildren();
    element("line", { class: "cursor", x1: x, x2: x, y1: this.values.y.end, y2: this.values.y.start }, this.marks);
    const name = this.values.steps ? `${number(this.at)} ${this.values.xName}` : `${this.values.xName} ${number(this.at)}`;
    tip.replaceChildren(Object.assign(document.createElement("strong"), { textContent: name }));
    const rows = lines.map((line) => [line, nearest(line.x, this.at)]).filter(([line, i]) => this.near(line.x[i]));
    rows.sort(([a, i], [b, j]) => b.y[j] - a.y[i]);
    for (const [line, i] of rows) this.row(line, i);
    this.float(clientX, clientY);
  }

  near(step) {
    const { low, high } = this.values.x;
    return Math.abs(step - this.at) <= 0.04 * (high - low);
  }

  row(line, i) {
    const group = this.svg.querySelector(`g[data-entry="${line.entry}"]`);
    const colour = group.getAttribute("class");
    element("circle", { class: `dot ${colour}`, cx: place(this.values.x, line.x[i]), cy: place(this.values.y, line.y[i]), r: 3.5 }, this.marks);
    const row = document.createElement("div");
    const swatch = Object.assign(document.createElement("span"), { className: `swatch ${colour}` });
    const band = line.low ? ` [${number(line.low[i])}, ${number(line.high[i])}]` : "";
    const value = Object.assign(document.createElement("span"), { className: "value", textContent: number(line.y[i]) + band });
    row.append(swatch, line.name, value);
    tip.append(row);
  }

  float(clientX, clientY) {
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = clientX + 14 + tip.offsetWidth > width ? clientX - 14 - tip.offsetWidth : clientX + 14;
    tip.style.left = `${Math.max(4, Math.min(left, width - tip.offsetWidth - 4)) + window.scrollX}px`;
    tip.style.top = `${Math.max(4, clientY - tip.offsetHeight - 12) + window.scrollY}px`;
  }

  leave() {
    this.at = null;
    this.marks.replaceChildren();
    tip.hidden = true;
  }
}

for (const figure of document.querySelectorAll("figure[data-chart]")) charts.push(new Chart(figure));

// --- downloads -------------------------------------------------------------------------------------------------

const COLUMNS = ["entry", "algo", "env", "budget", "seed", "kind", "step", "episode", "return"];

function quoted(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // a spreadsheet would take it for a formula
  return `"${safe.replaceAll('"', '""')}"`;
}

function csv() {
  const lines = [COLUMNS.join(",")];
  for (const run of data.runs) {
    const head = [quoted(run.entry), quoted(run.algo), quoted(run.env), run.budget, run.seed].join(",");
    const add = (kind, step, returns) =>
      returns.forEach((value, episode) => lines.push(`${head},${kind},${step},${episode},${value}`));
    for (const point of run.curve) add("evaluation", point.step, point.returns);
    add("final", run.steps, run.returns);
  }
  return lines.join("\n") + "\n";
}

const FILES = {
  json: () => ["application/json", JSON.stringify(data, null, 1)],
  csv: () => ["text/csv", csv()],
};

for (const button of document.querySelectorAll("button[data-download]"))
  button.addEventListener("click", () => {
    const [type, text] = FILES[button.dataset.download]();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = `${data.name}.${button.dataset.download}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });

// --- paper -----------------------------------------------------------------------------------------------------

const closed = new Set();
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    closed.add(details);
    details.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const details of closed) details.open = false;
  closed.clear();
});
