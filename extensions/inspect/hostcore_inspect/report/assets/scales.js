"use strict";
// Steps, values and round numbers; knows nothing of the page.
const scales = (() => {
  // Written are the differences of steps, which are shorter.
  const sums = (differences) => { let sum = 0; return differences.map((one) => (sum += one)); };

  const number = (value) => (value === null ? "not finite" : String(Number(value.toPrecision(6))));
  const whole = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 });

  // The first index whose step is not before the given one.
  const firstFrom = (steps, step) => {
    let low = 0, high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1; else high = middle;
    }
    return low;
  };

  const roundNumbers = (low, high, most) => {
    const span = high / 2 / most * 2 - low / 2 / most * 2;
    if (!(span > 1e-300) || !Number.isFinite(span)) return [low, high];
    const power = 10 ** Math.floor(Math.log10(span));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= span * 0.999999) || 10 * power;
    const ticks = [];
    const last = Math.floor(high / step);
    for (let count = Math.ceil(low / step); count <= last && ticks.length <= most; count++) ticks.push(count * step);
    return ticks;
  };
  const powers = (low, high) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const factor of high / low > 1000 ? [1] : [1, 2, 5]) ticks.push(factor * 10 ** power);
    }
    const inside = ticks.filter((tick) => tick >= low && tick <= high);
    const every = Math.ceil(inside.length / 6);
    return inside.filter((_, index) => index % every === 0);
  };
  const label = (value, ticks, logarithmic) => {
    const distance = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(value);
    const largest = Math.max(...ticks.map(Math.abs));
    if (logarithmic || !distance || !largest || !Number.isFinite(distance)) {
      return String(Number(value.toPrecision(3)));
    }
    const smallest = Math.floor(Math.log10(distance)), exact = Math.abs(value) < distance / 1e6 ? 0 : value;
    if (largest < 1e7 && smallest > -6) {
      const digits = Math.max(0, -smallest);
      return exact.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    }
    const digits = Math.floor(Math.log10(largest)) - smallest + 1;
    return String(Number(exact.toPrecision(Math.min(15, Math.max(1, digits)))));
  };

  // The moving average, with the bias towards its start corrected.
  const smooth = (values, weight) => {
    let average = 0, rest = 1;
    return values.map((value) => {
      average = weight * average + (1 - weight) * value;
      rest *= weight;
      return average / (1 - rest);
    });
  };

  return { sums, number, whole, firstFrom, roundNumbers, powers, label, smooth };
})();
