// The strip above the panels: throughput of the whole reel, and the window, which can be dragged and resized.

const overview = { canvas: null, drag: null };

function startOverview() {
  const canvas = byId('overview');
  overview.canvas = canvas;
  canvas.addEventListener('pointerdown', (e) => {
    const { from, to } = view;
    const x = e.offsetX - LEFT;
    const edge = (ns) => Math.abs(overviewX(ns) - x) < 6;
    const kind = edge(from) ? 'from' : edge(to) ? 'to' : x > overviewX(from) && x < overviewX(to) && from + to !== view.base.from + view.base.to ? 'move' : 'new';
    pushHistory();
    overview.drag = { kind, start: overviewTime(x), from, to };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointermove', (e) => {
    const d = overview.drag;
    if (!d) return;
    const at = overviewTime(e.offsetX - LEFT);
    if (d.kind === 'move') show(d.from + at - d.start, d.to + at - d.start, false);
    else if (d.kind === 'from') show(Math.min(at, d.to), Math.max(at, d.to), false);
    else if (d.kind === 'to') show(Math.min(at, d.from), Math.max(at, d.from), false);
    else if (Math.abs(overviewX(at) - overviewX(d.start)) > 3) show(Math.min(at, d.start), Math.max(at, d.start), false);
  });
  canvas.addEventListener('pointerup', (e) => {
    const d = overview.drag;
    overview.drag = null;
    const at = overviewTime(e.offsetX - LEFT);
    // A click moves the window here.
    if (d && d.kind === 'new' && Math.abs(overviewX(at) - overviewX(d.start)) <= 3) {
      const half = (d.to - d.from) / 2;
      show(at - half, at + half, false);
    }
  });
  canvas.addEventListener('dblclick', showWhole);
}

function overviewWidth() {
  return Math.max(40, overview.canvas.clientWidth - LEFT - RIGHT);
}
function overviewX(ns) {
  return ((ns - view.base.from) / (view.base.to - view.base.from)) * overviewWidth();
}
function overviewTime(x) {
  const share = Math.max(0, Math.min(1, x / overviewWidth()));
  return view.base.from + share * (view.base.to - view.base.from);
}

function drawOverview() {
  const { canvas } = overview;
  const scale = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth;
  const height = 46;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const g = canvas.getContext('2d');
  g.setTransform(scale, 0, 0, scale, 0, 0);
  const w = overviewWidth();
  const h = height - 6;
  g.translate(LEFT, 3);
  const base = view.base;
  const device = base.devices[view.device];
  const lines = [];
  if (device) lines.push(['read', device.rates.read_bytes], ['write', device.rates.write_bytes]);
  else if (base.calls) lines.push(['read', base.calls.rates.read_bytes], ['write', base.calls.rates.write_bytes]);
  const columns = lines.map(([key, values]) => {
    const sums = new Float64Array(Math.ceil(w));
    for (let i = 0; i < values.length; i += 1) {
      const [a, b] = binEdges(base, i);
      const rate = values[i] / Math.max(1, b - a);
      const x0 = Math.floor(overviewX(a));
      const x1 = Math.max(x0, Math.ceil(overviewX(b)) - 1);
      for (let x = x0; x <= x1 && x < sums.length; x += 1) sums[x] = Math.max(sums[x], rate);
    }
    return [key, sums];
  });
  const top = Math.max(1e-12, ...columns.map(([, sums]) => greatest(sums)));
  for (const [key, sums] of columns) {
    g.fillStyle = translucent(theme[key], 0.55);
    // Square root scale, so that slow parts are visible beside fast ones.
    sums.forEach((v, x) => {
      const high = Math.sqrt(v / top) * (h - 2);
      g.fillRect(x, h - high, 1, high);
    });
  }
  for (const [from, to] of base.about.losses) {
    g.fillStyle = theme.alarm;
    g.fillRect(overviewX(from), 0, Math.max(1.5, overviewX(to) - overviewX(from)), 4);
  }
  for (const f of base.about.findings) {
    g.fillStyle = severityColor(f.severity);
    g.fillRect(overviewX(f.from_ns), h - 3, Math.max(2, overviewX(f.to_ns) - overviewX(f.from_ns)), 3);
  }
  if (view.selection) {
    g.fillStyle = translucent(theme.ink, 0.15);
    g.fillRect(overviewX(view.selection.from), 0, Math.max(1, overviewX(view.selection.to) - overviewX(view.selection.from)), h);
  }
  const x0 = overviewX(view.from);
  const x1 = Math.max(x0 + 2, overviewX(view.to));
  g.fillStyle = theme.dark ? 'rgba(0,0,0,0.55)' : 'rgba(120,130,145,0.28)';
  g.fillRect(0, 0, x0, h);
  g.fillRect(x1, 0, w - x1, h);
  g.strokeStyle = theme.frame;
  g.strokeRect(-0.5, -0.5, w + 1, h + 1);
  g.strokeStyle = theme.ink;
  g.lineWidth = 1.5;
  g.strokeRect(x0, 0, x1 - x0, h);
  g.fillStyle = theme.faint;
  g.font = '11px system-ui, sans-serif';
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  g.fillText('whole reel', -8, h / 2);
}
