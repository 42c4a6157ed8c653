// Latency heat maps: duration of events over the time of their end, with median, 99th percentile and maximum.

// With fewer events, the events are visible individually, and a line would hide them.
const LEAST_FOR_QUANTILES = 5;

class HeatPanel extends Panel {
  constructor(options) {
    super({ height: 170, ...options });
  }

  // Rows of the axis, eight per doubling of ns, from low to high.
  get rows() {
    return view.base ? this.baseSource().span : [80, 160];
  }
  yOf(ns) {
    const [low, high] = this.rows;
    return (1 - (heatRow(ns) - low) / (high - low)) * this.height;
  }
  nsAt(y) {
    const [low, high] = this.rows;
    return 2 ** ((low + (1 - y / this.height) * (high - low)) / 8);
  }

  drawPlot(g, w, h) {
    const source = this.source();
    if (!source) return;
    const labels = [];
    for (let decade = 1; decade <= 1e13; decade *= 10) {
      const y = this.yOf(decade);
      if (y > 0 && y < h) labels.push([y, duration(decade).replace(/\.0+ /, ' ')]);
    }
    this.yLabels(labels, w);
    const layers = this.layers(source, Math.round(w * this.scale), Math.round(h * this.scale)).filter((l) => this.on.get(l.key));
    this.paintLayers(g, w, h, layers.map((l) => ({ counts: l.counts, color: this.colors[l.key] })));
    this.drawQuantiles(g, w);
    const s = source.singles;
    this.told.textContent = s.complete ? '' : `counts of all ${count(s.total)}; individual events: the slowest and 1 in ${count(s.oneIn)}`;
  }

  layers(source, width, height) {
    const data = shownData();
    const [low, high] = this.rows;
    const keys = source.layerNames;
    if (source.heat && !source.singles.complete) {
      return keys.map((key, k) => {
        const raster = source.heat[k];
        const column = (ns) => ((ns - data.from) / (data.to - data.from)) * raster.columns;
        // Rows of the raster count upwards, those of the plot downwards.
        return { key, counts: resample(raster, width, height, column(view.from), column(view.to), high, low) };
      });
    }
    const counts = keys.map(() => new Corners(width, height));
    const s = source.singles;
    let n = 0;
    eachSingle(source, view.from, view.to, () => { n += 1; });
    const size = (n < 1000 ? 4 : n < 5000 ? 3 : n < 60000 ? 2 : 1) * this.scale - 1;
    eachSingle(source, view.from, view.to, (i) => {
      if (!(s.flags[i] & FLAG.complete)) return;
      const end = s.at[i] + s.took[i];
      if (end > view.to) return;
      const x = xOf(end, width);
      const y = (this.yOf(s.took[i]) / this.height) * height;
      const layer = Math.min(s.layer[i], keys.length - 1);
      counts[layer].add(x - size / 2, x + size / 2, Math.min(height - 1, y - size / 2), y + size / 2);
    });
    return keys.map((key, k) => ({ key, counts: counts[k].counts() }));
  }

  // One value per group of pixels, from individual events or the raster's rows.
  drawQuantiles(g, w) {
    const source = this.source();
    const step = 6;
    const n = Math.floor(w / step);
    const lists = Array.from({ length: n }, () => []);
    const s = source.singles;
    const data = shownData();
    const shown = source.layerNames.map((key) => this.on.get(key));
    if (source.heat && !s.complete) {
      const rows = source.heat[0].cells.length / source.heat[0].columns;
      for (let b = 0; b < n; b += 1) {
        const sums = new Map();
        source.heat.forEach((raster, k) => {
          if (!shown[k]) return;
          const column = (x) => ((timeAt(x, w) - data.from) / (data.to - data.from)) * raster.columns;
          const c0 = Math.max(0, Math.floor(column(b * step)));
          const c1 = Math.min(raster.columns, Math.max(c0 + 1, Math.floor(column((b + 1) * step))));
          const [low, high] = source.span;
          for (let row = low; row < Math.min(high, rows); row += 1) {
            let sum = 0;
            for (let c = c0; c < c1; c += 1) sum += SHADE[raster.cells[row * raster.columns + c]];
            if (sum > 0) sums.set(row, (sums.get(row) || 0) + sum);
          }
        });
        lists[b] = [...sums].sort((p, q) => p[0] - q[0]);
      }
    } else {
      eachSingle(source, view.from, view.to, (i) => {
        const end = s.at[i] + s.took[i];
        if (!(s.flags[i] & FLAG.complete) || end > view.to || !shown[Math.min(s.layer[i], shown.length - 1)]) return;
        const b = Math.floor(xOf(end, w) / step);
        if (b >= 0 && b < n) lists[b].push(s.took[i]);
      });
      for (let b = 0; b < n; b += 1) lists[b] = lists[b].sort((p, q) => p - q).map((ns) => [heatRow(ns), 1]);
    }
    const [low, high] = this.rows;
    const y = (row) => (1 - (row - low) / (high - low)) * this.height;
    for (const { key, share, dash, width } of [
      { key: 'max', share: 1, dash: [1, 2], width: 1 },
      { key: 'p99', share: 0.99, dash: [4, 2], width: 1.25 },
      { key: 'p50', share: 0.5, dash: [], width: 1.75 },
    ]) {
      if (!this.on.get(key)) continue;
      const line = new Path2D();
      let last = -2;
      for (let b = 0; b < n; b += 1) {
        if (lists[b].length === 0 || lists[b].reduce((n, [, weight]) => n + weight, 0) < LEAST_FOR_QUANTILES) continue;
        const at = y(quantileOf(lists[b], share));
        const x = (b + 0.5) * step;
        if (b - last > 8) line.moveTo(x - step / 2, at);
        line.lineTo(x, at);
        line.lineTo(x + step / 2, at);
        last = b;
      }
      g.setLineDash([]);
      g.strokeStyle = `rgba(${theme.paper.join(',')},0.75)`;
      g.lineWidth = width + 2;
      g.stroke(line);
      g.setLineDash(dash);
      g.strokeStyle = theme.line;
      g.lineWidth = width;
      g.stroke(line);
    }
    g.setLineDash([]);
  }

