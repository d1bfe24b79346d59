"use strict";
// What is drawn: each function takes plain data and a width in pixels, and returns SVG as text.
// A shape that belongs to a request carries its row (data-r), so that one request can be followed through all panels.

const GAPS = 5;      // pixels: narrower cells are drawn as one bar
const LETTERS = 13;  // pixels: narrower cells have no letter
const TALL = { strip: 190, mask: 240 };  // pixels: the panels grow no higher, cells shrink instead
const SLANT = 6;     // pixels between the lines of a hatch
const MOST = 2400;   // cells of a token strip; of more tokens one cell stands for several

const text = (words) => String(words).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const number = (n) => n.toLocaleString("en-GB");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
const highest = (list, of) => list.reduce((most, one) => Math.max(most, of(one)), 0);
const round = (n) => Math.round(n * 100) / 100;
const mark = (r) => (r === undefined ? "" : ` data-r="${r}"`);
const svg = (w, h, body, label) =>
  `<svg width="${w}" height="${round(h)}" viewBox="0 0 ${w} ${round(h)}" role="img" aria-label="${text(label)}">${body}</svg>`;
const box = (x, y, w, h, look, r) =>
  `<rect x="${round(x)}" y="${round(y)}" width="${round(Math.max(w, 0.5))}" height="${round(Math.max(h, 0.5))}" class="${look}"${mark(r)}/>`;
const word = (x, y, words, look, r) => `<text x="${round(x)}" y="${round(y)}" class="${look}"${mark(r)}>${text(words)}</text>`;
const remark = (words) => (words ? `<p class="note">${text(words)}</p>` : "");

// `count` equal cells in a row, as the outline of a path: one by one with gaps where there is room, else one bar.
function cellPath(x, y, w, h, count) {
  if (count <= 0) return "";
  const one = (left, wide, high) => `M${round(left)} ${round(y)}h${round(wide)}v${round(high)}h${-round(wide)}z`;
  if (w < GAPS) return one(x, Math.max(w * count, 0.5), Math.max(h - (h < GAPS ? 0 : 1), 0.5));
  let out = "";
  for (let i = 0; i < count; i++) out += one(x + i * w, w - 1, h - 1);
  return out;
}
const path = (d, look, r) => (d ? `<path d="${d}" class="${look}"${mark(r)}/>` : "");
const cells = (x, y, w, h, count, look, r) => path(cellPath(x, y, w, h, count), look, r);

// Waste: a grey outline and slanted lines, which run on from cell to cell.
function hatched(x, y, w, h, r) {
  [x, y, w, h] = [x + 0.5, y + 0.5, Math.max(w - 2, 0.5), Math.max(h - 2, 0.5)];
  let lines = "";
  for (let k = Math.ceil((x + y) / SLANT) * SLANT; k < x + y + w + h; k += SLANT) {  // the line x + y = k, cut to the box
    const from = Math.max(x, k - y - h), to = Math.min(x + w, k - y);
    if (to - from > 0.5) lines += `M${round(from)} ${round(k - from)}L${round(to)} ${round(k - to)}`;
  }
  return path(lines, "hatch", r) + box(x, y, w, h, "hatch", r);
}

// Equal neighbours as [value, first, end].
function* runs(values) {
  for (let from = 0, to = 0; from < values.length; from = to) {
    while (to < values.length && values[to] === values[from]) to++;
    yield [values[from], from, to];
  }
}

// Rows have the same height in the timeline and in the cache.
const laneHeight = (rows) => (rows <= 4 ? 26 : rows <= 8 ? 21 : rows <= 16 ? 16 : rows <= 40 ? 13 : 9);
const laneTall = (lane) => lane - (lane > 16 ? 5 : lane > 9 ? 3 : 1);
const short = (words, room) => (words.length * 6.2 <= room ? words : `${words.slice(0, Math.max(1, Math.floor(room / 6.2) - 1))}\u2026`);

// ---- the timeline: a row a request, a column a step; `edges` says where the columns are

