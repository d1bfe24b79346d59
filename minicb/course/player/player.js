// What happens: which run and which step is shown, and everything that changes it.

const trace = JSON.parse(document.getElementById("trace").textContent);
const $ = (id) => document.getElementById(id);
const INSIDE = location.protocol === "about:";  // in a notebook's frame there is no address of its own
const CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;
const EMPTY = { parts: [], waiting: [], held: [], stalled: [], finished: [], slots: 0, useful: 0, reused: 0, cells: 0, seen: 0, kept: 0 };

for (const mode of trace.modes) {
  mode.steps = mode.steps.map((step) => ({ ...EMPTY, ...step }));
  for (const step of mode.steps) step.parts = step.parts.map(([r, start, fresh, padding, sampled]) => ({ r, start, fresh, padding, sampled }));
  mode.states = statesOf(mode);
}
const longestRun = Math.max(...trace.modes.map((mode) => mode.steps.length));
const longestText = Math.max(1, ...trace.modes.flatMap((mode) => mode.steps.flatMap((step) => step.parts.map((p) => p.start + p.fresh))));
const now = { mode: 0, step: 0, pick: null };
let timer = 0, place = null, drawn = "";

// For each step, what each request is doing: [{kind, role, part, ends, waited, wrote}].
function statesOf(mode) {
  const met = trace.requests.map(() => ({ seen: false, over: false, waited: 0, wrote: 0 }));
  return mode.steps.map((step) => {
    const parts = new Map(step.parts.map((p) => [p.r, p])), ends = new Map(step.finished);
    const waiting = new Set(step.waiting), held = new Set(step.held), stalled = new Set(step.stalled);
    return met.map((one, r) => {
      const part = parts.get(r);
      if (waiting.has(r)) one.waited++;
      if (part && part.sampled) one.wrote++;
      if (part || waiting.has(r)) one.seen = true;
      if (part && part.fresh) one.over = false;  // a name may be used again
      const kind = held.has(r) ? "held" : part ? "run" : stalled.has(r) ? "stalled" : waiting.has(r) ? "wait" : one.over || ends.has(r) ? "done" : "away";
      if (ends.has(r)) one.over = true;
      const role = part && part.start < trace.requests[r].prompt ? "full" : "pale";
      return { kind, role, part, ends: ends.get(r), waited: one.waited, wrote: one.wrote };
    });
  });
}

// ---- showing

function show() {
  const mode = trace.modes[now.mode], step = mode.steps[now.step], states = mode.states[now.step];
  const width = $("timeline").clientWidth, inner = $("strip").clientWidth;
  if (drawn !== `${now.mode} ${width}`) {
    place = drawTimeline(trace, mode, mode.states, width, longestRun);
    $("timeline").innerHTML = place.svg;
    $("scrub").max = mode.steps.length - 1;
    // The thumb's middle stands under its column.
    $("scrub").style.marginLeft = `${place.left + place.step / 2 - 8}px`;
    $("scrub").style.width = `${Math.max(24, (mode.steps.length - 1) * place.step + 16)}px`;
    document.querySelectorAll("#runs tbody tr").forEach((row, i) => {
      row.classList.toggle("now", i === now.mode);
      row.querySelector("button").setAttribute("aria-pressed", i === now.mode);
    });
    drawn = `${now.mode} ${width}`;
  }
  $("cursor").setAttribute("x", place.left + now.step * place.step - 0.5);
  $("scrub").value = now.step;
  $("scrub").setAttribute("aria-valuetext", `step ${now.step}: ${step.say}`);
  $("say").innerHTML = `<b>${text(mode.name)}, step ${now.step}</b> of ${mode.steps.length - 1}. ${text(step.say)}`;
  for (const [go, off] of [["first", now.step === 0], ["back", now.step === 0], ["on", now.step === mode.steps.length - 1], ["last", now.step === mode.steps.length - 1]])
    document.querySelector(`[data-go=${go}]`).disabled = off;
  showQueue(states, step);
  const wasted = step.slots - step.useful;
  $("strip-count").textContent = mode.rectangle
    ? `${step.parts.length} rows of ${step.slots / step.parts.length}: ${number(step.slots)} slots, ${number(wasted)} of them padding`
    : `one ragged row: ${plural(step.slots, "slot")}, ${wasted ? number(wasted) : "no"} padding`;
  $("strip").innerHTML = drawStrip(trace, mode, step.parts, inner);
  $("mask-count").textContent = `${plural(step.cells, "score")} computed per head and layer, ${number(step.seen)} seen through the mask`;
  $("mask").innerHTML = drawMask(trace, mode, step, inner);
  $("cache-count").textContent = `reads ${number(step.reused)}, writes ${number(step.useful)}, keeps ${number(step.kept)} of ${number(mode.capacity)} places`;
  $("cache").innerHTML = drawCache(trace, states, inner, longestText);
}

function showQueue(states, step) {
  const count = (...kinds) => states.filter((one) => kinds.includes(one.kind)).length;
  $("queue-count").textContent = `${count("wait", "stalled")} waiting, ${count("run")} running, ${count("done", "held")} done` + (step.held.length ? `, of them ${step.held.length} held in the batch` : "");
  document.querySelectorAll("#queue button").forEach((chip, r) => {
    chip.className = `h${trace.requests[r].hue} ${states[r].kind}`;
    chip.querySelector("span").textContent = doing(states[r], trace.requests[r]);
    chip.setAttribute("aria-pressed", now.pick === r);
  });
}

