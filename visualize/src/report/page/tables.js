// Tables: statistics, threads of devices, operations, files, processes. A click on a heading sorts, text filters.

const UNITS = {
  count: count,
  ns: duration,
  bytes: bytes,
  per_second: (v) => `${plain(v, 1)}/s`,
  mbps: (v) => mibPerSecond(v * 1e6, 1),
  ratio: (v) => plain(v, 2),
  share: (v) => `${plain(v * 100, 2)}%`,
  ms: (v) => `${plain(v, 1)} ms`,
  sectors: count,
};

// What else moved bytes, where there is any: columns for pipes, devices and nowhere, both directions together.
function otherColumns(rows, col) {
  const sum = (r, name) => r.moved[name].read_bytes + r.moved[name].write_bytes;
  return TARGETS.slice(1).filter((name) => rows.some((r) => sum(r, name) > 0)).map((name) => col(name, (r) => sum(r, name), bytes));
}

// {id, title, columns: [{name, value, text, wide}], rows, note, pick}
const tables = [];

function startTables() {
  const { about, index } = view.base;
  const col = (name, value, text) => ({ name, value, text: text || ((v) => readable(v ?? '')), number: text !== undefined });
  if (about.files.length) {
    tables.push({
      id: 'files', title: `Files (${count(about.file_count)})`, rows: about.files,
      note: (about.path_count > about.files.length ? `The ${count(about.files.length)} of ${count(about.path_count)} paths with most bytes or time. ` : '')
        + (about.path_count < about.file_count ? 'Files that had the same path, one after the other, are one row.' : ''),
      columns: [
        col('file', (r) => (r.path ?? `(file ${r.file})`) + (r.files > 1 ? `, ${count(r.files)} files` : '')),
        col('type', (r) => (r.target === 'nowhere' ? 'nowhere' : r.kind)), col('on', (r) => r.fstype),
        col('operations', (r) => r.calls, count), col('errors', (r) => r.errors, count),
        col('read', (r) => r.read_bytes, bytes), col('written', (r) => r.write_bytes, bytes), col('time', (r) => r.time_ns, duration),
        col('disk read', (r) => r.disk_read_bytes, bytes), col('disk written', (r) => r.disk_write_bytes, bytes),
      ],
      pick: showFile,
      within: (r, part) => part.files.has(r.file) || part.paths.has(r.path),
    });
  }
  if (about.processes.length) {
    tables.push({
      id: 'processes', title: `Processes (${count(about.process_count)})`, rows: about.processes,
      note: about.process_count > about.processes.length ? `The ${count(about.processes.length)} of ${count(about.process_count)} with most time in operations.` : '',
      columns: [
        col('process', (r) => r.pid, String), col('name', (r) => r.comm), col('program', (r) => r.program ?? ''),
        col('threads', (r) => r.threads, count), col('operations', (r) => r.calls, count), col('errors', (r) => r.errors, count),
        col('files read', (r) => r.moved.files.read_bytes, bytes), col('files written', (r) => r.moved.files.write_bytes, bytes),
        ...otherColumns(about.processes, col), col('time', (r) => r.time_ns, duration),
        col('began', (r) => r.start_ns, (v) => moment(v, 1e6)),
        col('ended', (r) => r.exit_ns ?? Infinity, (v) => (Number.isFinite(v) ? moment(v, 1e6) : 'after the recording')),
      ],
      within: (r, part) => part.pids.has(r.pid),
      pick: (r) => {
        show(r.start_ns, r.exit_ns ?? view.base.to, true);
        byId('bar').scrollIntoView({ block: 'start' });
      },
    });
  }
  if (about.operations.length) {
    tables.push({
      id: 'operations', title: 'Operations', rows: about.operations,
      within: (r, part) => part.ops.has(r.op),
      columns: [
        col('operation', (r) => r.op), col('kind', (r) => r.kind),
        col('count', (r) => r.count, count), col('errors', (r) => r.errors, count),
        col('files', (r) => r.moved.files.read_bytes + r.moved.files.write_bytes, bytes), ...otherColumns(about.operations, col),
        col('total time', (r) => r.latency.total_ns, duration), col('p50', (r) => r.latency.p50_ns, duration),
        col('p99', (r) => r.latency.p99_ns, duration), col('p99.9', (r) => r.latency.p999_ns, duration), col('max', (r) => r.latency.max_ns, duration),
      ],
    });
  }
  if (index.threads.length) {
    tables.push({
      id: 'threads', title: 'Threads that queued bios', rows: index.threads,
      note: 'Bytes of bios by name of the thread that queued them. Kernel threads do the write-back.',
      columns: [col('thread', (r) => r[0]), col('read', (r) => r[1], bytes), col('written', (r) => r[2], bytes)],
    });
  }
  if (about.stats.length) {
    tables.push({
      id: 'statistics', title: 'Statistics', rows: about.stats,
      note: 'The same names and numbers as `ioreel stats`; docs/statistics.md defines them.',
      columns: [
        col('device', (r) => r.device),
        { ...col('statistic', (r) => r.name), data: (r) => ({ 'data-statistic': `${r.device}/${r.name}`, 'data-value': r.value }) },
        { name: 'value', value: (r) => r.value, text: (v, r) => (UNITS[r.unit] || String)(v), number: true },
      ],
      mostRows: Infinity,
    });
  }
  tables.push({
    id: 'ledger', title: 'Events', rows: about.ledger,
    note: 'seen = written + lost + left out',
    columns: [col('class', (r) => r[0]), ...['seen', 'written', 'lost', 'filtered'].map((k) => col(k === 'filtered' ? 'left out' : k, (r) => r[1][k], count))],
  });
  for (const table of tables) {
    byId('tabs').append(element('button', { type: 'button', role: 'tab', 'data-tab': table.id, on: { click: () => openTable(table) } }, table.title));
  }
  openTable(tables[0]);
}