function drawTimeline(trace, mode, edges, left, width) {
  const lane = laneHeight(trace.requests.length), tall = laneTall(lane);
  let out = "";
  trace.requests.forEach((request, r) => {
    const y = 4 + r * lane, middle = y + tall / 2;
    if (lane > 9) out += word(left - 8, middle + 4, short(request.name, left - 12), `tag end small h${request.hue}`, r);
    for (const [key, from, to] of runs(mode.states.map((row) => timeKey(row[r])))) {
      if (!key) continue;
      const [kind, share] = key.split(" "), x = edges[from], w = edges[to] - x;
      if (kind === "wait") out += box(x, middle - 1, w, 2, "wait", r);
      else if (kind === "stalled") out += hatched(x, middle - 4, w + 1, 8, r);
      else if (kind === "held") out += hatched(x, y, w + 1, tall + 1, r);
      else {  // filled from below: the useful share of the slots in this row
        const full = Math.max(3, Math.round(share * tall)), look = `${kind} h${request.hue}`;
        if (full < tall) out += hatched(x, y, w + 1, tall - full + 1, r);
        for (const [wide, a, b] of runs(edges.slice(from, to).map((edge, i) => round(edges[from + i + 1] - edge))))
          out += cells(edges[from + a], y + tall - full, wide, full + 1, b - a, look, r);
      }
    }
  });
  const bottom = 4 + trace.requests.length * lane + 2, end = edges[edges.length - 1];
  out += `<path class="axis" d="M${left} ${bottom + 0.5}H${width - 2}"/>`;
  if (end < width - 64) out += `<path class="axis" d="M${round(end)} 0V${bottom + 5}"/>` + word(end + 5, 12, plural(mode.steps.length, "step"), "small");
  out += `<rect id="cursor" class="cursor" y="1" height="${bottom}"/>`;
  const label = `${mode.name}: ${plural(trace.requests.length, "request")} over ${plural(mode.steps.length, "step")}`;
  return { body: out, bottom, label };
}

// Round numbers under the timeline, each in the middle of its step or at its count of slots.
function drawAxis(left, scale, most, bottom, middle, name) {
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((n) => n * scale >= 34) || most;
  const room = 6.5 * name.length + 14;
  let out = word(left + most * scale, bottom + 14, name, "dim small end");
  for (let n = 0; (n + middle) * scale < most * scale - room; n += every) out += word(left + (n + middle) * scale, bottom + 14, number(n), "dim small mid");
  return out;
}

// What a state looks like in the timeline; the same key, the same look.
function timeKey({ kind, role, part }) {
  if (kind === "away" || kind === "done") return "";
  return kind === "run" ? `${role} ${((part.fresh - part.again) / (part.fresh + part.padding)).toFixed(2)}` : kind;
}

// ---- the tokens of the step

function stripLayout(mode, parts, width) {
  if (mode.rectangle) {
    const wide = highest(parts, (p) => p.fresh + p.padding), left = 26;
    const w = Math.min(26, (width - left) / wide), h = Math.max(7, Math.min(26, TALL.strip / parts.length));
    return { left, wide, w, h, unit: 1, note: "", height: parts.length * h + 2 };
  }
  const all = sum(parts, (p) => p.fresh), unit = Math.ceil(all / MOST);
  const count = sum(parts, (p) => Math.ceil(p.fresh / unit));
  let size = 26;
  while (size > 4 && Math.ceil(count / Math.floor(width / size)) * size > TALL.strip) size--;
  const perLine = Math.floor(width / size), lines = Math.ceil(count / perLine);
  const note = unit > 1 ? `Too many tokens for a cell each: one cell stands for up to ${unit}.` : lines > 1 ? `One row, wrapped into ${lines} lines.` : "";
  return { all, unit, perLine, w: size, h: size, note, height: lines * size + 2 };
}

function drawStrip(trace, mode, parts, width) {
  const at = stripLayout(mode, parts, width);
  return mode.rectangle ? drawRectangle(trace, parts, width, at) : drawRow(trace, parts, width, at);
}

