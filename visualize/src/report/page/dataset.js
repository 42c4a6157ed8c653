// The data of the reel, as the panels use it.

const FLAG = { seek: 1, seek64k: 2, slow: 4, queued: 8, complete: 16 };
// What files are for bytes, as numbered in the columns `from` and `to` of operations.
const TARGETS = ['files', 'pipes', 'devices', 'nowhere'];
const ZERO = new Float64Array(0);

// Counts for the shades of a raster, see `level` in container.rs.
const SHADE = new Float64Array(256);
for (let i = 1; i < 256; i += 1) SHADE[i] = 2 ** ((i - 1) / 8);

function makeDataset(columns) {
  const index = JSON.parse(columns.get('index'));
  const about = index.about;
  const [from, to] = about.window;
  const data = { index, about, from, to, binWidth: about.bins[0], binCount: about.bins[1] };
  data.devices = index.devices.map((device, i) => makeDevice(columns, device, `d${i}`, index));
  data.lanes = columns.has('lanes.y') ? makeLanes(columns) : null;
  data.calls = columns.has('calls.at') ? makeCalls(columns, index, data.lanes) : null;
  data.bios = columns.has('bios.at') ? makeBios(columns, index, data.lanes) : null;
  return data;
}

// Edges of a bin. The last bin ends with the window.
function binEdges(data, i) {
  return [data.from + i * data.binWidth, i + 1 >= data.binCount ? data.to : data.from + (i + 1) * data.binWidth];
}

function pick(columns, prefix, names) {
  const out = {};
  for (const name of names) out[name] = columns.get(`${prefix}.${name}`);
  return out;
}

function makeDevice(columns, device, prefix, index) {
  const rates = ['read_bytes', 'write_bytes', 'reads', 'writes', 'others', 'seeks_exact', 'seeks_sw64k', 'depth_max', 'depth_mean'];
  const names = ['at', 'took', 'waited', 'sector', 'bytes', 'class', 'flags', 'error', 'file', 'task', 'comm', 'what'];
  const singles = pick(columns, prefix, names);
  const [total, oneIn] = columns.get(`${prefix}.total`);
  const layers = (kind, list) => (columns.has(`${prefix}.${kind}.${list[0]}`) ? list.map((l) => columns.get(`${prefix}.${kind}.${l}`)) : null);
  const out = {
    ...device,
    kind: 'device',
    rates: pick(columns, prefix, rates),
    singles: { ...singles, n: singles.at.length, total, oneIn, complete: oneIn === 1, longest: greatest(singles.took) },
    map: layers('map', ['read', 'write', 'other']),
    flushes: columns.get(`${prefix}.map.flush`) || null,
    heat: layers('heat', ['read', 'write', 'other']),
    layerNames: ['read', 'write', 'other'],
  };
  out.rates.depth_mean = out.rates.depth_mean.map((n) => n / 1000);
  // 0 read, 1 write, 2 others, 3 flushes, which have no address.
  const byClass = index.classes.map((name) => (name === 'read' ? 0 : name === 'write' ? 1 : name === 'flush' ? 3 : 2));
  out.singles.layer = Uint8Array.from(singles.class, (c) => byClass[c]);
  out.span = heatSpan(out);
  return out;
}

// Builds the axis of files.
function makeLanes(columns) {
  const lanes = pick(columns, 'lanes', ['file', 'from', 'to', 'y', 'top', 'bytes']);
  const about = JSON.parse(columns.get('lanes.index'));
  return { ...lanes, n: lanes.y.length, paths: about.paths, others: about.others, unnamed: about.unnamed, height: about.height };
}

// Builds the bios of files, for a reel without operations.
function makeBios(columns, index, lanes) {
  const singles = pick(columns, 'bios', ['at', 'took', 'class', 'flags', 'file', 'offset', 'bytes']);
  const [total, oneIn] = columns.get('bios.total');
  const out = {
    kind: 'bios',
    label: 'bios',
    singles: { ...singles, n: singles.at.length, total, oneIn, complete: oneIn === 1, longest: greatest(singles.took) },
    map: columns.has('bios.map.read') ? ['read', 'write'].map((l) => columns.get(`bios.map.${l}`)) : null,
    layerNames: ['read', 'write'],
    lanes,
  };
  out.singles.layer = Uint8Array.from(singles.class, (c) => (index.classes[c] === 'read' ? 0 : 1));
  placeOnFiles(out);
  return out;
}

