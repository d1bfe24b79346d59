"use strict";
// What is drawn: each function takes plain data and a width in pixels, and returns SVG or HTML as text.
// A shape that belongs to a request carries its row (data-r), so that one request can be followed through all panels.

const GAPS = 5;      // pixels: narrower cells are drawn as one bar
const LETTERS = 13;  // pixels: narrower cells have no letter

const text = (words) => String(words).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const number = (n) => n.toLocaleString("en-GB");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const svg = (w, h, body, label) =>
  `<svg width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" role="img" aria-label="${text(label)}">${body}</svg>`;
const mark = (r) => (r === undefined ? "" : ` data-r="${r}"`);
const box = (x, y, w, h, look, r) =>
  `<rect x="${+x.toFixed(2)}" y="${+y.toFixed(2)}" width="${+Math.max(w, 0.5).toFixed(2)}" height="${+Math.max(h, 0.5).toFixed(2)}" class="${look}"${mark(r)}/>`;
const word = (x, y, words, look, r) => `<text x="${+x.toFixed(1)}" y="${+y.toFixed(1)}" class="${look}"${mark(r)}>${text(words)}</text>`;

// `count` equal cells in a row: one by one with gaps where there is room, else one bar.
function cells(x, y, w, h, count, look, r) {
  if (count <= 0) return "";
  if (w < GAPS) return box(x, y, w * count, Math.max(h - (h < GAPS ? 0 : 1), 0.5), look, r);
  let out = "";
  for (let i = 0; i < count; i++) out += box(x + i * w, y, w - 1, h - 1, look, r);
  return out;
}

// The hatch of padding runs on from cell to cell.
const hatched = (x, y, w, h, r) => box(x + 0.5, y + 0.5, w - 2, h - 2, "pad", r);

const laneHeight = (rows) => (rows <= 4 ? 26 : rows <= 8 ? 21 : rows <= 16 ? 16 : 13);

// ---- the timeline

function drawTimeline(trace, mode, states, width, steps) {
  const lane = laneHeight(trace.requests.length), tall = lane - (lane > 16 ? 5 : 3);
  const left = labelWidth(trace.requests, width), step = (width - left - 2) / steps;
  let out = "";
  trace.requests.forEach((request, r) => {
    const y = 4 + r * lane, middle = y + tall / 2;
    out += word(left - 8, middle + 4, short(request.name, left - 12), `tag end small h${request.hue}`, r);
    for (const [key, from, to] of runs(states.map((row) => timeKey(row[r])))) {
      if (!key) continue;
      const [kind, share] = key.split(" "), x = left + from * step, w = (to - from) * step;
      if (kind === "wait") out += box(x, middle - 1, w, 2, "wait", r);
      else if (kind === "stalled") out += box(x, middle - 3, w, 6, "pad", r);
      else if (kind === "held") out += hatched(x, y, w + 1, tall + 1, r);
      else {
        const full = Math.max(3, Math.round(share * tall));
        if (full < tall) out += hatched(x, y, w + 1, tall - full + 1, r);
        out += cells(x, y + tall - full, step, full + 1, to - from, `${kind} h${request.hue}`, r);
      }
    }
  });
  const bottom = 4 + trace.requests.length * lane + 2;
  out += `<path class="axis" d="M${left} ${bottom + 0.5}H${width - 2}"/>`;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000].find((n) => n * step >= 30) || steps;
  for (let s = 0; s < steps; s += every) out += word(left + (s + 0.5) * step, bottom + 14, s, "dim small mid");
  const end = left + mode.steps.length * step;
  if (mode.steps.length < steps) out += `<path class="axis" d="M${end.toFixed(1)} 0V${bottom + 5}"/>` + word(end + 5, 12, `${plural(mode.steps.length, "step")}`, "small");
  out += `<rect id="cursor" class="cursor" x="${left}" y="1" width="${Math.max(step, 3)}" height="${bottom}"/>`;
  const label = `${mode.name}: ${plural(trace.requests.length, "request")} over ${plural(mode.steps.length, "step")}`;
  return { svg: svg(width, bottom + 20, out, label), left, step };
}

const timeKey = (state) => {
  if (!state || state.kind === "away" || state.kind === "done") return "";
  if (state.part && state.part.fresh) return `${state.role} ${(state.part.fresh / (state.part.fresh + state.part.padding)).toFixed(2)}`;
  return state.kind;
};

