// Maps over time: offsets on a device, and positions in files. Shows counts per pixel, or individual events if there
// are few.

// Maximum distance between the cursor and the event it selects.
const NEAR_PX = 7;

class MapPanel extends Panel {
  constructor(options) {
    super({ tall: true, ...options });
    this.low = 0;
    this.high = 1;
  }

  // Converts a position on the axis (0 low to 1 high) to the distance from the plot's top.
  yOf(unit) {
    return (1 - (unit - this.low) / (this.high - this.low)) * this.height;
  }
  unitAt(y) {
    return this.low + (1 - y / this.height) * (this.high - this.low);
  }
  showUnits(low, high) {
    const width = Math.min(1, Math.max(high - low, 1e-7));
    this.low = Math.max(0, Math.min((low + high) / 2 - width / 2, 1 - width));
    this.high = this.low + width;
    changed();
  }

  // Minimum size of an event, px. With few events it is larger, so that each is visible.
  leastPx(n) {
    return n < 1000 ? 4 : n < 5000 ? 3 : n < 60000 ? 2 : 1;
  }

  drawPlot(g, w, h) {
    const source = this.source();
    if (!source) {
      this.empty(g, w, h);
      return;
    }
    this.axisLabels(w);
    const layers = this.layers(source, Math.round(w * this.scale), Math.round(h * this.scale)).filter((l) => this.on.get(l.key));
    this.paintLayers(g, w, h, layers.map((l) => ({ counts: l.counts, color: this.colorOf(l.key) })), this.blend);
    this.drawOver(g, w, h, source);
    this.drawBox(g, w);
    this.tell(source);
  }

  // Whether everything shown is drawn from individual events.
  bySingles(source) {
    return source.singles.complete || !source.map;
  }
  // Layer of an individual event, and colour name of a layer.
  layerOf(source, i) {
    return source.singles.layer[i];
  }
  colorOf(key) {
    return key;
  }

  // Counts per layer for the plot.
  layers(source, width, height) {
    const data = shownData();
    const keys = this.layerKeys;
    const toY = (unit) => (1 - (unit - this.low) / (this.high - this.low)) * height;
    if (this.bySingles(source)) {
      const counts = keys.map(() => new Corners(width, height));
      let n = 0;
      this.eachPlaced(source, (i, layer) => { n += layer < keys.length ? 1 : 0; });
      const least = this.leastPx(n) * this.scale - 1;
      this.eachPlaced(source, (i, layer, low, high) => {
        if (layer >= keys.length) return;
        const x0 = xOf(source.singles.at[i], width);
        const x1 = xOf(source.singles.at[i] + source.singles.took[i], width);
        const y0 = toY(high);
        const y1 = Math.max(toY(low) - 1e-6, y0);
        if (y1 < 0 || y0 >= height) return;
        counts[layer].add(x0, Math.max(x1, x0 + least), Math.min(y0, height - 1), Math.max(y1, y0 + least));
      });
      this.drawn = n;
      return keys.map((key, k) => ({ key, counts: counts[k].counts() }));
    }
    this.drawn = null;
    return keys.map((key, k) => {
      const raster = source.map[k];
      const rows = raster.cells.length / raster.columns;
      const column = (ns) => ((ns - data.from) / (data.to - data.from)) * raster.columns;
      return { key, counts: resample(raster, width, height, column(view.from), column(view.to), (1 - this.high) * rows, (1 - this.low) * rows) };
    });
  }

  // In a sampled reel, zoomed beyond its rasters: draws the individual events of the page.
  drawOver(g, w, h, source) {
    if (this.bySingles(source)) return;
    const data = shownData();
    const cellPx = (w / source.map[0].columns) * ((data.to - data.from) / (view.to - view.from));
    if (cellPx < 2) return;
    g.lineWidth = 1;
    this.eachPlaced(source, (i, layer, low, high) => {
      const key = this.layerKeys[layer];
      if (!key || !this.on.get(key)) return;
      const x = xOf(source.singles.at[i], w);
      const right = Math.max(xOf(source.singles.at[i] + source.singles.took[i], w), x + 2);
      const y = this.yOf(high);
      const bottom = Math.max(this.yOf(low), y + 2);
      if (right < 0 || x > w || bottom < 0 || y > h) return;
      g.fillStyle = theme[this.colorOf(key)];
      g.fillRect(x, y, right - x, bottom - y);
      g.strokeStyle = theme.ink;
      g.strokeRect(x - 0.5, y - 0.5, right - x + 1, bottom - y + 1);
    });
  }

