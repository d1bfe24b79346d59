// What happens: which run and which step is shown, and everything that changes it.

const trace = JSON.parse(document.getElementById("trace").textContent);
const $ = (id) => document.getElementById(id);
const all = (selector) => document.querySelectorAll(selector);
const INSIDE = location.protocol === "about:";  // in a notebook's frame there is no address of its own
const CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;
const EMPTY = { parts: [], waiting: [], held: [], stalled: [], finished: [], slots: 0, useful: 0, reused: 0, cells: 0, seen: 0, kept: 0 };

for (const mode of trace.modes) {
  mode.steps = mode.steps.map((step) => ({
    ...EMPTY, ...step, parts: (step.parts || []).map(([r, start, fresh, padding, sampled, again]) => ({ r, start, fresh, padding, sampled, again })),
  }));
  mode.slots = [0];  // computed before each step
  for (const step of mode.steps) mode.slots.push(mode.slots[mode.slots.length - 1] + step.slots);
  mode.states = statesOf(mode);
}
const most = {
  steps: highest(trace.modes, (mode) => mode.steps.length),
  slots: highest(trace.modes, (mode) => mode.total.slots),
  tokens: highest(trace.modes, (mode) => highest(mode.steps, (step) => highest(step.parts, (p) => p.start + p.fresh))),
};
const now = { mode: 0, step: 0, wide: false, pick: null };  // wide: columns as wide as their slots
let timer = 0, drawn = "", left = 0, edges = [];

// For each step, what each request is doing.
function statesOf(mode) {
  const met = trace.requests.map(() => ({ over: false, waited: 0, wrote: 0 }));
  return mode.steps.map((step) => {
    const parts = new Map(step.parts.map((p) => [p.r, p])), ends = new Map(step.finished);
    return met.map((one, r) => {
      const part = parts.get(r);
      if (part && part.fresh) one.over = false;  // a name may be used again
      if (part && part.sampled) one.wrote++;
      let kind = one.over || ends.has(r) ? "done" : "away";
      if (step.waiting.includes(r)) {
        kind = step.stalled.includes(r) ? "stalled" : "wait";
        one.waited++;
      }
      if (part) kind = step.held.includes(r) ? "held" : "run";
      if (ends.has(r)) one.over = true;
      const role = part && part.start + part.again < trace.requests[r].prompt ? "full" : "pale";
      return { kind, role, part, ends: ends.get(r), waited: one.waited, wrote: one.wrote };
    });
  });
}

// ---- showing

function show() {
  const mode = trace.modes[now.mode], step = mode.steps[now.step], states = mode.states[now.step];
  const width = $("timeline").clientWidth, inner = $("strip").clientWidth, look = `${now.mode} ${now.wide} ${width} ${inner}`;
  if (inner < 60) return;  // the page is not laid out yet: the observer below comes back
  if (drawn !== look) showRun(mode, width, inner);
  drawn = look;
  $("cursor").setAttribute("x", edges[now.step] - 0.5);
  $("cursor").setAttribute("width", Math.max(edges[now.step + 1] - edges[now.step], 3));
  $("scrub").value = now.step;
  $("scrub").setAttribute("aria-valuetext", `step ${now.step}: ${step.say}`);
  $("say").innerHTML = spoken(mode, now.step);
  const last = now.step === mode.steps.length - 1;
  for (const [name, off] of [["first", now.step === 0], ["back", now.step === 0], ["on", last], ["last", last]]) button(name).setAttribute("aria-disabled", off);
  all("#runs td.sofar").forEach((cell, i) => { cell.innerHTML = drawTotal(trace.modes[i].total, i === now.mode ? mode.slots[now.step + 1] : null, most.slots, 220); });
  showQueue();
  const wasted = step.slots - step.useful, sampled = sum(step.parts, (p) => p.sampled);
  const shape = mode.rectangle ? `a rectangle of ${step.parts.length} by ${step.slots / step.parts.length}` : "one ragged row";
  $("strip-count").textContent = `${shape}: ${plural(step.slots, "slot")}, ${wasted ? number(wasted) : "no"} padding, ${number(sampled)} sampled`;
  $("strip").innerHTML = drawStrip(trace, mode, step.parts, inner);
  $("mask-count").textContent = `${plural(step.cells, "score")} computed in each head and layer, ${number(step.seen)} pass the mask`;
  $("mask").innerHTML = drawMask(trace, mode, step.parts, inner);
  const held = sum(step.parts, (p) => (step.held.includes(p.r) ? p.start : 0));
  $("cache-count").textContent = `${plural(step.reused, "token")} read, ${number(step.useful)} written; ${number(step.kept)} of ${number(mode.capacity)} places filled${held ? `, ${number(held)} of them held` : ""}`;
  $("cache").innerHTML = drawCache(trace, states, inner, most.tokens);
}

