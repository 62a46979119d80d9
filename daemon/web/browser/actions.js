/* The buttons that change something: of the daemon, and of the table in the details pane. */

import { ask, confirmByName } from "./dialogs.js";
import { $, el } from "./elements.js";
import { change } from "./requests.js";
import { model, view } from "./screen.js";
import { wholeTable } from "./text.js";

const ACTIONS = {
  "Pause inserts": { fits: ({ info }) => !info.paused_inserts, run: table => pause(table, true, false) },
  "Pause samples": { fits: ({ info }) => !info.paused_samples, run: table => pause(table, false, true) },
  "Resume": { fits: ({ info }) => info.paused_inserts || info.paused_samples, run: resume },
  "Set ratio …": { fits: ({ isReadable }) => isReadable, run: setRatio },
  "Reset …": { fits: ({ isReadable }) => isReadable, run: reset, isDangerous: true },
  "Drop …": { fits: () => true, run: drop, isDangerous: true },
};
const buttons = {};
let onChanged = () => {};

/** Makes the buttons. `changed` is called after each change. */
export function makeActions(changed) {
  onChanged = changed;
  for (const [text, { run, isDangerous }] of Object.entries(ACTIONS)) {
    const onclick = () => { if (model.tables.has(view.picked)) run(model.tables.get(view.picked)); };
    buttons[text] = el("button", { text, class: isDangerous ? "danger" : "", onclick });
    $("detail-actions").append(buttons[text]);
  }
  $("checkpoint").addEventListener("click", async () => {
    $("checkpoint").disabled = true;
    try { await changeAndShow("checkpoint", {}, answer => `Saved as ${answer.path}.`); } finally { $("checkpoint").disabled = false; }
  });
}

/** Shows the buttons that fit the table of the details pane. */
export function drawActions() {
  const table = model.tables.get(view.picked);
  if (table) for (const [text, button] of Object.entries(buttons)) button.hidden = !ACTIONS[text].fits(table);
}

async function changeAndShow(action, fields, done) {
  await change(action, fields, done);
  await onChanged();
}

function pause(table, inserts, samples) {
  const name = wholeTable(table.name), side = inserts ? "inserts" : "samples";
  return changeAndShow("pause", { table: name, inserts, samples }, () => `${name}: ${side} are paused until somebody resumes them.`);
}

function resume(table) {
  const name = wholeTable(table.name);
  return changeAndShow("resume", { table: name }, () => `${name}: resumed.`);
}

/** The sum of a limiter's number over all shards of a table: each shard has a part of it. */
function ofAllShards(name, of) {
  return [...model.tables.values()].filter(table => wholeTable(table.name) === name).reduce((sum, { info }) => sum + of(info), 0);
}

async function setRatio(table) {
  const { info } = table, name = wholeTable(table.name), size = ofAllShards(name, part => part.min_size_to_sample);
  const text = "The limiter's difference starts again in the middle of its bounds. If you give no error buffer, the bounds keep "
    + "their distance from the start of sampling, or more if the new ratio needs more.";
  const found = await ask({
    title: `Ratio of ${name}`, confirm: "Set", texts: [el("p", { text })],
    fields: [
      { name: "ratio", label: "Samples per insert", inputmode: "decimal", value: String(info.samples_per_insert) },
      { name: "size", label: "Sampling starts at this number of items", inputmode: "numeric", value: String(size) },
      { name: "buffer", label: "Error buffer: samples above and below", inputmode: "decimal", placeholder: "unchanged" },
    ],
  });
  if (!found) return;
  await changeAndShow("set_ratio", {
    table: name, samples_per_insert: typedNumber(found.ratio), min_size_to_sample: typedNumber(found.size),
    error_buffer: typedNumber(found.buffer),
  }, () => `${name}: the ratio is now ${found.ratio} samples per insert.`);
}

/** A number if it is one, nothing if nothing was typed, else the text: the daemon says what is wrong with it. */
function typedNumber(text) {
  if (text === "") return undefined;
  return Number.isFinite(Number(text)) ? Number(text) : text;
}

async function reset(table) {
  const name = wholeTable(table.name);
  const text = `Deletes all items of ${name} and sets its counters to 0. This cannot be undone.`;
  if (await confirmByName(name, `Reset ${name}`, text, "Reset")) await changeAndShow("reset", { table: name }, () => `${name} is empty.`);
}

async function drop(table) {
  const name = wholeTable(table.name), tables = [...new Set(Object.keys(table.figures.tables).map(wholeTable))];
  const others = tables.filter(other => other !== name).join(", ");
  const text = `Deletes ${name} and frees its memory. Processes that use it get an error. This cannot be undone.`
    + (others ? ` It shares an arena with ${others}, so they are deleted, too.` : "");
  if (await confirmByName(name, `Drop ${name}`, text, "Drop")) await changeAndShow("drop", { tables }, () => `${tables.join(", ")} dropped.`);
}