  drawBox(g, w) {
    const s = view.selection;
    if (!s || s.panel !== this.id) return;
    const x0 = xOf(s.from, w);
    const x1 = xOf(s.to, w);
    g.strokeStyle = theme.ink;
    g.lineWidth = 1.5;
    g.strokeRect(x0, this.yOf(s.high), x1 - x0, this.yOf(s.low) - this.yOf(s.high));
  }

  tell(source) {
    const s = source.singles;
    const zoomed = this.low > 0 || this.high < 1 ? ' · zoomed vertically; double-click the axis to reset' : '';
    if (!s.complete && this.bySingles(source)) this.told.textContent = `the slowest and 1 in ${count(s.oneIn)} of ${count(s.total)} ${this.what}${zoomed}`;
    else if (this.bySingles(source)) this.told.textContent = this.drawn === 0 ? `none in this window${zoomed}` : `all ${count(this.drawn)} ${this.what} shown${zoomed}`;
    else this.told.textContent = `density of ${count(s.total)} ${this.what}; individual events: the slowest and 1 in ${count(s.oneIn)}${zoomed}`;
  }

  empty(g, w, h) {
    g.fillStyle = theme.faint;
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    g.fillText(this.nothing, w / 2, h / 2);
    this.told.textContent = '';
  }

  // Index of the individual event nearest to a point of the plot, or -1.
  nearest(x, y) {
    const source = this.source();
    if (!source) return -1;
    const w = this.plotWidth;
    let best = -1;
    let least = NEAR_PX;
    const slack = ((view.to - view.from) / w) * NEAR_PX;
    const at = timeAt(x, w);
    eachSingle(source, at - slack, at + slack, (i) => {
      const key = this.layerKeys[this.layerOf(source, i)];
      if (!key || !this.on.get(key)) return;
      const place = this.place(source, i);
      if (!place) return;
      const x0 = xOf(source.singles.at[i], w);
      const x1 = xOf(source.singles.at[i] + source.singles.took[i], w);
      const dx = Math.max(x0 - x, 0, x - x1);
      const dy = Math.max(this.yOf(place[1]) - y, 0, y - this.yOf(place[0]));
      const distance = Math.hypot(dx, dy);
      if (distance < least || (distance === least && best >= 0 && source.singles.took[i] < source.singles.took[best])) {
        best = i;
        least = distance;
      }
    });
    return best;
  }

  eachPlaced(source, each) {
    eachSingle(source, view.from, view.to, (i) => {
      const place = this.place(source, i);
      if (place) each(i, this.layerOf(source, i), place[0], place[1]);
    });
  }
}

const OPERATION_KEYS = [
  { key: 'read', label: 'read', color: 'read' },
  { key: 'write', label: 'write', color: 'write' },
  { key: 'other', label: 'discard, zeroing', color: 'other' },
];
const FLUSH_KEY = { key: 'flush', label: 'flush', color: 'flush' };
// Other meanings of colours: name of a request's category, from its bios.
const CATEGORIES = {
  process: (data, s, i) => (s.comm[i] >= 0 ? data.index.comms[s.comm[i]] : ''),
  class: (data, s, i) => (s.what[i] >= 0 ? data.index.carried[s.what[i]] : ''),
  file: (data, s, i) => (s.file[i] >= 0 && data.lanes ? laneName(data.lanes, s.file[i]) : ''),
};
const COLOR_WORDS = { op: 'operation', process: 'process', class: 'content', file: 'file', latency: 'latency' };
// Upper limits of the latency steps, ns.
const HEAT_STEPS = [[1e5, 'below 100 µs'], [1e6, 'below 1 ms'], [1e7, 'below 10 ms'], [1e8, 'below 100 ms'], [Infinity, '100 ms and more']];

