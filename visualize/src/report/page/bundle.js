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

// Zigzag variable-length integers. Beyond 53 bits, with the precision of a double.
function integers(bytesOf, differences) {
  let n = 0;
  for (let i = 0; i < bytesOf.length; i += 1) if (bytesOf[i] < 128) n += 1;
  const out = new Float64Array(n);
  let last = 0;
  for (let i = 0, at = 0; at < n; at += 1) {
    let value = 0;
    let scale = 1;
    let b;
    do {
      b = bytesOf[i];
      i += 1;
      value += (b & 127) * scale;
      scale *= 128;
    } while (b > 127);
    value = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    last = differences ? last + value : value;
    out[at] = last;
  }
  return out;
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