const spoken = (mode, number) => `<b>${text(mode.name)}, step ${number}.</b> ${text(mode.steps[number].say)}`;

// Everything that stays as it is from step to step.
function showRun(mode, width, inner) {
  left = Math.round(Math.min(14 + 6.2 * highest(trace.requests, (one) => one.name.length), width * 0.28, 150));
  const scale = (width - left - 2) / (now.wide ? most.slots : most.steps);
  edges = (now.wide ? mode.slots : [...mode.steps.keys(), mode.steps.length]).map((n) => left + n * scale);
  const { body, bottom, label } = drawTimeline(trace, mode, edges, left, width);
  const axis = drawAxis(left, scale, now.wide ? most.slots : most.steps, bottom, now.wide ? 0 : 0.5, now.wide ? "token slots" : "steps");
  $("timeline").innerHTML = svg(width, bottom + 20, body + axis, label);
  const first = (edges[0] + edges[1]) / 2, end = (edges[mode.steps.length - 1] + edges[mode.steps.length]) / 2;
  Object.assign($("scrub"), { max: mode.steps.length - 1, disabled: mode.steps.length === 1 });
  Object.assign($("scrub").style, { marginLeft: `${first - 8}px`, width: `${Math.max(40, end - first + 16)}px` });
  button("wide").setAttribute("aria-pressed", now.wide);
  all("#runs tbody tr").forEach((row, i) => {
    row.classList.toggle("now", i === now.mode);
    row.querySelector("button").setAttribute("aria-pressed", i === now.mode);
  });
  // As high as the highest step of any run, so that nothing below moves.
  const longest = trace.modes.flatMap((one) => one.steps.map((_, i) => spoken(one, i))).reduce((a, b) => (b.length > a.length ? b : a));
  Object.assign($("say"), { innerHTML: longest, style: "" });
  $("say").style.minHeight = `${$("say").offsetHeight}px`;
  for (const [name, layout] of [["strip", stripLayout], ["mask", maskLayout]])
    $(name).style.minHeight = `${highest(trace.modes, (one) => highest(one.steps, (step) => layout(one, step.parts, inner).height)) + 24}px`;
}

function showQueue() {
  const mode = trace.modes[now.mode], states = mode.states[now.step];
  const count = (...kinds) => states.filter((one) => kinds.includes(one.kind)).length;
  const held = count("held"), stalled = count("stalled");
  $("queue-count").textContent = `${count("wait", "stalled")} waiting${stalled ? ` (${stalled} stalled)` : ""}, ${count("run")} running, ${count("done", "held")} done${held ? ` (${held} held)` : ""}`;
  all("#queue button").forEach((chip, r) => {
    chip.className = `h${trace.requests[r].hue} ${states[r].kind === "run" ? states[r].role : states[r].kind}`;
    chip.querySelector("span").textContent = doing(states[r], trace.requests[r]);
    chip.setAttribute("aria-pressed", now.pick === r);
  });
}

function doing({ kind, part, ends, waited, wrote }, request) {
  if (kind === "away") return "not here yet";
  if (kind === "wait") return `waits: ${plural(waited, "step")}`;
  if (kind === "stalled") return `stalled: ${plural(waited, "step")}`;
  if (kind === "held") return "done but held";
  if (kind === "done") return ends ? `ends: ${ends}` : `done, wrote ${wrote}`;
  const end = part.start + part.fresh;
  return !part.sampled ? `reads ${end} of ${request.prompt}` : ends ? `wrote ${wrote}, ends` : `writes token ${wrote}`;
}

// Follow one request: what is another's fades.
function pick(r) {
  now.pick = r;
  $("pick").textContent = r === null ? "" : `svg [data-r]:not([data-r="${r}"]) { opacity: .18 }`;
  showQueue();
}

// ---- moving, and the address that remembers where

const slug = (name) => encodeURIComponent(name.replace(/[^\p{L}\p{N}]+/gu, "-"));
const lastStep = () => trace.modes[now.mode].steps.length - 1;
const button = (name) => document.querySelector(`[data-go=${name}]`);

function go(mode, step, jump = false) {
  now.mode = mode;
  now.step = Math.max(0, Math.min(step, lastStep()));
  show();
  if (INSIDE) return;
  try {  // a jump can be taken back with the browser's button; single steps do not fill its history
    const address = `#${slug(trace.modes[now.mode].name)}/${now.step}${now.wide ? "/slots" : ""}`;
    if (address !== location.hash) history[jump ? "pushState" : "replaceState"](null, "", address);
  } catch { /* some browsers limit how often */ }
}