  // Index of the individual event nearest to a point, or -1.
  nearest(x, y) {
    const source = this.source();
    if (!source) return -1;
    const w = this.plotWidth;
    const s = source.singles;
    let best = -1;
    let least = NEAR_PX;
    const slack = ((view.to - view.from) / w) * NEAR_PX;
    const at = timeAt(x, w);
    eachSingle(source, at - slack, at + slack, (i) => {
      if (!(s.flags[i] & FLAG.complete) || !this.on.get(source.layerNames[Math.min(s.layer[i], source.layerNames.length - 1)])) return;
      const d = Math.hypot(xOf(s.at[i] + s.took[i], w) - x, this.yOf(s.took[i]) - y);
      if (d < least) {
        best = i;
        least = d;
      }
    });
    return best;
  }

  axisText(y) {
    return duration(this.nsAt(y));
  }
}

// Quantile of a sorted list of [value, weight].
function quantileOf(list, share) {
  let total = 0;
  for (const [, weight] of list) total += weight;
  let sum = 0;
  for (const [value, weight] of list) {
    sum += weight;
    if (sum >= total * share - 1e-9) return value;
  }
  return list[list.length - 1][0];
}

const QUANTILE_KEYS = [
  { key: 'p50', label: 'p50', color: 'line', always: true },
  { key: 'p99', label: 'p99', color: 'line', dashed: true, always: true },
  { key: 'max', label: 'max', color: 'line', dashed: true, off: true, always: true },
];

class DeviceHeat extends HeatPanel {
  constructor() {
    super({
      id: 'latency', title: 'Latency of requests (issue to completion)',
      colors: { read: 'read', write: 'write', other: 'other' },
      legend: [
        { key: 'read', label: 'read', color: 'read' },
        { key: 'write', label: 'write', color: 'write' },
        { key: 'other', label: 'flush, discard', color: 'other' },
        ...QUANTILE_KEYS,
      ],
    });
    const used = layersIn(view.base.devices, 3, (d) => d.heat);
    this.keepKeys((k) => used[k]);
  }
  source() {
    return shownDevice();
  }
  baseSource() {
    return view.base.devices[view.device] || { span: [80, 160] };
  }
}

class CallHeat extends HeatPanel {
  constructor() {
    super({
      id: 'durations', title: 'Duration of operations',
      colors: { read: 'read', write: 'write', sync: 'sync', metadata: 'metadata', other: 'misc' },
      legend: [
        { key: 'read', label: 'read', color: 'read' },
        { key: 'write', label: 'write', color: 'write' },
        { key: 'sync', label: 'sync', color: 'sync' },
        { key: 'metadata', label: 'metadata', color: 'metadata' },
        { key: 'other', label: 'other', color: 'misc' },
        ...QUANTILE_KEYS,
      ],
    });
    const used = layersIn([view.base.calls], 5, (c) => c.heat);
    this.keepKeys((k) => used[k]);
  }
  source() {
    return shownData().calls;
  }
  baseSource() {
    return view.base.calls;
  }
}