function drawRectangle(trace, parts, width, { left, wide, w, h, height }) {
  let out = "";
  parts.forEach((p, i) => {
    const y = i * h, { hue, tag } = trace.requests[p.r];
    out += word(left - 7, y + h / 2 + 4, tag, `tag end small h${hue}`, p.r);
    if (p.padding) out += hatched(left, y, p.padding * w, h, p.r);
    out += drawTokens(trace, p, left + p.padding * w, y, w, h, 0, p.fresh);
  });
  return svg(width, height, out, `a rectangle of ${plural(parts.length, "row")} and ${plural(wide, "column")}`);
}

function drawRow(trace, parts, width, { all, unit, perLine, w, note, height }) {
  let out = "", at = 0;
  for (const p of parts) {
    for (let done = 0; done < p.fresh; ) {
      const take = Math.min(perLine - (at % perLine), Math.ceil((p.fresh - done) / unit));
      out += drawTokens(trace, p, (at % perLine) * w, Math.floor(at / perLine) * w, w, w, done, take, unit);
      done += take * unit;
      at += take;
    }
  }
  return svg(width, height, out, `a row of ${plural(all, "token")}`) + remark(note);
}

// `count` cells of a request's new tokens, from its `first` on: prompt full, generated pale, underlined where one is sampled.
function drawTokens(trace, p, x, y, w, h, first, count, unit = 1) {
  const request = trace.requests[p.r];
  const split = Math.max(0, Math.min(count, Math.ceil((request.prompt - p.start - first) / unit)));
  const again = Math.max(0, Math.min(count, Math.floor((p.again - first) / unit))), fresh = Math.max(split, again);
  let out = again ? cells(x, y, w, h, again, `cached h${request.hue}`, p.r) + hatched(x, y, again * w + 1, h + 1, p.r) : "";
  out += cells(x + again * w, y, w, h, split - again, `full h${request.hue}`, p.r) + cells(x + fresh * w, y, w, h, count - fresh, `pale h${request.hue}`, p.r);
  for (let i = 0; i < count && w >= LETTERS && h >= LETTERS; i++) {
    const given = request.tokens ? request.tokens[p.start + first + i] : undefined;
    const words = given !== undefined && given.trim() && given.length * 6.5 <= w - 2 ? given : request.tag;
    out += word(x + (i + 0.5) * w - 0.5, y + h / 2 + 2.5, words, `mid small ${i < split && i >= again ? `on h${request.hue}` : ""}`, p.r);
  }
  if (p.sampled && first + count * unit >= p.fresh) out += box(x + (count - 1) * w, y + h - (h < 8 ? 2.5 : 4), w - (w < GAPS ? 0 : 1), h < 8 ? 1.5 : 3, "dot", p.r);
  return out;
}

// ---- the mask of the step: a block a request, its queries by its keys

function maskLayout(mode, parts, width) {
  const deepest = highest(parts, (p) => p.start + p.fresh);
  const blocks = parts.map((p) => ({ p, rows: p.fresh + p.padding, cols: mode.rectangle ? deepest : p.start + p.fresh }));
  const Q = sum(blocks, (b) => b.rows), K = sum(blocks, (b) => b.cols), left = 24, top = 14;
  const square = Math.min(22, (width - left - 1) / K, TALL.mask / Q);
  const single = square >= GAPS;  // can cells be seen one by one?
  const w = single ? square : Math.min(22, (width - left - 1) / K), h = single ? square : Math.min(14, TALL.mask / Q);
  const bent = single || Math.max(w / h, h / w) < 1.2 ? "" : ` Cells are ${w > h ? "wider than high" : "higher than wide"}.`;
  const note = single ? "" : `${number(Q)} by ${number(K)} cells, too many to draw one by one: blocks, to scale.${bent}`;
  return { blocks, Q, K, left, top, w, h, single, note, height: top + Q * h + 2 };
}

