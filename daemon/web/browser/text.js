/* Numbers, times and names as text. */

const NO_BOUND = 1e300;  // the daemon's "no bound" is larger than this
export const isNone = value => value === null || value === undefined || Number.isNaN(value);

/** At most three digits and a unit: `0.25`, `987`, `12.3k`. */
export function short(value) {
  if (isNone(value)) return "–";
  const size = Math.abs(value);
  if (size >= NO_BOUND) return value > 0 ? "∞" : "−∞";
  if (size < 1000) return String(+value.toPrecision(3));
  const step = Math.min(Math.floor(Math.log10(size) / 3), 4);
  return +(value / 1000 ** step).toPrecision(3) + ["", "k", "M", "G", "T"][step];
}

export const whole = value => isNone(value) ? "–" : value.toLocaleString("en-US");

export function bytes(value) {
  let step = 0;
  while (value >= 1024 && step < 4) { value /= 1024; step += 1; }
  return `${+value.toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

/** A time span, such as `0.4 s`, `75 s`, `12 min`. */
export function span(seconds) {
  if (isNone(seconds)) return "never";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

export const ago = seconds => isNone(seconds) ? "never" : `${span(seconds)} ago`;

export const plural = (count, thing) => `${whole(count)} ${thing}${count === 1 ? "" : "s"}`;

/** The name of the table that a shard belongs to: a shard is named `table~number`. */
export const wholeTable = name => name.split("~")[0];
