// The view: the time window shared by all panels, the selection, and callbacks for changes.

const LEFT = 92;
const RIGHT = 16;

const view = {
  base: null,
  // For a served page: a part of the reel in more detail.
  detail: null,
  from: 0,
  to: 1,
  // {from, to} in ns, optionally {panel, low, high} on a map's axis.
  selection: null,
  device: 0,
  history: [],
  listeners: [],
};

// The data to draw: the detail if it covers the window.
function shownData() {
  const d = view.detail;
  return d && d.from <= view.from && d.to >= view.to ? d : view.base;
}

function shownDevice() {
  const data = shownData();
  const base = view.base.devices[view.device];
  return base ? data.devices.find((d) => d.dev === base.dev) || null : null;
}

let frame = 0;
function changed() {
  if (frame === 0) {
    frame = requestAnimationFrame(() => {
      frame = 0;
      for (const listener of view.listeners) listener();
    });
  }
}

// Shows [from, to], moved and clipped to the reel, at least 100 ns long.
function show(from, to, remember) {
  const { from: first, to: last } = view.base;
  const width = Math.min(Math.max(to - from, 100), last - first);
  let start = (from + to) / 2 - width / 2;
  start = Math.max(first, Math.min(start, last - width));
  if (remember) pushHistory();
  view.from = start;
  view.to = start + width;
  changed();
}

function pushHistory() {
  const last = view.history[view.history.length - 1];
  if (!last || last[0] !== view.from || last[1] !== view.to) view.history.push([view.from, view.to]);
  if (view.history.length > 100) view.history.shift();
}

function goBack() {
  const last = view.history.pop();
  if (last) show(last[0], last[1], false);
}

function showWhole() {
  show(view.base.from, view.base.to, true);
}

// Zooms around a time, which stays at its position.
function zoomAt(ns, factor) {
  const width = Math.min(Math.max((view.to - view.from) * factor, 100), view.base.to - view.base.from);
  const share = (ns - view.from) / (view.to - view.from);
  const from = Math.max(view.base.from, Math.min(ns - share * width, view.base.to - width));
  view.from = from;
  view.to = from + width;
  changed();
}

function select(selection) {
  view.selection = selection;
  changed();
}

// Converts a time to a position in a plot of this width, and back.
function xOf(ns, width) {
  return ((ns - view.from) / (view.to - view.from)) * width;
}
function timeAt(x, width) {
  return view.from + (x / width) * (view.to - view.from);
}

// The window is stored in the URL, so that a page can be opened at a position.
function readAddress() {
  const found = /^#t=(-?[\d.]+)-([\d.]+)$/.exec(location.hash);
  if (!found) return false;
  show(Number(found[1]) * 1e9, Number(found[2]) * 1e9, false);
  return true;
}
function writeAddress() {
  const whole = view.from === view.base.from && view.to === view.base.to;
  const hash = whole ? ' ' : `#t=${(view.from / 1e9).toFixed(9)}-${(view.to / 1e9).toFixed(9)}`;
  try {
    history.replaceState(null, '', whole ? location.pathname + location.search : hash);
  } catch {
    // Some browsers do not allow a local page to change its URL.
  }
}
