// A panel: heading with legend, and a canvas with a plot on the shared time axis and its own vertical axis.

const panels = [];

class Panel {
  // options: id, title, height, legend: [{key, label, color}], note.
  constructor(options) {
    Object.assign(this, options);
    this.on = new Map((options.legend || []).map((l) => [l.key, l.off !== true]));
    this.canvas = element('canvas', { 'data-panel': options.id, 'aria-label': options.title });
    this.told = element('span', { class: 'told' });
    this.controls = element('span', { class: 'controls' });
    this.keys = element('span', { class: 'legend' });
    const heading = element('div', { class: 'panel-head' }, element('h2', {}, options.title), this.keys, this.controls, this.told);
    this.root = element('section', { class: 'panel', id: `panel-${options.id}` }, heading, this.canvas);
    this.addKeys(options.legend || []);
    panels.push(this);
  }

  // Adds legend entries, which show and hide layers.
  addKeys(legend) {
    for (const l of legend) {
      const button = element('button', { type: 'button', 'aria-pressed': String(this.on.get(l.key)), title: `Show or hide ${l.label}`, on: { click: () => this.toggle(l.key, button) } });
      const swatch = element('i', { 'data-color': l.color, class: l.dashed ? 'dashed' : '' });
      button.append(swatch, l.label);
      this.keys.append(button);
    }
  }

  // Replaces the legend entries. Entries that exist in both stay as they are.
  setKeys(legend) {
    const before = this.on;
    this.on = new Map(legend.map((l) => [l.key, before.get(l.key) ?? l.off !== true]));
    this.keys.replaceChildren();
    this.addKeys(legend);
  }

  // Keeps only entries of non-empty layers; `used` is indexed by their position.
  keepKeys(used) {
    this.setKeys(this.legend.filter((l, k) => l.always || used(k, l.key)));
  }

  // Paints layers of counts over the whole plot, each in the colour of its name.
  paintLayers(g, w, h, layers, blend) {
    const image = g.createImageData(Math.round(w * this.scale), Math.round(h * this.scale));
    paint(image, layers.map((l) => ({ counts: l.counts, color: theme[l.color] })), blend);
    const scratch = this.scratch || (this.scratch = document.createElement('canvas'));
    scratch.width = image.width;
    scratch.height = image.height;
    scratch.getContext('2d').putImageData(image, 0, 0);
    g.drawImage(scratch, 0, 0, w, h);
  }

  toggle(key, button) {
    this.on.set(key, !this.on.get(key));
    button.setAttribute('aria-pressed', String(this.on.get(key)));
    changed();
  }

  // The plot's size in CSS pixels.
  get plotWidth() {
    return Math.max(40, this.canvas.clientWidth - LEFT - RIGHT);
  }

  draw() {
    for (const swatch of this.keys.querySelectorAll('i')) swatch.style.background = theme[swatch.dataset.color];
    const scale = Math.min(2, window.devicePixelRatio || 1);
    const width = this.canvas.clientWidth;
    const axis = this.timeAxis ? 22 : 6;
    const height = this.height + axis + 8;
    this.canvas.style.height = `${height}px`;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const g = this.canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = '11px system-ui, sans-serif';
    this.g = g;
    this.scale = scale;
    this.top = 8;
    const w = this.plotWidth;
    g.save();
    g.translate(LEFT, this.top);
    this.drawTicks(g, w);
    this.drawBands(g, w);
    g.save();
    g.beginPath();
    g.rect(0, 0, w, this.height);
    g.clip();
    this.drawPlot(g, w, this.height);
    this.drawMarks(g, w);
    g.restore();
    g.strokeStyle = theme.frame;
    g.lineWidth = 1;
    g.strokeRect(-0.5, -0.5, w + 1, this.height + 1);
    g.restore();
  }

  // Vertical grid lines, and time labels if this panel has them.
  drawTicks(g, w) {
    const step = niceStep(((view.to - view.from) / w) * 110);
    g.strokeStyle = theme.grid;
    g.fillStyle = theme.faint;
    g.textAlign = 'center';
    g.textBaseline = 'top';
    g.beginPath();
    for (let k = Math.ceil(view.from / step - 1e-9); k * step <= view.to * (1 + 1e-12); k += 1) {
      const x = Math.round(xOf(k * step, w)) + 0.5;
      g.moveTo(x, 0);
      g.lineTo(x, this.height);
      if (this.timeAxis && x > 10 && x < w - 10) g.fillText(moment(k * step, step), x, this.height + 6);
    }
    g.stroke();
  }

