/* The details pane: one table, its figures, charts and actions. */

import { Bars, Chart } from "./charts.js";
import { showClientsOf } from "./clients.js";
import { $, badges, el, facts, markMore, replaceIfNew, say } from "./elements.js";
import { isNarrow, model, pick, view } from "./screen.js";
import { ago, bytes, isNone, short, span, whole } from "./text.js";
import { tableBadges } from "./troubles.js";
import { describeWaits } from "./waits.js";

const LEAST_HEIGHT = 320;  // of the pane, in pixels

const charts = {
  rates: new Chart("Items per second"), ratio: new Chart("Samples per insert", { fromZero: false }),
  size: new Chart("Items in the table"), difference: new Chart("Rate limiter: difference and bounds", { fromZero: false }),
  blocked: new Chart("Time spent waiting, s per s"),
};
const bars = {
  ages: new Bars("Age of items, in inserts"), priorities: new Bars("Priorities of items"),
  times_sampled: new Bars("How often items were sampled"),
};

export function makeDetails() {
  const all = [...Object.values(charts), ...Object.values(bars)];
  $("detail-charts").append(...all.map(chart => chart.element));
  $("detail-back").addEventListener("click", () => pick(null));
  $("detail-clients").addEventListener("click", () => {
    const table = view.picked;
    if (isNarrow.matches) pick(null);  // the pane covers the list
    showClientsOf(table);
  });
  const scroll = $("detail-scroll");
  markMore(scroll);
  window.addEventListener("scroll", fitToScreen, { passive: true });
  $("detail-more").addEventListener("click", () => scroll.scrollBy({ top: .8 * scroll.clientHeight, behavior: "smooth" }));
}

/** On a wide screen, the pane ends at the lower edge of the window, so that its button for more is visible. */
function fitToScreen() {
  const top = Math.max(8, $("split").getBoundingClientRect().top);
  $("detail").style.maxHeight = isNarrow.matches ? "" : `${Math.max(LEAST_HEIGHT, window.innerHeight - top - 8)}px`;
}

export function drawDetails() {
  fitToScreen();
  const table = model.tables.get(view.picked);
  if (!table) { if (view.picked !== null) pick(null); return; }
  say($("detail-name"), table.name);
  badges($("detail-badges"), tableBadges(table));
  $("detail-charts").hidden = !table.isReadable;
  if (!table.isReadable) {
    facts($("detail-facts"), [["arena", table.arena], ["failure", table.figures.failure || "its figures cannot be read"]]);
    return;
  }
  facts($("detail-facts"), factsOf(table));
  const waits = model.waitGroups().filter(group => group.table === table.name);
  replaceIfNew($("detail-why"), waits.map(group => el("div", { class: "why" }, ...describeWaits(group))));
  drawCharts(table);
  drawBars(table);
}

function factsOf({ info, arena, figures }) {
  const stats = figures.stats || {};
  return [
    ["arena", arena], ["items", `${short(info.size)} of ${short(info.max_size)}`], ["inserted", whole(info.inserts)],
    ["sampled", whole(info.samples)], ["deleted", whole(info.deletes)], ["evicted", whole(info.evicted)],
    ["episodes", whole(info.num_episodes)], ["ever sampled", whole(info.num_unique_samples)],
    ["sampling starts at", whole(info.min_size_to_sample)],
    ["last insert", ago(info.last_insert_s_ago)], ["last sample", ago(info.last_sample_s_ago)],
    ["writers", short(info.writers)], ["learners", short(info.learners)],
    ["inserts waited", `${span(info.blocked_inserts_s)} in all`], ["samples waited", `${span(info.blocked_samples_s)} in all`],
    ["shared memory", bytes(figures.index_bytes + figures.data_bytes)],
    ["chunks in use", `${short(stats.used_chunks)} of ${short(stats.num_chunks)}`],
    ["chunks pinned by reads", whole(stats.pinned_chunks)],
    ["oldest read", isNone(stats.oldest_lease_s) ? "none" : `for ${span(stats.oldest_lease_s)}`],
    ["lock was busy", isNone(stats.lock_waits) ? "–" : `${short(stats.lock_waits)} times`],
    ["deaths repaired", whole(stats.recoveries)],
  ];
}

function drawCharts({ series, now }) {
  const { history } = model;
  charts.rates.show(history, [["inserts", "insert", series.inserts], ["samples", "sample", series.samples]]);
  charts.ratio.show(history, [["reached", "sample", series.ratio], ["wanted", "muted", series.asked, [5, 4]]]);
  charts.size.show(history, [["items", "insert", series.size], ["at most", "muted", series.max_size, [5, 4]]]);
  charts.difference.show(history, [
    ["difference", "third", series.difference], ["samples wait at", "muted", series.low, [5, 4]],
    ["inserts wait at", "muted", series.high, [5, 4]],
  ]);
  charts.difference.element.hidden = Number.isNaN(now.difference);
  charts.blocked.show(history, [["inserts", "insert", series.blocked_inserts_s], ["samples", "sample", series.blocked_samples_s]]);
}

function drawBars(table) {
  const items = table.items || {}, { min_priority: low, max_priority: high, sum_priority: sum } = items;
  bars.ages.show(items.ages, meanOf(items.ages));
  bars.priorities.show(items.priorities, `${short(low)} to ${short(high)}, sum ${short(sum)}`);
  bars.times_sampled.show(items.times_sampled, meanOf(items.times_sampled));
}

function meanOf(found) {
  if (!found) return "";
  const count = found.counts.reduce((sum, some) => sum + some, 0);
  const mean = count ? `mean ${short(found.sum / count)}` : "";
  return isNone(found.of) || found.of >= count ? mean : `${mean}, from ${whole(found.of)} items`;
}