function drawMask(trace, mode, parts, width) {
  const { blocks, Q, K, left, top, w, h, single, note, height } = maskLayout(mode, parts, width);
  let out = "", x = left, y = top, above = -99, before = -99;
  for (const { p, rows, cols } of blocks) {
    const { hue, tag } = trace.requests[p.r], middle = y + (rows * h) / 2 + 4, centre = x + (cols * w) / 2;
    if (middle - above >= 10) out += word(left - 7, (above = middle), tag, `tag end small h${hue}`, p.r);
    if (centre - before >= 8 * tag.length + 2) out += word((before = centre), 9, tag, `tag mid small h${hue}`, p.r);
    out += drawBlock(p, rows, cols, x, y, w, h, single, `h${hue}`);
    x += cols * w;
    y += rows * h;
  }
  out += box(left - 0.5, top - 0.5, K * w, Q * h, "frame");
  return svg(width, height, out, `a mask of ${plural(Q, "row")} and ${plural(K, "column")}`) + remark(note);
}

// First the keys that were cached, then the new ones, each up to itself; hatched: padding's rows and columns.
function drawBlock(p, rows, cols, x, y, w, h, single, hue) {
  const top = y + p.padding * h, own = p.start + p.fresh, fresh = x + p.start * w;
  let out = p.padding ? hatched(x, y, cols * w + 1, p.padding * h + 1, p.r) : "";
  if (p.fresh && cols > own) out += hatched(x + own * w, top, (cols - own) * w + 1, p.fresh * h + 1, p.r);
  if (!single && p.fresh) {
    let stairs = `M${round(fresh)} ${round(top)}`;
    if (p.fresh > 60) stairs += `L${round(x + own * w)} ${round(top + p.fresh * h)}`;
    else for (let i = 0; i < p.fresh; i++) stairs += `h${round(w)}v${round(h)}`;
    stairs += `L${round(fresh)} ${round(top + p.fresh * h)}Z`;
    if (p.start) out += box(x, top, p.start * w, p.fresh * h, `cached ${hue}`, p.r);
    return out + path(stairs, `full ${hue}`, p.r) + box(x, top, own * w, p.fresh * h, "hair");
  }
  let cached = "", seen = "", hidden = "";
  for (let i = 0; i < p.fresh; i++) {
    const line = top + i * h;
    cached += cellPath(x, line, w, h, p.start);
    seen += cellPath(fresh, line, w, h, i + 1);
    for (let j = i + 1; j < p.fresh; j++) hidden += `M${round(fresh + j * w - 0.5)} ${round(line - 0.5)}h${round(w)}v${round(h)}h${-round(w)}z`;
  }
  return out + path(cached, `cached ${hue}`, p.r) + path(seen, `full ${hue}`, p.r) + path(hidden, "hair", p.r);
}

// ---- the cache: a row a request, its tokens from the left

function drawCache(trace, states, width, longest) {
  const lane = laneHeight(states.length), tall = laneTall(lane), left = 26, w = Math.min(24, (width - left - 1) / longest);
  let out = "";
  states.forEach(({ part, kind, ends }, r) => {
    const { hue, tag } = trace.requests[r], y = r * lane;
    if (lane > 9) out += word(left - 7, y + tall / 2 + 4, tag, `tag end small h${hue}`, r);
    out += box(left, y + tall - 1, longest * w, 1, "line", r);
    if (!part) return;
    out += cells(left, y, w, tall, part.start, `cached h${hue}`, r) + cells(left + part.start * w, y, w, tall, part.fresh, `full h${hue}`, r);
    if (kind === "held") out += hatched(left, y, part.start * w + 1, tall + 1, r);
    const words = kind === "held" ? "held" : ends ? "ends" : "", after = left + (part.start + part.fresh) * w + 6;
    if (words && lane > 9) out += after + 30 < width ? word(after, y + tall / 2 + 4, words, "dim small", r) : word(left + 4, y + tall / 2 + 3, words, "small", r);
  });
  return svg(width, states.length * lane + 2, out, "the cache, a row a request");
}

// ---- what a run comes to: useful slots filled, padding hatched, and a tick at how far it is

function drawTotal(total, done, most, width) {
  const scale = (width - 2) / most, wasted = total.padding + total.again, useful = (total.slots - wasted) * scale;
  const out = box(1, 5, useful, 12, "slate") + (wasted ? hatched(useful + 1, 5, wasted * scale, 13) : "");
  return svg(width, 22, out + (done === null ? "" : box(Math.min(done * scale, width - 2), 0, 2, 22, "dot")), `${number(total.slots)} slots`);
}
