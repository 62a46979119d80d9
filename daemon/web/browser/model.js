/* The figures: the daemon's newest answer, and what follows from it and the ones before. */

import { History } from "./history.js";
import { isNone } from "./text.js";

/** Shorter waits are left out: a rate limiter that works makes callers wait for moments all the time. */
export const SHORT_WAIT_S = 1;

const SERIES = ["inserts", "samples", "ratio", "asked", "size", "max_size", "difference", "low", "high",
                "blocked_inserts_s", "blocked_samples_s"];
const TOTALS = ["inserts", "samples", "blocked_inserts_s", "blocked_samples_s", "waiting_inserts", "waiting_samples",
                "writers", "learners", "idle"];

export class Model {
  constructor() {
    this.history = new History();
    this.tables = new Map();
    this.clients = new Map();
    this.waits = [];
    this.daemon = null;
    this.at = -Infinity;
    this.totals = Object.fromEntries(TOTALS.map(name => [name, this.history.series()]));
  }

  /** Takes one answer of the daemon. Returns false if it is older than the one before, or the same. */
  take(stats) {
    if (this.daemon && this.daemon.pid !== stats.daemon.pid) this.startAnew();
    if (stats.at_s <= this.at) return false;
    this.seconds = stats.at_s - this.at;
    this.at = stats.at_s;
    this.daemon = stats.daemon;
    this.arenas = stats.arenas;
    this.history.begin(stats.at_s);
    const clients = new Map(), tables = new Set();
    this.waits = [];
    for (const [arena, figures] of Object.entries(stats.arenas)) {
      for (const [name, info] of Object.entries(figures.tables)) {
        this.takeTable(name, arena, figures, info);
        tables.add(name);
      }
      for (const session of figures.sessions || []) this.takeSession(session, clients);
      for (const wait of figures.waits || []) this.waits.push(wait);
    }
    for (const name of [...this.tables.keys()]) if (!tables.has(name)) this.dropTable(name);
    this.takeClients(clients);
    this.sum();
    return true;
  }

  startAnew() {
    this.at = -Infinity;
    for (const table of this.tables.values()) table.before = null;
    this.clients.clear();
  }

  takeTable(name, arena, figures, info) {
    let table = this.tables.get(name);
    if (!table) {
      table = { name, before: null, items: null, series: {} };
      for (const series of SERIES) table.series[series] = this.history.series();
      this.tables.set(name, table);
    }
    Object.assign(table, { arena, figures, info, isReadable: info.size !== undefined, waiting: 0, longest_s: 0 });
    if (table.isReadable) {
      this.addWaits(table);
      this.record(table, info);
      table.before = info;
    }
  }

  /** The daemon adds a wait to the totals when it ends. Here it counts from its beginning. */
  addWaits(table) {
    for (const { table: name, side, since_s } of table.figures.waits || []) {
      if (name !== table.name) continue;
      table.info[`blocked_${side}s_s`] += since_s;
      if (since_s >= SHORT_WAIT_S) table.waiting += 1;
      table.longest_s = Math.max(table.longest_s, since_s);
    }
  }

  record(table, info) {
    const isBounded = info.max_diff !== null || info.min_diff !== null, counted = info.inserts - (info.uncounted || 0);
    const bound = value => value === null ? NaN : value;
    const found = {
      ratio: counted > 0 ? info.samples / counted : NaN, asked: isBounded ? info.samples_per_insert : NaN,
      size: info.size, max_size: info.max_size, difference: isBounded ? info.difference : NaN,
      low: bound(info.min_diff), high: bound(info.max_diff),
    };
    for (const counter of ["inserts", "samples", "blocked_inserts_s", "blocked_samples_s"]) {
      found[counter] = this.rate(table.before, info, counter);
    }
    for (const series of SERIES) table.series[series][this.history.slot] = found[series];
    table.now = found;
  }

  /** How fast a counter grows, per second; 0 right after a reset. */
  rate(before, now, counter) {
    if (!before || !Number.isFinite(this.seconds) || isNone(now[counter])) return NaN;
    return Math.max(0, now[counter] - before[counter]) / this.seconds;
  }

  dropTable(name) {
    for (const values of Object.values(this.tables.get(name).series)) this.history.forget(values);
    this.tables.delete(name);
  }