const DEFAULT_ROWS = 200;
// The open table, and the files, processes and operations of the selection that it is limited to.
const opened = { table: null, filter: '', part: null };

// Limits the tables to what the selected operations concern; null: no limit.
function limitTables(data, calls, events) {
  const before = opened.part;
  opened.part = null;
  if (events) {
    const s = calls.singles;
    const part = { files: new Set(), paths: new Set(), pids: new Set(), ops: new Set() };
    for (const i of events) {
      part.ops.add(data.index.ops[s.op[i]]);
      if (s.task[i] >= 0) part.pids.add(data.index.tasks[s.task[i]][0]);
      if (s.file[i] >= 0) {
        part.files.add(calls.lanes.file[s.file[i]]);
        part.paths.add(calls.lanes.paths[s.file[i]]);
      }
    }
    opened.part = part;
  }
  if (opened.table && opened.table.within && (before || opened.part)) fillTable(opened.table, opened.filter);
}

function openTable(table) {
  opened.table = table;
  for (const tab of byId('tabs').children) tab.setAttribute('aria-selected', String(tab.dataset.tab === table.id));
  const filter = element('input', { type: 'search', placeholder: 'filter', 'aria-label': `Filter ${table.title}`, on: { input: () => fillTable(table, filter.value) } });
  const told = element('span', { class: 'told' });
  const head = element('tr');
  table.columns.forEach((c, k) => {
    head.append(element('th', { class: c.number ? 'number' : '', on: { click: () => {
      table.order = { k, down: table.order && table.order.k === k ? !table.order.down : Boolean(c.number) };
      fillTable(table, filter.value);
    } } }, c.name));
  });
  table.body = element('tbody');
  table.told = told;
  table.head = head;
  byId('table').replaceChildren(
    element('p', { class: 'table-bar' }, filter, table.note || '', ' ', told),
    element('div', { class: 'scroll' }, element('table', { id: `table-${table.id}` }, element('thead', {}, head), table.body)),
  );
  fillTable(table, '');
}

function fillTable(table, filter) {
  opened.filter = filter;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => {
    const text = table.columns.map((c) => c.text(c.value(row), row)).join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  };
  let rows = words.length ? table.rows.filter(fits) : [...table.rows];
  const limited = Boolean(opened.part && table.within);
  if (limited) rows = rows.filter((row) => table.within(row, opened.part));
  if (table.order) {
    const { value } = table.columns[table.order.k];
    const sign = table.order.down ? -1 : 1;
    rows.sort((a, b) => {
      const [p, q] = [value(a), value(b)];
      return sign * (p < q ? -1 : p > q ? 1 : 0);
    });
  }
  [...table.head.children].forEach((th, k) => {
    th.setAttribute('aria-sort', table.order && table.order.k === k ? (table.order.down ? 'descending' : 'ascending') : 'none');
  });
  const most = table.mostRows || DEFAULT_ROWS;
  table.told.textContent = rows.length > most ? `first ${count(most)} of ${count(rows.length)}` : `${count(rows.length)} rows`;
  if (limited) table.told.textContent += ', only those of the selection; the numbers are of the whole reel';
  rows = rows.slice(0, most);
  table.body.replaceChildren(...rows.map((row) => {
    const tr = element('tr', table.pick ? { class: 'pick', tabindex: 0, title: 'Show it', on: {
      click: () => table.pick(row),
      keydown: (e) => { if (e.key === 'Enter') table.pick(row); },
    } } : {});
    for (const c of table.columns) {
      const text = c.text(c.value(row), row);
      // Short words stay whole, paths are broken.
      tr.append(element('td', { class: c.number ? 'number' : text.length > 24 ? 'long' : '', ...(c.data ? c.data(row) : {}) }, text));
    }
    return tr;
  }));
}

// Zooms the file map to the lanes of a path.
function showFile(row) {
  const panel = panels.find((p) => p.id === 'files');
  const { lanes } = view.base.calls;
  const first = lanes.file.indexOf(row.file);
  if (!panel || first < 0) return;
  // Lanes are in the order of paths.
  let last = first;
  while (row.files > 1 && last + 1 < lanes.n && lanes.paths[last + 1] === row.path) last += 1;
  const [y, top] = [lanes.y[first] / lanes.height, lanes.top[last] / lanes.height];
  const margin = (top - y) * 0.08;
  panel.showUnits(y - margin, top + margin);
  panel.root.scrollIntoView({ block: 'center' });
}
