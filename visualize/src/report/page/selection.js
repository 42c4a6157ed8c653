// Numbers for the selection or the shown window, and its individual events.

const LISTED = 100;
const listed = { kind: 'requests', order: 'took' };

// Whether an individual event is in the box selected on this map, if there is one.
function inBox(panelId, source, i, range) {
  if (range.panel !== panelId) return true;
  const panel = panels.find((p) => p.id === panelId);
  const place = panel && panel.place(source, i);
  return Boolean(place) && place[1] >= range.low && place[0] <= range.high;
}

// Sums of requests issued and operations entered in the range.
function summarise(source, range, panelId) {
  const s = source.singles;
  const sum = { n: 0, layers: new Map(), seeks: 0, seeks64k: 0, errors: 0, took: [], events: [], others: new Map() };
  eachSingle(source, range.from, range.to, (i) => {
    if (s.at[i] < range.from || s.at[i] > range.to || !inBox(panelId, source, i, range)) return;
    sum.n += 1;
    sum.events.push(i);
    const calls = source.kind === 'calls';
    const key = source.layerNames[s.layer[i]] || 'flush';
    const layer = sum.layers.get(key) || { n: 0, bytes: 0 };
    layer.n += 1;
    const failed = calls ? s.ret[i] < 0 && s.ret[i] > -4096 : Boolean(s.error && s.error[i]);
    const moved = calls ? (s.kind[i] <= 2 ? Math.max(0, s.ret[i]) : 0) : Math.max(0, s.bytes[i]);
    // A copy counts where it writes.
    const target = calls && moved > 0 ? (s.kind[i] === 0 ? s.from[i] : s.to[i]) : 0;
    if (target > 0) sum.others.set(TARGETS[target], (sum.others.get(TARGETS[target]) || 0) + moved);
    else if (!failed && (calls || s.flags[i] & FLAG.complete)) layer.bytes += moved;
    sum.layers.set(key, layer);
    if (failed) sum.errors += 1;
    if (!calls && s.flags[i] & FLAG.seek) sum.seeks += 1;
    if (!calls && s.flags[i] & FLAG.seek64k) sum.seeks64k += 1;
    if (s.flags[i] & FLAG.complete) sum.took.push(s.took[i]);
  });
  sum.took.sort((a, b) => a - b);
  return sum;
}

// Sums of the page's bins over the range, exact for whole bins.
function summariseBins(data, source, range) {
  const first = Math.max(0, Math.floor((range.from - data.from) / data.binWidth));
  const last = Math.min(data.binCount - 1, Math.floor((range.to - data.from) / data.binWidth));
  const sum = (values) => {
    let n = 0;
    for (let i = first; i <= last; i += 1) n += values[i];
    return n;
  };
  const seconds = (binEdges(data, last)[1] - binEdges(data, first)[0]) / 1e9;
  const r = source.rates;
  const n = source.kind === 'calls' ? source.counts.reduce((total, values) => total + sum(values), 0) : sum(r.reads) + sum(r.writes) + sum(r.others);
  const others = source.kind === 'calls' ? TARGETS.slice(1).map((name) => [name, sum(r[name])]) : [];
  return { seconds, n, others: others.filter(([, moved]) => moved > 0), read: sum(r.read_bytes), write: sum(r.write_bytes), seeks64k: r.seeks_sw64k ? sum(r.seeks_sw64k) : null };
}