function doing(state, request) {
  if (state.kind === "away") return "not here yet";
  if (state.kind === "wait" || state.kind === "stalled") return `${state.kind === "wait" ? "waits" : "stalled"}, step ${state.waited}`;
  if (state.kind === "held") return "done, but held";
  if (state.kind === "done") return state.ends ? `ended (${state.ends})` : `done, wrote ${state.wrote}`;
  const { start, fresh } = state.part;
  if (start < request.prompt && start + fresh < request.prompt) return `reads ${start + fresh} of ${request.prompt}`;
  return `writes token ${state.wrote}` + (state.ends ? ", ends" : "");
}

// Follow one request: everything that is another's fades.
function pick(r) {
  now.pick = r;
  $("pick").textContent = r === null ? "" : `svg [data-r]:not([data-r="${r}"]) { opacity: .18 }`;
  showQueue(trace.modes[now.mode].states[now.step], trace.modes[now.mode].steps[now.step]);
}

// ---- moving, and the address that remembers it

const slug = (name) => encodeURIComponent(name.replace(/[^\p{L}\p{N}]+/gu, "-"));

function go(mode, step, jump = false) {
  now.mode = mode;
  now.step = Math.max(0, Math.min(step, trace.modes[mode].steps.length - 1));
  show();
  if (INSIDE) return;
  try {  // a jump can be taken back with the browser's button; single steps do not fill its history
    history[jump ? "pushState" : "replaceState"](null, "", `#${slug(trace.modes[now.mode].name)}/${now.step}`);
  } catch { /* a browser that limits this may do so */ }
}

function fromAddress() {
  const [name, step] = location.hash.slice(1).split("/");
  const mode = Math.max(0, trace.modes.findIndex((one) => slug(one.name) === name));
  now.mode = mode;
  now.step = Math.max(0, Math.min(parseInt(step, 10) || 0, trace.modes[mode].steps.length - 1));
  show();
}

function play(on) {
  clearInterval(timer);
  const last = trace.modes[now.mode].steps.length - 1;
  timer = on ? setInterval(() => { if (now.step < trace.modes[now.mode].steps.length - 1) go(now.mode, now.step + 1); else play(false); }, CALM ? 1200 : Math.max(140, Math.min(900, 24000 / longestRun))) : 0;
  if (on && now.step === last) go(now.mode, 0, true);
  document.querySelector("[data-go=play]").textContent = on ? "Pause" : "Play";
  $("say").setAttribute("aria-live", on ? "off" : "polite");  // no reader keeps up with a film
}

const moves = {
  first: () => go(now.mode, 0, true),
  back: () => go(now.mode, now.step - 1),
  on: () => go(now.mode, now.step + 1),
  last: () => go(now.mode, Infinity, true),
  play: () => play(!timer),
};
const keys = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last", " ": "play" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const digit = Number(event.key);
  if (event.key === " " && event.target.matches("button, summary")) return;  // there a space presses it
  if (keys[event.key]) {
    event.preventDefault();
    if (event.key !== " ") play(false);
    moves[keys[event.key]]();
  } else if (digit >= 1 && digit <= trace.modes.length) go(digit - 1, now.step, true);
  else if (event.key === "Escape") pick(null);
});
$("controls").addEventListener("click", (event) => {
  const name = event.target.dataset.go;
  if (name && name !== "play") play(false);
  if (name) moves[name]();
});
$("scrub").addEventListener("input", (event) => { play(false); go(now.mode, Number(event.target.value)); });
for (const kind of ["pointerdown", "pointermove"]) {
  $("timeline").addEventListener(kind, (event) => {
    if (kind === "pointermove" && !(event.buttons & 1)) return;
    play(false);
    const at = Math.floor((event.clientX - $("timeline").getBoundingClientRect().left - place.left) / place.step);
    if (at !== now.step) go(now.mode, at, kind === "pointerdown");
  });
}
addEventListener("popstate", fromAddress);
addEventListener("hashchange", fromAddress);
new ResizeObserver(() => { if (place && drawn !== `${now.mode} ${$("timeline").clientWidth}`) show(); }).observe($("timeline"));

// ---- the parts of the page that never change

const ways = trace.modes.length === 1 ? "" : `, served in ${trace.modes.length} ways. Same arrivals, same prompts; only who is computed when differs`;
$("about").textContent = `${plural(trace.requests.length, "request")}${ways}.` + trace.notes.map((note) => ` Note: ${note}`).join("");
$("keys").textContent = `keys: \u2190 \u2192 step, Home, End, space${trace.modes.length > 1 ? `, 1 to ${Math.min(9, trace.modes.length)} switch the run` : ""}`;
document.querySelector("#runs tbody").innerHTML = trace.modes.map((mode, i) => {
  const t = mode.total;
  return `<tr><th scope="row"><button type="button">${text(mode.name)}${trace.modes.length > 1 ? `<kbd>${i + 1}</kbd>` : ""}</button></th>` +
    [t.steps, t.slots, t.padding, t.held, t.stalled, t.gap].map((n) => `<td>${number(n)}</td>`).join("") + "</tr>";
}).join("");
document.querySelectorAll("#runs button").forEach((button, i) => button.addEventListener("click", () => go(i, now.step, true)));
$("queue").innerHTML = trace.requests.map((one) => {
  const about = one.text ? one.text : one.name === one.tag ? plural(one.prompt, "token") : `${one.name}, ${plural(one.prompt, "token")}`;
  return `<li><button type="button"><b>${text(one.tag)}</b> <span></span><small title="${text(about)}">${text(about)}</small></button></li>`;
}).join("");
document.querySelectorAll("#queue button").forEach((chip, r) => chip.addEventListener("click", () => pick(now.pick === r ? null : r)));
document.head.append(Object.assign(document.createElement("style"), { id: "pick" }));
fromAddress();
