// Rates over time for the shown window: from the page's bins, joined if they are too narrow to draw; or, for finer
// bins, from individual events if all are in the page.

const BIN_PX = 3;

// Bins for a plot of this width: {start, width, n, exact, group}. Edges stay fixed while the window moves.
function ratesBins(data, source, width) {
  const want = ((view.to - view.from) / width) * BIN_PX;
  const exact = source.singles.complete && want < data.binWidth;
  const step = exact ? Math.max(1, niceStep(want)) : data.binWidth * Math.max(1, Math.ceil(want / data.binWidth - 1e-9));
  const first = Math.max(0, Math.floor((view.from - data.from) / step));
  const last = Math.ceil((view.to - data.from) / step);
  const end = exact ? Math.ceil((data.to - data.from) / step) : Math.ceil(data.binCount / Math.round(step / data.binWidth));
  return { data, exact, step, first, n: Math.max(1, Math.min(last, Math.max(end, 1)) - first), group: Math.round(step / data.binWidth) };
}

function ratesEdges(bins, i) {
  const { data, step } = bins;
  const left = data.from + (bins.first + i) * step;
  if (bins.exact) return [left, Math.min(left + step, data.to)];
  const last = Math.min((bins.first + i + 1) * bins.group, data.binCount) - 1;
  return [left, binEdges(data, Math.max(last, 0))[1]];
}

// Joins stored bins: sums, or the maximum with `most`, or the time-weighted mean with `mean`.
function stored(bins, values, how) {
  const out = new Float64Array(bins.n);
  for (let i = 0; i < bins.n; i += 1) {
    const from = (bins.first + i) * bins.group;
    const to = Math.min(from + bins.group, bins.data.binCount);
    let sum = 0;
    for (let k = from; k < to; k += 1) {
      if (how === 'most') sum = Math.max(sum, values[k]);
      else if (how === 'mean') sum += values[k] * (binEdges(bins.data, k)[1] - binEdges(bins.data, k)[0]);
      else sum += values[k];
    }
    if (how === 'mean') {
      const [left, right] = ratesEdges(bins, i);
      sum /= Math.max(1, right - left);
    }
    out[i] = sum;
  }
  return out;
}

function perSecond(bins, sums) {
  return sums.map((n, i) => {
    const [left, right] = ratesEdges(bins, i);
    return (n * 1e9) / Math.max(1, right - left);
  });
}

// Rates of a device. Bytes and requests count at completion, seeks at issue.
function deviceRates(data, device, width) {
  const bins = ratesBins(data, device, width);
  const names = ['read_bytes', 'write_bytes', 'reads', 'writes', 'others', 'seeks_exact', 'seeks_sw64k'];
  const sums = {};
  if (!bins.exact) {
    for (const name of names) sums[name] = stored(bins, device.rates[name]);
    sums.depth_max = stored(bins, device.rates.depth_max, 'most');
    sums.depth_mean = stored(bins, device.rates.depth_mean, 'mean');
  } else {
    for (const name of names) sums[name] = new Float64Array(bins.n);
    const s = device.singles;
    const place = (ns) => Math.floor((ns - data.from) / bins.step) - bins.first;
    const [from] = ratesEdges(bins, 0);
    const [, to] = ratesEdges(bins, bins.n - 1);
    eachSingle(device, from, to, (i) => {
      const issued = place(s.at[i]);
      if (s.flags[i] & FLAG.seek && issued >= 0 && issued < bins.n) sums.seeks_exact[issued] += 1;
      if (s.flags[i] & FLAG.seek64k && issued >= 0 && issued < bins.n) sums.seeks_sw64k[issued] += 1;
      if (!(s.flags[i] & FLAG.complete)) return;
      const done = Math.min(place(s.at[i] + s.took[i]), s.at[i] + s.took[i] >= data.to ? bins.n - 1 : Infinity);
      if (done < 0 || done >= bins.n) return;
      const layer = s.layer[i];
      const moved = s.error[i] === 0 ? Math.max(0, s.bytes[i]) : 0;
      if (layer === 0) {
        sums.reads[done] += 1;
        sums.read_bytes[done] += moved;
      } else if (layer === 1) {
        sums.writes[done] += 1;
        sums.write_bytes[done] += moved;
      } else {
        sums.others[done] += 1;
      }
    });
    Object.assign(sums, depths(device, bins));
  }
  const rates = { bins };
  for (const name of names) rates[name] = perSecond(bins, sums[name]);
  rates.depth_max = sums.depth_max;
  rates.depth_mean = sums.depth_mean;
  return rates;
}

