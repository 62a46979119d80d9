/* What needs attention, and the badges of a table. */

import { plural, span } from "./text.js";

const LONG_WAIT_S = 10;  // callers log a wait after this time, too

/** Everything that needs attention as [kind, text, table or null], the worst first. Kinds: "bad", "warn", "note". */
export function troubles(model) {
  const found = [];
  const saved = model.daemon.checkpoint;
  if (saved && saved.error) found.push(["bad", `The last checkpoint was not saved: ${saved.error}`, null]);
  for (const [arena, figures] of Object.entries(model.arenas)) {
    const [table] = Object.keys(figures.tables);
    if (figures.failure) found.push(["bad", `Arena ${arena} has failed: ${figures.failure}`, table]);
    const unlinked = `The files of arena ${arena} were removed from /dev/shm: the next daemon will not find it`;
    if (figures.is_unlinked) found.push(["bad", unlinked, table]);
  }
  for (const table of model.tables.values()) if (table.isReadable) found.push(...tableTroubles(table));
  for (const { table, side, waits } of model.waitGroups()) {
    if (!isLongWait(waits[0].since_s)) continue;
    const calls = `${plural(waits.length, "call")} to ${side} wait${waits.length === 1 ? "s" : ""}`;
    found.push(["warn", `${table}: ${calls}, the longest for ${span(waits[0].since_s)}`, table]);
  }
  const order = { bad: 0, warn: 1, note: 2 };
  return found.sort((a, b) => order[a[0]] - order[b[0]]);
}

/** That all writers, or all learners, have left is a trouble only if calls wait for them. An idle table has no trouble. */
function tableTroubles(table) {
  const { name, info } = table, found = [];
  for (const [gone, who, side] of [["writers_gone", "writers", "samples"], ["learners_gone", "learners", "inserts"]]) {
    const waiting = Number(info[`blocked_${side}`]);
    if (!info[gone] || !waiting) continue;
    const wait = waiting === 1 ? "waits" : "wait";
    found.push(["bad", `${name}: all ${who} have gone, and ${plural(waiting, "call")} ${wait} for them`, name]);
  }
  const paused = ["inserts", "samples"].filter(side => info[`paused_${side}`]);
  if (paused.length) found.push(["note", `${name}: ${paused.join(" and ")} paused`, name]);
  return found;
}

export function tableBadges(table) {
  const { info } = table, found = [];
  if (!table.isReadable) return [["failed", "bad"]];
  for (const side of ["inserts", "samples"]) if (info[`paused_${side}`]) found.push([`${side} paused`, ""]);
  if (info.writers_gone) found.push(["no writers", Number(info.blocked_samples) ? "bad" : ""]);
  if (info.learners_gone) found.push(["no learners", Number(info.blocked_inserts) ? "bad" : ""]);
  const since = table.longest_s;
  if (table.waiting) found.push([`${table.waiting} waiting ${span(since)}`, isLongWait(since) ? "warn" : ""]);
  return found;
}

/** Whether a wait is long enough to be coloured. */
export const isLongWait = since_s => since_s >= LONG_WAIT_S;