function drawSelection() {
  const data = shownData();
  const selected = view.selection !== null;
  const range = view.selection || { from: view.from, to: view.to };
  const seconds = (range.to - range.from) / 1e9;
  const root = byId('selection');
  const title = element('h2', {}, selected ? 'Selected' : 'In the window');
  const step = (range.to - range.from) / 1000;
  const when = element('span', { class: 'told' }, `${moment(range.from, step)} – ${moment(range.to, step)}, ${duration(range.to - range.from)}${range.panel ? ', within the box' : ''}`);
  const tiles = element('div', { class: 'tiles' });
  const device = shownDevice();
  const lists = [];
  for (const [source, panelId, name] of [[device, 'offsets', device ? `requests issued to ${readable(device.label)}` : ''], [data.calls, 'files', 'operations entered'], [data.bios, 'files', 'bios queued']]) {
    // Bios have no rates. In a sample, only the content of a box is listed.
    if (source && source.kind === 'bios' && !source.singles.complete && !range.panel) continue;
    if (!source || (range.panel && range.panel !== panelId)) continue;
    const sum = summarise(source, range, panelId);
    lists.push({ kind: { calls: 'operations', bios: 'bios', device: 'requests' }[source.kind], source, sum });
    tiles.append(tile(name, source, sum, range, seconds, data));
  }
  const ofCalls = lists.find((l) => l.kind === 'operations');
  // A sample does not tell what a selection lacks.
  limitTables(data, data.calls, selected && ofCalls && ofCalls.source.singles.complete ? ofCalls.sum.events : null);
  const chosen = lists.find((l) => l.kind === listed.kind) || lists[0];
  root.replaceChildren(element('div', { class: 'panel-head' }, title, when), tiles);
  if (chosen) root.append(...eventList(data, chosen, lists));
  byId('zoom').disabled = !selected;
  byId('clear').disabled = !selected;
}

function tile(name, source, sum, range, seconds, data) {
  const rows = [];
  const quantile = (share) => (sum.took.length ? duration(sum.took[Math.min(sum.took.length - 1, Math.ceil(sum.took.length * share) - 1)]) : '–');
  if (source.singles.complete) {
    rows.push([name, `${count(sum.n)} (${plain(sum.n / Math.max(seconds, 1e-9), 0)}/s)`]);
    for (const [key, layer] of sum.layers) {
      const rate = layer.bytes > 0 ? `, ${bytes(layer.bytes)}, ${mibPerSecond(layer.bytes, seconds)}` : '';
      rows.push([key, `${count(layer.n)}${rate}`]);
    }
    for (const [name, moved] of sum.others) rows.push([`bytes of ${name}`, bytes(moved)]);
    if (source.kind === 'device') rows.push(['adjacent seeks, far seeks', `${count(sum.seeks)}, ${count(sum.seeks64k)}`]);
    if (sum.errors) rows.push(['failed', count(sum.errors)]);
    rows.push(['p50, p99, max', `${quantile(0.5)}, ${quantile(0.99)}, ${quantile(1)}`]);
  } else if (range.panel) {
    rows.push([name, `about ${count(sum.n * source.singles.oneIn)}, from a sample`]);
    rows.push(['of the sample: p50, p99, max', `${quantile(0.5)}, ${quantile(0.99)}, ${quantile(1)}`]);
  } else {
    const b = summariseBins(data, source, range);
    rows.push([name.replace(/issued|entered/, 'ended'), `${count(b.n)} (${plain(b.n / Math.max(b.seconds, 1e-9), 0)}/s), in whole bins`]);
    rows.push(['read', `${bytes(b.read)}, ${mibPerSecond(b.read, b.seconds)}`]);
    rows.push(['written', `${bytes(b.write)}, ${mibPerSecond(b.write, b.seconds)}`]);
    for (const [name, moved] of b.others) rows.push([`bytes of ${name}`, bytes(moved)]);
    if (b.seeks64k !== null) rows.push(['far seeks', count(b.seeks64k)]);
  }
  const list = element('dl', { 'data-tile': source.kind });
  for (const [key, text] of rows) list.append(element('dt', {}, key), element('dd', {}, text));
  return list;
}

