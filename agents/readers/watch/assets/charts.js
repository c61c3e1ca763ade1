// Lines with intervals, and shares that are stacked, by uPlot; and what a screen reader is told of them.

import { colour, element, number, table } from "./common.js";

// Okabe and Ito.
export const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7a00", "#7a4fb5", "#666666", "#a0522d"];
const ROWS = 20;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];

// A chart over steps. `lines` have label, values, and low and high or nothing; `options.stacked` stacks them as shares.
export class Chart {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;
    this.plot = null;
    this.box = element("div", { class: "chart", role: "img", "aria-label": title });
    this.rows = element("div", {});
    this.details = element("details", { class: "small", ontoggle: () => this.tabulate() },
      element("summary", {}, "The last numbers as a table"), this.rows);
    this.root = element("div", {}, this.box, this.details);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.box);
  }

  show(steps, lines, when) {
    Object.assign(this, { steps, lines, when });
    this.fill();
  }

  themed() {
    this.plot?.destroy();
    this.plot = null;
    if (this.lines) this.fill();
  }

  resize() {
    const width = this.box.clientWidth;
    if (this.plot && width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height() });
  }

  height() {
    return this.box.clientWidth < 480 ? 220 : 260;
  }

  fill() {
    const { steps, lines, options } = this;
    if (!lines.length || !steps.length || !this.box.clientWidth) return;
    const names = lines.map((line) => line.label).join("\n");
    const data = options.stacked ? stacked(steps, lines) : plain(steps, lines);
    if (!this.plot || names !== this.names) {
      this.plot?.destroy();
      this.names = names;
      this.plot = new uPlot(this.config(data), data, this.box);
    } else this.plot.setData(data);
    const last = steps.length - 1;
    this.box.setAttribute("aria-label", `${this.title}, steps ${steps[0]} to ${steps[last]}. Last: ${lines.map((line) =>
      `${line.label} ${shown(line.values[last], options)}`).join(", ")}. A table follows.`);
    this.tabulate();
  }

  config() {
    const { lines, options } = this;
    const ink = colour("ink"), grid = { stroke: colour("line"), width: 1 };
    const tone = (at) => COLOURS[at % COLOURS.length];
    const series = [{ label: "step", value: (_, step) => (step === null ? "" : this.name(step)) }];
    const bands = [];
    lines.forEach((line, at) => {
      const number_ = (_, value, __, index) => (index === null ? "" : shown(line.values[index], options));
      const points = { show: this.steps.length < 40, size: 5 };
      if (options.stacked) series.push({ label: line.label, stroke: tone(at), width: 1, fill: `${tone(at)}b0`, points: { show: false }, value: number_ });
      else series.push({ label: line.label, stroke: lines.length === 1 ? colour("accent") : tone(at), width: 2, points, value: number_ });
    });
    if (options.stacked) {
      for (let at = 1; at < lines.length; at++) bands.push({ series: [at, at + 1] });
    } else {
      lines.forEach((line, at) => {
        if (!line.low) return;
        const first = series.length, fill = lines.length === 1 ? colour("accent") : tone(at);
        for (const edge of ["low", "high"]) {
          series.push({ label: `${line.label} ${edge}`, stroke: fill, width: 0.5, points: { show: false },
            value: (_, value) => (value === null ? "" : shown(value, options)) });
        }
        bands.push({ series: [first + 1, first], fill: `${fill}30` });
      });
    }
    return {
      width: this.box.clientWidth, height: this.height(), series, bands,
      scales: { x: { time: false }, ...(options.stacked ? { y: { range: [0, 1] } } : {}) },
      axes: [
        { stroke: ink, grid, ticks: grid, label: "step", labelSize: 18, space: 60, incrs: WHOLE },
        { stroke: ink, grid, ticks: grid, size: 62, values: (_, ticks) => ticks.map((tick) => (options.stacked || options.unit === "%" ? `${+(100 * tick).toPrecision(3)} %` : short(tick))) },
      ],
      cursor: { drag: { x: true, y: false } },
    };
  }

  name(step) {
    const end = this.when?.get(step);
    return end ? `${step}, until ${end.slice(0, 16).replace("T", " ")}` : String(step);
  }

  tabulate() {
    if (!this.details.open || !this.lines) return;
    const { steps, lines, options } = this;
    const from = Math.max(0, steps.length - ROWS);
    const head = ["#step", ...lines.flatMap((line) => (line.low ? [`#${line.label}`, "interval"] : [`#${line.label}`]))];
    const rows = steps.slice(from).map((step, at) => [String(step), ...lines.flatMap((line) => {
      const value = shown(line.values[from + at], options);
      return line.low ? [value, `${shown(line.low[from + at], options)} to ${shown(line.high[from + at], options)}`] : [value];
    })]).reverse();
    this.rows.replaceChildren(table(this.title, head, rows));
  }

  close() {
    this.sizes.disconnect();
    this.plot?.destroy();
  }
}

function plain(steps, lines) {
  const edges = lines.filter((line) => line.low).flatMap((line) => [line.low, line.high]);
  return [steps, ...lines.map((line) => line.values), ...edges];
}

// From the top down, so that each lies over the ones above it.
function stacked(steps, lines) {
  const totals = steps.map((_, at) => lines.reduce((sum, line) => sum + (line.values[at] || 0), 0) || 1);
  const sums = new Array(steps.length).fill(0);
  const columns = [];
  for (const line of [...lines].reverse()) {
    columns.push(steps.map((_, at) => (sums[at] += (line.values[at] || 0) / totals[at])));
  }
  return [steps, ...columns.reverse()];
}

function short(value) {
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(4)} M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toPrecision(4)} k`;
  return String(+value.toPrecision(4));
}

function shown(value, options) {
  if (value === null || value === undefined) return "none";
  if (options.unit === "%") return `${(100 * value).toFixed(1)} %`;
  return number.format(Math.abs(value) < 100 ? +value.toPrecision(4) : Math.round(value));
}