const labelWidth = (requests, width) => Math.min(12 + 6.2 * Math.max(...requests.map((one) => one.name.length)), width * 0.3, 150);
const short = (words, room) => (words.length * 6 <= room ? words : `${words.slice(0, Math.max(1, Math.floor(room / 6) - 1))}\u2026`);

function* runs(keys) {
  for (let from = 0, to = 0; from < keys.length; from = to) {
    while (to < keys.length && keys[to] === keys[from]) to++;
    yield [keys[from], from, to];
  }
}

// ---- the tokens of the step

function drawStrip(trace, mode, parts, width) {
  return mode.rectangle ? drawRectangle(trace, parts, width) : drawRow(trace, parts, width);
}

function drawRectangle(trace, parts, width) {
  const wide = Math.max(...parts.map((p) => p.fresh + p.padding)), left = 26;
  const w = Math.min(26, (width - left) / wide), h = Math.max(9, Math.min(26, 190 / parts.length));
  let out = "";
  parts.forEach((p, i) => {
    const y = i * h, { hue, tag, prompt } = trace.requests[p.r];
    out += word(left - 7, y + h / 2 + 4, tag, `tag end small h${hue}`, p.r);
    if (p.padding) out += hatched(left, y, p.padding * w, h, p.r);
    out += tokens(trace, p, left + p.padding * w, y, w, h, 0, p.fresh);
  });
  return svg(width, parts.length * h + 2, out, `a rectangle of ${parts.length} rows and ${plural(wide, "column")}`);
}

// One row of tokens, wrapped. Of very many, one cell stands for several.
function drawRow(trace, parts, width) {
  const all = parts.reduce((sum, p) => sum + p.fresh, 0), most = 2400, unit = Math.ceil(all / most);
  let size = 26;
  while (size > 4 && Math.ceil(all / unit / Math.floor(width / size)) * size > 190) size--;
  const perLine = Math.floor(width / size);
  let out = "", at = 0;
  for (const p of parts) {
    for (let done = 0; done < p.fresh; ) {
      const room = perLine - (at % perLine), take = Math.min(room, Math.ceil((p.fresh - done) / unit));
      const x = (at % perLine) * size, y = Math.floor(at / perLine) * size;
      out += tokens(trace, p, x, y, size, size, done, take, unit);
      done += take * unit;
      at += take;
    }
  }
  const lines = Math.ceil(at / perLine);
  const note = unit > 1 ? `One cell stands for ${unit} tokens.` : lines > 1 ? `One row, wrapped into ${lines} lines.` : "";
  return svg(width, lines * size + (note ? 20 : 2), out + (note ? word(0, lines * size + 14, note, "dim small") : ""), `a row of ${plural(all, "token")}`);
}

// The new tokens of one request, from `first` on: prompt in full, generated pale, a dot where a token is sampled.
function tokens(trace, p, x, y, w, h, first, count, unit = 1) {
  const request = trace.requests[p.r], split = Math.max(0, Math.min(count, Math.ceil((request.prompt - p.start - first) / unit)));
  let out = cells(x, y, w, h, split, `full h${request.hue}`, p.r) + cells(x + split * w, y, w, h, count - split, `pale h${request.hue}`, p.r);
  for (let i = 0; i < count && w >= LETTERS && h >= LETTERS; i++) {
    const given = request.tokens && request.tokens[p.start + first + i];
    const words = given !== undefined && given.length * 6 <= w - 3 ? given : request.tag;
    out += word(x + (i + 0.5) * w - 0.5, y + h / 2 + 3.5, words, `mid small h${request.hue} ${i < split ? "on" : ""}`, p.r);
  }
  if (p.sampled && unit === 1 && first + count === p.fresh && w >= 8 && h >= 8) out += `<circle class="dot" cx="${x + (count - 0.5) * w - 0.5}" cy="${y + h - 4}" r="1.8"/>`;
  return out;
}

// ---- the mask of the step

