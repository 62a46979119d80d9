/* Charts, drawn on canvases in the colours of the style sheet. */

import { el, say } from "./elements.js";
import { short, span, whole } from "./text.js";

const palette = {};
export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["muted", "line", "insert", "sample", "third"]) {
    palette[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

/** The cleared context of a canvas, in CSS pixels, and its size. Null if the canvas is not visible. */
function contextOf(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
  if (!width || !height) return null;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  return { context, width, height };
}

function niceStep(size) {
  const power = 10 ** Math.floor(Math.log10(size)), part = size / power;
  return power * (part > 5 ? 10 : part > 2 ? 5 : part > 1 ? 2 : 1);
}

/** Draws one series. The line has a gap where a value is unknown. */
function line(context, slots, values, x, y, colour, dash = []) {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.setLineDash(dash);
  context.beginPath();
  let isDown = false;
  for (const slot of slots) {
    const value = values[slot];
    if (Number.isNaN(value)) { isDown = false; continue; }
    if (isDown) context.lineTo(x(slot), y(value)); else context.moveTo(x(slot), y(value));
    isDown = true;
  }
  context.stroke();
  context.setLineDash([]);
}

/** A chart of lines over time. `lines`: [name, colour, values, dash]. */
export class Chart {
  constructor(title, { format = short, fromZero = true } = {}) {
    this.title = title; this.format = format; this.fromZero = fromZero; this.lines = []; this.pointer = null;
    this.canvas = el("canvas", { role: "img" });
    this.legend = el("div", { class: "legend number" });
    this.element = el("div", { class: "chart" }, el("h3", { text: title }), this.canvas, this.legend);
    this.canvas.addEventListener("pointermove", event => { this.pointer = event.offsetX; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  show(history, lines) { this.history = history; this.lines = lines; this.draw(); }
  draw() {
    const found = this.history && contextOf(this.canvas);
    if (!found) return;
    const { context, width, height } = found, slots = this.history.slots(), at = this.history.at;
    if (!slots.length) return;
    const end = at[slots[slots.length - 1]], seconds = Math.min(Math.max(end - at[slots[0]], 60), 600);
    const [low, high, step] = this.range(slots);
    const left = 40, bottom = height - 16;
    const x = slot => left + (width - left - 4) * (1 - (end - at[slot]) / seconds);
    const y = value => bottom - (bottom - 8) * (value - low) / (high - low);
    this.axes(context, { low, high, step, left, bottom, width, seconds, y });
    for (const [, colour, values, dash] of this.lines) line(context, slots, values, x, y, palette[colour], dash);
    this.explain(context, slots, x, bottom);
  }

  range(slots) {
    let low = this.fromZero ? 0 : Infinity, high = this.fromZero ? 0 : -Infinity;
    for (const [, , values] of this.lines) {
      for (const slot of slots) {
        const value = values[slot];
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (!Number.isFinite(low)) [low, high] = [0, 1];
    if (this.fromZero) high = high > 0 ? high : 1;
    else if (high - low < .02 * Math.max(Math.abs(low), Math.abs(high), 1)) {  // nearly flat: do not magnify noise
      const around = Math.max(.5, .05 * Math.abs(high));
      [low, high] = [low - around, high + around];
    }
    const step = niceStep((high - low) / 3);
    return [Math.floor(low / step) * step, Math.ceil(high / step) * step, step];
  }

  axes(context, { low, high, step, left, bottom, width, seconds, y }) {
    context.strokeStyle = palette.line;
    context.fillStyle = palette.muted;
    context.lineWidth = 1;
    context.textAlign = "right";
    for (let place = 0; place <= Math.round((high - low) / step); place += 1) {
      const value = low + place * step, at = Math.round(y(value)) + .5;
      context.beginPath(); context.moveTo(left, at); context.lineTo(width - 4, at); context.stroke();
      context.fillText(this.format(+value.toPrecision(6)), left - 5, at);
    }
    context.fillText("now", width - 4, bottom + 9);
    context.textAlign = "left";
    context.fillText(`${span(seconds).replace(".0", "")} ago`, left, bottom + 9);
  }

  /** The legend shows the newest values, or those under the pointer. */
  explain(context, slots, x, bottom) {
    let slot = slots[slots.length - 1], when = "";
    if (this.pointer !== null) {
      slot = slots.reduce((best, next) => Math.abs(x(next) - this.pointer) < Math.abs(x(best) - this.pointer) ? next : best);
      context.strokeStyle = palette.muted;
      context.beginPath(); context.moveTo(x(slot), 4); context.lineTo(x(slot), bottom); context.stroke();
      when = `${span(this.history.at[slots[slots.length - 1]] - this.history.at[slot])} ago`;
    }
    const shown = this.lines.map(([name, colour, values]) => [name, colour, this.format(values[slot])]);
    while (this.legend.children.length < shown.length + 1) this.legend.append(el("span", {}, el("i"), el("span")));
    while (this.legend.children.length > shown.length + 1) this.legend.lastChild.remove();
    shown.forEach(([name, colour, value], place) => {
      this.legend.children[place].firstChild.className = `fill-${colour}`;
      say(this.legend.children[place].lastChild, `${name} ${value}`);
    });
    this.legend.lastChild.firstChild.className = "";
    say(this.legend.lastChild.lastChild, when);
    this.canvas.setAttribute("aria-label", `${this.title}: ${shown.map(([name, , value]) => `${name} ${value}`).join(", ")}`);
  }
}

/** A histogram. `edges` are the upper ends of all bins except the last, which has no upper end. */
export class Bars {
  constructor(title) {
    this.title = title; this.found = null; this.pointer = null;
    this.canvas = el("canvas", { role: "img" });
    this.legend = el("div", { class: "legend number" }, el("span"));
    this.element = el("div", { class: "chart" }, el("h3", { text: title }), this.canvas, this.legend);
    this.canvas.addEventListener("pointermove", event => { this.pointer = event.offsetX; this.draw(); });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  show(found, summary) { this.found = found; this.summary = summary; this.draw(); }
  draw() {
    const drawing = contextOf(this.canvas);
    if (!drawing) return;
    const { context, width, height } = drawing;
    if (!this.found || !this.found.counts.some(count => count > 0)) {
      say(this.legend.firstChild, this.found ? "no items" : "loading …");
      return;
    }
    const [first, last] = this.shown(), bottom = height - 16, each = (width - 8) / (last - first + 1);
    const { edges, counts } = this.found, most = Math.max(...counts), total = counts.reduce((sum, count) => sum + count, 0);
    const under = this.pointer === null ? -1 : Math.min(last, Math.max(first, first + Math.floor((this.pointer - 4) / each)));
    for (let bin = first; bin <= last; bin += 1) {
      const size = (bottom - 6) * counts[bin] / most;
      context.fillStyle = bin === under ? palette.sample : palette.insert;
      context.fillRect(4 + (bin - first) * each + .5, bottom - size, Math.max(1, each - 1.5), size);
    }
    context.fillStyle = palette.line;
    context.fillRect(4, bottom, width - 8, 1);
    context.fillStyle = palette.muted;
    const every = Math.max(1, Math.ceil((last - first) / Math.max(2, Math.floor(width / 60))));
    context.textAlign = "center";
    for (let bin = first; bin < last && bin < edges.length; bin += every) {
      context.fillText(short(edges[bin]), 4 + (bin - first + 1) * each, bottom + 9);
    }
    const part = `${(100 * counts[under] / total).toFixed(1)} %`;
    say(this.legend.firstChild, under < 0 ? this.summary : `${this.bin(under)}: ${whole(counts[under])} items, ${part}`);
    this.canvas.setAttribute("aria-label", `${this.title}: ${this.summary}`);
  }

  /** The range of bins to draw: those with items, and one more at each end. */
  shown() {
    const { counts } = this.found;
    const first = counts.findIndex(count => count > 0), last = counts.length - 1 - [...counts].reverse().findIndex(count => count > 0);
    return [Math.max(0, first - 1), Math.min(counts.length - 1, last + 1)];
  }

  bin(bin) {
    const { edges } = this.found;
    if (bin >= edges.length) return `above ${short(edges[edges.length - 1])}`;
    return bin === 0 ? `up to ${short(edges[0])}` : `${short(edges[bin - 1])} to ${short(edges[bin])}`;
  }
}

/** A small chart of the last two minutes of two series, without axes. */
export function spark(canvas, history, first, second) {
  const found = contextOf(canvas);
  if (!found) return;
  const slots = history.slots(120);
  let most = 0;
  for (const slot of slots) most = Math.max(most, first[slot] || 0, second[slot] || 0);
  const x = slot => found.width - 2 - (found.width - 4) * (history.at[slots[slots.length - 1]] - history.at[slot]) / 120;
  const y = value => found.height - 2 - (found.height - 4) * value / (most || 1);
  line(found.context, slots, first, x, y, palette.insert);
  line(found.context, slots, second, x, y, palette.sample);
}
