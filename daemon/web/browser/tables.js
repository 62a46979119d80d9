/* The list of tables. */

import { spark } from "./charts.js";
import { $, badges, el, say } from "./elements.js";
import { fits, model, order, pick, redraw, view } from "./screen.js";
import { short, whole } from "./text.js";
import { tableBadges } from "./troubles.js";

const now = name => table => table.now ? table.now[name] : NaN;
const waitingOf = table => Number(table.info.blocked_inserts || 0) + Number(table.info.blocked_samples || 0);

// key, title, value to sort by, class
const COLUMNS = [
  ["name", "Table", table => table.name, ""], ["fill", "Fill", table => table.info.size / table.info.max_size, ""],
  ["inserts", "Inserts/s", now("inserts"), "right"], ["samples", "Samples/s", now("samples"), "right"],
  ["spark", "2 min", null, "wide"], ["ratio", "Ratio", now("ratio"), ""],
  ["waiting", "Waiting", waitingOf, "right"], ["writers", "Writers", table => table.info.writers, "right wide roomy"],
  ["learners", "Learners", table => table.info.learners, "right wide roomy"],
];
const HINTS = { ratio: "samples per insert: reached, of wanted", waiting: "calls that wait now" };
const rows = new Map();
let sorted = ["name", 1];

export function makeTableHead() {
  for (const [key, title, of, kind] of COLUMNS) {
    const words = of ? el("button", { text: title, title: HINTS[key] || null, onclick: () => sortBy(key) }) : el("span", { class: "muted", text: title });
    $("table-scroll").querySelector("thead tr").append(el("th", { class: kind, "data-key": key, scope: "col" }, words));
  }
  $("table-filter").addEventListener("input", drawTables);
}

function sortBy(key) {
  const [before, direction] = sorted;
  sorted = [key, before === key ? -direction : key === "name" ? 1 : -1];
  redraw();
}

const wordsOf = table => `${table.name} ${tableBadges(table).map(([text]) => text).join(" ")}`.toLowerCase();

export function drawTables() {
  const filter = $("table-filter").value.trim().toLowerCase(), body = $("table-scroll").querySelector("tbody");
  const [key, direction] = sorted, of = COLUMNS.find(column => column[0] === key)[2];
  for (const head of $("table-scroll").querySelectorAll("th")) {
    if (head.dataset.key !== key) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  }
  const shown = [...model.tables.values()].filter(table => fits(wordsOf(table), filter)).sort(order(of, direction));
  say($("table-count"), shown.length === model.tables.size ? whole(shown.length) : `${shown.length} of ${model.tables.size}`);
  $("table-empty").hidden = shown.length > 0;
  const none = "There are no tables yet. A client creates them with client.create_tables([...]).";
  say($("table-empty"), model.tables.size ? "No table matches the filter." : none);
  for (const [name, row] of rows) if (!model.tables.has(name)) { row.element.remove(); rows.delete(name); }
  const elements = shown.map(table => rowOf(table).element);
  const isSame = elements.length === body.children.length && elements.every((element, place) => body.children[place] === element);
  if (!isSame) body.replaceChildren(...elements);
  for (const table of shown) drawRow(rows.get(table.name), table);
}

function rowOf(table) {
  if (rows.has(table.name)) return rows.get(table.name);
  const cell = {};
  const td = (name, kind, label, ...children) => (cell[name] = el("td", { class: kind, "data-label": label || null }, ...children));
  cell.fillBar = el("b", { class: "fill-insert" }); cell.fillText = el("small", { class: "number" });
  cell.ratioBar = el("b", { class: "fill-sample" }); cell.ratioText = el("small", { class: "number" });
  cell.ratioTrack = el("span", { class: "bar" }, cell.ratioBar);
  cell.badges = el("span"); cell.spark = el("canvas", { class: "spark", "aria-hidden": "true" });
  const element = el("tr", { tabindex: 0, "data-table": table.name, onclick: () => pick(table.name),
      onkeydown: event => { if (event.key === "Enter") pick(table.name); } },
    td("name", "name", "", el("span", { text: table.name, title: table.name }), " ", cell.badges),
    td("fill", "", "", el("span", { class: "bar" }, cell.fillBar), cell.fillText),
    td("inserts", "right number last", "inserts/s"), td("samples", "right number last", "samples/s"),
    td("spark-cell", "wide", "", cell.spark),
    td("ratio", "", "", cell.ratioTrack, cell.ratioText), td("waiting", "right number last waiting", "waiting"),
    td("writers", "right number wide roomy", ""), td("learners", "right number wide roomy", ""));
  const values = {};
  for (const name of ["inserts", "samples", "waiting", "writers", "learners"]) cell[name].append(values[name] = el("span"));
  const row = { element, cell, values };
  rows.set(table.name, row);
  return row;
}

function drawRow({ element, cell, values }, table) {
  const { info, now } = table;
  element.setAttribute("aria-selected", String(view.picked === table.name));
  badges(cell.badges, tableBadges(table));
  if (!table.isReadable) return;
  cell.fillBar.style.width = `${Math.min(100, 100 * info.size / info.max_size)}%`;
  say(cell.fillText, `${short(info.size)} of ${short(info.max_size)}`);
  say(values.inserts, short(now.inserts));
  say(values.samples, short(now.samples));
  drawRatio(cell, now);
  say(values.waiting, String(waitingOf(table)));
  cell.waiting.classList.toggle("none", waitingOf(table) === 0);
  say(values.writers, short(info.writers));
  say(values.learners, short(info.learners));
  spark(cell.spark, model.history, table.series.inserts, table.series.samples);
}

/** The bar is full when the ratio that the limiter asks for is reached. Without such a ratio there is no bar. */
function drawRatio(cell, { ratio, asked }) {
  const isAsked = !Number.isNaN(asked);
  cell.ratioTrack.hidden = !isAsked;
  cell.ratioBar.style.width = isAsked && ratio ? `${Math.min(100, 100 * ratio / asked)}%` : "0";
  say(cell.ratioText, `${short(ratio)}${isAsked ? ` of ${short(asked)}` : ""}`);
}
