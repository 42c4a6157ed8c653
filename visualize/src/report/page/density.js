// Number of events per pixel: exact from individual events, or from the page's rasters.

// Counts rectangles: four corners each, then running sums.
class Corners {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.cells = new Int32Array((width + 1) * (height + 1));
    this.events = 0;
  }

  // Adds columns x0..x1 and rows y0..y1, inclusive, clipped to the plot.
  add(x0, x1, y0, y1) {
    const a = Math.max(0, Math.floor(x0));
    const b = Math.min(this.width - 1, Math.floor(x1));
    const c = Math.max(0, Math.floor(y0));
    const d = Math.min(this.height - 1, Math.floor(y1));
    if (a > b || c > d) return;
    const stride = this.width + 1;
    this.cells[c * stride + a] += 1;
    this.cells[c * stride + b + 1] -= 1;
    this.cells[(d + 1) * stride + a] -= 1;
    this.cells[(d + 1) * stride + b + 1] += 1;
    this.events += 1;
  }

  counts() {
    const { width, height } = this;
    const out = new Float32Array(width * height);
    if (this.events === 0) return out;
    const stride = width + 1;
    const above = new Int32Array(width);
    for (let y = 0; y < height; y += 1) {
      let run = 0;
      for (let x = 0; x < width; x += 1) {
        run += this.cells[y * stride + x];
        above[x] += run;
        out[y * width + x] = above[x];
      }
    }
    return out;
  }
}

// Cells [from, to) of a raster's axis for each pixel; at least one cell.
function cellsOf(pixels, first, last, cells) {
  const out = new Int32Array(pixels * 2);
  for (let i = 0; i < pixels; i += 1) {
    const a = first + ((last - first) * i) / pixels;
    const b = first + ((last - first) * (i + 1)) / pixels;
    const from = Math.max(0, Math.min(cells - 1, Math.floor(a)));
    out[2 * i] = from;
    out[2 * i + 1] = a >= cells || b <= 0 ? from : Math.min(cells, Math.max(from + 1, Math.floor(b)));
  }
  return out;
}

// Resamples a raster for a plot: columns `x0` to `x1`, rows `y0` (top) to `y1`.
function resample(raster, width, height, x0, x1, y0, y1) {
  const out = new Float32Array(width * height);
  const rows = raster.cells.length / raster.columns;
  const xs = cellsOf(width, x0, x1, raster.columns);
  const ys = cellsOf(height, Math.min(y0, y1), Math.max(y0, y1), rows);
  const line = new Float32Array(raster.columns);
  for (let y = 0; y < height; y += 1) {
    const row = y0 <= y1 ? y : height - 1 - y;
    if (row > 0 && y0 <= y1 && ys[2 * row] === ys[2 * row - 2] && ys[2 * row + 1] === ys[2 * row - 1]) {
      out.copyWithin(y * width, (y - 1) * width, y * width);
      continue;
    }
    line.fill(0);
    const from = xs[0];
    const to = xs[2 * width - 1];
    for (let r = ys[2 * row]; r < ys[2 * row + 1]; r += 1) {
      const at = r * raster.columns;
      for (let c = from; c < to; c += 1) line[c] += SHADE[raster.cells[at + c]];
    }
    for (let x = 0; x < width; x += 1) {
      let sum = 0;
      for (let c = xs[2 * x]; c < xs[2 * x + 1]; c += 1) sum += line[c];
      out[y * width + x] = sum;
    }
  }
  return out;
}

// Paints layers of counts, each in its own colour, with logarithmic shades up to the maximum of all. Overlapping layers
// are overprinted; with 'most' the largest count is shown, with 'last' the last layer.
function paint(image, layers, blend) {
  const pixels = new Uint32Array(image.data.buffer);
  const inks = layers.map((layer) => {
    let most = 1;
    for (let i = 0; i < layer.counts.length; i += 1) if (layer.counts[i] > most) most = layer.counts[i];
    return { counts: layer.counts, ramp: ramp(layer.color), scale: most > 1 ? (RAMP_STEPS - 1) / Math.log(most) : 0 };
  });
  const pack = (c) => (255 << 24) | (Math.round(c[2]) << 16) | (Math.round(c[1]) << 8) | Math.round(c[0]);
  const packed = inks.map((ink) => Uint32Array.from(ink.ramp, pack));
  for (let i = 0; i < pixels.length; i += 1) {
    let under = -1;
    let shade = 0;
    for (let k = 0; k < inks.length; k += 1) {
      const n = inks[k].counts[i];
      if (n > 0) {
        const step = n > 1 ? Math.min(RAMP_STEPS - 1, Math.round(Math.log(n) * inks[k].scale)) : 0;
        if (under < 0 || blend === 'last' || (blend === 'most' && n > inks[under].counts[i])) {
          pixels[i] = packed[k][step];
          under = k;
          shade = step;
        } else if (!blend) {
          pixels[i] = pack(overprint(inks[under].ramp[shade], inks[k].ramp[step]));
        }
      }
    }
  }
}
