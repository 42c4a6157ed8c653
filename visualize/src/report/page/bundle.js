// The container of the data: a line of JSON as index, then columns, each compressed separately.

function fromBase64(text) {
  const binary = atob(text);
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) out[i] = binary.charCodeAt(i);
  return out;
}

async function inflate(deflated, size) {
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const out = new Uint8Array(await new Response(stream).arrayBuffer());
  if (out.length !== size) throw new Error(`a column holds ${out.length} bytes of ${size}`);
  return out;
}

// Zigzag variable-length integers, as 64-bit words in two halves. Returns them as doubles. If doubles cannot hold all of
// them, the property `exact` has them as BigInts.
function integers(bytesOf, differences) {
  let n = 0;
  for (let i = 0; i < bytesOf.length; i += 1) if (bytesOf[i] < 128) n += 1;
  const out = new Float64Array(n);
  let lastLow = 0;
  let lastHigh = 0;
  for (let i = 0, at = 0; at < n; at += 1) {
    let low = 0;
    let high = 0;
    let b;
    for (let shift = 0; ; shift += 7) {
      b = bytesOf[i];
      i += 1;
      const bits = b & 127;
      if (shift < 32) low |= bits << shift;
      if (shift === 28) high = bits >>> 4;
      else if (shift > 28) high |= bits << (shift - 32);
      if (b < 128) break;
    }
    const sign = -(low & 1);
    low = (((low >>> 1) | (high << 31)) ^ sign) >>> 0;
    high = (high >>> 1) ^ sign;
    if (differences) {
      const sum = lastLow + low;
      low = sum >>> 0;
      high = (lastHigh + high + (sum > 0xffffffff ? 1 : 0)) | 0;
      lastLow = low;
      lastHigh = high;
    }
    out[at] = high * 0x100000000 + low;
    const large = high >= 0x200000 || high < -0x200000;
    if (large && !out.exact) out.exact = BigInt64Array.from(out, (v, k) => (k < at ? BigInt(v) : 0n));
    if (out.exact) out.exact[at] = large ? (BigInt(high) << 32n) | BigInt(low) : BigInt(out[at]);
  }
  return out;
}

// The value at a place: a number, or a BigInt if a number is not exact.
function exactAt(values, i) {
  return values.exact && !Number.isSafeInteger(values[i]) ? values.exact[i] : values[i];
}

// The difference of two values, which is small where both are large.
function differenceAt(a, i, b, k) {
  return a.exact || b.exact ? Number(BigInt(exactAt(a, i)) - BigInt(exactAt(b, k))) : a[i] - b[k];
}

// Returns columns by name: {values, columns} for a raster, otherwise the values.
async function readBundle(blob) {
  const end = blob.indexOf(10);
  if (end < 0) throw new Error('the data has no index');
  const index = JSON.parse(new TextDecoder().decode(blob.subarray(0, end)));
  let at = end + 1;
  const waiting = index.map(async (entry) => {
    const from = at;
    at += entry.size;
    const raw = await inflate(blob.subarray(from, from + entry.size), entry.raw);
    if (entry.kind === 'text') return [entry.name, new TextDecoder().decode(raw)];
    if (entry.kind === 'u8') return [entry.name, entry.columns ? { columns: entry.columns, cells: raw } : raw];
    return [entry.name, integers(raw, entry.kind === 'diff')];
  });
  return new Map(await Promise.all(waiting));
}