class OffsetMap extends MapPanel {
  constructor() {
    super({
      id: 'offsets', title: 'Offsets on the device', height: 300, what: 'requests with an address', nothing: 'no requests of a block device in this reel',
      legend: [...OPERATION_KEYS, FLUSH_KEY],
    });
    this.by = 'op';
    this.layerKeys = OPERATION_KEYS.map((k) => k.key);
    this.colorNames = new Map();
    this.places = new Map();
    const used = layersIn(view.base.devices, 4, (d) => d.map && [...d.map, d.flushes]);
    this.usedKeys = this.legend.filter((_, k) => used[k]);
    this.setKeys(this.usedKeys);
    this.colored = element('span', { id: 'colored' });
    this.paletteChoice = element('select', { 'aria-label': 'Colours', id: 'colors', on: { change: () => this.colorBy(this.paletteChoice.value) } });
    this.choose = element('select', { 'aria-label': 'Device', on: { change: () => {
      view.device = Number(this.choose.value);
      this.low = 0;
      this.high = 1;
      changed();
    } } });
  }

  // Called when the data is loaded.
  fill() {
    view.base.devices.forEach((d, i) => this.choose.append(element('option', { value: i }, readable(d.label))));
    if (view.base.devices.length > 1) this.controls.append(this.choose);
    else if (view.base.devices.length === 1) this.controls.append(element('b', {}, readable(view.base.devices[0].label)));
    const told = (of) => view.base.devices.some((d) => d.singles.at.some((_, i) => of(view.base, d.singles, i) !== ''));
    for (const [by, words] of Object.entries(COLOR_WORDS)) {
      if (!CATEGORIES[by] || told(CATEGORIES[by])) this.paletteChoice.append(element('option', { value: by }, `by ${words}`));
    }
    this.controls.append(this.paletteChoice, this.colored);
  }

  // Changes the meaning of colours. Categories are ordered by bytes, and the same on every device.
  colorBy(by) {
    this.by = by;
    this.places = new Map();
    let keys = OPERATION_KEYS;
    if (by === 'latency') keys = HEAT_STEPS.map(([, label], i) => ({ key: `heat${i}`, label, color: `heat${i}` }));
    if (CATEGORIES[by]) {
      const sums = new Map();
      for (const { singles: s } of view.base.devices) {
        for (let i = 0; i < s.n; i += 1) {
          const name = CATEGORIES[by](view.base, s, i);
          if (name !== '') sums.set(name, (sums.get(name) || 0) + Math.max(0, s.bytes[i]) + 1);
        }
      }
      const names = [...sums].sort((a, b) => b[1] - a[1]).slice(0, theme.hues.length).map(([name]) => name);
      names.forEach((name, i) => this.places.set(name, i + 1));
      const label = (name) => (by === 'file' ? baseName(name) : readable(name)).slice(0, 28);
      keys = [{ key: 'rest', label: 'others', color: 'misc' }, ...names.map((name, i) => ({ key: `hue${i}`, label: label(name), color: `hue${i}` }))];
    }
    this.layerKeys = keys.map((k) => k.key);
    this.colorNames = new Map(keys.map((k) => [k.key, k.color]));
    this.blend = by === 'op' ? undefined : by === 'latency' ? 'last' : 'most';
    const flushes = this.usedKeys.filter((k) => k.key === 'flush');
    // If all events are in the page, only existing categories; otherwise, a detail may contain more.
    const all = view.base.devices.every((d) => d.singles.complete);
    const used = new Set();
    for (const device of view.base.devices) {
      const s = device.singles;
      for (let i = 0; i < s.n && all; i += 1) {
        if (s.layer[i] !== 3) used.add(CATEGORIES[by] ? this.places.get(CATEGORIES[by](view.base, s, i)) ?? 0 : this.layerOf(device, i));
      }
    }
    this.setKeys(by === 'op' ? this.usedKeys : [...keys.filter((_, k) => !all || used.has(k)), ...flushes]);
    changed();
  }

  // A note beside the choice of colours: if the page contains only a sample, colours apply to the sample.
  tell(source) {
    super.tell(source);
    const s = source.singles;
    this.colored.textContent = this.by === 'op' || s.complete ? '' : `coloured and drawn: ${count(s.n)} of ${count(s.total)} requests; choose operation for all of them`;
  }

