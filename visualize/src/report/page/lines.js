// Lines over time: throughput, requests and seeks, queue depth.

class LinePanel extends Panel {
  constructor(options) {
    super({ height: 96, ...options });
  }

  drawPlot(g, w, h) {
    const lines = this.lines(w).filter((l) => this.on.get(l.key));
    let top = 0;
    for (const line of lines) {
      for (let i = 0; i < line.values.length; i += 1) {
        if (line.values[i] > top) top = line.values[i];
      }
    }
    const step = top > 0 ? this.step((top / h) * 26) : 1;
    const scale = Math.max(step, Math.ceil((top / step) * (1 - 1e-9)) * step);
    const labels = [];
    for (let k = 0; k * step <= scale * (1 + 1e-9); k += 1) labels.push([h - ((k * step) / scale) * h * 0.96, this.label(k * step)]);
    this.yLabels(labels, w);
    this.shownLines = lines;
    for (const line of lines) {
      const path = new Path2D();
      const y = (v) => h - (v / scale) * h * 0.96;
      let first = null;
      for (let i = 0; i < line.values.length; i += 1) {
        const [from, to] = ratesEdges(line.bins, i);
        const x0 = xOf(from, w);
        const x1 = xOf(to, w);
        if (first === null) {
          first = x0;
          path.moveTo(x0, y(line.values[i]));
        } else {
          path.lineTo(x0, y(line.values[i]));
        }
        path.lineTo(x1, y(line.values[i]));
      }
      if (line.fill) {
        const area = new Path2D(path);
        area.lineTo(xOf(ratesEdges(line.bins, line.values.length - 1)[1], w), h + 1);
        area.lineTo(first ?? 0, h + 1);
        g.fillStyle = translucent(theme[line.color], 0.16);
        g.fill(area);
      }
      g.setLineDash(line.dash || []);
      g.strokeStyle = theme[line.color];
      g.lineWidth = line.thin ? 1 : 1.5;
      g.stroke(path);
    }
    g.setLineDash([]);
    const bins = lines[0] && lines[0].bins;
    this.told.textContent = bins ? `per ${moment(bins.step, bins.step)}` : '';
  }

  // Values of the lines at a time.
  at(ns) {
    return (this.shownLines || []).map((line) => {
      const i = Math.floor((ns - line.bins.data.from) / line.bins.step) - line.bins.first;
      const value = line.values[Math.max(0, Math.min(i, line.values.length - 1))];
      return { label: line.label, color: line.color, text: this.text(value) };
    });
  }

  step(least) {
    return niceStep(least);
  }
  label(v) {
    return brief(v);
  }
  text(v) {
    return plain(v, v < 100 ? 1 : 0);
  }
}

// Rates per second.
class RatePanel extends LinePanel {
  label(v) {
    return v === 0 ? '0' : `${brief(v)}/s`;
  }
  text(v) {
    return `${plain(v, v < 100 ? 1 : 0)}/s`;
  }
}

// Bytes of programs that reach no file system.
const OTHER_TARGETS = [
  { key: 'pipes', label: 'pipes and sockets', color: 'other', dash: [6, 3] },
  { key: 'devices', label: 'devices', color: 'misc', dash: [6, 3] },
  { key: 'nowhere', label: 'nowhere (/dev/null, /dev/zero)', color: 'misc', dash: [1, 3] },
];

