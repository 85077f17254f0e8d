// Drawings: a line chart (uPlot), a timeline of states and a graph of tasks (SVG).
import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { clock, words } from "./format.js";

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// `series`: [{ label, color (a CSS variable), value }]; `data`: x, then one array per series.
export function Lines({ series, data, label, time = true, height = 190, range = null }) {
  const place = useRef(null), plot = useRef(null);
  const theme = document.documentElement.dataset.theme || "";
  const shape = JSON.stringify([series.map((each) => each.label), time, height, theme]);
  useEffect(() => {
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const options = {
      width: Math.max(place.current.clientWidth, 240), height,
      scales: { x: { time }, ...(range ? { y: { range } } : {}) },
      cursor: { drag: { x: false, y: false } },
      axes: [time ? { ...axis, space: 70, values: (_, all) => all.map((at) => all.length > 1 && all[1] - all[0] < 60 ? clock(at) : clock(at).slice(0, -3)) } : { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 56, values: series[0].axis ? (_, all) => all.map(series[0].axis) : undefined }],
      series: [{ label: time ? "time" : "iteration", value: (_, at) => at == null ? "–" : time ? clock(at) : String(at) }, ...series.map((each) => ({
        label: each.label, stroke: color(each.color), width: 2, points: { show: data[0].length < 40 },
        value: (_, value) => value == null ? "–" : each.value ? each.value(value) : String(Math.round(value * 100) / 100),
        spanGaps: true,
      }))],
    };
    plot.current = new window.uPlot(options, data, place.current);
    const resize = new ResizeObserver(() => plot.current && place.current &&
      plot.current.setSize({ width: Math.max(place.current.clientWidth, 240), height }));
    resize.observe(place.current);
    return () => { resize.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => { if (plot.current) plot.current.setData(data); }, [data]);
  return html`<div class="chart" ref=${place} role="img" aria-label=${label}></div>`;
}

// The states of a circuit by its events; before the first event, the state that this event ended.
export function Timeline({ events, now_s, state, cooled_s }) {
  if (!events.length) return html`<p class="dim">No event is stored: the circuit has not changed its state.</p>`;
  const first = events[0], long = Math.max(now_s - first.at_s, 1), width = 1000, lead = 60;
  const from = first.at_s, x = (at) => lead + ((at - from) / long) * (width - lead);
  const parts = [];
  events.forEach((event, at) => {
    const until = at + 1 < events.length ? events[at + 1].at_s : now_s;
    const is = event.mode !== "auto" ? event.mode : event.after;
    parts.push({ is, from: event.at_s, until, event });
  });
  const last = parts[parts.length - 1];
  if (state === "half_open" && last.is === "open" && cooled_s != null) {
    // No event marks the end of the cooldown before the next call.
    last.until = Math.min(Math.max(cooled_s, last.from), now_s);
    parts.push({ is: "half_open", from: last.until, until: now_s, event: { reason: "the cooldown is over" } });
  }
  const states = [...new Set([first.before, ...parts.map((part) => part.is)])];
  const said = `State over time, from ${clock(from)} to now; now ${words(state)}.`;
  return html`<figure class="chart" aria-label=${said} role="img">
    <svg class="timeline" viewBox="0 0 1000 34" preserveAspectRatio="none" height="34">
      <rect class=${`s-${first.before}`} x="0" y="2" height="30" width=${lead}><title>${`${words(first.before)} before ${clock(from)}`}</title></rect>
      ${parts.map((part) => html`<rect class=${`s-${part.is}`} x=${x(part.from)} y="2" height="30" width=${Math.max(x(part.until) - x(part.from), 1.5)}>
        <title>${`${words(part.is)} from ${clock(part.from)} to ${clock(part.until)}${part.event.reason ? `: ${part.event.reason}` : ""}`}</title></rect>`)}
    </svg>
    <div class="row small dim"><span style=${{ marginLeft: `${(lead / width) * 100}%` }}>${clock(from)}</span><span class="grow"></span><span>now</span></div>
    <div class="legend">${states.map((is) => html`<span class=${`badge ${is}`}>${words(is)}</span>`)}</div>
  </figure>`;
}

// Tasks in columns: each task is to the right of all tasks that it needs.
export function TaskGraph({ tasks, onOpen }) {
  const byName = new Map(tasks.map((task) => [task.name, task])), depth = new Map();
  const deep = (name, seen) => {
    if (depth.has(name)) return depth.get(name);
    if (seen.has(name)) return 0;
    seen.add(name);
    const found = 1 + Math.max(-1, ...byName.get(name).needs.filter((each) => byName.has(each)).map((each) => deep(each, seen)));
    depth.set(name, found);
    return found;
  };
  tasks.forEach((task) => deep(task.name, new Set()));
  const rows = new Map(), place = new Map();
  tasks.forEach((task) => {
    const column = depth.get(task.name), row = rows.get(column) || 0;
    rows.set(column, row + 1);
    place.set(task.name, [column * 210 + 8, row * 62 + 8]);
  });
  const width = (Math.max(...depth.values()) + 1) * 210, height = Math.max(...rows.values()) * 62 + 8;
  return html`<div class="scroll"><svg class="graph" role="group" aria-label="Tasks and what each needs" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>
    ${tasks.flatMap((task) => task.needs.filter((each) => place.has(each)).map((need) => {
      const [x1, y1] = place.get(need), [x2, y2] = place.get(task.name);
      return html`<path class="g-line" d=${`M${x1 + 180} ${y1 + 23} C${x1 + 196} ${y1 + 23} ${x2 - 16} ${y2 + 23} ${x2} ${y2 + 23}`} />`;
    }))}
    ${tasks.map((task) => {
      const [x, y] = place.get(task.name), short = task.name.length > 22 ? `${task.name.slice(0, 21)}…` : task.name;
      return html`<g role=${task.run ? "link" : undefined} tabindex=${task.run ? 0 : undefined}
          onClick=${() => task.run && onOpen(task.run)} onKeyDown=${(key) => key.key === "Enter" && task.run && onOpen(task.run)}>
        <title>${`${task.name}: ${task.status}${task.reason ? ` – ${task.reason}` : ""}`}</title>
        <rect class=${`g-box ${task.status}`} x=${x} y=${y} width="180" height="46" rx="8" />
        <text x=${x + 10} y=${y + 19}>${short}</text><text class="faint" x=${x + 10} y=${y + 36}>${task.status}</text></g>`;
    })}
  </svg></div>`;
}
