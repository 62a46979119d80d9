/* The calls that wait: who, for what, and since when. */

import { $, el, replaceIfNew, say } from "./elements.js";
import { model, pick } from "./screen.js";
import { plural, span } from "./text.js";

const SHOWN = 4;
let showsAll = false;

export function makeWaits() {
  $("wait-more").addEventListener("click", () => { showsAll = !showsAll; drawWaits(); });
}

export function drawWaits() {
  const groups = model.waitGroups(), shown = showsAll ? groups : groups.slice(0, SHOWN);
  $("waits").hidden = !groups.length;
  say($("wait-count"), plural(groups.reduce((sum, group) => sum + group.waits.length, 0), "call"));
  replaceIfNew($("waits").querySelector("ul"), shown.map(group => el("li", {},
    el("button", { class: "link", text: group.table, onclick: () => pick(group.table) }), " ", ...describeWaits(group))));
  $("wait-more").hidden = groups.length <= SHOWN;
  say($("wait-more"), showsAll ? "Show fewer" : `Show ${plural(groups.length - SHOWN, "more table")}`);
}

/** The calls that wait on one side of a table: how many, why, and the processes. */
export function describeWaits({ side, waits, why }) {
  const nameOf = client => client && client.name ? `${client.name} ` : "";
  const names = waits.slice(0, 5).map(({ pid, client, since_s }) => `${nameOf(client)}${pid} (${span(since_s)})`);
  const more = waits.length > names.length ? ` and ${waits.length - names.length} more` : "";
  const calls = `${plural(waits.length, "call")} to ${side} wait${waits.length === 1 ? "s" : ""}`;
  return [
    el("strong", { text: `${calls}, the longest for ${span(waits[0].since_s)}. ` }),
    el("span", { text: why }), el("br"), el("small", { text: names.join(", ") + more }),
  ];
}