  // Rasters contain only the operation.
  bySingles(source) {
    return this.by !== 'op' || super.bySingles(source);
  }

  colorOf(key) {
    return this.colorNames.get(key) || key;
  }

  layerOf(source, i) {
    const s = source.singles;
    if (this.by === 'op' || s.layer[i] === 3) return s.layer[i];
    if (this.by === 'latency') return s.flags[i] & FLAG.complete ? HEAT_STEPS.findIndex(([end]) => s.took[i] < end) : 0;
    // Computed once per event. Names are looked up by text, because a detail has different indexes.
    if (!s.categories || s.categoriesBy !== this.by) {
      s.categoriesBy = this.by;
      s.categories = new Uint8Array(s.n).fill(255);
    }
    if (s.categories[i] === 255) s.categories[i] = this.places.get(CATEGORIES[this.by](shownData(), s, i)) ?? 0;
    return s.categories[i];
  }

  source() {
    return shownDevice();
  }

  // A detail may have a different axis. It is drawn on the axis of the whole, unless it is a raster.
  bands() {
    const device = shownDevice();
    return device && device.map ? device : view.base.devices[view.device];
  }

  unitOf(sector) {
    const { bands, rows } = this.bands();
    let unit = 0;
    for (const [from, to, row, n] of bands) {
      if (sector < from) return row / rows;
      unit = (row + (Math.min(sector, to) - from) / (to - from) * n) / rows;
      if (sector <= to) return unit;
    }
    return unit;
  }

  sectorAt(unit) {
    const { bands, rows } = this.bands();
    for (const [from, to, row, n] of bands) {
      if (unit * rows <= row + n) return Math.round(from + Math.max(0, unit * rows - row) / n * (to - from));
    }
    const last = bands[bands.length - 1];
    return last ? last[1] : 0;
  }

  place(source, i) {
    const s = source.singles;
    if (s.sector[i] < 0 || s.layer[i] === 3) return null;
    return [this.unitOf(s.sector[i]), this.unitOf(s.sector[i] + Math.max(1, Math.ceil(s.bytes[i] / 512)))];
  }

  drawOver(g, w, h, source) {
    super.drawOver(g, w, h, source);
    if (!this.on.get('flush')) return;
    g.fillStyle = theme.flush;
    if (source.flushes && !source.singles.complete) {
      const data = shownData();
      const raster = source.flushes;
      for (let x = 0; x < w; x += 1) {
        const c = Math.floor(((timeAt(x, w) - data.from) / (data.to - data.from)) * raster.columns);
        if (raster.cells[c] > 0) g.fillRect(x, 0, 1, 5);
      }
      return;
    }
    const s = source.singles;
    eachSingle(source, view.from, view.to, (i) => {
      if (s.layer[i] !== 3) return;
      const x = xOf(s.at[i], w);
      g.fillRect(x, 0, Math.max(1.5, xOf(s.at[i] + s.took[i], w) - x), 6);
    });
  }

  axisLabels(w) {
    const { bands, rows } = this.bands();
    const labels = [];
    for (const [from, to, row, n] of bands) {
      const perPx = ((to - from) * 512) / Math.max(1e-9, (n / rows / (this.high - this.low)) * this.height);
      const step = niceBytes(perPx * 30);
      const low = Math.max(from, this.sectorAt(this.low)) * 512;
      const high = Math.min(to, this.sectorAt(this.high)) * 512;
      const before = labels.length;
      for (let k = Math.ceil(low / step); k * step <= high && labels.length < 200; k += 1) {
        labels.push([this.yOf(this.unitOf((k * step) / 512)), addressLabel(k * step, step)]);
      }
      // A band too low for a round address is labelled at its start.
      if (labels.length === before && low <= high) labels.push([this.yOf(this.unitOf(low / 512)), `${bytes(low)}`, true]);
      if (row > 0) this.gapLine(row / rows, w);
    }
    labels.sort((a, b) => b[0] - a[0]);
    this.yLabels(labels.filter(([y]) => y >= -1 && y <= this.height + 1), w);
  }

