/* Starts the page, and asks the daemon for new figures again and again. */

import { drawActions, makeActions } from "./actions.js";
import { readPalette } from "./charts.js";
import { drawClients, makeClients } from "./clients.js";
import { drawDetails, makeDetails } from "./details.js";
import { $, markMore, say } from "./elements.js";
import { drawOverview } from "./overview.js";
import { Refused, startToken, stats } from "./requests.js";
import { isNarrow, model, pick, redraw, setDrawing, view } from "./screen.js";
import { drawTables, makeTableHead } from "./tables.js";
import { drawWaits, makeWaits } from "./waits.js";

const EVERY_MS = 1000, ITEMS_EVERY_MS = 5000, HIDDEN_EVERY_MS = 5000;
let lostAt = null, isAsking = false;

function draw() {
  drawOverview(); drawTables(); drawDetails(); drawActions(); drawWaits(); drawClients();
}

function showState(text, kind) {
  say($("state"), text);
  $("state").className = `badge ${kind}`;
  document.body.classList.toggle("stale", kind === "bad");
}

/** Reads the figures once, and draws them. */
export async function tick() {
  if (view.isFrozen) { showState("frozen", "warn"); return; }
  if (isAsking) return;
  isAsking = true;
  try {
    const found = await stats();
    if (view.isFrozen) return;  // since the request was sent
    const isNew = model.take(found);
    lostAt = null;
    showState("live", "good");
    if (isNew) { openBusiest(); redraw(); }
  } catch (error) {
    lostAt = lostAt || new Date();
    const why = error instanceof Refused ? error.message : "no answer from the daemon";
    showState(`${why} since ${lostAt.toLocaleTimeString()}; trying again`, "bad");
  } finally { isAsking = false; }
}

/** Opens the busiest table at the first figures, and again at the second, which tell rates, unless the user picked one. */
function openBusiest() {
  if (model.history.count <= 2 && !view.isPickedByHand && !isNarrow.matches) pick(model.busiest(), { byHand: false });
}

async function askForItems() {
  if (view.picked === null || view.isFrozen) return;
  try { model.takeItems(await stats("?items=1")); } catch (error) { return; }  // `tick` shows the error
  drawDetails();
}

async function goOn() {
  await tick();
  setTimeout(goOn, document.hidden ? HIDDEN_EVERY_MS : EVERY_MS);
}

setDrawing(draw, askForItems);
readPalette();
makeTableHead();
makeClients();
makeDetails();
makeWaits();
makeActions(tick);
startToken();
for (const id of ["table-scroll", "client-scroll"]) markMore($(id));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); redraw(); });
window.addEventListener("resize", redraw);
$("freeze").addEventListener("click", () => {
  view.isFrozen = !view.isFrozen;
  $("freeze").setAttribute("aria-pressed", String(view.isFrozen));
  say($("freeze"), view.isFrozen ? "Unfreeze" : "Freeze");
  tick();
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !$("dialog").open && view.picked !== null) pick(null);
});
goOn();
setInterval(askForItems, ITEMS_EVERY_MS);