  // Marks over the whole height: settling, losses.
  drawBands(g, w) {
    const { about } = view.base;
    const band = (from, to, color, alpha, least) => {
      const x = xOf(from, w);
      const right = Math.max(xOf(to, w), x + least);
      if (right < 0 || x > w) return;
      g.fillStyle = translucent(color, alpha);
      g.fillRect(Math.max(0, x), 0, Math.min(w, right) - Math.max(0, x), this.height);
    };
    if (about.elapsed_ns > 0 && about.elapsed_ns < view.base.to) band(about.elapsed_ns, view.base.to, theme.faint, 0.1, 0);
    for (const [from, to] of about.losses) band(from, to, theme.alarm, 0.22, 2);
  }

  drawMarks(g, w) {
    const { about } = view.base;
    const line = (ns, color) => {
      const x = Math.round(xOf(ns, w)) + 0.5;
      g.strokeStyle = color;
      g.beginPath();
      g.moveTo(x, 0);
      g.lineTo(x, this.height);
      g.stroke();
      return x;
    };
    g.save();
    g.setLineDash([3, 3]);
    g.textBaseline = 'top';
    g.textAlign = 'left';
    for (const [ns] of about.clock_jumps) {
      if (ns >= view.from && ns <= view.to) line(ns, theme.clock);
    }
    for (const [ns, name] of about.marks) {
      if (ns < view.from || ns > view.to) continue;
      const x = line(ns, theme.line);
      if (this.namesMarks) {
        g.fillStyle = theme.ink;
        g.fillText(readable(name).slice(0, 40), x + 3, 2);
      }
    }
    if (about.elapsed_ns > view.from && about.elapsed_ns < view.to && about.elapsed_ns < view.base.to) {
      const x = line(about.elapsed_ns, theme.faint);
      if (this.namesMarks) {
        g.fillStyle = theme.faint;
        g.fillText('settling', x + 3, this.height - 14);
      }
    }
    g.restore();
  }

  // Labels left of the plot: [y, text], with grid lines.
  yLabels(labels, w) {
    const g = this.g;
    g.fillStyle = theme.faint;
    g.strokeStyle = theme.grid;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    g.lineWidth = 1;
    let last = Infinity;
    for (const [y, text, quiet] of labels) {
      if (!quiet) {
        g.beginPath();
        g.moveTo(0, Math.round(y) + 0.5);
        g.lineTo(w, Math.round(y) + 0.5);
        g.stroke();
      }
      const at = Math.max(6, Math.min(this.height - 5, y));
      if (text && Math.abs(last - at) >= 12) {
        // Text outside the plot's clip region is drawn after it.
        this.outside.push([at, text]);
        last = at;
      }
    }
  }

  // Draws text outside the plot's clip region.
  flushLabels() {
    const g = this.g;
    g.save();
    g.translate(LEFT, this.top);
    g.fillStyle = theme.faint;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    for (const [y, text] of this.outside) {
      const cut = fitText(g, text, LEFT - 14);
      g.fillText(cut, -7, y);
    }
    g.restore();
    this.outside = [];
  }

  drawPlot() {}
}

// Which of n layers contain an event of any source, from individual events and rasters.
function layersIn(sources, n, rastersOf) {
  const used = new Array(n).fill(false);
  for (const source of sources) {
    for (const layer of source.singles.layer) used[Math.min(layer, n - 1)] = true;
    (rastersOf(source) || []).forEach((raster, k) => { used[k] = used[k] || Boolean(raster) && raster.cells.some((c) => c > 0); });
  }
  return used;
}

// The end of a text that fits, because paths differ at their ends.
function fitText(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (g.measureText(`…${text.slice(mid)}`).width <= room) high = mid;
    else low = mid + 1;
  }
  return `…${text.slice(low)}`;
}

function drawPanel(panel) {
  panel.outside = [];
  panel.draw();
  panel.flushLabels();
}

function isInSight(panel) {
  const box = panel.root.getBoundingClientRect();
  return box.bottom > 0 && box.top < window.innerHeight;
}

let laterTimer = 0;

// Draws what is in sight. The rest follows, one panel at a time, when the window has stopped moving, unless `all` are
// wanted now.
function drawPanels(all) {
  panels.forEach((panel, i) => {
    panel.timeAxis = i === panels.length - 1 || panel.tall === true;
    panel.namesMarks = i === 0;
  });
  const later = panels.filter((panel) => !all && !isInSight(panel));
  panels.filter((panel) => !later.includes(panel)).forEach(drawPanel);
  clearTimeout(laterTimer);
  const next = () => {
    const panel = later.shift();
    if (!panel) return;
    drawPanel(panel);
    laterTimer = setTimeout(next, 0);
  };
  laterTimer = setTimeout(next, 80);
}
