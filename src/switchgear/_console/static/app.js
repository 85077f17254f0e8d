// The console. Everything shown is text from the API; nothing is ever inserted as HTML.
import { html, render, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { Lines, TaskGraph, Timeline } from "./charts.js";
import { ago, clock, dollars, path, percent, perMinute, plural, sentence, span, stateOf, withClocks, words } from "./format.js";

const TABS = [["/", "Now", "n"], ["/circuits", "Circuits", "c"], ["/sessions", "Sessions", "s"], ["/runs", "Runs", "r"],
  ["/batch", "Batches", "b"], ["/fleet", "Fleet", "f"], ["/incidents", "Incidents", "i"]];
const SHOWN = 200;

// State: one object, replaced as a whole; views are drawn again at most once per frame.
const store = {
  circuits: new Map(), now: null, role: null, error: "", connected: false, why: "", dialog: null, notice: null,
  skew_s: 0, heats: new Map(), newest: [], recent: [], version: 0,
};
const listeners = new Set();
let planned = false;
function changed() {
  store.version += 1;
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; for (const listener of listeners) listener(store.version); });
}
function useStore() {
  const [, set] = useState(0);
  useEffect(() => { listeners.add(set); return () => listeners.delete(set); }, []);
  return store;
}
const nowS = () => Date.now() / 1000 + store.skew_s;
function useTick(ms = 1000) {
  const [, set] = useState(0);
  useEffect(() => { const timer = setInterval(() => set((count) => count + 1), ms); return () => clearInterval(timer); }, []);
}

// Data

function keep(row) {
  row.seen_at_s = nowS();
  store.circuits.set(row.name, row);
  const heats = store.heats.get(row.name);
  if (heats) { heats[0].push(row.seen_at_s); heats[1].push((row.heat || 0) * 100); }
}
const waitOf = (row) => row.retry_after_s == null ? null : Math.max(0, row.retry_after_s - (nowS() - row.seen_at_s));

async function loadCircuits() {
  const before = [...store.circuits.keys()], { circuits } = await api.get("/v1/circuits");
  const listed = new Set(circuits.map((row) => row.name));
  for (const name of before) if (!listed.has(name)) store.circuits.delete(name);
  // What the stream has reported meanwhile may be newer than the answer.
  for (const row of circuits) if (!(store.circuits.get(row.name)?.version > row.version)) keep(row);
  changed();
}

let asking = null, again = false;
async function loadNow() {
  if (asking) { again = true; return; }
  asking = (async () => {
    try {
      const began_s = nowS(), found = await api.get("/v1/now");
      store.skew_s = found.at_s - Date.now() / 1000;
      for (const item of found.attention) item.seen_at_s = found.at_s;
      store.now = found;
      store.error = found.problem;
      // What the stream has reported meanwhile may be newer than the answer.
      for (const row of store.recent) if (row.seen_at_s >= began_s - 1) patch(row);
      store.recent = store.recent.filter((row) => row.seen_at_s >= began_s - 1);
    } catch (error) { store.error = error.message; }
    changed();
  })();
  await asking;
  asking = null;
  if (again) { again = false; setTimeout(loadNow, 200); }
}

async function begin() {
  if (!api.token()) { store.role = null; changed(); return; }
  try {
    store.role = (await api.get("/v1/role")).role;
  } catch (error) {
    if (error.status === 401) api.signOut();
    store.role = null; store.error = error.status === 401 ? "This token is not valid here." : error.message;
    changed();
    return;
  }
  store.error = "";
  changed();
  await Promise.all([loadCircuits(), loadNow()]);
  const timer = setInterval(loadNow, 5000);
  let connections = 0;
  api.follow(onMessages, (connected, why, status) => {
    if (connected && !store.connected) {
      loadNow();
      // The stream sends the events that were missed, but not the circuits that changed without one.
      if (connections++) loadCircuits().catch((error) => { store.error = error.message; changed(); });
    }
    store.connected = connected; store.why = why;
    if (status === 401) { clearInterval(timer); api.signOut(); store.role = null; store.error = "This token is no longer valid."; }
    changed();
  });
}

function onMessages(messages) {
  let must = false;
  for (const { event, data } of messages) {
    if (event === "circuit") { keep(data); patch(data); store.recent.push(data); }
    else if (event === "removed") { store.circuits.delete(data.name); patch({ name: data.name, attention: null }); }
    else if (event === "reset" || event === "gap") must = true;
    else if (event === "event") { store.newest = [data, ...store.newest].slice(0, 100); must = true; }
  }
  if (must) loadNow();
  changed();
}

// An update of a circuit may contain an item of *Now*, which is shown at once, before the list is loaded.
function patch(row) {
  if (!store.now || row.name.startsWith("loop/")) return;
  const others = store.now.attention.filter((item) => item.kind !== "circuit" || item.name !== row.name);
  if (row.attention) others.push({ ...row.attention, seen_at_s: nowS() });
  others.sort((one, two) => one.rank - two.rank || (two.since_s || 0) - (one.since_s || 0) || (one.name < two.name ? -1 : 1));
  store.now = { ...store.now, attention: others };
}

function useData(url, dependencies = [], every = 0) {
  const [found, set] = useState({ data: null, error: "" });
  const load = async () => {
    try { set({ data: await api.get(url), error: "" }); } catch (error) { set((last) => ({ data: last.data, error: error.message })); }
  };
  useEffect(() => {
    set({ data: null, error: "" });
    load();
    if (!every) return undefined;
    const timer = setInterval(load, every);
    return () => clearInterval(timer);
  }, [url, ...dependencies]);
  return { ...found, load };
}

// Addresses

function go(to) { history.pushState(null, "", to); scrollTo(0, 0); changed(); focusMain(); }
function focusMain() { requestAnimationFrame(() => { const place = document.querySelector("main"); if (place) place.focus({ preventScroll: true }); }); }
addEventListener("popstate", changed);
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button || link.target) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
const query = () => new URLSearchParams(location.search);
const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
function setQuery(name, value) {
  const all = query();
  if (value) all.set(name, value); else all.delete(name);
  const text = all.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  changed();
}

// Parts

