// For a page of `ioreel serve`: requests more detail for the window if the page contains only a sample.

const served = { on: false, timer: 0, asking: null };

function startServed() {
  served.on = document.body.dataset.served === 'yes' && /^https?:$/.test(location.protocol);
}

function wantsDetail() {
  const device = view.base.devices[view.device];
  const sampled = (device && !device.singles.complete) || (view.base.calls && !view.base.calls.singles.complete) || (view.base.bios && !view.base.bios.singles.complete);
  if (!served.on || !sampled || view.to - view.from > (view.base.to - view.base.from) * 0.8) return false;
  const d = view.detail;
  // The current detail is sufficient while the window covers a fair part of it, or if it is complete.
  const covers = d && d.from <= view.from && d.to >= view.to;
  const whole = covers && [...d.devices, ...(d.calls ? [d.calls] : []), ...(d.bios ? [d.bios] : [])].every((s) => s.singles.complete);
  return !(covers && (whole || view.to - view.from > (d.to - d.from) / 4));
}

function askForDetail() {
  clearTimeout(served.timer);
  if (!wantsDetail()) return;
  served.timer = setTimeout(fetchDetail, 250);
}

async function fetchDetail() {
  const margin = (view.to - view.from) * 0.25;
  const from = Math.max(view.base.from, Math.floor(view.from - margin));
  const to = Math.min(view.base.to, Math.ceil(view.to + margin));
  if (served.asking) served.asking.abort();
  const abort = new AbortController();
  served.asking = abort;
  byId('detail').textContent = 'reading the reel…';
  try {
    const answer = await fetch(`bundle?from_ns=${from}&to_ns=${to}`, { signal: abort.signal });
    if (!answer.ok) throw new Error(await answer.text());
    const data = makeDataset(await readBundle(new Uint8Array(await answer.arrayBuffer())));
    adoptLanes(data, view.base);
    view.detail = data;
    byId('detail').textContent = `detail: ${moment(from, (to - from) / 100)} – ${moment(to, (to - from) / 100)}`;
    changed();
  } catch (e) {
    if (e.name !== 'AbortError') byId('detail').textContent = `no detail: ${e.message}`;
  } finally {
    if (served.asking === abort) served.asking = null;
  }
}

// Converts the detail's calls or bios to the page's axis of files, so that nothing moves. Rasters keep their axis.
function adoptLanes(data, base) {
  const source = data.calls || data.bios;
  if (!source || !base.lanes || source.map) return;
  const { lanes } = base;
  const places = new Map();
  for (let k = 0; k < lanes.n; k += 1) places.set(lanes.file[k], k);
  const others = lanes.others > 0 ? lanes.n - 1 : -1;
  const own = source.lanes;
  const moved = Float64Array.from(own.file, (file) => places.get(file) ?? others);
  const translate = (list) => list.map((place) => (place >= 0 ? moved[place] : place));
  source.singles.file = translate(source.singles.file);
  for (const device of data.devices) device.singles.file = translate(device.singles.file);
  source.lanes = lanes;
  data.lanes = lanes;
  placeOnFiles(source);
}
