// What the events of a run say, in bounded memory however many there are: curves, checkpoints, where attempts began.

const MOST_POINTS = 4000;
const MOST_CURVES = 300;
const MOST_MARKS = 500;
const PHASES = ["train", "val", "test"];
const PACE = {
  samples_per_second: "samples per second",
  step_seconds: "seconds per step",
  data_wait_seconds: "seconds per step spent waiting for data",
};
const { firstFrom } = scales;

const isFinite = (value) => typeof value === "number" && Number.isFinite(value);

export class Curve {
  constructor() {
    this.steps = [];
    this.values = [];
    this.nonfinite = [];
    this.means = [];
    this.mean_steps = [];
    // Means are made of so many values each; the last may still grow.
    this.per = 1;
    this.buckets = [];
    this.last = null;
  }

  add(step, value) {
    // A step that was measured before belongs to an attempt that did not come this far: its newer one counts.
    if (this.steps.length && step <= this.steps[this.steps.length - 1]) this.rewind(step - 1);
    const known = isFinite(value) ? value : null;
    this.steps.push(step);
    this.values.push(known);
    if (known === null) this.nonfinite.push(step); else { this.average(step, known); this.last = known; }
    if (this.steps.length > MOST_POINTS) this.thin();
    if (this.nonfinite.length > MOST_MARKS) this.nonfinite = this.nonfinite.filter((_, index) => index % 2 === 0);
  }

  average(step, value) {
    const { buckets } = this, open = buckets[buckets.length - 1];
    if (open && open.count < this.per) {
      open.sum += value; open.count += 1; open.step = step;
    } else {
      buckets.push({ step, sum: value, count: 1 });
    }
    if (buckets.length <= MOST_POINTS / 4) return;
    this.per *= 2;
    this.buckets = [];
    for (let index = 0; index < buckets.length; index += 2) {
      const pair = buckets.slice(index, index + 2);
      const sum = pair.reduce((total, one) => total + one.sum, 0);
      this.buckets.push({ step: pair[pair.length - 1].step, sum, count: pair.reduce((n, one) => n + one.count, 0) });
    }
  }

  // Keeps the lowest and the highest value of every four, in their order.
  thin() {
    const steps = [], values = [];
    for (let begin = 0; begin < this.steps.length; begin += 4) {
      const end = Math.min(begin + 4, this.steps.length);
      let low = -1, high = -1;
      for (let index = begin; index < end; index++) {
        const value = this.values[index];
        if (value === null) continue;
        if (low < 0 || value < this.values[low]) low = index;
        if (high < 0 || value >= this.values[high]) high = index;
      }
      const kept = low < 0 ? [begin] : [...new Set([low, high])].sort((a, b) => a - b);
      for (const index of kept) { steps.push(this.steps[index]); values.push(this.values[index]); }
    }
    this.steps = steps;
    this.values = values;
    this.isThinned = true;
  }

  // Forgets what lies behind a step.
  rewind(step) {
    const end = firstFrom(this.steps, step + 1);
    this.steps.length = end;
    this.values.length = end;
    this.nonfinite = this.nonfinite.filter((one) => one <= step);
    while (this.buckets.length && this.buckets[this.buckets.length - 1].step > step) this.buckets.pop();
  }

  // Fills in what a picture needs beside the points.
  finish() {
    this.means = this.isThinned ? this.buckets.map((one) => one.sum / one.count) : [];
    this.mean_steps = this.isThinned ? this.buckets.map((one) => one.step) : [];
    this.rough = isRough(this.isThinned ? this.means : this.values.filter((value) => value !== null));
  }
}

// Whether a curve goes up and down so much that its average tells more; that of a smooth one would only lag.
const isRough = (values) => {
  if (values.length < 60) return false;
  let travelled = 0, low = Infinity, high = -Infinity;
  values.forEach((value, index) => {
    low = Math.min(low, value); high = Math.max(high, value);
    if (index) travelled += Math.abs(value / 2 - values[index - 1] / 2);
  });
  return travelled > 6 * (high / 2 - low / 2);
};

