// The heading: description of the reel, missing data, findings.

function severityColor(severity) {
  return { critical: theme.alarm, warning: theme.write, info: theme.read }[severity] || theme.misc;
}

function drawHead() {
  const { about, index } = view.base;
  const title = document.body.dataset.title ? new TextDecoder().decode(fromBase64(document.body.dataset.title)) : about.name;
  document.title = `${readable(title)} · ioreel`;
  byId('name').textContent = readable(title);
  byId('command').textContent = readable(about.command);
  const fact = (name, value) => {
    if (value) byId('facts').append(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  };
  fact('elapsed', about.elapsed_ns > 0 ? duration(about.elapsed_ns) : '');
  fact('counted', about.kept_from_ns > 0 ? `from ${duration(about.kept_from_ns)}` : '');
  fact('with settling', about.settle_ns > 0 ? duration(about.elapsed_ns + about.settle_ns) : '');
  if (view.base.calls) fact('operations', count(view.base.calls.singles.total));
  fact('requests', view.base.devices.length ? view.base.devices.map((d) => `${count(d.singles.total)} on ${readable(d.label)}`).slice(0, 3).join(', ') + (view.base.devices.length > 3 ? ', …' : '') : '');
  const kinds = ['proc', 'sysfs', 'devtmpfs', 'devpts', 'cgroup2', 'cgroup', 'debugfs', 'tracefs', 'securityfs', 'mqueue', 'bpf', 'hugetlbfs', 'pstore', 'autofs'];
  const real = about.mounts.filter(([, type]) => !kinds.includes(type));
  const mounts = real.slice(0, 4).map(([where, type]) => `${readable(type)} at ${readable(where)}`);
  fact('file systems', mounts.join(', ') + (real.length > 4 ? `, and ${real.length - 4} more` : ''));
  fact('made', about.realtime_ns > 0 ? new Date(about.realtime_ns / 1e6).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '');
  fact('on', about.host ? `${readable(about.host)}, Linux ${readable(about.kernel)}, ${about.cpus} CPUs, ${bytes(about.mem_bytes)}` : '');
  drawNotices(notices(about, index));
  drawFindings(about.findings);
  byId('foot').textContent = `${about.kind}, made by ${readable(about.tool)}. This page loads nothing and sends nothing.`;
}

// What is missing stands in the open; the rest is folded behind its count.
function drawNotices(all) {
  const item = ([kind, text]) => element('li', { class: kind }, text);
  const alarms = all.filter(([kind]) => kind === 'alarm');
  const others = all.filter(([kind]) => kind !== 'alarm');
  const numbers = [['warning', 'warning'], ['info', 'note']].map(([kind, word]) => [others.filter((n) => n[0] === kind).length, word]);
  byId('alarms').append(...alarms.map(item));
  byId('alarms').hidden = alarms.length === 0;
  byId('notes').hidden = others.length === 0;
  byId('notes').querySelector('summary').textContent = numbers.filter(([n]) => n > 0).map(([n, word]) => `${count(n)} ${word}${n === 1 ? '' : 's'}`).join(' · ');
  byId('notes').querySelector('ul').append(...others.map(item));
}

// What is lost, unknown or left out: [kind, sentence].
function notices(about, index) {
  const out = [];
  for (const [name, l] of about.ledger) {
    if (l.lost > 0) out.push(['alarm', `${count(l.lost)} of ${count(l.seen)} events of ${readable(name)} were lost${about.losses.length ? ' (marked red)' : ''}.`]);
  }
  const known = about.ledger.reduce((sum, [, l]) => sum + l.lost, 0);
  const located = about.losses.reduce((sum, l) => sum + l[2], 0);
  if (known === 0 && located > 0) out.push(['alarm', `${count(located)} events were lost (marked red).`]);
  if (about.clock_jumps.length > 0) out.push(['warning', `The trace's clock goes back ${count(about.clock_jumps.length)} times (dashed lines).`]);
  if (about.kept_from_ns > 0) out.push(['warning', `Events before ${duration(about.kept_from_ns)} were dropped. Rates, tables and axes begin there.`]);
  if (about.unfinished) out.push(['alarm', 'The recording was not completed: its end is missing.']);
  for (const w of about.warnings) out.push(['warning', readable(w)]);
  for (const [why, n] of about.left_out) if (n > 0) out.push(['info', `Left out of the recording: ${count(n)} ${readable(why).replace(/_/g, ' ')}.`]);
  if (about.devices_left_out > 0) out.push(['info', `Statistics of ${count(about.devices_left_out)} more devices are not on this page; ioreel stats has them.`]);
  if (index.devices_not_drawn > 0) out.push(['info', `${count(index.devices_not_drawn)} devices with fewer bytes are not drawn.`]);
  if (about.marks_left_out > 0) out.push(['info', `${count(about.marks_left_out)} markers are not on this page.`]);
  const sampled = [...view.base.devices, ...[view.base.calls, view.base.bios].filter(Boolean)].filter((s) => !s.singles.complete);
  for (const s of sampled) {
    const what = s.kind === 'calls' ? 'operations' : s.kind === 'bios' ? 'bios of files' : `requests of ${readable(s.label)}`;
    out.push(['info', `Of ${count(s.singles.total)} ${what}, this page contains ${count(s.singles.n)} individually: the slowest, and one in ${count(s.singles.oneIn)}. Densities, rates and tables count all of them; ioreel serve shows every event of a window.`]);
  }
  return out;
}

// The list of findings, if there are any.
function drawFindings(findings) {
  byId('findings').hidden = findings.length === 0;
  for (const f of findings) {
    const jump = element('button', { type: 'button', title: 'Show its window', on: { click: () => {
      const margin = Math.max((f.to_ns - f.from_ns) * 0.15, 1000);
      show(f.from_ns - margin, f.to_ns + margin, true);
      select({ from: f.from_ns, to: f.to_ns });
      byId('panels').scrollIntoView({ block: 'start' });
    } } }, `${moment(f.from_ns, 1e6)} – ${moment(f.to_ns, 1e6)}`);
    const badge = element('span', { class: 'badge', 'data-severity': readable(f.severity) }, readable(f.severity));
    byId('finding-list').append(element('li', {}, badge, element('b', {}, readable(f.title)), jump, element('p', {}, readable(f.text))));
  }
}
