// The tooltip: time, position, and the individual event or line values under the cursor.

function hideTip() {
  byId('tip').hidden = true;
  byId('cursor').hidden = true;
}

// Shows rows of [name, value] near a point of the window.
function showTip(x, y, title, rows, color) {
  const tip = byId('tip');
  tip.replaceChildren();
  const heading = element('b', {}, title);
  if (color) heading.style.borderColor = color;
  tip.append(heading);
  const list = element('dl');
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === '') continue;
    list.append(element('dt', {}, name), element('dd', {}, value));
  }
  tip.append(list);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = x + 16 + box.width > window.innerWidth;
  const below = y + 16 + box.height > window.innerHeight;
  tip.style.left = `${Math.max(4, right ? x - box.width - 12 : x + 16)}px`;
  tip.style.top = `${Math.max(4, below ? y - box.height - 12 : y + 16)}px`;
}

function taskName(place) {
  const t = view.base && place >= 0 ? shownData().index.tasks[place] : null;
  return t ? `${readable(t[2])} (process ${t[0]}${t[1] === t[0] ? '' : `, thread ${t[1]}`})` : '';
}

function taskShort(place) {
  const t = place >= 0 ? shownData().index.tasks[place] : null;
  return t ? `${readable(t[2])} ${t[0]}` : '';
}

// Describes a request.
function requestRows(data, device, i) {
  const s = device.singles;
  const { index } = data;
  const done = s.flags[i] & FLAG.complete;
  const file = s.file[i] >= 0 && data.lanes ? laneName(data.lanes, s.file[i]) : '';
  return [
    ['issued', exactly(exactAt(s.at, i))],
    ['took (D2C)', done ? duration(s.took[i]) : 'in flight at the end of the recording'],
    ['queued before (Q2D)', s.flags[i] & FLAG.queued ? duration(s.waited[i]) : ''],
    ['sectors', s.sector[i] < 0 ? '' : `${count(exactAt(s.sector, i))} + ${count(Math.ceil(s.bytes[i] / 512))} (at ${bytes(s.sector[i] * 512)})`],
    ['size', bytes(s.bytes[i])],
    ['seek', s.flags[i] & FLAG.seek64k ? 'yes, beyond 64 KiB' : s.flags[i] & FLAG.seek ? 'yes, within 64 KiB' : ''],
    ['error', s.error[i] ? `errno ${s.error[i]}` : ''],
    ['content', s.what[i] >= 0 ? readable(index.carried[s.what[i]] || '') : ''],
    ['file', file],
    ['queued by', taskName(s.task[i]) || (s.comm[i] >= 0 ? readable(index.comms[s.comm[i]] || '') : '')],
  ];
}

function requestTitle(data, device, i) {
  return `${data.index.classes[device.singles.class[i]]} on ${readable(device.label)}`;
}

// Describes an operation.
function callRows(data, calls, i) {
  const s = calls.singles;
  const moves = s.kind[i] <= 2;
  return [
    ['entered', exactly(exactAt(s.at, i))],
    ['took', s.flags[i] & FLAG.complete ? duration(s.took[i]) : 'end not recorded'],
    ['file', s.file[i] >= 0 ? laneName(calls.lanes, s.file[i]) : ''],
    ['offset', s.flags[i] & FLAG.queued ? `${count(exactAt(s.offset, i))} (${bytes(s.offset[i])})` : ''],
    [moves && s.ret[i] >= 0 ? 'moved' : 'result', moves && s.ret[i] >= 0 ? bytes(s.ret[i]) : s.ret[i] < 0 && s.ret[i] > -4096 ? `errno ${-s.ret[i]}` : String(exactAt(s.ret, i))],
    ['by', taskName(s.task[i])],
  ];
}

// Describes a bio.
function bioRows(data, bios, i) {
  const s = bios.singles;
  return [
    ['queued', exactly(exactAt(s.at, i))],
    ['took (Q2C)', s.flags[i] & FLAG.complete ? duration(s.took[i]) : 'in flight at the end of the recording'],
    ['file', s.file[i] >= 0 ? laneName(data.lanes, s.file[i]) : ''],
    ['offset', `${count(exactAt(s.offset, i))} (${bytes(s.offset[i])})`],
    ['size', bytes(s.bytes[i])],
  ];
}

// Title and rows for an individual event.
function wordsOf(data, source, i) {
  if (source.kind === 'calls') return [callTitle(data, source, i), callRows(data, source, i)];
  if (source.kind === 'bios') return [`bio: ${data.index.classes[source.singles.class[i]]}`, bioRows(data, source, i)];
  return [requestTitle(data, source, i), requestRows(data, source, i)];
}

function callTitle(data, calls, i) {
  return readable(data.index.ops[calls.singles.op[i]] || '');
}

// Handles the cursor at a point of a panel's plot.
function tipAt(panel, x, y, pageX, pageY) {
  const w = panel.plotWidth;
  const line = byId('cursor');
  line.hidden = false;
  line.style.left = `${LEFT + x + byId('panels').offsetLeft}px`;
  line.style.top = `${byId('panels').offsetTop}px`;
  line.style.height = `${byId('panels').offsetHeight}px`;
  const ns = timeAt(x, w);
  const when = moment(ns, (view.to - view.from) / w);
  if (panel instanceof LinePanel) {
    showTip(pageX, pageY, when, panel.at(ns).map((l) => [l.label, l.text]));
    return;
  }
  const data = shownData();
  const source = panel.source();
  if (!source) {
    hideTip();
    return;
  }
  const i = panel.nearest(x, y);
  if (i >= 0) {
    const calls = source.kind === 'calls';
    const [title, rows] = wordsOf(data, source, i);
    const key = source.layerNames[source.singles.layer[i]] || 'flush';
    const color = theme[calls && key === 'other' ? 'misc' : key];
    showTip(pageX, pageY, title, rows, color);
    return;
  }
  const place = panel instanceof MapPanel ? panel.axisText(panel.unitAt(y)) : panel.axisText(y);
  const rows = [['at', place]];
  if (!source.singles.complete) rows.push(['here', `about ${count(cellCount(panel, source, x, y))} (per cell of the page's raster)`]);
  showTip(pageX, pageY, when, rows);
}

// Number of events in the raster cell at a point, all layers together.
function cellCount(panel, source, x, y) {
  const data = shownData();
  const map = panel instanceof MapPanel;
  let sum = 0;
  for (const raster of (map ? source.map : source.heat) || []) {
    const rows = raster.cells.length / raster.columns;
    const column = Math.floor(((timeAt(x, panel.plotWidth) - data.from) / (data.to - data.from)) * raster.columns);
    const row = map ? Math.floor((1 - panel.unitAt(y)) * rows) : Math.floor(heatRow(panel.nsAt(y)));
    sum += SHADE[raster.cells[Math.min(rows - 1, Math.max(0, row)) * raster.columns + Math.min(raster.columns - 1, Math.max(0, column))]];
  }
  return sum;
}