export class Recording {
  constructor() {
    this.curves = new Map();
    this.pace = new Map();
    this.leftOut = new Set();
    this.saved = new Map();
    this.begunAt = new Map();
    this.last_step = 0;
    // The step that the trainer went back to, until something is measured in training again.
    this.restored = null;
    this.count = 0;
    this.version = 0;
  }

  add(event) {
    this.count += 1;
    this.version += 1;
    if (Number.isInteger(event.step)) this.last_step = Math.max(this.last_step, event.step);
    if (event.event === "run_started") {
      this.begunAt.set(event.attempt, event.step ?? 0);
      for (const curve of [...this.curves.values(), ...this.pace.values()]) curve.rewind(event.step ?? 0);
    } else if (event.event === "checkpoint_saved") {
      const best = Object.keys(event.best ?? {}).length > 0;
      this.saved.set(event.step, { best, names: Object.keys(event.best ?? {}) });
    } else if (event.event === "trainer_restored") {
      this.restore(event);
    } else if (["metrics", "validation", "test"].includes(event.event) && Number.isInteger(event.step)) {
      this.measure(event);
    }
  }

  // The newest values are those of the state that the trainer went back to; the curves stay as they were measured.
  restore(event) {
    this.restored = event.restored_step;
    for (const [name, value] of Object.entries(event.values ?? {})) {
      const curve = this.curves.get(name);
      if (curve) curve.last = isFinite(value) ? value : null;
    }
  }

  measure(event) {
    if (event.event !== "test") this.restored = null;
    for (const [name, value] of Object.entries(event.metrics ?? {})) {
      if (!this.curves.has(name)) {
        if (this.curves.size >= MOST_CURVES) { this.leftOut.add(name); continue; }
        this.curves.set(name, new Curve());
      }
      this.curves.get(name).add(event.step, value);
    }
    for (const name of Object.keys(PACE)) {
      if (event[name] === undefined || event[name] === null) continue;
      if (!this.pace.has(name)) this.pace.set(name, new Curve());
      this.pace.get(name).add(event.step, event[name]);
    }
  }

  get checkpoints() {
    const steps = [...this.saved.keys()].sort((a, b) => a - b), every = Math.floor(steps.length / MOST_MARKS) + 1;
    return steps.filter((_, index) => index % every === 0);
  }

  // By metric: the newest checkpoint at which it was never better. All of them, once each.
  get best() {
    const newest = new Map();
    for (const [step, { names }] of this.saved) for (const name of names) newest.set(name, step);
    return [...new Set(newest.values())];
  }

  get attempts() { return [...this.begunAt].filter(([attempt]) => attempt > 1); }

  // The plots, the loss first and the pace last: [{ title, curves: [{ name, role, curve }] }].
  plots() {
    const grouped = new Map();
    for (const [name, curve] of this.curves) {
      const slash = name.indexOf("/"), prefix = name.slice(0, slash);
      const isPhase = slash > 0 && PHASES.includes(prefix) && slash < name.length - 1;
      const [phase, title] = isPhase ? [prefix, name.slice(slash + 1)] : ["train", name];
      if (!grouped.has(title)) grouped.set(title, []);
      grouped.get(title).push({ phase, name, curve });
    }
    const plots = [...grouped].map(([title, members]) => {
      members.sort((a, b) => PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase));
      const taken = new Set();
      const curves = members.map(({ phase, name, curve }) => {
        const role = taken.has(phase) ? "more" : phase;
        taken.add(phase);
        return { name, role, curve };
      });
      return { title, curves };
    });
    plots.sort((a, b) => (b.title === "loss") - (a.title === "loss") || (b.curves.length > 1) - (a.curves.length > 1));
    const pace = [...this.pace].map(([name, curve]) => {
      return { title: PACE[name], curves: [{ name: PACE[name], role: "pace", curve }] };
    });
    return [...plots, ...pace];
  }
}
