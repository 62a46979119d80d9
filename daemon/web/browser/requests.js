/* Requests to the daemon: figures, which anybody may read, and changes, which need the token. */

import { ask, tell } from "./dialogs.js";
import { $, el, say } from "./elements.js";

const TIMEOUT_MS = 8000;
const STORED = "shmreplay-token";  // in this tab only
let token = sessionStorage.getItem(STORED) || "";

/** An answer that is an error; its text is the daemon's. */
export class Refused extends Error { constructor(status, text) { super(text); this.status = status; } }

/** The daemon's figures. Throws Refused, or what `fetch` throws if there is no answer. */
export async function stats(query = "") {
  const answer = await fetch(`api/stats${query}`, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer.json();
}

/** Asks for a change. Throws Refused. */
async function post(action, fields) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
  const answer = await fetch(`api/${action}`, { method: "POST", headers, body: JSON.stringify(fields) });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let message = text.trim();
  try { message = JSON.parse(text).message; } catch (error) { if (!(error instanceof SyntaxError)) throw error; }
  throw new Refused(answer.status, message);
}

function keepToken(value) {
  token = value;
  if (value) sessionStorage.setItem(STORED, value); else sessionStorage.removeItem(STORED);
  say($("lock"), value ? "Forget the token" : "Enter the token …");
}

/** Takes the token of a link that ends in `#token=…`, and removes it from the address. */
export function startToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) history.replaceState(null, "", location.pathname);
  keepToken(found || token);
  $("lock").addEventListener("click", async () => {
    if (token) { keepToken(""); tell("Changes need the token again."); }
    else if (await unlock()) tell("This tab can now make changes.");
  });
}

async function askForToken(error) {
  const { path } = await (await fetch("api/token", { cache: "no-store" })).json();
  return ask({
    title: "Enter the token", confirm: "Continue", error,
    texts: [
      el("p", { text: "Changes need the daemon's token. Print it on the daemon's machine:" }),
      el("pre", { text: `cat ${path}` }),
      el("p", { class: "muted", text: "The daemon makes a new token each time it starts." }),
    ],
    fields: [{ name: "token", label: "Token", type: "password" }], check: values => values.token ? "" : "Enter the token.",
  });
}

/** Asks for the token until the daemon accepts it. Returns false if the user cancels. */
async function unlock(error = "") {
  while (true) {
    try {
      if (!token) {
        const found = await askForToken(error);
        if (!found) return false;
        keepToken(found.token);
      }
      await post("token", {});
      return true;
    } catch (refused) {
      if (refused.status !== 401) { tell(refused.message, "bad"); return false; }
      keepToken("");
      error = "The daemon does not accept this token. It may be from an earlier start.";
    }
  }
}

/** Makes a change, after asking for the token if it is needed, and tells how it went. `done` turns the answer into text. */
export async function change(action, fields, done) {
  if (!await unlock()) return;
  try { tell(done(await post(action, fields))); } catch (error) { tell(error.message, "bad"); }
}