class Throughput extends LinePanel {
  constructor() {
    super({
      id: 'throughput', title: 'Throughput',
      legend: [
        { key: 'read', label: 'device read', color: 'read' },
        { key: 'write', label: 'device write', color: 'write' },
        { key: 'callRead', label: 'files read by programs', color: 'read', dashed: true },
        { key: 'callWrite', label: 'files written by programs', color: 'write', dashed: true },
        ...OTHER_TARGETS.map(({ key, label, color }) => ({ key, label, color, dashed: true })),
      ],
    });
    const { devices, calls } = view.base;
    const rates = { read: devices.map((d) => d.rates.read_bytes), write: devices.map((d) => d.rates.write_bytes) };
    Object.assign(rates, { callRead: calls ? [calls.rates.read_bytes] : [], callWrite: calls ? [calls.rates.write_bytes] : [] });
    for (const { key } of OTHER_TARGETS) rates[key] = calls ? [calls.rates[key]] : [];
    this.keepKeys((_, key) => rates[key].some((bins) => bins.some((n) => n > 0)));
  }
  lines(w) {
    const data = shownData();
    const device = shownDevice();
    const out = [];
    if (device) {
      const r = deviceRates(data, device, w);
      out.push({ key: 'read', label: 'device read', values: r.read_bytes, bins: r.bins, color: 'read', fill: true });
      out.push({ key: 'write', label: 'device write', values: r.write_bytes, bins: r.bins, color: 'write', fill: true });
    }
    if (data.calls) {
      const r = callRates(data, data.calls, w);
      out.push({ key: 'callRead', label: 'files read by programs', values: r.read_bytes, bins: r.bins, color: 'read', dash: [2, 2], thin: true });
      out.push({ key: 'callWrite', label: 'files written by programs', values: r.write_bytes, bins: r.bins, color: 'write', dash: [2, 2], thin: true });
      for (const { key, label, color, dash } of OTHER_TARGETS) out.push({ key, label, values: r[key], bins: r.bins, color, dash, thin: true });
    }
    return out;
  }
  step(least) {
    return niceStep(least / 1048576) * 1048576;
  }
  label(v) {
    return v === 0 ? '0' : `${brief(v / 1048576)} MiB/s`;
  }
  text(v) {
    return mibPerSecond(v, 1);
  }
}

class Seeks extends RatePanel {
  constructor() {
    super({
      id: 'seeks', title: 'Requests and seeks',
      legend: [
        { key: 'requests', label: 'requests completed', color: 'misc' },
        { key: 'exact', label: 'adjacent seeks (seeks.exact)', color: 'flush', dashed: true },
        { key: 'sw64k', label: 'far seeks, over 64 KiB (seeks.sw64k)', color: 'flush' },
      ],
    });
  }
  lines(w) {
    const device = shownDevice();
    if (!device) return [];
    const r = deviceRates(shownData(), device, w);
    const requests = r.reads.map((n, i) => n + r.writes[i] + r.others[i]);
    return [
      { key: 'requests', label: 'requests', values: requests, bins: r.bins, color: 'misc', thin: true, fill: true },
      { key: 'exact', label: 'adjacent seeks (seeks.exact)', values: r.seeks_exact, bins: r.bins, color: 'flush', thin: true, dash: [3, 2] },
      { key: 'sw64k', label: 'far seeks, over 64 KiB (seeks.sw64k)', values: r.seeks_sw64k, bins: r.bins, color: 'flush' },
    ];
  }
}

class Depth extends LinePanel {
  constructor() {
    super({
      id: 'depth', title: 'Queue depth',
      legend: [
        { key: 'mean', label: 'mean', color: 'read' },
        { key: 'most', label: 'maximum', color: 'misc', dashed: true },
      ],
    });
  }
  lines(w) {
    const device = shownDevice();
    if (!device) return [];
    const r = deviceRates(shownData(), device, w);
    return [
      { key: 'most', label: 'maximum', values: r.depth_max, bins: r.bins, color: 'misc', thin: true },
      { key: 'mean', label: 'mean', values: r.depth_mean, bins: r.bins, color: 'read', fill: true },
    ];
  }
  step(least) {
    return Math.max(1, niceStep(least));
  }
  text(v) {
    return plain(v, Number.isInteger(v) ? 0 : 2);
  }
}

class CallRate extends RatePanel {
  constructor() {
    super({ id: 'rate', title: 'Operations', legend: [{ key: 'calls', label: 'operations returned', color: 'misc' }] });
  }
  lines(w) {
    const data = shownData();
    if (!data.calls) return [];
    const r = callRates(data, data.calls, w);
    return [{ key: 'calls', label: 'operations', values: r.calls, bins: r.bins, color: 'misc', fill: true }];
  }
}
