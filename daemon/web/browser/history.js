/* The last ten minutes of each figure: one point for each answer of the daemon. */

const POINTS = 600;

export class History {
  constructor() { this.at = new Float64Array(POINTS); this.count = 0; this.all = new Set(); }

  get slot() { return (this.count - 1) % POINTS; }

  /** Begins a point. A series that is not set for it has a gap there. */
  begin(at) {
    this.count += 1;
    this.at[this.slot] = at;
    for (const values of this.all) values[this.slot] = NaN;
  }

  series() {
    const values = new Float64Array(POINTS).fill(NaN);
    this.all.add(values);
    return values;
  }

  forget(values) { this.all.delete(values); }

  /** The slots of the last `count` points, the oldest first. */
  slots(count = POINTS) {
    const first = Math.max(0, this.count - Math.min(count, POINTS));
    return Array.from({ length: this.count - first }, (_, place) => (first + place) % POINTS);
  }
}
