// The last ten minutes as lines. uPlot draws them.

import { make, say } from "./dom.js";
import { bytes, count, milliseconds, share } from "./format.js";
import { full, mean } from "./tiles.js";

const SECONDS = 600;
const HEIGHT = 132;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
const GAP_S = 3; // a line does not go on over a longer time without snapshots

const KINDS = [
  { title: "Tokens per second", format: count, lines: [["tokens/s", "one", (s) => s.pace.tokens_per_s]] },
  {
    title: "First token",
    format: milliseconds,
    lines: [["p50", "one", (s) => s.pace.first_token_p50_ms], ["p99", "two", (s) => s.pace.first_token_p99_ms]],
  },
  {
    title: "Sequences",
    format: count,
    isWhole: true,
    lines: [["running", "one", (s) => s.sequences.running], ["waiting", "two", (s) => s.sequences.waiting]],
  },
  {
    title: "Pages in use",
    format: share,
    most: 1,
    lines: [
      ["with cached", "one", (s) => (s.caches.prefix ? full(s.caches.prefix) : null)],
      ["held", "two", (s) => (s.caches.prefix?.pages ? s.caches.prefix.held / s.caches.prefix.pages : null)],
    ],
  },
];
const GPU_KINDS = [
  { title: "GPU busy", format: share, most: 1, lines: [["busy", "one", (s) => mean(s.devices, "busy")]] },
  { title: "GPU memory", format: bytes, lines: [["used", "one", (s) => mean(s.devices, "used_bytes")]] },
];

/** All plots, in one folder of the document. */
export class Plots {
  constructor(parent) {
    this.parent = parent;
    this.plots = KINDS.map((kind) => new Plot(parent, kind));
    this.hasGpus = false;
    const redraw = () => this.plots.forEach((plot) => plot.repaint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  /** Add a snapshot to each. */
  add(snapshot) {
    if (snapshot.devices.length && !this.hasGpus) {
      this.hasGpus = true;
      this.plots.push(...GPU_KINDS.map((kind) => new Plot(this.parent, kind)));
    }
    for (const plot of this.plots) plot.add(snapshot);
  }
}

class Plot {
  constructor(parent, kind) {
    this.kind = kind;
    this.data = [[], ...kind.lines.map(() => [])];
    this.values = kind.lines.map(([name, tone]) => make("span", `reading tone-${tone}`, make("i"), `${name} `, make("b")));
    this.box = make("div", "plot-box");
    this.box.setAttribute("role", "img");
    parent.append(make("figure", "card plot", make("figcaption", "", make("span", "", kind.title), ...this.values), this.box));
    this.chart = new window.uPlot(this.options(), this.data, this.box);
    new ResizeObserver(() => this.chart.setSize({ width: this.width(), height: HEIGHT })).observe(this.box);
  }

  add(snapshot) {
    const now = snapshot.time_s;
    const [times] = this.data;
    const values = this.kind.lines.map(([, , of]) => of(snapshot));
    if (times.length && now <= times.at(-1)) return;
    if (times.length && now - times.at(-1) > GAP_S) this.push(times.at(-1) + 1, values.map(() => null));
    this.push(now, values);
    while (times.length && times[0] < now - SECONDS) this.data.forEach((column) => column.shift());
    this.chart.setData(this.data, false);
    this.chart.setScale("x", { min: Math.max(times[0], now - SECONDS) - 1, max: Math.max(now, times[0] + 60) });
    const texts = values.map((value) => this.kind.format(value));
    this.values.forEach((element, index) => say(element.lastChild, texts[index]));
    const spoken = this.kind.lines.map(([name], index) => `${name} ${texts[index]}`).join(", ");
    this.box.setAttribute("aria-label", `${this.kind.title} over the last minutes; now ${spoken}`);
  }

  repaint() {
    this.chart.redraw(false, true);
  }

  push(time, values) {
    [time, ...values].forEach((value, index) => this.data[index].push(value));
  }

  width() {
    return Math.max(this.box.clientWidth, 120);
  }

  options() {
    const { kind } = this;
    const axis = { stroke: () => colour("faint"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: () => colour("line"), width: 1 };
    const y = { ...axis, grid, size: 48, gap: 6, space: 34, ...(kind.isWhole && { incrs: WHOLE }), values: (_, all) => all.map((value) => kind.format(value)) };
    const times = [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]];
    return {
      width: this.width(),
      height: HEIGHT,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "page" }, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { auto: false }, y: { range: (_, low, high) => [0, kind.most ?? Math.max(high ?? 0, 1) * 1.15] } },
      axes: [{ ...axis, grid: { show: false }, size: 24, space: 90, values: times }, y],
      series: [{}, ...kind.lines.map(([, tone], index) => line(tone, index === 0))],
    };
  }
}

function line(tone, isFilled) {
  return {
    stroke: () => colour(tone),
    fill: isFilled ? () => `${colour(tone)}1f` : undefined,
    width: 1.75,
    points: { show: false },
    spanGaps: false,
  };
}

/** A colour of the style sheet, as #rrggbb: those of dark and light mode have one name. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
