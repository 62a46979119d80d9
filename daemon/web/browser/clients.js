/* The list of clients. However many there are, only the rows on the screen exist as elements. */

import { $, el, say } from "./elements.js";
import { fits, isPhone, model, order } from "./screen.js";
import { short, span, whole } from "./text.js";
import { isLongWait } from "./troubles.js";

const rowHeight = () => isPhone.matches ? 50 : 30;  // as in style.css: two lines on a phone
const waitText = ({ waits: [wait] }) => wait ? `to ${wait.side}: ${wait.table}, ${span(wait.since_s)}` : "";
const rate = name => client => client.rates[name];

// key, title, value to sort by, value as text, class
const COLUMNS = [
  ["pid", "pid", client => client.pid, String, ""], ["name", "name", client => client.name, String, ""],
  ["role", "role", client => client.role, String, ""],
  ["inserts", "inserts/s", rate("inserts"), short, "right"], ["samples", "samples/s", rate("samples"), short, "right"],
  ["updates", "updates/s", rate("updates"), short, "right wide"],
  ["streams", "streams", client => client.open_streams, short, "right wide"],
  ["pinned", "pinned", client => client.pinned_chunks, short, "right wide"],
  ["tables", "tables", client => client.places, String, "wide"],
  ["waits", "waits", client => client.waits.length ? client.waits[0].since_s : NaN, null, "wide second"],
];
const TEXT_COLUMNS = ["pid", "name", "role", "tables"];  // the smallest first; of numbers, the largest
const rows = [];
const space = el("div"), head = el("div", { class: "client top", role: "row" });
let shown = [], sorted = ["pid", 1];

export function makeClients() {
  for (const [key, title, , , kind] of COLUMNS) {
    const onclick = () => sortBy(key);
    head.append(el("button", { text: title, class: kind, role: "columnheader", "data-key": key, onclick }));
  }
  $("client-scroll").append(head, space);
  $("client-scroll").addEventListener("scroll", drawRows, { passive: true });
  $("client-filter").addEventListener("input", drawClients);
}

/** Shows only the clients of a table. */
export function showClientsOf(table) {
  $("client-filter").value = table;
  drawClients();
  $("clients").scrollIntoView();
}

function sortBy(key) {
  const [before, direction] = sorted;
  sorted = [key, before === key ? -direction : TEXT_COLUMNS.includes(key) ? 1 : -1];
  drawClients();
}

export function drawClients() {
  const filter = $("client-filter").value.trim().toLowerCase(), [key, direction] = sorted;
  const of = COLUMNS.find(column => column[0] === key)[2];
  shown = [...model.clients.values()].filter(client => fits(client.words, filter)).sort(order(of, direction));
  const count = whole(shown.length), all = whole(model.clients.size);
  say($("client-count"), count === all ? all : `${count} of ${all}`);
  for (const button of head.children) {
    const isSorted = button.dataset.key === key;
    button.classList.toggle("sorted", isSorted);
    button.classList.toggle("up", isSorted && direction > 0);
    button.classList.toggle("down", isSorted && direction < 0);
  }
  const height = rowHeight(), limit = isPhone.matches ? 8 : 14;
  space.style.height = `${shown.length * height}px`;
  $("client-scroll").setAttribute("aria-rowcount", String(shown.length));
  $("client-scroll").style.height = shown.length < limit ? `${shown.length * height + 34}px` : "";
  drawRows();
}

function drawRows() {
  const scroll = $("client-scroll"), height = rowHeight();
  const first = Math.max(0, Math.floor(scroll.scrollTop / height) - 3);
  const count = Math.min(shown.length - first, Math.ceil(scroll.clientHeight / height) + 6);
  while (rows.length < count) {
    const cells = COLUMNS.map(([, , , , kind]) => el("span", { class: `${kind} number`, role: "cell" }));
    const row = el("div", { class: "client row", role: "row" }, ...cells);
    rows.push(row);
    scroll.append(row);
  }
  rows.forEach((row, place) => {
    row.hidden = place >= count;
    if (!row.hidden) drawRow(row, shown[first + place], first + place, height);
  });
}

function drawRow(row, client, place, height) {
  row.style.transform = `translateY(${place * height + 30}px)`;
  row.setAttribute("aria-rowindex", String(place + 1));
  COLUMNS.forEach(([key, , of, format], cell) => say(row.children[cell], key === "waits" ? lastText(client) : format(of(client))));
  row.classList.toggle("waits", client.waits.length > 0 && isLongWait(client.waits[0].since_s));
  row.children[8].title = client.places;
}

/** What the call of a client waits for; on a phone, where the list has no column of tables, else its tables. */
function lastText(client) {
  const text = waitText(client);
  return isPhone.matches ? (text ? `waits ${text}` : client.places) : text;
}
