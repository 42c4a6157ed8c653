// Builds the page.

async function start() {
  const text = byId('data').textContent;
  byId('data').remove();
  view.base = makeDataset(await readBundle(fromBase64(text)));
  const { base } = view;
  view.from = base.from;
  view.to = base.to;
  drawHead();
  const offsets = base.devices.length ? new OffsetMap() : null;
  if (offsets) offsets.fill();
  if (base.lanes && base.lanes.n > 0) new FileMap();
  if (base.devices.length || base.calls) new Throughput();
  if (base.devices.length) {
    new DeviceHeat();
    new Depth();
    new Seeks();
  }
  if (base.calls) {
    new CallHeat();
    new CallRate();
  }
  if (panels.length === 0) byId('panels').append(element('p', { id: 'nothing' }, 'This reel contains no operations and no requests.'));
  byId('panels').append(...panels.map((p) => p.root), element('div', { id: 'band', hidden: true }));
  byId('keys').hidden = panels.length === 0;
  byId('selection').hidden = panels.length === 0;
  startTables();
  startOverview();
  startMouse();
  startServed();
  byId('whole').addEventListener('click', showWhole);
  byId('back').addEventListener('click', goBack);
  byId('out').addEventListener('click', () => { pushHistory(); zoomAt((view.from + view.to) / 2, 2); });
  byId('in').addEventListener('click', () => { pushHistory(); zoomAt((view.from + view.to) / 2, 0.5); });
  byId('zoom').addEventListener('click', zoomToSelection);
  byId('clear').addEventListener('click', () => select(null));
  view.listeners.push(() => draw(false));
  window.addEventListener('resize', changed);
  window.addEventListener('hashchange', readAddress);
  darkQuery.addEventListener('change', () => {
    theme = darkQuery.matches ? DARK : LIGHT;
    changed();
  });
  // Paper is white.
  window.addEventListener('beforeprint', () => {
    theme = LIGHT;
    byId('notes').open = true;
    draw(true);
  });
  window.addEventListener('afterprint', () => {
    theme = darkQuery.matches ? DARK : LIGHT;
    draw(true);
  });
  readAddress();
  draw(true);
  document.documentElement.dataset.ready = 'yes';
}

let addressTimer = 0;
let numbersTimer = 0;

function draw(all) {
  drawOverview();
  drawPanels(all);
  drawBand();
  if (hovered) refreshTip();
  const step = (view.to - view.from) / 1000;
  byId('shown').textContent = `${moment(view.from, step)} – ${moment(view.to, step)} (${duration(view.to - view.from)})`;
  byId('back').disabled = view.history.length === 0;
  askForDetail();
  // Expensive parts wait until the window has stopped moving.
  clearTimeout(numbersTimer);
  numbersTimer = setTimeout(drawSelection, document.documentElement.dataset.ready ? 120 : 0);
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 300);
}

// Draws the selection over all panels.
function drawBand() {
  const band = byId('band');
  const s = view.selection;
  band.hidden = s === null || s.to < view.from || s.from > view.to || panels.length === 0;
  if (band.hidden) return;
  const w = panels[0].plotWidth;
  const x0 = Math.max(0, xOf(s.from, w));
  const x1 = Math.min(w, xOf(s.to, w));
  band.style.left = `${LEFT + x0}px`;
  band.style.width = `${Math.max(1, x1 - x0)}px`;
}

start().catch((e) => {
  byId('failed').hidden = false;
  byId('failed').textContent = `This page cannot be drawn: ${e.message}. It needs a browser of 2023 or later.`;
  document.documentElement.dataset.ready = 'failed';
  console.error(e);
});