const Badge = ({ state }) => html`<span class=${`badge ${String(state).replaceAll(" ", "-")} ${String(state).replaceAll("-", "_").replaceAll(" ", "_")}`}>${words(state)}</span>`;
const Name = ({ kind, name }) => html`<a class="name" href=${path(kind, name)}>${name}</a>`;
function Heat({ share, label = "heat" }) {
  const at = Math.min(Math.max(share || 0, 0), 1);
  return html`<div class=${`bar ${at >= 0.999 ? "hot" : at >= 0.5 ? "warm" : ""}`} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(at * 100)} title=${percent(at)}><span style=${{ width: `${at * 100}%` }}></span></div>`;
}
const hasScore = (row) => !!row.score && row.name.startsWith("session/");
const scoreOf = (score) => score.threshold < 10 ? `${number(score.points)}/${number(score.threshold)}` : `${Math.round(score.points)}/${number(Math.max(100, score.threshold))}`;
const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
const Trouble = ({ error }) => error ? html`<p class="note error" role="alert">${error}</p>` : null;
const Facts = ({ of }) => html`<dl class="facts">${of.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
// Without TLS, and not on this machine, browsers have no other access to the clipboard.
function copySelected(text) {
  const area = document.createElement("textarea"), last = document.activeElement;
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  if (last) last.focus();
}
function Copy({ text, label }) {
  const [done, set] = useState(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); } catch { copySelected(text); }
    set(true); setTimeout(() => set(false), 1500);
  };
  return html`<button class="plain small" onClick=${copy} aria-label=${done ? "Copied" : label || `Copy ${text}`}>${done ? "Copied" : label ? "Copy link" : "Copy"}</button>`;
}
function Head({ title, state, children }) {
  return html`<div class="row"><h1>${title}</h1>${state ? html`<${Badge} state=${state} />` : null}${children}<span class="grow"></span>
    <${Copy} text=${location.href} label="Copy link to this view" /></div>`;
}
const Cell = ({ label, number, wide, children }) => html`<td data-label=${label} class=${number ? "number" : wide ? "wide" : ""}><span class="grow">${children}</span></td>`;

// Overrides and interventions: always confirmed, always with author and reason

const isOperator = () => store.role === "operator";
const OVERRIDES = {
  probe: ["Probe now", "The next call decides whether the circuit closes."],
  reset: ["Reset", "Discards all evidence and closes the circuit."],
  hold_open: ["Hold open", "Refuses every call until it is released."],
  hold_closed: ["Hold closed", "Admits every call, regardless of the evidence."],
  shadow: ["Shadow", "Admits every call, and counts what would have been refused."],
  release: ["Release", "Lets the evidence decide again."],
};
const INTERVENTIONS = {
  resume: ["Resume", "The agent may continue."],
  nudge: ["Nudge", "The agent receives a hint at its next step."],
  extend: ["Extend", "Adds time to the limit of the session."],
  pause: ["Pause", "Suspends the process of the agent on this machine."],
  continue: ["Continue", "Continues the process of the agent."],
  escalate: ["Hand over", "Stops the agent; the configured escalation agent takes over."],
  abort: ["Stop", "Stops the agent at its next step and gives the task up."],
};
const RUN_ACTIONS = {
  nudge: ["Nudge", "The next prompt of the run has the hint."],
  extend: ["Extend", "Raises the limits of the run; it applies to the agent at work, too."],
  pause: ["Pause", "Suspends the agent within a second. Paused time does not count."],
  continue: ["Continue", "The agent continues where it was suspended."],
  escalate: ["Hand over", "Stops the agent; the configured escalation agent takes over."],
  abort: ["Stop", "Stops the agent and ends the run. What it changed is kept."],
};
function ask(dialog) { store.dialog = dialog; changed(); }
const override = (name, action) => ask({ url: `/v1/circuits/${encodeURIComponent(name)}/override`, action, about: name, words: OVERRIDES[action], hold: /hold|shadow/.test(action) });
const intervene = (id, action) => ask({ url: `/v1/sessions/${encodeURIComponent(id)}/intervene`, action, about: id, words: INTERVENTIONS[action], hint: action === "nudge", more: action === "extend" });
const interveneRun = (run, action) => ask({ url: `/v1/runs/${encodeURIComponent(run.id)}/intervene`, action, about: run.id, words: RUN_ACTIONS[action], hint: action === "nudge", limits: action === "extend" ? run.may_extend : null });
const closeIncident = (id) => ask({ url: `/v1/incidents/${encodeURIComponent(id)}/close`, about: id, words: ["Close incident", "The reason describes how it was resolved."], verdict: true });
const answerRequest = (row, action) => ask({ url: `/v1/requests/${encodeURIComponent(row.id)}/answer`, action, about: `${row.wish}: ${row.reason}`,
  words: action === "grant" ? ["Grant", "The agent reads your reason at its next step. Time extends the limit of its session; money changes no budget by itself."] : ["Deny", "The agent reads your reason at its next step."] });

function Confirm({ dialog }) {
  const place = useRef(null);
  const [by, setBy] = useState(localStorage.getItem("switchgear.by") || "");
  const [why, setWhy] = useState(""), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const [minutes, setMinutes] = useState(""), [hint, setHint] = useState(""), [verdict, setVerdict] = useState("");
  const [iterations, setIterations] = useState(""), [money, setMoney] = useState("");
  useEffect(() => { place.current.showModal(); }, []);
  const close = () => { store.dialog = null; changed(); };
  const send = async (event) => {
    event.preventDefault();
    setBusy(true); setError("");
    const body = { by, why };
    if (dialog.action) body.action = dialog.action;
    if (minutes) body.for_s = Number(minutes) * 60;
    if (iterations) body.iterations = Number(iterations);
    if (money) body.cost_micros = Math.round(Number(money) * 1e6);
    if (hint) body.hint = hint;
    if (verdict) body.verdict = verdict;
    try {
      const done = await api.post(dialog.url, body);
      localStorage.setItem("switchgear.by", by);
      if (done.name) { const row = store.circuits.get(done.name); if (row) keep({ ...row, ...done }); }
      store.notice = `${dialog.words[0]}: ${dialog.about}. ${done.done ? sentence(done.done) : `Now ${words(stateOf(done))}.`}`;
      setTimeout(() => { store.notice = null; changed(); }, 6000);
      close(); loadNow();
      dispatchEvent(new Event("switchgear-acted"));
    } catch (failed) { setError(sentence(failed.message)); setBusy(false); }
  };
  const danger = ["hold_open", "abort", "hold_closed"].includes(dialog.action);
  const amount = (label, value, set, more) => html`<label><span>${label}</span><input type="number" value=${value} onInput=${(e) => set(e.target.value)} ...${more} /></label>`;
  const limits = dialog.limits || [];
  return html`<dialog ref=${place} onClose=${close} aria-labelledby="confirm-title"><form onSubmit=${send}>
    <h1 id="confirm-title">${dialog.words[0]}?</h1><p class="wrap"><b class="mono">${dialog.about}</b></p><p class="dim">${dialog.words[1]}</p>
    <${Trouble} error=${error} />
    ${dialog.hint ? html`<label><span>Hint for the agent (optional)</span><textarea value=${hint} onInput=${(e) => setHint(e.target.value)} maxlength="2000"></textarea></label>` : null}
    ${dialog.hold || dialog.more || limits.includes("time") ? amount(dialog.hold ? "For how many minutes (empty: until it is released)" : "Additional minutes", minutes, setMinutes, { min: 1, max: 525600, required: dialog.more }) : null}
    ${limits.includes("iterations") ? amount("Additional iterations", iterations, setIterations, { min: 1, max: 10000 }) : null}
    ${limits.includes("money") ? amount("Additional dollars", money, setMoney, { min: 0.01, max: 1000000, step: 0.01 }) : null}
    ${dialog.verdict ? html`<label><span>Was the trip right?</span><select value=${verdict} onChange=${(e) => setVerdict(e.target.value)}><option value="">not decided</option><option value="confirmed">yes</option><option value="false_positive">no, a false positive</option></select></label>` : null}
    <label><span>Your name</span><input required maxlength="100" autocomplete="username" value=${by} onInput=${(e) => setBy(e.target.value)} /></label>
    <label><span>Reason</span><input required maxlength="400" autofocus value=${why} onInput=${(e) => setWhy(e.target.value)} /></label>
    <div class="row"><span class="grow"></span><button type="button" onClick=${() => place.current.close()}>Cancel</button>
      <button class=${danger ? "danger" : "primary"} disabled=${busy}>${dialog.words[0]}</button></div>
  </form></dialog>`;
}

const Interventions = ({ possible, all, act }) => isOperator() && possible.length
  ? html`<div class="row" role="group" aria-label="Interventions">${Object.keys(all).filter((action) => possible.includes(action)).map((action) => html`<button class=${action === "abort" ? "danger" : ""} onClick=${() => act(action)}>${all[action][0]}</button>`)}</div>` : null;

function Actions({ row }) {
  if (!isOperator()) return null;
  const held = row.mode !== "auto", actions = [];
  if (row.phase === "open" && !held) actions.push("probe");
  if (row.phase !== "closed") actions.push("reset");
  if (held) actions.push("release");
  if (row.mode !== "held_open") actions.push("hold_open");
  if (row.mode !== "held_closed") actions.push("hold_closed");
  if (row.mode !== "shadow") actions.push("shadow");
  return html`<div class="row" role="group" aria-label="Overrides">${actions.map((action) => html`<button class=${action === "hold_open" ? "danger" : ""} onClick=${() => override(row.name, action)}>${OVERRIDES[action][0]}</button>`)}</div>`;
}

// Now

const TONES = ["bad", "bad", "warn", "warn", "warn", "info"];
const matches = (word, ...texts) => !word || texts.some((text) => String(text ?? "").toLowerCase().includes(word));

function Item({ item }) {
  useTick();
  const wait = item.retry_after_s == null ? null : Math.max(0, item.retry_after_s - (nowS() - item.seen_at_s));
  const kind = item.kind === "incident" ? "incidents" : item.kind;
  const to = item.kind === "budget" ? "/fleet" : path(kind, item.name);
  const quick = item.kind === "circuit" && (item.state === "held open" ? "release" : item.state === "open" ? (item.retry_after_s == null ? "reset" : "probe") : null);
  const help = item.kind === "session" && { stopped: "resume", paused: "continue", struggling: "nudge", "trying again": "nudge" }[item.state];
  const run = item.kind === "run" && item.state === "paused";
  const cause = item.kind === "circuit" && store.circuits.get(item.name)?.last_error;
  return html`<li class=${`item ${TONES[item.rank] || "info"}`}>
    <div><div class="head"><${Badge} state=${item.state} /><a class="name" href=${to} data-row>${item.name}</a><span class="dim small">${item.kind}</span>
      ${item.activity ? html`<${Badge} state=${item.activity} />` : null}</div><p class="reason">${item.reason}</p>${cause && !item.reason.includes(cause) ? html`<p class="reason dim small">last error: ${cause}</p>` : null}</div>
    <div class="facts">${wait != null ? html`<span>probe in <b>${span(wait, { up: true })}</b></span>` : null}
      ${item.spend_micros_per_min != null && item.kind !== "circuit" ? html`<span>${perMinute(item.spend_micros_per_min)}</span>` : null}
      ${item.since_s ? html`<span>since ${clock(item.since_s)}</span>` : null}</div>
    <div class="do"><span>${item.action}</span><code>${item.command}</code><${Copy} text=${item.command} />
      ${isOperator() && quick ? html`<button onClick=${() => override(item.name, quick)}>${OVERRIDES[quick][0]}</button>` : null}
      ${isOperator() && item.kind === "incident" ? html`<button onClick=${() => closeIncident(item.name)}>Close incident</button>` : null}
      ${isOperator() && run ? html`<button onClick=${() => interveneRun({ id: item.name }, "continue")}>Continue</button>` : null}
      ${isOperator() && help ? html`<button onClick=${() => intervene(item.name, help)}>${INTERVENTIONS[help][0]}</button>` : null}</div>
  </li>`;
}

function Sessions({ rows }) {
  useTick(5000);
  const [most, setMost] = useState(SHOWN);
  if (!rows.length) return html`<${Empty}>No guarded session. Install hooks with <code>switchgear hooks install</code>.<//>`;
  return html`<div class="scroll"><table class="stack"><thead><tr><th>Session</th><th>State</th><th>Activity</th><th class="number">Score</th><th>Agent</th><th>Task and last step</th><th class="number">Spent</th><th class="number">Per minute</th><th>Last event</th></tr></thead><tbody>
    ${rows.slice(0, most).map((row) => html`<tr key=${row.id} class=${row.activity}>
      <${Cell} label="Session"><a href=${path("session", row.id)} data-row class="mono">${row.id.length > 18 ? `${row.id.slice(0, 17)}…` : row.id}</a><//>
      <${Cell} label="State"><${Badge} state=${row.state} /><//><${Cell} label="Activity"><${Badge} state=${row.activity} /><//>
      <${Cell} label="Score" number>${scoreOf(row.score)}<//><${Cell} label="Agent">${row.agent}<//>
      <${Cell} label="Task" wide>${row.task || html`<span class="dim">no task known</span>`}${row.last_step ? html`<br /><span class="dim small">${row.last_step}</span>` : null}<//>
      <${Cell} label="Spent" number>${dollars(row.spent_micros)}<//><${Cell} label="Per minute" number>${perMinute(row.spend_micros_per_min)}<//>
      <${Cell} label="Last event">${ago(row.heard_s, nowS())}<//></tr>`)}
  </tbody></table></div>${rows.length > most ? html`<p><button onClick=${() => setMost(most + 500)}>Show more (${(rows.length - most).toLocaleString("en-US")})</button></p>` : null}`;
}

function Requests() {
  const { data, load } = useData("/v1/requests", [], 5000);
  useActed(load);
  const rows = data ? data.requests.filter((row) => row.state === "open") : [];
  return rows.length ? html`<h2 id="requests">Requests of agents (${rows.length})</h2><ul class="list" aria-labelledby="requests">${rows.map((row) => html`<li key=${row.id} class="item warn"><div>
      <div class="head"><span class="badge">${row.kind}</span><b>${row.wish}</b>${row.session ? html`<${Name} kind="session" name=${row.session} />` : null}</div><p class="reason">${row.reason}</p></div>
      ${isOperator() ? html`<div class="row" role="group" aria-label="Answer"><button class="primary" onClick=${() => answerRequest(row, "grant")}>Grant</button><button onClick=${() => answerRequest(row, "deny")}>Deny</button></div>` : null}</li>`)}</ul>` : null;
}

function Now({ word }) {
  const { now } = useStore();
  const [all, setAll] = useState(false);
  if (!now) return html`<p class="dim" role="status">Loading…</p>`;
  const items = now.attention.filter((item) => matches(word, item.name, item.reason, item.state, item.kind));
  const sessions = now.sessions.filter((row) => matches(word, row.id, row.task, row.agent, row.project, row.state));
  const count = (kind) => now.attention.filter((item) => item.kind === kind).length;
  const live = now.sessions.filter((row) => row.activity === "live").length;
  const rates = now.sessions.filter((row) => row.activity === "live").map((row) => row.spend_micros_per_min);
  const known = rates.filter((rate) => rate != null), unknown = rates.length - known.length;
  const spend = rates.length && !known.length ? null : known.reduce((sum, rate) => sum + rate, 0);
  const circuits = (...states) => now.attention.filter((item) => item.kind === "circuit" && states.includes(item.state)).length;
  const refusing = circuits("open", "held open"), waiting = circuits("half-open");
  const stopped = now.sessions.filter((row) => row.state === "stopped").length;
  return html`<${Head} title="Now" />
    <div class="tiles">
      <div class=${`tile ${stopped ? "bad" : ""}`}><b>${stopped}</b>stopped session${stopped === 1 ? "" : "s"}</div>
      <div class=${`tile ${refusing ? "bad" : ""}`}><b>${refusing}</b>open circuit${refusing === 1 ? "" : "s"}</div>
      <div class=${`tile ${waiting ? "warn" : ""}`}><b>${waiting}</b>probing</div>
      <div class=${`tile ${count("budget") ? "warn" : ""}`}><b>${count("budget")}</b>budget${count("budget") === 1 ? "" : "s"} nearly spent</div>
      <div class="tile"><b>${live}</b>live of ${plural(now.sessions.length, "session")}</div>
      <div class="tile"><b>${dollars(spend)}</b>per minute${known.length && unknown ? `, ${unknown} unknown` : ""}</div>
    </div>
    <${Requests} />
    <h2 id="attention">Needs attention (${items.length})</h2>
    ${items.length ? html`<ul class="list" aria-labelledby="attention" aria-live="polite" aria-relevant="additions">${items.slice(0, all ? items.length : 50).map((item) => html`<${Item} key=${item.kind + item.name} item=${item} />`)}</ul>
      ${items.length > 50 && !all ? html`<p><button onClick=${() => setAll(true)}>Show all ${items.length}</button></p>` : null}`
      : html`<${Empty}>${word ? "Nothing matches the search." : now.circuits.shown ? `Nothing needs attention. ${plural(now.circuits.shown, "circuit")} in use.` : html`No circuits yet. They appear when a program guards its calls, or by <code>switchgear record provider/anthropic success</code>.`}<//>`}
    ${now.running.length ? html`<h2>Running</h2><${Runs} rows=${now.running} />` : null}
    <h2>Sessions</h2><${Sessions} rows=${sessions} />`;
}

// Circuits

function Circuits({ word }) {
  const { circuits } = useStore();
  useTick();
  const [most, setMost] = useState(SHOWN);
  const state = query().get("state") || "", family = query().get("family") || "";
  const all = [...circuits.values()];
  const families = [...new Set(all.map((row) => row.name.split("/")[0]))].sort();
  const found = all.filter((row) => (!state || stateOf(row) === state) && (!family || row.name.split("/")[0] === family) && matches(word, row.name, row.reason, row.last_error));
  const rank = (row) => ({ open: 0, held_open: 0, half_open: 1, tripping: 2, shadow: 3, held_closed: 3 }[stateOf(row)] ?? 4);
  found.sort((one, two) => rank(one) - rank(two) || (two.heat || 0) - (one.heat || 0) || (one.name < two.name ? -1 : 1));
  return html`<${Head} title=${`Circuits (${found.length.toLocaleString("en-US")})`} />
    <div class="row card"><label><span>State</span><select value=${state} onChange=${(e) => setQuery("state", e.target.value)}><option value="">all</option>${["open", "half_open", "tripping", "closed", "held_open", "held_closed", "shadow"].map((each) => html`<option value=${each} selected=${each === state}>${words(each)}</option>`)}</select></label>
      <label><span>Family</span><select value=${family} onChange=${(e) => setQuery("family", e.target.value)}><option value="">all</option>${families.map((each) => html`<option value=${each} selected=${each === family}>${each}</option>`)}</select></label></div>
    ${found.length ? html`<div class="scroll"><table class="stack"><thead><tr><th>Circuit</th><th>State</th><th>Heat</th><th>Reason or last error</th><th class="number">Calls</th><th class="number">Failed</th><th class="number">Refused</th><th class="number">Next probe</th></tr></thead><tbody>
      ${found.slice(0, most).map((row) => html`<tr key=${row.name}><${Cell} label="Circuit"><a data-row href=${path("circuit", row.name)}>${row.name}</a><//>
        <${Cell} label="State"><${Badge} state=${stateOf(row)} /><//><${Cell} label="Heat">${hasScore(row) ? `score ${scoreOf(row.score)}` : html`<${Heat} share=${row.heat} label=${`heat of ${row.name}`} />`}<//>
        <${Cell} label="Reason" wide>${row.reason || (row.last_error ? html`<span class="dim">${row.last_error}</span>` : "")}<//>
        <${Cell} label="Calls" number>${(row.totals.succeeded + row.totals.failed).toLocaleString("en-US")}<//><${Cell} label="Failed" number>${row.totals.failed.toLocaleString("en-US")}<//>
        <${Cell} label="Refused" number>${row.totals.refused.toLocaleString("en-US")}<//><${Cell} label="Next probe" number>${row.phase === "open" && waitOf(row) != null ? span(waitOf(row), { up: true }) : ""}<//></tr>`)}
    </tbody></table></div>${found.length > most ? html`<p><button onClick=${() => setMost(most + 500)}>Show more (${(found.length - most).toLocaleString("en-US")})</button></p>` : null}`
      : html`<${Empty}>${circuits.size ? "No circuit matches." : html`No circuits yet. They appear when a program guards its calls, or by <code>switchgear record provider/anthropic success</code>.`}<//>`}`;
}