function makeCalls(columns, index, lanes) {
  const names = ['at', 'took', 'kind', 'from', 'to', 'op', 'flags', 'file', 'offset', 'ret', 'task'];
  const layerNames = ['read', 'write', 'sync', 'metadata', 'other'];
  const singles = pick(columns, 'calls', names);
  const [total, oneIn] = columns.get('calls.total');
  const layers = (kind, list) => (columns.has(`calls.${kind}.${list[0]}`) ? list.map((l) => columns.get(`calls.${kind}.${l}`)) : null);
  const byKind = index.kinds.map((k) => ({ read: 0, write: 1, copy: 1, sync: 2, metadata: 3 })[k] ?? 4);
  const n = singles.at.length;
  const out = {
    kind: 'calls',
    label: 'operations',
    rates: pick(columns, 'calls', ['read_bytes', 'write_bytes', ...TARGETS.slice(1)]),
    counts: layerNames.map((l) => columns.get(`calls.count.${l}`)),
    singles: { ...singles, n, total, oneIn, complete: oneIn === 1, longest: greatest(singles.took) },
    heat: layers('heat', layerNames),
    map: layers('map', ['read', 'write']),
    layerNames,
    lanes,
  };
  out.singles.layer = Uint8Array.from(singles.kind, (k) => byKind[k]);
  placeOnFiles(out);
  out.span = heatSpan(out);
  return out;
}

// Position of each call or bio on the axis of files: low to high, 0 to 1. high < low means none.
function placeOnFiles(source) {
  const s = source.singles;
  const { lanes } = source;
  const calls = source.kind === 'calls';
  s.low = new Float64Array(s.n).fill(1);
  s.high = new Float64Array(s.n).fill(0);
  for (let i = 0; i < s.n; i += 1) {
    const lane = s.file[i];
    const moved = !calls ? s.bytes[i] : s.kind[i] <= 2 && s.flags[i] & FLAG.queued ? s.ret[i] : 0;
    if (lane >= 0 && lane < lanes.n && moved > 0 && s.offset[i] >= 0) {
      const scale = (lanes.top[lane] - lanes.y[lane]) / Math.max(1, differenceAt(lanes.to, lane, lanes.from, lane));
      const at = (distance) => Math.min(lanes.top[lane], Math.max(lanes.y[lane], lanes.y[lane] + distance * scale)) / lanes.height;
      const distance = differenceAt(s.offset, i, lanes.from, lane);
      s.low[i] = at(distance);
      s.high[i] = at(distance + moved);
    }
  }
}

function greatest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i += 1) if (values[i] > most) most = values[i];
  return most;
}

// First and last used row of the heat map, eight rows per doubling of ns. What took no time is drawn in the first row,
// and does not extend the axis.
function heatSpan(source) {
  let least = Infinity;
  let most = -Infinity;
  const s = source.singles;
  for (let i = 0; i < s.n; i += 1) {
    if (s.flags[i] & FLAG.complete && s.took[i] > 1) {
      const row = heatRow(s.took[i]);
      if (row < least) least = row;
      if (row > most) most = row;
    }
  }
  for (const raster of source.heat || []) {
    for (let row = 1; row * raster.columns < raster.cells.length; row += 1) {
      if (row >= least && row <= most) continue;
      const cells = raster.cells.subarray(row * raster.columns, (row + 1) * raster.columns);
      if (cells.some((c) => c > 0)) {
        least = Math.min(least, row);
        most = Math.max(most, row);
      }
    }
  }
  if (least > most) return [80, 160];
  // Whole octaves, at least four.
  const low = Math.floor(least / 8) * 8;
  for (const { columns, cells } of low > 0 ? source.heat || [] : []) {
    for (let c = 0; c < columns; c += 1) cells[low * columns + c] = Math.max(cells[low * columns + c], cells[c]);
  }
  return [low, Math.max(Math.ceil((most + 1) / 8) * 8, low + 32)];
}

function heatRow(ns) {
  return ns <= 1 ? 0 : Math.log2(ns) * 8;
}

// Index of the first sorted value that is at least v.
function lowerBound(values, v) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (values[mid] < v) low = mid + 1;
    else high = mid;
  }
  return low;
}

// Calls `each(i)` for the individual events that overlap with [from, to].
function eachSingle(source, from, to, each) {
  const s = source.singles;
  if (s.sorted === undefined) {
    s.sorted = true;
    for (let i = 1; i < s.n && s.sorted; i += 1) s.sorted = s.at[i] >= s.at[i - 1];
  }
  const start = s.sorted ? lowerBound(s.at, from - s.longest) : 0;
  for (let i = start; i < s.n; i += 1) {
    if (s.at[i] > to) {
      if (s.sorted) break;
    } else if (s.at[i] + s.took[i] >= from) {
      each(i);
    }
  }
}