// The slowest or the first events.
function eventList(data, chosen, lists) {
  const { source, sum } = chosen;
  const s = source.singles;
  const slowest = listed.order === 'took';
  const events = slowest ? [...sum.events].sort((a, b) => s.took[b] - s.took[a]) : sum.events;
  const button = (text, pressed, run) => element('button', { type: 'button', 'aria-pressed': String(pressed), on: { click: () => { run(); changed(); } } }, text);
  const bar = element('p', { class: 'table-bar' });
  if (lists.length > 1) for (const l of lists) bar.append(button(l.kind, l.kind === chosen.kind, () => { listed.kind = l.kind; }));
  bar.append(button('slowest first', slowest, () => { listed.order = 'took'; }), button('in time', !slowest, () => { listed.order = 'at'; }));
  const held = s.complete ? '' : ' of the individual events in this page';
  bar.append(element('span', { class: 'told' }, sum.events.length > LISTED ? `${count(LISTED)} of ${count(sum.events.length)}${held}` : `${count(sum.events.length)}${held}`));
  const [names, numbers, cellsOf] = {
    calls: [['entered', 'operation', 'file', 'offset', 'result', 'took', 'process'], [0, 3, 4, 5], callCells],
    bios: [['queued', 'bio', 'file', 'offset', 'size', 'took'], [0, 3, 4, 5], bioCells],
    device: [['issued', 'request', 'sector', 'size', 'took', 'queued', 'content', 'file', 'queued by'], [0, 2, 3, 4, 5], requestCells],
  }[source.kind];
  const body = element('tbody');
  for (const i of events.slice(0, LISTED)) {
    const cells = cellsOf(data, source, i);
    const tr = element('tr', { class: 'pick', title: 'Show it', on: { click: () => jumpTo(s.at[i], s.took[i]) } });
    cells.forEach((text, k) => tr.append(element('td', { class: numbers.includes(k) ? 'number' : text.length > 24 ? 'long' : '' }, text)));
    body.append(tr);
  }
  const head = element('tr', {}, ...names.map((n, k) => element('th', { class: numbers.includes(k) ? 'number' : '' }, n)));
  return [bar, element('div', { class: 'scroll short' }, element('table', { id: 'events' }, element('thead', {}, head), body))];
}

function jumpTo(at, took) {
  const half = Math.max(took, (view.to - view.from) / 40, 500) * 2;
  show(at + took / 2 - half, at + took / 2 + half, true);
}

function requestCells(data, device, i) {
  const s = device.singles;
  return [
    exactly(exactAt(s.at, i)), data.index.classes[s.class[i]], s.sector[i] < 0 ? '' : count(exactAt(s.sector, i)), bytes(s.bytes[i]),
    s.flags[i] & FLAG.complete ? duration(s.took[i]) : 'not ended', s.flags[i] & FLAG.queued ? duration(s.waited[i]) : '',
    s.what[i] >= 0 ? readable(data.index.carried[s.what[i]] || '') : '',
    s.file[i] >= 0 && data.lanes ? laneName(data.lanes, s.file[i]) : '',
    taskShort(s.task[i]) || (s.comm[i] >= 0 ? readable(data.index.comms[s.comm[i]] || '') : ''),
  ];
}

function bioCells(data, bios, i) {
  const s = bios.singles;
  return [
    exactly(exactAt(s.at, i)), data.index.classes[s.class[i]], s.file[i] >= 0 ? laneName(bios.lanes, s.file[i]) : '', count(exactAt(s.offset, i)), bytes(s.bytes[i]),
    s.flags[i] & FLAG.complete ? duration(s.took[i]) : 'not ended',
  ];
}

function callCells(data, calls, i) {
  const s = calls.singles;
  return [
    exactly(exactAt(s.at, i)), readable(data.index.ops[s.op[i]] || ''), s.file[i] >= 0 ? laneName(calls.lanes, s.file[i]) : '',
    s.flags[i] & FLAG.queued ? count(exactAt(s.offset, i)) : '', count(exactAt(s.ret, i)),
    s.flags[i] & FLAG.complete ? duration(s.took[i]) : 'not ended', taskShort(s.task[i]),
  ];
}