  // Line where unused addresses are omitted.
  gapLine(unit, w) {
    const y = Math.round(this.yOf(unit)) + 3;
    const g = this.g;
    g.save();
    g.strokeStyle = theme.frame;
    g.setLineDash([2, 4]);
    g.beginPath();
    g.moveTo(0, y);
    g.lineTo(w, y);
    g.stroke();
    g.restore();
  }

  axisText(unit) {
    const sector = this.sectorAt(unit);
    return `sector ${count(sector)} (${bytes(sector * 512)})`;
  }
}

// An address with the precision of the label distance.
function addressLabel(n, step) {
  const units = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];
  for (const [unit, size] of units) {
    if (n >= size && step >= size / 1024) return `${Number((n / size).toFixed(step >= size ? 0 : 3))} ${unit}`;
  }
  return n === 0 ? '0' : n % 1024 === 0 ? `${count(n / 1024)} KiB` : `${count(n)} B`;
}

class FileMap extends MapPanel {
  constructor() {
    super({
      id: 'files', title: view.base.calls ? 'Places in files' : 'Places in files, by bios', height: 260, what: view.base.calls ? 'reads and writes' : 'bios of files', nothing: 'no reads or writes of files in this reel',
      legend: [
        { key: 'read', label: 'read', color: 'read' },
        { key: 'write', label: 'write', color: 'write' },
      ],
    });
    this.layerKeys = ['read', 'write'];
    const source = view.base.calls || view.base.bios;
    // Calls of other kinds have no position in files.
    const placed = { singles: { layer: source.singles.layer.filter((_, i) => source.singles.high[i] >= source.singles.low[i]) }, map: source.map };
    const used = layersIn([placed], 2, (s) => s.map);
    this.keepKeys((k) => used[k]);
  }

  source() {
    const { calls, bios } = shownData();
    const source = calls || bios;
    return source && source.lanes.n > 0 ? source : null;
  }

  place(source, i) {
    const s = source.singles;
    return s.high[i] >= s.low[i] ? [s.low[i], s.high[i]] : null;
  }

  tell(source) {
    super.tell(source);
    if (source.lanes.others > 0) this.told.textContent += ` · ${count(source.lanes.others)} files share the top lane`;
  }

  laneAt(unit) {
    const { lanes } = shownData();
    const v = unit * lanes.height;
    let low = 0;
    let high = lanes.n - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (lanes.y[mid] <= v) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  offsetAt(unit) {
    const { lanes } = shownData();
    const k = this.laneAt(unit);
    const share = (unit * lanes.height - lanes.y[k]) / Math.max(1, lanes.top[k] - lanes.y[k]);
    return Math.round(lanes.from[k] + share * differenceAt(lanes.to, k, lanes.from, k));
  }

  axisText(unit) {
    return `${laneName(shownData().lanes, this.laneAt(unit))} at ${bytes(this.offsetAt(unit))}`;
  }

  axisLabels(w) {
    const { lanes } = shownData();
    const labels = [];
    const first = this.laneAt(this.low);
    const last = this.laneAt(this.high);
    let previous = Infinity;
    const lines = last - first < this.height / 4;
    for (let k = first; k <= last; k += 1) {
      const y0 = this.yOf(lanes.y[k] / lanes.height);
      const y1 = this.yOf(lanes.top[k] / lanes.height);
      const middle = (Math.min(y0, this.height) + Math.max(y1, 0)) / 2;
      if (lines && y0 < this.height) this.yLabels([[y0, '']], w);
      if (previous - middle >= 13) {
        const tall = y0 - y1 >= 13;
        labels.push([middle, tall ? baseName(laneName(lanes, k)) : folderName(laneName(lanes, k)), true]);
        previous = middle;
      }
    }
    let named = '';
    this.yLabels(labels.filter(([, text]) => {
      const news = text !== named;
      named = text;
      return news;
    }), w);
  }
}

function laneName(lanes, k) {
  if (lanes.file[k] < 0) return `${count(lanes.others)} other files`;
  return readable(lanes.paths[k] ?? `(file ${lanes.file[k]})`);
}

function baseName(path) {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}

function folderName(path) {
  const end = path.lastIndexOf('/');
  if (end <= 0) return path;
  const begin = path.lastIndexOf('/', end - 1);
  return `${path.slice(begin + 1, end)}/`;
}
