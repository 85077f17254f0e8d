// Numbers, times and money in a readable form.
export const dollars = (micros) => micros == null ? "unknown" : `$${(micros / 1e6).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
export const perMinute = (micros) => micros == null ? "" : `${dollars(micros)}/min`;
export const percent = (share) => share == null ? "" : `${Math.floor(Math.min(Math.max(share, 0), 1) * 100 + 1e-9)} %`;

export function span(seconds, { up = false } = {}) {
  if (seconds == null || !isFinite(seconds)) return "";
  const round = up ? Math.ceil : Math.round;
  if (seconds < 60) return `${round(seconds)} s`;
  if (seconds < 3600) { const all = round(seconds); return `${Math.floor(all / 60)} min${all % 60 ? ` ${all % 60} s` : ""}`; }
  if (seconds < 172800) { const all = round(seconds / 60); return `${Math.floor(all / 60)} h${all % 60 ? ` ${all % 60} min` : ""}`; }
  return `${round(seconds / 86400)} days`;
}

export function ago(at_s, now_s) { return at_s == null ? "" : `${span(Math.max(0, now_s - at_s))} ago`; }

export function clock(at_s) {
  if (at_s == null) return "";
  const at = new Date(at_s * 1000), today = new Date().toDateString() === at.toDateString();
  const time = at.toLocaleTimeString("en-GB");
  return today ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

export const words = (state) => String(state ?? "").replace("half_open", "half-open").replaceAll("_", " ");
export const plural = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
export const stateOf = (row) => row.mode && row.mode !== "auto" ? row.mode : row.phase;
export const path = (kind, name) => `/${kind}/${encodeURIComponent(name)}`;
export const sentence = (text) => { const one = String(text ?? ""); return one && `${one[0].toUpperCase()}${one.slice(1)}${/[.!?]$/.test(one) ? "" : "."}`; };
export const withClocks = (text) => String(text).replace(/\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g, (at) => clock(Date.parse(at) / 1000));