function drawMask(trace, mode, frame, width) {
  const deepest = Math.max(...frame.parts.map((p) => p.start + p.fresh));
  const blocks = frame.parts.map((p) => ({ p, rows: p.fresh + p.padding, cols: mode.rectangle ? deepest : p.start + p.fresh }));
  const Q = blocks.reduce((sum, b) => sum + b.rows, 0), K = blocks.reduce((sum, b) => sum + b.cols, 0);
  const left = 22, square = Math.min(22, (width - left - 1) / K, 240 / Q);
  const single = square >= GAPS;  // can cells be seen one by one?
  const w = single ? square : (width - left - 1) / K, h = single ? square : Math.min(14, 240 / Q);
  let out = "", x = left, y = 14, labelled = -99;
  for (const { p, rows, cols } of blocks) {
    const { hue, tag } = trace.requests[p.r];
    const middle = y + (rows * h) / 2 + 4;
    if (middle - labelled >= 10) {
      out += word(left - 7, middle, tag, `tag end small h${hue}`, p.r);
      labelled = middle;
    }
    if (cols * w > 9) out += word(x + (cols * w) / 2, 9, tag, `tag mid small h${hue}`, p.r);
    out += block(p, rows, cols, x, y, w, h, single, `h${hue}`);
    x += cols * w;
    y += rows * h;
  }
  out += box(left - 0.5, 13.5, K * w, Q * h, "hair");
  const wide = w / h > 1.2 || h / w > 1.2 ? " Cells are not square." : "";
  const note = single ? "" : `${number(Q)} by ${number(K)} cells are too many to draw one by one: blocks, to scale.${wide}`;
  return svg(width, y + (note ? 22 : 4), out + (note ? word(left, y + 16, note, "dim small") : ""), `mask of ${Q} rows by ${K} columns`);
}

// One request's queries (rows) on its keys (columns): first what was cached, then the new ones, each up to itself.
function block(p, rows, cols, x, y, w, h, single, hue) {
  const top = y + p.padding * h, own = p.start + p.fresh;
  let out = "";
  if (p.padding) out += hatched(x, y, cols * w, p.padding * h, p.r);
  if (!p.fresh) return out;
  if (cols > own) out += hatched(x + own * w, top, (cols - own) * w, p.fresh * h, p.r);
  if (!single) {
    let stairs = `M${x + p.start * w} ${top}`;
    for (let i = 0; i < p.fresh && p.fresh <= 60; i++) stairs += `h${w}v${h}`;
    if (p.fresh > 60) stairs += `L${x + own * w} ${top + p.fresh * h}`;
    stairs += `L${x + p.start * w} ${top + p.fresh * h}Z`;
    return out + box(x, top, p.start * w, p.fresh * h, `cached ${hue}`, p.r) + `<path class="full ${hue}"${mark(p.r)} d="${stairs}"/>` + box(x, top, own * w, p.fresh * h, "hair");
  }
  for (let i = 0; i < p.fresh; i++) {
    out += cells(x, top + i * h, w, h, p.start, `cached ${hue}`, p.r) + cells(x + p.start * w, top + i * h, w, h, i + 1, `full ${hue}`, p.r);
    for (let j = i + 1; j < p.fresh; j++) out += box(x + (p.start + j) * w, top + i * h, w - 1, h - 1, "hair");
  }
  return out;
}

// ---- the cache

function drawCache(trace, states, width, longest) {
  const lane = laneHeight(trace.requests.length), tall = lane - (lane > 16 ? 5 : 3), left = 26;
  const w = Math.min(24, (width - left - 1) / longest);
  let out = "";
  states.forEach((state, r) => {
    const { hue, tag } = trace.requests[r], y = r * lane, p = state.part;
    out += word(left - 7, y + tall / 2 + 4, tag, `tag end small h${hue}`, r);
    out += box(left, y + tall - 1, longest * w, 0.5, "wait", r);
    if (!p) return;
    out += cells(left, y, w, tall, p.start, `cached h${hue}`, r) + cells(left + p.start * w, y, w, tall, p.fresh, `full h${hue}`, r);
    if (state.kind === "held") out += hatched(left, y, p.start * w + 1, tall, r);
    const after = left + (p.start + p.fresh) * w + 6;
    const words = state.kind === "held" ? "held" : state.ends ? "done" : "";
    if (words) out += after + 30 < width ? word(after, y + tall / 2 + 4, words, "dim small", r) : word(left + 4, y + tall / 2 + 4, words, "small", r);
  });
  return svg(width, states.length * lane + 2, out, "the cache: a row a request, its tokens from the left");
}