function grouped(failures) {
  const groups = new Map();
  for (const failure of failures) {
    const key = (failure.error || "no message").replace(/\d+/g, "0");
    const group = groups.get(key) || { error: failure.error || "no message", count: 0, last: 0 };
    group.count += 1; group.last = Math.max(group.last, failure.at_s);
    groups.set(key, group);
  }
  return [...groups.values()].sort((one, two) => two.count - one.count);
}

const number = (value) => Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : String(Math.round(value * 100) / 100);
const withUnit = (value, unit) => value == null ? "" : unit === "micros" ? dollars(value) : unit === "share" ? percent(value) : unit === "share per minute" ? `${number(value * 100)} %/min` : `${number(value)}${unit ? ` ${unit}` : ""}`;

function Detectors({ detectors }) {
  return html`<div class="scroll"><table class="stack"><thead><tr><th>Detector</th><th>Heat</th><th class="number">Reading</th><th class="number">Threshold</th><th>Evidence</th></tr></thead><tbody>
    ${detectors.map((each) => html`<tr><${Cell} label="Detector">${each.name.replaceAll("_", " ")}<//><${Cell} label="Heat"><${Heat} share=${each.heat} label=${`heat of ${each.name}`} /><//>
      <${Cell} label="Reading" number>${withUnit(each.value, each.unit)}<//><${Cell} label="Threshold" number>${withUnit(each.threshold, each.unit)}<//><${Cell} label="Evidence" wide>${each.reason}<//></tr>`)}
  </tbody></table></div>`;
}

function Events({ events, circuit = true }) {
  if (!events.length) return html`<${Empty}>No events.<//>`;
  return html`<div class="scroll"><table class="stack"><thead><tr><th>Time</th>${circuit ? html`<th>Circuit</th>` : null}<th>What</th><th>Reason</th><th>By</th></tr></thead><tbody>
    ${[...events].reverse().map((event) => html`<tr><${Cell} label="Time"><span class="nowrap">${clock(event.at_s)}</span><//>${circuit ? html`<${Cell} label="Circuit"><${Name} kind="circuit" name=${event.circuit} /><//>` : null}
      <${Cell} label="What">${event.kind === "moved" ? html`${words(event.before)} → <${Badge} state=${event.after} />` : words(event.kind).replace("ordered", "override")}<//>
      <${Cell} label="Reason" wide>${[event.reason, event.why].filter(Boolean).join(": ")}<//><${Cell} label="By">${event.by}<//></tr>`)}
  </tbody></table></div>`;
}

function useActed(load) { useEffect(() => { addEventListener("switchgear-acted", load); return () => removeEventListener("switchgear-acted", load); }, [load]); }

// What is stored (steps of a session, else events of the circuit), then what was read since.
function useHeats(page, row, steps = []) {
  const live = store.heats.get(page.name) || [[], []];
  return useMemo(() => {
    const stored = steps.length ? steps.map((step) => [step.at_s, step.heat]) : page.history || [];
    const scale = hasScore(page) ? page.score.threshold : 100;
    const points = [...stored.map(([at, heat]) => [at, heat * scale]), ...live[0].map((at, i) => [at, live[1][i] * scale / 100])]
      .filter(([at]) => typeof at === "number" && isFinite(at)).sort((one, two) => one[0] - two[0]);
    return [points.map(([at]) => at), points.map(([, heat]) => heat)];
  }, [page.name, page.version, live[0].length, steps.length]);
}

function CircuitParts({ page, row, steps = [] }) {
  const groups = grouped(page.failures);
  const heats = useHeats(page, row, steps);
  return html`<div class="card"><h2>State over time</h2><${Timeline} events=${page.events} now_s=${nowS()} state=${stateOf(row)} cooled_s=${page.opened_at_s == null ? null : page.opened_at_s + page.cooldown_s} /></div>
    <h2>Detectors</h2><${Detectors} detectors=${page.detectors} />
    <div class="columns"><div class="card"><h2>${hasScore(page) ? "Score" : "Heat"} over time</h2>
      ${heats[0].length > 1 ? html`<${Lines} label=${hasScore(page) ? "Score over time, of 100" : "Heat in percent over time"} series=${[hasScore(page) ? { label: "score", color: "--amber", value: (value) => String(Math.round(value)) } : { label: "heat %", color: "--amber", value: (value) => `${Math.round(value)} %` }]} data=${heats} range=${[0, 100]} />` : html`<p class="dim">One reading so far: ${hasScore(page) ? scoreOf(page.score) : percent(row.heat)}.</p>`}</div>
    <div class="card"><h2>Recent errors</h2>${groups.length ? html`<ul>${groups.map((group) => html`<li><b>${group.count}×</b> ${group.error} <span class="dim small">last ${ago(group.last, nowS())}</span></li>`)}</ul>` : html`<p class="dim">None.</p>`}</div></div>
    <h2>Events</h2><${Events} events=${page.events} circuit=${false} />
    <details class="card"><summary>Policy</summary><pre>${JSON.stringify(page.policy, null, 2)}</pre></details>`;
}

function Circuit({ name }) {
  useStore(); useTick();
  const { data, error, load } = useData(`/v1/circuits/${encodeURIComponent(name)}?events=500`);
  const version = store.circuits.get(name)?.version;
  useEffect(() => { if (version !== undefined && data && version !== data.version) load(); }, [version]);
  useActed(load);
  useEffect(() => { if (!store.heats.has(name)) { store.heats.set(name, [[], []]); const row = store.circuits.get(name); if (row) keep(row); } }, [name]);
  if (!data) return html`<${Head} title=${name} /><${Trouble} error=${error} />`;
  const live = store.circuits.get(name), row = live && live.version >= data.version ? live : { ...data, seen_at_s: nowS() };
  const wait = row.phase === "open" ? waitOf(row) : null;
  return html`<${Head} title=${name} state=${stateOf(row)} /><${Trouble} error=${error} />
    <div class="card"><${Facts} of=${[["Reason", row.reason], ["Next probe", wait == null ? (row.phase === "open" ? "only after a reset" : null) : `in ${span(wait, { up: true })}`],
      hasScore(data) ? ["Score", `${scoreOf(data.score)}, trips at ${number(data.score.threshold)}`] : ["Heat", html`<div class="row"><div class="grow"><${Heat} share=${row.heat} /></div><span>${percent(row.heat)}</span></div>`],
      ["Held", row.held_by ? `by ${row.held_by}: ${row.held_why}` : null], ["Last error", row.last_error],
      ["Calls", `${row.totals.succeeded.toLocaleString("en-US")} succeeded, ${row.totals.failed.toLocaleString("en-US")} failed, ${row.totals.refused.toLocaleString("en-US")} refused`],
      ["Cost", row.totals.cost_micros ? `${dollars(row.totals.cost_micros)}${row.spend_micros_per_min ? `, ${perMinute(row.spend_micros_per_min)}` : ""}` : null]]} />
      <${Actions} row=${row} /></div><${CircuitParts} page=${data} row=${row} />`;
}

// Sessions

function SessionsPage({ word }) {
  const all = query().get("all") || "";
  const { data, error } = useData(`/v1/sessions${all ? "?all=1" : ""}`, [all], 3000);
  const rows = (data ? data.sessions : []).filter((row) => matches(word, row.id, row.task, row.agent, row.project, row.state, row.reason));
  return html`<${Head} title=${`Sessions (${rows.length})`} /><${Trouble} error=${error} />
    <div class="card row"><label class="row"><input type="checkbox" checked=${!!all} onChange=${(e) => setQuery("all", e.target.checked ? "1" : "")} /> include ended sessions</label></div>
    ${data ? html`<${Sessions} rows=${rows} />` : null}`;
}

function Session({ id }) {
  useStore(); useTick(2000);
  const { data, error, load } = useData(`/v1/sessions/${encodeURIComponent(id)}`, [], 3000);
  useActed(load);
  const name = `session/${id}`;
  useEffect(() => { if (!store.heats.has(name)) { store.heats.set(name, [[], []]); const row = store.circuits.get(name); if (row) keep(row); } }, [name]);
  if (!data) return html`<${Head} title=${`Session ${id}`} /><${Trouble} error=${error} />`;
  const page = data.circuit;
  return html`<${Head} title=${`Session ${id}`} state=${data.state}><${Badge} state=${data.activity} /><//><${Trouble} error=${error} />
    <div class="card"><${Facts} of=${[["Task", data.task], ["Agent", data.agent], ["Project", data.project], ["Reason", data.reason], ["Last step", data.last_step],
      ["Last event", ago(data.heard_s, nowS())], ["Time limit", data.limit_s ? span(data.limit_s) : null],
      ["Spent", `${dollars(data.spent_micros)}${data.spend_micros_per_min ? `, ${perMinute(data.spend_micros_per_min)}` : ""}`],
      ["Score", page.score ? html`<div class="row"><div class="grow"><${Heat} share=${page.score.points / page.score.threshold} label="score" /></div><span>${scoreOf(page.score)}, trips at ${number(page.score.threshold)}</span></div>` : null],
      ["Tried", data.tried.join(", ")], ["Waiting for the agent", data.pending.join(" · ")]]} />
      ${data.indicators.length ? html`<h2 class="minor">Evidence of the last trip</h2><ul>${data.indicators.map((each) => html`<li>${each}</li>`)}</ul>` : null}
      <${Interventions} possible=${data.possible} all=${INTERVENTIONS} act=${(action) => intervene(id, action)} /></div>
    <h2>Last steps</h2>${data.steps.length ? html`<div class="scroll"><table class="stack"><thead><tr><th>Time</th><th>Step</th><th>Result</th><th class="number">Score</th></tr></thead><tbody>
      ${[...data.steps].reverse().map((step) => html`<tr><${Cell} label="Time"><span class="nowrap">${clock(step.at_s)}</span><//><${Cell} label="Step" wide><span class="mono">${step.call}</span>${step.error ? html`<br /><span class="dim small">${step.error}</span>` : null}<//>
        <${Cell} label="Result"><${Badge} state=${step.ok == null ? "unknown" : step.ok ? "success" : "failed"} /><//><${Cell} label="Score" number>${number(step.score)}<//></tr>`)}</tbody></table></div>` : html`<${Empty}>No step was recorded yet.<//>`}
    <${CircuitParts} page=${page} row=${store.circuits.get(name) || page} steps=${data.steps} />`;
}

// Runs and batches

const costOf = (run) => run.cost_micros == null ? "unknown" : `${run.unknown_prices ? "over " : ""}${dollars(run.cost_micros)}`;

function Runs({ rows }) {
  return html`<div class="scroll"><table class="stack"><thead><tr><th>Run</th><th>Status</th><th>Agent</th><th>Task</th><th class="number">Iterations</th><th class="number">Cost</th><th class="number">Took</th></tr></thead><tbody>
    ${rows.map((run) => html`<tr key=${run.id}><${Cell} label="Run"><a data-row class="mono nowrap" href=${path("run", run.id)}>${run.id}</a><//><${Cell} label="Status">${run.problem ? html`<span class="dim">${run.problem}</span>` : html`<${Badge} state=${run.status} />`}<//>
      <${Cell} label="Agent">${run.agent}<//><${Cell} label="Task" wide>${run.task}<//><${Cell} label="Iterations" number>${run.iterations ?? ""}<//>
      <${Cell} label="Cost" number>${run.problem ? "" : costOf(run)}<//><${Cell} label="Took" number>${span(run.seconds)}<//></tr>`)}
  </tbody></table></div>`;
}

function RunsPage({ word }) {
  const { data, error } = useData("/v1/runs?limit=500", [], 3000);
  const rows = (data ? [...data.runs].reverse() : []).filter((run) => matches(word, run.id, run.task, run.agent, run.status));
  return html`<${Head} title=${`Runs (${rows.length})`} /><${Trouble} error=${error} />
    ${rows.length ? html`<${Runs} rows=${rows} />` : data ? html`<${Empty}>No runs. Start one: <code>switchgear run TASK --agent NAME</code><//>` : null}`;
}

function Diff({ id }) {
  const [text, set] = useState(null), [error, setError] = useState("");
  const load = async () => { try { set(await api.text(`/v1/runs/${encodeURIComponent(id)}/diff`)); } catch (failed) { setError(failed.message); } };
  if (error) return html`<p class="dim">${error}</p>`;
  if (text === null) return html`<button onClick=${load}>Show the saved diff</button>`;
  const tone = (line) => line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "at" : "";
  return html`<pre class="diff" tabindex="0" aria-label="Saved diff">${text ? text.split("\n").map((line) => html`<span class=${tone(line)}>${line}${"\n"}</span>`) : "no changes"}</pre>`;
}

function Log({ id, iteration }) {
  const [text, set] = useState(null);
  const load = async () => { try { set(await api.text(`/v1/runs/${encodeURIComponent(id)}/log?iteration=${iteration}`)); } catch (failed) { set(sentence(failed.message)); } };
  return html`<details onToggle=${(event) => event.target.open && load()}><summary class="small">Steps</summary>${text === null ? null : html`<pre class="log" tabindex="0" aria-label=${`Steps of iteration ${iteration}`}>${text || "The agent reported no step."}</pre>`}</details>`;
}

function Run({ id }) {
  useStore();
  const { data: run, error, load } = useData(`/v1/runs/${encodeURIComponent(id)}`, [], 3000);
  useActed(load);
  const made = run ? run.iterations : [];
  const charts = useMemo(() => {
    const x = made.map((each) => each.number);
    let spent = 0;
    return { heat: [x, made.map((each) => (each.heat ?? 0) * 100)], cost: [x, made.map((each) => (spent += (each.cost_micros || 0) / 1e6))], tests: [x, made.map((each) => each.tests_passing ?? null)] };
  }, [made.length]);
  if (!run) return html`<${Head} title=${`Run ${id}`} /><${Trouble} error=${error} />`;
  const end = run.end || {}, kept = end.checkpoint;
  const left = run.time_left_s != null && !run.end ? `, ${span(Math.max(0, run.time_left_s))} left` : "";
  return html`<${Head} title=${`Run ${run.id}`} state=${run.status} /><${Trouble} error=${error} />
    <div class="card"><${Facts} of=${[["Task", run.task], ["Agent", run.agent], ["Circuit", html`<${Name} kind="circuit" name=${run.circuit} />`], ["Started", run.started_at && clock(Date.parse(run.started_at) / 1000)],
      ["Took", `${span(run.seconds)}${left}`], ["Iterations", run.max_iterations ? `${made.length} of ${run.max_iterations}` : made.length],
      ["Cost", `${costOf(run)}${run.budget_micros ? ` of ${dollars(run.budget_micros)}` : ""}`], ["Waiting for the agent", run.pending.join(" · ")], ["Reason", end.reason],
      ["Continue", end.resume ? html`<code>${end.resume}</code> <${Copy} text=${end.resume} />` : null]]} />
      ${(end.evidence || []).length ? html`<h2 class="minor">Evidence</h2><ul>${end.evidence.map((each) => html`<li>${each}</li>`)}</ul>` : null}
      <${Interventions} possible=${run.possible} all=${RUN_ACTIONS} act=${(action) => interveneRun(run, action)} /></div>
    ${made.length ? html`<div class="columns charts"><div class="card"><h2>Heat</h2><${Lines} label="Heat after each iteration, in percent" time=${false} range=${[0, 100]} series=${[{ label: "heat %", color: "--amber" }]} data=${charts.heat} /></div>
      <div class="card"><h2>Spend</h2><${Lines} label="Cost up to each iteration, in dollars" time=${false} series=${[{ label: "dollars", color: "--blue", value: (value) => `$${value.toFixed(2)}`, axis: (value) => `$${value.toFixed(2)}` }]} data=${charts.cost} /></div>
      ${made.some((each) => each.tests_passing != null) ? html`<div class="card"><h2>Tests</h2><${Lines} label="Tests that pass after each iteration" time=${false} series=${[{ label: "passing", color: "--green" }]} data=${charts.tests} /></div>` : null}</div>` : null}
    <h2>Iterations</h2>${made.length ? html`<div class="scroll"><table class="stack"><thead><tr><th class="number">#</th><th>Outcome</th><th>Evidence</th><th class="number">Steps</th><th class="number">Files</th><th class="number">Tests</th><th class="number">Heat</th><th class="number">Cost</th><th class="number">Took</th></tr></thead><tbody>
      ${[...made].reverse().map((each) => html`<tr key=${each.number}><${Cell} label="#" number>${each.number}<//><${Cell} label="Outcome"><${Badge} state=${each.outcome} /><//>
        <${Cell} label="Evidence" wide>${each.error || (each.errors && each.errors[0] && each.errors[0].text) || each.remark || ""}${(each.files || []).length ? html`<br /><span class="dim small">${each.files.slice(0, 5).join(", ")}</span>` : null}${(each.readings || []).filter((reading) => reading.heat >= 0.5).map((reading) => html`<br /><span class="dim small">${reading.reason}</span>`)}${each.log ? html`<${Log} id=${run.id} iteration=${each.number} />` : null}<//>
        <${Cell} label="Steps" number>${each.steps ?? ""}<//><${Cell} label="Files" number>${each.files_changed ?? ""}<//><${Cell} label="Tests" number>${each.tests_passing ?? ""}<//><${Cell} label="Heat" number>${percent(each.heat)}<//>
        <${Cell} label="Cost" number>${each.cost_micros == null ? "unknown" : dollars(each.cost_micros)}<//><${Cell} label="Took" number>${span(each.seconds)}<//></tr>`)}</tbody></table></div>` : html`<${Empty}>No iteration has ended.<//>`}
    ${run.status === "running" || run.status === "paused" ? html`<div class="card"><h2>Current iteration</h2><${Log} id=${run.id} iteration=${made.length + 1} key=${made.length} /></div>` : null}
    ${kept ? html`<h2>Saved work</h2><div class="card"><p>${plural(kept.changed || 0, "file")} changed${kept.added_lines == null ? "" : `, +${kept.added_lines} −${kept.removed_lines} lines`}</p><p><code>${kept.how}</code> <${Copy} text=${kept.how} /></p><${Diff} id=${run.id} /></div>` : null}
    <h2>Events</h2><${Events} events=${run.events} circuit=${false} />`;
}

function Batches({ word }) {
  const { data, error } = useData("/v1/batches", [], 3000);
  const rows = (data ? [...data.batches].reverse() : []).filter((row) => matches(word, row.id, row.file, row.status));
  return html`<${Head} title=${`Batches (${rows.length})`} /><${Trouble} error=${error} />
    ${rows.length ? html`<div class="scroll"><table class="stack"><thead><tr><th>Batch</th><th>Status</th><th>File</th><th>Tasks</th><th class="number">Cost</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.id}>
      <${Cell} label="Batch"><a data-row class="mono nowrap" href=${path("batch", row.id)}>${row.id}</a><//><${Cell} label="Status">${row.problem || html`<${Badge} state=${row.status} />`}<//><${Cell} label="File" wide>${row.file}<//>
      <${Cell} label="Tasks">${Object.entries(row.counts || {}).map(([state, count]) => `${count} ${state}`).join(", ")}<//><${Cell} label="Cost" number>${row.spent_micros == null ? "" : dollars(row.spent_micros)}<//></tr>`)}</tbody></table></div>`
      : data ? html`<${Empty}>No batches. Start one: <code>switchgear batch tasks.yaml</code><//>` : null}`;
}

function Batch({ id }) {
  const { data, error } = useData(`/v1/batches/${encodeURIComponent(id)}`, [], 2000);
  if (!data) return html`<${Head} title=${`Batch ${id}`} /><${Trouble} error=${error} />`;
  return html`<${Head} title=${`Batch ${id}`} state=${data.status} /><${Trouble} error=${error || data.problem} /><p class="dim">${data.file}</p>
    <h2>Task graph</h2>${data.tasks.length ? html`<${TaskGraph} tasks=${data.tasks} onOpen=${(run) => go(path("run", run))} />` : null}
    <h2>Tasks</h2><div class="scroll"><table class="stack"><thead><tr><th>Task</th><th>Status</th><th>What</th><th>Needs</th><th>Run</th><th class="number">Attempts</th><th class="number">Cost</th><th class="number">Took</th></tr></thead><tbody>
      ${data.tasks.map((task) => html`<tr key=${task.name}><${Cell} label="Task"><b>${task.name}</b><//><${Cell} label="Status"><${Badge} state=${task.status} /><//><${Cell} label="What" wide>${task.task}${task.reason ? html`<br /><span class="dim small">${task.reason}</span>` : null}<//>
        <${Cell} label="Needs">${task.needs.join(", ")}<//><${Cell} label="Run">${task.run ? html`<a class="mono" data-row href=${path("run", task.run)}>${task.run}</a>` : ""}<//><${Cell} label="Attempts" number>${task.attempts}<//>
        <${Cell} label="Cost" number>${task.attempts && (task.spent_micros || task.status !== "running") ? dollars(task.spent_micros) : ""}<//><${Cell} label="Took" number>${task.seconds ? span(task.seconds) : ""}<//></tr>`)}</tbody></table></div>`;
}

// Fleet, incidents

function Budgets({ rows }) {
  if (!rows.length) return html`<${Empty}>No budgets. Open one: <code>switchgear budgets set TEAM DOLLARS</code><//>`;
  return html`<div class="scroll"><table class="stack"><thead><tr><th>Budget</th><th>Used</th><th class="number">Spent</th><th class="number">Reserved</th><th class="number">Limit</th><th class="number">Per minute</th></tr></thead><tbody>
    ${rows.map((row) => { const share = row.limit_micros ? (row.spent_micros + row.held_micros) / row.limit_micros : 0; return html`<tr key=${row.path}>
      <${Cell} label="Budget"><div class="tree" style=${{ "--depth": row.path.split("/").length - 1 }}>${row.path.split("/").pop()}</div><//>
      <${Cell} label="Used">${row.limit_micros ? html`<${Heat} share=${share} label=${`share of ${row.path} used`} />` : ""}<//><${Cell} label="Spent" number>${dollars(row.spent_micros)}<//><${Cell} label="Reserved" number>${dollars(row.held_micros)}<//>
      <${Cell} label="Limit" number>${row.limit_micros == null ? "none" : dollars(row.limit_micros)}<//><${Cell} label="Per minute" number>${row.spend_micros_per_min ? perMinute(row.spend_micros_per_min) : ""}<//></tr>`; })}
  </tbody></table></div>`;
}

function FleetPage({ word }) {
  const { data, error } = useData("/v1/fleet", [], 3000), money = useData("/v1/budgets", [], 3000);
  const agents = Object.entries(data ? data.agents : {}).filter(([name, one]) => matches(word, name, one.owner, one.state, one.model));
  const things = (of) => Object.entries(of || {}).filter(([name]) => matches(word, name));
  return html`<${Head} title="Fleet" /><${Trouble} error=${error || money.error} />
    <h2>Agents and routes</h2>${agents.length ? html`<div class="scroll"><table class="stack"><thead><tr><th>Agent</th><th>State</th><th>Work goes to</th><th>Model</th><th>Fallbacks</th><th class="number">Admits</th><th>Reason</th></tr></thead><tbody>${agents.map(([name, one]) => html`<tr key=${name}>
      <${Cell} label="Agent"><b>${name}</b> <span class="dim small">${one.owner}</span><//><${Cell} label="State"><${Badge} state=${one.state} /><//><${Cell} label="Work goes to">${one.works || "no agent available"}<//>
      <${Cell} label="Model">${one.model || "none"}${one.model !== one.primary_model ? html` <span class="dim small">instead of ${one.primary_model}</span>` : null}<//><${Cell} label="Fallbacks">${[...one.fallback_models, ...one.fallback_chain].join(" → ")}<//><${Cell} label="Admits" number>${one.works ? percent(one.load) : ""}<//><${Cell} label="Reason" wide>${withClocks(one.why.join("; "))}<//></tr>`)}</tbody></table></div>`
      : html`<${Empty}>No agents. List them under <code>agents</code> in the configuration.<//>`}
    <h2>Budgets</h2>${money.data ? html`<${Budgets} rows=${money.data.budgets.filter((row) => matches(word, row.path))} />` : null}
    <div class="columns">${[["Tasks", "story", data && data.stories, (one) => one.paused ? "paused" : "works", (one) => `${dollars(one.spent_micros)} ${one.why}`], ["Providers", "provider", data && data.providers, (one) => one.mode === "auto" ? one.phase : one.mode, (one) => one.why], ["Locks", "lock", data && data.locks, (one) => one.phase, (one) => one.holder ? `held by ${one.holder.owner}${one.waiting.length ? `, ${one.waiting.length} waiting` : ""}` : "free"]]
      .filter(([, , of]) => things(of).length).map(([title, family, of, state, what]) => html`<div class="card"><h2>${title}</h2><ul class="list">${things(of).map(([name, one]) => html`<li class="row"><${Badge} state=${state(one)} />${store.circuits.has(`${family}/${name}`) ? html`<a class="name" href=${path("circuit", `${family}/${name}`)}>${name}</a>` : html`<b>${name}</b>`}<span class="dim small grow">${what(one)}</span></li>`)}</ul></div>`)}</div>`;
}

function IncidentsPage({ word }) {
  const all = query().get("all") || "";
  const { data, error } = useData(`/v1/incidents${all ? "?all=1" : ""}`, [all], 5000);
  const rows = (data ? [...data.incidents].reverse() : []).filter((row) => matches(word, row.id, row.circuit, row.reason, row.status));
  return html`<${Head} title=${`Incidents (${rows.length})`} /><${Trouble} error=${error} />
    <div class="card row"><label class="row"><input type="checkbox" checked=${!!all} onChange=${(e) => setQuery("all", e.target.checked ? "1" : "")} /> include closed incidents</label></div>
    ${rows.length ? html`<ul class="list">${rows.map((row) => html`<li key=${row.id} class=${`item ${row.status === "closed" ? "info" : "bad"}`}><div><div class="head"><span class="badge">${row.severity || "unreadable"}</span><a class="name" data-row href=${path("incidents", row.id)}>${row.id}</a><span class="dim small">${row.status}</span></div><p class="reason">${row.trouble || `${row.circuit}: ${row.reason}`}</p></div><div class="facts"><span>${clock(row.opened_at_s)}</span></div></li>`)}</ul>` : data ? html`<${Empty}>No ${all ? "" : "open "}incidents.<//>` : null}`;
}

const counted = (texts) => { const found = new Map(); for (const each of texts) found.set(each, (found.get(each) || 0) + 1); return [...found]; };

function Incident({ id }) {
  const { data, error, load } = useData(`/v1/incidents/${encodeURIComponent(id)}`);
  useActed(load);
  if (!data) return html`<${Head} title=${`Incident ${id}`} /><${Trouble} error=${error} />`;
  const closed = data.status === "closed", list = (of) => Array.isArray(of) && of.length ? of.join(", ") : null;
  return html`<${Head} title=${`Incident ${id}`} state=${closed ? "closed" : "open"} /><div class="card"><${Facts} of=${[["Circuit", html`<${Name} kind="circuit" name=${data.circuit} />`], ["Severity", data.severity], ["Status", data.status], ["Reason", data.reason],
      ["Opened", clock(data.opened_at_s)], ["Lasted", data.lasted_s == null ? null : span(data.lasted_s)], ["Action", data.action], ["Agents", list(data.agents)], ["Rerouted", list(data.rerouted)],
      ["Closed", data.closed_by ? `by ${data.closed_by}: ${data.closed_why}` : null], ["Verdict", data.mark ? words(data.mark).replaceAll("-", " ") : null]]} />
      ${(data.evidence || []).length ? html`<h2 class="minor">Evidence</h2><ul>${counted(data.evidence).map(([each, count]) => html`<li>${count > 1 ? html`<b>${count}×</b> ` : null}${each}</li>`)}</ul>` : null}
      ${isOperator() && !closed ? html`<div class="row" role="group" aria-label="Interventions"><button class="primary" onClick=${() => closeIncident(id)}>Close incident</button></div>` : null}</div>
    <h2>Report</h2><pre tabindex="0">${data.report}</pre>`;
}

// The frame

function SignIn() {
  const { error } = useStore();
  const [value, set] = useState("");
  return html`<main class="signin" id="main"><h1 class="brand"><img src="/icon.svg" alt="" />Switchgear</h1><form class="card" onSubmit=${(event) => { event.preventDefault(); api.signIn(value); begin(); }}>
    <${Trouble} error=${error} /><label><span>Token</span><input type="password" required autofocus autocomplete="current-password" value=${value} onInput=${(e) => set(e.target.value)} /></label>
    <p class="dim small">The project has the tokens in <code>.switchgear/operator.token</code> and, for read-only access, in <code>.switchgear/read.token</code>.</p><button class="primary">Sign in</button></form></main>`;
}

function Help() {
  const place = useRef(null);
  useEffect(() => { place.current.showModal(); }, []);
  return html`<dialog ref=${place} onClose=${() => { store.help = false; changed(); }} aria-labelledby="help-title"><h1 id="help-title">Keyboard</h1>
    <dl class="facts"><dt><kbd>/</kbd></dt><dd>search</dd><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next, previous row</dd><dt><kbd>Enter</kbd></dt><dd>open the row</dd>${TABS.map(([, title, key]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${title}</dd>`)}<dt><kbd>t</kbd></dt><dd>light or dark</dd><dt><kbd>Esc</kbd></dt><dd>close a dialog, leave the search</dd></dl>
    <button onClick=${() => place.current.close()}>Close</button></dialog>`;
}

const PAGES = { "": Now, circuits: Circuits, circuit: Circuit, sessions: SessionsPage, session: Session, runs: RunsPage, run: Run, batch: Batches, fleet: FleetPage, incidents: IncidentsPage, now: Now };

function App() {
  const { role, dialog, notice, connected, why, error, help } = useStore();
  const [, section, ...rest] = location.pathname.split("/"), name = decoded(rest.join("/"));
  const word = (query().get("q") || "").toLowerCase();
  let Page = PAGES[section] || Now, props = { word };
  if (name) { Page = { batch: Batch, incidents: Incident }[section] || Page; props = { name, id: name, word }; }
  useEffect(() => { document.title = `${name || (TABS.find(([to]) => to === `/${section}`) || ["", "Now"])[1]} – Switchgear`; }, [section, name]);
  if (!role) return html`<${SignIn} />`;
  const current = { circuit: "circuits", session: "sessions", run: "runs", now: "" }[section] ?? section;
  const waiting = store.now ? store.now.attention.filter((item) => item.rank < 3).length : 0;
  return html`<a class="skip" href="#main">Skip to the content</a>
    <header class="top"><div class="inner"><a class="brand" href="/"><img src="/icon.svg" alt="" /><span>Switchgear</span></a>
      <nav class="tabs" aria-label="Views">${TABS.map(([to, title]) => html`<a href=${to} aria-current=${to === `/${current}` ? "page" : undefined}>${title}${to === "/" && waiting ? html` <span class="badge open" aria-label=${`${waiting} urgent`}>${waiting}</span>` : null}</a>`)}</nav>
      <div class="tools"><label><span class="hidden">Search</span><input type="search" id="search" placeholder="Search (/)" value=${query().get("q") || ""} onInput=${(e) => setQuery("q", e.target.value)} /></label>
        <button class="plain" onClick=${theme} aria-label="Switch between light and dark">◐</button><button class="plain" onClick=${() => { store.help = true; changed(); }} aria-label="Keyboard shortcuts">?</button>
        <span class="row small" title=${connected ? "connected" : why}><span class=${`lamp ${connected ? "on" : "off"}`}></span><span class="hidden">${connected ? "live" : "not connected"}</span>${role === "operator" ? "operator" : "read-only"}</span></div></div></header>
    <main id="main" tabindex="-1">${!connected && why ? html`<p class="note" role="status">Not connected: ${why}. The data shown may be outdated.</p>` : null}<${Trouble} error=${error} />
      ${notice ? html`<p class="note good" role="status">${notice}</p>` : null}<${Page} key=${section + name} ...${props} /></main>
    <footer>${store.now ? store.now.store : ""}</footer>
    ${dialog ? html`<${Confirm} dialog=${dialog} />` : null}${help ? html`<${Help} />` : null}`;
}

function theme() {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("switchgear.theme", root.dataset.theme);
  changed();
}
const chosen = localStorage.getItem("switchgear.theme");
if (chosen) document.documentElement.dataset.theme = chosen;

let pending = "";
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey;
  if (event.key === "Escape" && event.target.id === "search") { event.target.value = ""; setQuery("q", ""); event.target.blur(); return; }
  if (typing || store.dialog || store.help) return;
  if (pending === "g") { pending = ""; const tab = TABS.find(([, , key]) => key === event.key); if (tab) { event.preventDefault(); go(tab[0]); } return; }
  if (event.key === "g") pending = "g";
  else if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); }
  else if (event.key === "?") { store.help = true; changed(); }
  else if (event.key === "t") theme();
  else if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("main [data-row]")], at = rows.indexOf(document.activeElement);
    const next = rows[event.key === "j" ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0)];
    if (next) { event.preventDefault(); next.focus(); next.scrollIntoView({ block: "nearest" }); }
  }
});

render(html`<${App} />`, document.getElementById("app"));
begin();