  /** Joins the sessions of a process, which has one in each arena, into one client. */
  takeSession(session, clients) {
    const key = `${session.pid}/${session.start_time}`;
    const client = clients.get(key) || {
      key, pid: session.pid, name: session.name || "", inserts: 0, samples: 0, updates: 0, open_streams: 0, pinned_chunks: 0,
      writes: [], reads: [], roles: new Set(), waits: [],
    };
    for (const count of ["inserts", "samples", "updates", "open_streams", "pinned_chunks"]) client[count] += session[count] || 0;
    client.writes.push(...session.writes || []);
    client.reads.push(...session.reads || []);
    client.roles.add(session.role || "idle");
    clients.set(key, client);
  }

  takeClients(clients) {
    const byPid = new Map();
    for (const client of clients.values()) {
      const before = this.clients.get(client.key);
      client.rates = {};
      for (const counter of ["inserts", "samples", "updates"]) client.rates[counter] = this.rate(before, client, counter);
      client.role = roleOf(client.roles);
      client.places = [...client.writes.map(name => `→ ${name}`), ...client.reads.map(name => `← ${name}`)].join("  ");
      byPid.set(client.pid, client);
    }
    for (const wait of this.waits) {
      wait.client = byPid.get(wait.pid);
      if (wait.client) wait.client.waits.push(wait);
    }
    for (const client of clients.values()) {
      client.waits.sort((a, b) => b.since_s - a.since_s);
      client.words = `${client.pid} ${client.name} ${client.role} ${client.places} ${client.waits.length ? "waits" : ""}`.toLowerCase();
    }
    this.clients = clients;
  }

  sum() {
    const total = Object.fromEntries(TOTALS.map(name => [name, 0]));
    for (const table of this.tables.values()) {
      if (!table.isReadable) continue;
      for (const name of ["inserts", "samples", "blocked_inserts_s", "blocked_samples_s"]) total[name] += table.now[name];
      total.waiting_inserts += Number(table.info.blocked_inserts);
      total.waiting_samples += Number(table.info.blocked_samples);
    }
    for (const client of this.clients.values()) {
      if (client.role === "writer" || client.role === "both") total.writers += 1;
      if (client.role === "learner" || client.role === "both") total.learners += 1;
      if (client.role === "idle") total.idle += 1;
    }
    for (const name of TOTALS) this.totals[name][this.history.slot] = total[name];
  }

  /** Takes an answer with figures of items, which is asked for less often. */
  takeItems(stats) {
    for (const figures of Object.values(stats.arenas)) {
      for (const [name, info] of Object.entries(figures.tables)) if (this.tables.has(name)) this.tables.get(name).items = info;
    }
  }

  /** The table with the most inserts and samples: per second if that is known, else in all. Null if there is none. */
  busiest() {
    const speed = ({ now }) => (now.inserts || 0) + (now.samples || 0), total = ({ info }) => info.inserts + info.samples;
    const tables = [...this.tables.values()].filter(table => table.isReadable);
    tables.sort((a, b) => speed(b) - speed(a) || total(b) - total(a) || a.name.localeCompare(b.name, "en", { numeric: true }));
    return tables.length ? tables[0].name : null;
  }

  /** Calls that have waited for more than a moment, by table and side; the longest first. */
  waitGroups() {
    const groups = new Map();
    for (const wait of this.waits) {
      const key = `${wait.table}/${wait.side}`;
      if (!groups.has(key)) groups.set(key, { table: wait.table, side: wait.side, waits: [] });
      groups.get(key).waits.push(wait);
    }
    const found = [...groups.values()];
    for (const group of found) {
      group.waits.sort((a, b) => b.since_s - a.since_s);
      const table = this.tables.get(group.table);
      group.why = ((table && table.info.why) || {})[group.side] || "";
    }
    const long = found.filter(group => group.waits[0].since_s >= SHORT_WAIT_S);
    return long.sort((a, b) => b.waits[0].since_s - a.waits[0].since_s);
  }
}

function roleOf(roles) {
  if (roles.has("both") || (roles.has("writer") && roles.has("learner"))) return "both";
  return roles.has("writer") ? "writer" : roles.has("learner") ? "learner" : "idle";
}
