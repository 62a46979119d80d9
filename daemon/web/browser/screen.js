/* What the page knows and what it shows; the parts of the page share it. */

import { $ } from "./elements.js";
import { Model } from "./model.js";

export const model = new Model();

export const view = {
  picked: null,  // the name of the table in the details pane
  isPickedByHand: false,
  isFrozen: false,
};

export const isNarrow = matchMedia("(max-width: 1100px)"), isPhone = matchMedia("(max-width: 700px)");

let drawAll = () => {};
let onPicked = () => {};
/** Says what `redraw` calls, and what a newly picked table needs. */
export function setDrawing(draw, picked) { drawAll = draw; onPicked = picked; }
export function redraw() { if (model.daemon) drawAll(); }

/** Shows a table in the details pane; null closes the pane. */
export function pick(name, { byHand = true } = {}) {
  if (byHand) view.isPickedByHand = true;
  if (name === view.picked) return;
  view.picked = name;
  $("detail").hidden = name === null;
  $("split").className = name === null ? "alone" : "";
  if (name !== null) { $("detail-scroll").scrollTop = 0; onPicked(); }
  redraw();
}

/** Whether a text contains all words of a filter. */
export const fits = (text, filter) => filter.split(/\s+/).every(word => text.includes(word));

/** Compares rows by the value that `of` returns, then by name. Rows without a value come last. */
export function order(of, direction) {
  const byText = (left, right) => left.localeCompare(right, "en", { numeric: true });
  const isMissing = value => value === null || value === undefined || Number.isNaN(value);
  return (a, b) => {
    const [left, right] = [of(a), of(b)];
    if (isMissing(left) || isMissing(right)) return Number(isMissing(left)) - Number(isMissing(right));
    const difference = typeof left === "string" ? byText(left, right) : left - right;
    return direction * difference || byText(a.name || "", b.name || "");
  };
}
