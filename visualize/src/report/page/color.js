// Colours that are distinguishable with all common colour blindnesses (palette of Okabe and Ito, lighter in the dark
// theme).

const LIGHT = {
  dark: false,
  paper: [255, 255, 255],
  ink: '#1c2530',
  faint: '#66707c',
  frame: '#c3c9d1',
  grid: '#e9ecf0',
  alarm: '#c1121f',
  read: '#0072b2',
  write: '#d55e00',
  other: '#009e73',
  flush: '#b0308c',
  sync: '#b0308c',
  metadata: '#009e73',
  misc: '#7a818b',
  line: '#1c2530',
  clock: '#b0308c',
  hues: ['#0072b2', '#d55e00', '#009e73', '#b0308c', '#ef0b53', '#5d4037', '#0b3206'],
  heats: ['#a5d32f', '#35b779', '#21908d', '#3b528b', '#440154'],
};
const DARK = {
  dark: true,
  paper: [22, 26, 31],
  ink: '#e4e8ee',
  faint: '#98a2af',
  frame: '#404954',
  grid: '#2a3038',
  alarm: '#ff6b6b',
  read: '#58b4f0',
  write: '#f5963c',
  other: '#36c99c',
  flush: '#e38bd0',
  sync: '#e38bd0',
  metadata: '#36c99c',
  misc: '#a3abb6',
  line: '#e4e8ee',
  clock: '#f08ad8',
  hues: ['#56b4e9', '#f0883e', '#2fc79a', '#e07bcb', '#f5f7ff', '#f2cc3d', '#8d6e63'],
  heats: ['#4a5fa5', '#21908d', '#35b779', '#a5d32f', '#fde725'],
};
// Categories and steps are numbered: hue0, heat3.
for (const set of [LIGHT, DARK]) {
  set.hues.forEach((hex, i) => { set[`hue${i}`] = hex; });
  set.heats.forEach((hex, i) => { set[`heat${i}`] = hex; });
}

const darkQuery = window.matchMedia('(prefers-color-scheme: dark)');
let theme = darkQuery.matches ? DARK : LIGHT;

function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function mix(a, b, t) {
  return [0, 1, 2].map((i) => a[i] + (b[i] - a[i]) * t);
}

// Relative luminance and contrast, WCAG 2.
function luminance(c) {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((p, q) => p - q);
  return (high + 0.05) / (low + 0.05);
}

// The colour nearest to the paper, on the way to it, that is still seen on it.
function tint(hue) {
  for (let share = 1; share > 0; share -= 0.01) {
    const mixed = mix(hue, theme.paper, share);
    if (contrast(mixed, theme.paper) >= 3.05) return mixed;
  }
  return hue;
}

const RAMP_STEPS = 64;

// Ramp from one event to the maximum: a tint in which one event is visible, the hue, then darker on white, lighter on
// dark.
function ramp(hex) {
  const hue = rgb(hex);
  const far = theme.dark ? [255, 255, 255] : [0, 0, 0];
  const near = tint(hue);
  const end = mix(hue, far, theme.dark ? 0.65 : 0.62);
  const out = [];
  for (let i = 0; i < RAMP_STEPS; i += 1) {
    const t = i / (RAMP_STEPS - 1);
    out.push(t < 0.5 ? mix(near, hue, t * 2) : mix(hue, end, t * 2 - 1));
  }
  return out;
}

// Two inks printed over each other: on white darker than either, on dark lighter.
function overprint(a, b) {
  if (theme.dark) return [0, 1, 2].map((i) => 255 - ((255 - a[i]) * (255 - b[i])) / 255);
  return [0, 1, 2].map((i) => (a[i] * b[i]) / 255);
}

function translucent(hex, alpha) {
  const [r, g, b] = rgb(hex);
  return `rgba(${r},${g},${b},${alpha})`;
}
