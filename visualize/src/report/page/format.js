// Formats numbers and names.

const number = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

function count(n) {
  return number.format(typeof n === 'bigint' ? n : Math.round(n));
}

// 1.5 MiB, as `ioreel stats` prints it.
function bytes(size) {
  const n = Number(size);
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0;
  let value = n;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(n)} B` : `${value.toFixed(1)} ${units[unit]}`;
}

// 1.50 MiB/s
function mibPerSecond(size, seconds) {
  return `${plain(size / 1048576 / Math.max(seconds, 1e-9), 2)} MiB/s`;
}

function duration(ns) {
  const n = Math.abs(ns);
  if (n < 1e3) return `${Math.round(ns)} ns`;
  if (n < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (n < 1e9) return `${(ns / 1e6).toFixed(2)} ms`;
  return `${(ns / 1e9).toFixed(3)} s`;
}

function plain(x, digits) {
  return x.toLocaleString('en-US', { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

// A rate or count with a prefix: 12.3k.
function brief(n) {
  const a = Math.abs(n);
  if (a >= 1e9) return `${trim(n / 1e9)}G`;
  if (a >= 1e6) return `${trim(n / 1e6)}M`;
  if (a >= 1e4) return `${trim(n / 1e3)}k`;
  return trim(n);
}

function trim(n) {
  const a = Math.abs(n);
  return n.toFixed(a >= 100 || Number.isInteger(n) ? 0 : a >= 10 ? 1 : 2);
}

// A time with the precision of a step in ns.
function moment(ns, step) {
  const unit = step >= 1e8 ? ['s', 1e9] : step >= 1e5 ? ['ms', 1e6] : step >= 100 ? ['µs', 1e3] : ['ns', 1];
  const decimals = Math.max(0, Math.min(3, Math.ceil(-Math.log10(Math.max(step, 1) / unit[1]) - 1e-9)));
  return `${plain(ns / unit[1], decimals)} ${unit[0]}`;
}

// A time with nanoseconds.
function exactly(ns) {
  const all = BigInt(typeof ns === 'bigint' ? ns : Math.round(ns));
  const whole = all < 0n ? -all : all;
  return `${all < 0n ? '-' : ''}${whole / 1000000000n}.${String(whole % 1000000000n).padStart(9, '0')} s`;
}

// The smallest of 1, 2, 5, 10, … that is at least `least`.
function niceStep(least) {
  if (!(least > 0) || !Number.isFinite(least)) return 1;
  const decade = 10 ** Math.floor(Math.log10(least));
  for (const m of [1, 2, 5, 10]) if (m * decade >= least * (1 - 1e-9)) return m * decade;
  return 10 * decade;
}

// The smallest power of two that is at least `least`.
function niceBytes(least) {
  return 2 ** Math.ceil(Math.log2(Math.max(least, 1)));
}

// A readable name: bytes that are not UTF-8 (stored as U+F780..U+F7FF) as \xNN, control characters as escapes, and
// direction marks as visible text.
function readable(name) {
  return String(name).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\uf780-\uf7ff]/g, (c) => {
    const code = c.charCodeAt(0);
    if (code >= 0xf780 && code <= 0xf7ff) return `\\x${(code - 0xf700).toString(16)}`;
    const known = { '\n': '\\n', '\t': '\\t', '\r': '\\r' };
    return known[c] || `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

// Creates an element with text and attributes. Never parses markup.
function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'class') e.className = value;
    else if (key === 'on') for (const [event, run] of Object.entries(value)) e.addEventListener(event, run);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) e.append(child);
  }
  return e;
}

function byId(id) {
  return document.getElementById(id);
}
