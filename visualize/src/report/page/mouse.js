// Mouse, touch and keyboard.

let drag = null;
// Where the cursor was last over a plot: the window may move under it.
let hovered = null;

function startMouse() {
  for (const panel of panels) {
    const { canvas } = panel;
    canvas.addEventListener('pointerdown', (e) => pointerDown(panel, e));
    canvas.addEventListener('pointermove', (e) => pointerMove(panel, e));
    canvas.addEventListener('pointerup', (e) => pointerUp(panel, e));
    canvas.addEventListener('pointercancel', () => { drag = null; });
    canvas.addEventListener('pointerleave', () => { hovered = null; hideTip(); });
    canvas.addEventListener('dblclick', (e) => doubleClick(panel, e));
    canvas.addEventListener('wheel', (e) => wheel(panel, e), { passive: false });
  }
  document.addEventListener('keydown', key);
}

function pointOf(panel, e) {
  return { x: e.offsetX - LEFT, y: e.offsetY - panel.top };
}

function pointerDown(panel, e) {
  if (e.button > 1) return;
  const { x, y } = pointOf(panel, e);
  const pan = e.shiftKey || e.button === 1 || (x < 0 && panel instanceof MapPanel);
  drag = { panel, x, y, pan, from: view.from, to: view.to, low: panel.low, high: panel.high, moved: false };
  if (pan) e.preventDefault();
  if (e.pointerType !== 'touch') panel.canvas.setPointerCapture(e.pointerId);
}

function pointerMove(panel, e) {
  const { x, y } = pointOf(panel, e);
  const w = panel.plotWidth;
  if (!drag || drag.panel !== panel) {
    hovered = x >= 0 && x <= w && y >= 0 && y <= panel.height ? [panel, x, y, e.clientX, e.clientY] : null;
    refreshTip();
    return;
  }
  if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
  if (!drag.moved && drag.pan) pushHistory();
  drag.moved = true;
  hovered = null;
  hideTip();
  if (drag.pan) {
    const shift = ((drag.x - x) / w) * (drag.to - drag.from);
    if (drag.x >= 0) show(drag.from + shift, drag.to + shift, false);
    if (panel instanceof MapPanel) {
      const lift = ((y - drag.y) / panel.height) * (drag.high - drag.low);
      panel.showUnits(drag.low + lift, drag.high + lift);
    }
    return;
  }
  const clamp = (v) => Math.max(0, Math.min(w, v));
  const [a, b] = [timeAt(clamp(drag.x), w), timeAt(clamp(x), w)];
  const selection = { from: Math.min(a, b), to: Math.max(a, b) };
  // A box, if the drag also moved vertically.
  if (panel instanceof MapPanel && Math.abs(y - drag.y) > 24) {
    const inside = (v) => Math.max(0, Math.min(panel.height, v));
    const [p, q] = [panel.unitAt(inside(drag.y)), panel.unitAt(inside(y))];
    Object.assign(selection, { panel: panel.id, low: Math.min(p, q), high: Math.max(p, q) });
  }
  select(selection);
}

// Shows what is under the cursor now.
function refreshTip() {
  if (hovered) tipAt(...hovered);
  else hideTip();
}

function pointerUp(panel, e) {
  const { x, y } = pointOf(panel, e);
  // A click outside the selection clears it; a double click inside zooms to it.
  if (drag && !drag.moved && x >= 0 && view.selection && !inSelection(panel, x)) select(null);
  if (drag && !drag.moved && e.pointerType === 'touch') tipAt(panel, x, y, e.clientX, e.clientY);
  drag = null;
}

function inSelection(panel, x) {
  const at = timeAt(x, panel.plotWidth);
  return view.selection !== null && at >= view.selection.from && at <= view.selection.to;
}

function doubleClick(panel, e) {
  const { x } = pointOf(panel, e);
  if (x >= 0 && inSelection(panel, x)) {
    zoomToSelection();
    return;
  }
  if (panel instanceof MapPanel && (x < 0 || (view.from === view.base.from && view.to === view.base.to))) {
    panel.showUnits(0, 1);
    return;
  }
  showWhole();
}

function wheel(panel, e) {
  const { x, y } = pointOf(panel, e);
  const w = panel.plotWidth;
  const factor = Math.exp(Math.max(-1, Math.min(1, (e.deltaY * (e.deltaMode === 1 ? 20 : 1)) / 240)));
  if (panel instanceof MapPanel && (e.ctrlKey || e.altKey || x < 0)) {
    e.preventDefault();
    const at = panel.unitAt(y);
    const share = (at - panel.low) / (panel.high - panel.low);
    const size = Math.min(1, Math.max(1e-7, (panel.high - panel.low) * factor));
    panel.showUnits(at - share * size, at + (1 - share) * size);
    return;
  }
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
    e.preventDefault();
    const shift = ((e.deltaX || e.deltaY) / w) * (view.to - view.from);
    show(view.from + shift, view.to + shift, false);
    return;
  }
  // When zoomed out completely, the wheel scrolls the page.
  if (e.deltaY > 0 && view.to - view.from >= view.base.to - view.base.from) return;
  e.preventDefault();
  rememberOnce();
  zoomAt(timeAt(Math.max(0, Math.min(w, x)), w), factor);
}

// A turn of the wheel is one step in the history, not twenty.
let wheelTimer = 0;
function rememberOnce() {
  if (wheelTimer === 0) pushHistory();
  clearTimeout(wheelTimer);
  wheelTimer = setTimeout(() => { wheelTimer = 0; }, 400);
}

function zoomToSelection() {
  const s = view.selection;
  if (!s) return;
  const panel = panels.find((p) => p.id === s.panel);
  if (panel) panel.showUnits(s.low, s.high);
  show(s.from, s.to, true);
  select(null);
}

function key(e) {
  if (e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement || e.ctrlKey || e.metaKey || e.altKey) return;
  const width = view.to - view.from;
  const middle = (view.from + view.to) / 2;
  const actions = {
    ArrowLeft: () => show(view.from - width / 5, view.to - width / 5, false),
    ArrowRight: () => show(view.from + width / 5, view.to + width / 5, false),
    '+': () => { pushHistory(); zoomAt(middle, 0.5); },
    '=': () => { pushHistory(); zoomAt(middle, 0.5); },
    '-': () => { pushHistory(); zoomAt(middle, 2); },
    0: showWhole,
    Backspace: goBack,
    Escape: () => select(null),
    z: zoomToSelection,
    Z: zoomToSelection,
  };
  const run = actions[e.key];
  if (run) {
    e.preventDefault();
    run();
  }
}