// Queue depth from individual requests: mean and maximum per bin.
function depths(device, bins) {
  const s = device.singles;
  if (!s.starts) {
    const done = [];
    for (let i = 0; i < s.n; i += 1) if (s.flags[i] & FLAG.complete) done.push(i);
    s.starts = Float64Array.from(done, (i) => s.at[i]).sort();
    s.ends = Float64Array.from(done, (i) => s.at[i] + s.took[i]).sort();
  }
  const mean = new Float64Array(bins.n);
  const most = new Float64Array(bins.n);
  const [from] = ratesEdges(bins, 0);
  let a = lowerBound(s.starts, from);
  let b = lowerBound(s.ends, from);
  let depth = a - b;
  let at = from;
  for (let i = 0; i < bins.n; i += 1) {
    const [left, right] = ratesEdges(bins, i);
    let area = 0;
    let peak = 0;
    let begun = false;
    while (true) {
      const start = a < s.starts.length ? s.starts[a] : Infinity;
      const end = b < s.ends.length ? s.ends[b] : Infinity;
      const next = Math.min(start, end);
      if (next > left && !begun) {
        peak = Math.max(peak, depth);
        begun = true;
      }
      if (next >= right) break;
      area += depth * (next - at);
      at = next;
      if (end <= start && b < a) {
        depth -= 1;
        b += 1;
      } else {
        depth += 1;
        a += 1;
        peak = Math.max(peak, depth);
      }
    }
    area += depth * (right - at);
    at = right;
    mean[i] = area / Math.max(1, right - left);
    most[i] = peak;
  }
  return { depth_mean: mean, depth_max: most };
}

// Rates of operations, at their return. Bytes read and written are those of files; what went to and came from pipes,
// devices and nowhere is apart, both directions together.
function callRates(data, calls, width) {
  const bins = ratesBins(data, calls, width);
  const moving = ['read_bytes', 'write_bytes', ...TARGETS.slice(1)];
  const sums = { calls: new Float64Array(bins.n) };
  for (const name of moving) sums[name] = bins.exact ? new Float64Array(bins.n) : stored(bins, calls.rates[name]);
  if (!bins.exact) {
    for (const counts of calls.counts) stored(bins, counts).forEach((n, i) => (sums.calls[i] += n));
  } else {
    const s = calls.singles;
    const [from] = ratesEdges(bins, 0);
    const [, to] = ratesEdges(bins, bins.n - 1);
    eachSingle(calls, from, to, (i) => {
      if (!(s.flags[i] & FLAG.complete)) return;
      const end = s.at[i] + s.took[i];
      let at = Math.floor((end - data.from) / bins.step) - bins.first;
      if (end >= data.to) at = Math.min(at, bins.n - 1);
      if (at < 0 || at >= bins.n) return;
      sums.calls[at] += 1;
      const kind = s.kind[i];
      const moved = kind <= 2 ? Math.max(0, s.ret[i]) : 0;
      if (kind === 0 || kind === 2) sums[s.from[i] === 0 ? 'read_bytes' : TARGETS[s.from[i]]][at] += moved;
      if (kind === 1 || kind === 2) sums[s.to[i] === 0 ? 'write_bytes' : TARGETS[s.to[i]]][at] += moved;
    });
  }
  const rates = { bins, calls: perSecond(bins, sums.calls) };
  for (const name of moving) rates[name] = perSecond(bins, sums[name]);
  return rates;
}
