/* The top of the page: the daemon, what needs attention, and charts of all tables together. */

import { Chart } from "./charts.js";
import { $, el, facts, replaceIfNew, say } from "./elements.js";
import { isPhone, model, pick, redraw } from "./screen.js";
import { ago, bytes, isNone, span, whole } from "./text.js";
import { troubles } from "./troubles.js";

const charts = {
  rates: new Chart("Items per second"), waiting: new Chart("Waiting calls"),
  blocked: new Chart("Time spent waiting, s per s"), clients: new Chart("Client processes"),
};
for (const chart of Object.values(charts)) { chart.element.classList.add("panel"); $("overview").append(chart.element); }

let showsAllTroubles = false;

export function drawOverview() {
  drawFacts();
  drawTroubles();
  const { history, totals } = model;
  charts.rates.show(history, [["inserts", "insert", totals.inserts], ["samples", "sample", totals.samples]]);
  charts.waiting.show(history, [["to insert", "insert", totals.waiting_inserts], ["to sample", "sample", totals.waiting_samples]]);
  charts.blocked.show(history, [["inserts", "insert", totals.blocked_inserts_s], ["samples", "sample", totals.blocked_samples_s]]);
  charts.clients.show(history, [
    ["writers", "insert", totals.writers], ["learners", "sample", totals.learners], ["idle", "muted", totals.idle],
  ]);
}

function drawFacts() {
  const { daemon } = model, figures = Object.values(model.arenas);
  const memory = figures.reduce((sum, arena) => sum + arena.index_bytes + arena.data_bytes, 0);
  say($("instance"), daemon.instance);
  facts($("facts"), [
    ["version", daemon.version], ["pid", String(daemon.pid)], ["running for", span(daemon.uptime_s)],
    ["clients", whole(daemon.clients)], ["processes", whole(daemon.processes)], ["processes died", whole(daemon.deaths)],
    ["tables", whole(model.tables.size)], ["shared memory", bytes(memory)],
    ["last checkpoint", checkpointText(daemon.checkpoint)],
  ]);
}

function checkpointText(saved) {
  if (!saved || isNone(saved.saved_s_ago)) return "none";
  return `${ago(saved.saved_s_ago)}, ${bytes(saved.bytes)} in ${span(saved.seconds)}`;
}

function drawTroubles() {
  const found = troubles(model);
  document.title = `${found.length ? `(${found.length}) ` : ""}shmreplayd ${model.daemon.instance}`;
  $("troubles").hidden = !found.length;
  const most = isPhone.matches ? 3 : 7, shown = showsAllTroubles ? found : found.slice(0, most);
  const items = shown.map(([kind, text, table]) => el("li", { class: kind },
    table ? el("button", { class: "link", text, onclick: () => pick(table) }) : el("span", { text })));
  if (found.length > most) {
    const text = showsAllTroubles ? "Show fewer" : `Show ${found.length - most} more`;
    const onclick = () => { showsAllTroubles = !showsAllTroubles; redraw(); };
    items.push(el("li", { class: "note" }, el("button", { class: "link", text, onclick })));
  }
  replaceIfNew($("troubles").firstChild, items);
}