function fromAddress() {
  const [name, step, wide] = location.hash.slice(1).split("/");
  now.mode = Math.max(0, trace.modes.findIndex((one) => slug(one.name) === name));
  now.step = Math.max(0, Math.min(parseInt(step, 10) || 0, lastStep()));
  now.wide = wide === "slots";
  show();
}

function play(on) {
  clearInterval(timer);
  if (on && now.step === lastStep()) go(now.mode, 0, true);
  const pause = CALM ? 1200 : Math.max(140, Math.min(900, 24000 / most.steps));
  timer = on ? setInterval(() => (now.step < lastStep() ? moves.on() : play(false)), pause) : 0;
  button("play").textContent = on ? "Pause" : "Play";
  $("say").setAttribute("aria-live", on ? "off" : "polite");  // nobody can listen as fast as a film runs
}

const moves = {
  first: () => go(now.mode, 0, true),
  back: () => go(now.mode, now.step - 1),
  on: () => go(now.mode, now.step + 1),
  last: () => go(now.mode, Infinity, true),
  play: () => play(!timer),
  wide: () => { now.wide = !now.wide; go(now.mode, now.step); },
};
const keys = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last", " ": "play", w: "wide" };
const move = (name) => {
  if (name !== "play" && name !== "wide") play(false);
  moves[name]();
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && event.target.matches("button, summary")) return;  // there it presses what has the focus
  const digit = Number(event.key);
  if (keys[event.key]) {
    event.preventDefault();
    move(keys[event.key]);
  } else if (digit >= 1 && digit <= trace.modes.length) go(digit - 1, now.step, true);
  else if (event.key === "Escape") pick(null);
});
$("controls").addEventListener("click", ({ target }) => { if (target.dataset.go) move(target.dataset.go); });
$("scrub").addEventListener("input", ({ target }) => { play(false); go(now.mode, Number(target.value)); });
for (const kind of ["pointerdown", "pointermove"]) {
  $("timeline").addEventListener(kind, (event) => {
    if (kind === "pointermove" && !(event.buttons & 1)) return;
    play(false);
    const x = event.clientX - $("timeline").getBoundingClientRect().left, after = edges.findIndex((edge) => edge > x);
    const at = after < 0 ? lastStep() : Math.max(0, after - 1);
    if (at !== now.step) go(now.mode, at, kind === "pointerdown");
  });
}
addEventListener("popstate", fromAddress);
addEventListener("hashchange", fromAddress);

// ---- the parts of the page that never change

document.body.classList.toggle("plain", !trace.modes.some((mode) => mode.total.again));
const several = trace.modes.length > 1;
$("about").textContent = plural(trace.requests.length, "request") +
  (several ? `, the same in each of ${trace.modes.length} runs: same arrivals, same prompts. Only who is computed when differs.` : ".") +
  trace.notes.map((note) => ` Note: ${note}`).join("");
$("keys").textContent = `keys: \u2190 \u2192, Home, End, space, w${several ? `, 1 to ${Math.min(9, trace.modes.length)}` : ""}`;
document.querySelector("#runs tbody").innerHTML = trace.modes.map(({ name, total: t }, i) =>
  `<tr><th scope="row"><button type="button">${text(name)}${several ? `<kbd>${i + 1}</kbd>` : ""}</button></th>` +
  [[t.steps], [t.slots], [t.padding], [t.held, "more"], [t.stalled, "more"], [t.again, "again"], [t.mean_wait], [t.longest_wait], [t.gap]]
    .map(([n, look = ""]) => `<td class="${look}">${number(n)}</td>`).join("") + `<td class="sofar"></td></tr>`).join("");
all("#runs button").forEach((one, i) => one.addEventListener("click", () => go(i, now.step, true)));
$("queue").innerHTML = trace.requests.map((one) => {
  const about = [one.name === one.tag ? "" : one.name, one.text ? one.text : `prompt of ${number(one.prompt)}`].filter(Boolean).join(": ");
  return `<li><button type="button"><i></i><b>${text(one.tag)}</b> <span></span><small title="${text(about)}">${text(about)}</small></button></li>`;
}).join("");
all("#queue button").forEach((chip, r) => chip.addEventListener("click", () => pick(now.pick === r ? null : r)));
document.head.append(Object.assign(document.createElement("style"), { id: "pick" }));
fromAddress();
new ResizeObserver(show).observe($("timeline"));
