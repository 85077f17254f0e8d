// Requests and the event stream. The token is kept for this tab only and sent in a header: no cookies.
const KEY = "switchgear.token";

export function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY) || "";
}

export function signIn(value) { sessionStorage.setItem(KEY, value.trim()); }
export function signOut() { sessionStorage.removeItem(KEY); }

export class ApiError extends Error {
  constructor(status, code, message) { super(message); this.status = status; this.code = code; }
}

async function answer(response) {
  if (response.ok) return response;
  let found = {};
  try { found = await response.json(); } catch { /* not JSON: the status is enough */ }
  throw new ApiError(response.status, found.code || "", found.error || `status ${response.status}`);
}

const headers = () => ({ Authorization: `Bearer ${token()}` });

export async function get(path) {
  return (await answer(await fetch(path, { headers: headers(), cache: "no-store" }))).json();
}

export async function text(path) {
  return (await answer(await fetch(path, { headers: headers(), cache: "no-store" }))).text();
}

export async function post(path, body) {
  const key = crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) + Date.now();
  const sent = { ...headers(), "Content-Type": "application/json", "Idempotency-Key": key };
  const response = await fetch(path, { method: "POST", headers: sent, body: JSON.stringify(body) });
  return (await answer(response)).json();
}

// Follows the stream while the page is open; resumes after the last event.
export function follow(onMessage, onState) {
  let cursor = "", ended = false, wait = 500, control = null;
  async function once() {
    control = new AbortController();
    const sent = { ...headers(), Accept: "text/event-stream" };
    if (cursor) sent["Last-Event-ID"] = cursor;
    const response = await answer(await fetch("/v1/events?views=1", { headers: sent, signal: control.signal, cache: "no-store" }));
    onState(true, "");
    wait = 500;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const parts = rest.split("\n\n");
      rest = parts.pop();
      const messages = [];
      for (const part of parts) {
        const message = { event: "", data: null };
        for (const line of part.split("\n")) {
          const at = line.indexOf(": ");
          if (at <= 0) continue;
          const field = line.slice(0, at), rest_of = line.slice(at + 2);
          if (field === "id") cursor = rest_of;
          else if (field === "data") message.data = JSON.parse(rest_of);
          else if (field === "event") message.event = rest_of;
        }
        if (message.event) messages.push(message);
      }
      if (messages.length) onMessage(messages);
    }
  }
  (async () => {
    while (!ended) {
      try { await once(); } catch (error) {
        if (ended) return;
        onState(false, error.message || "no connection", error.status);
        if (error.status === 401) return;
      }
      if (ended) return;
      onState(false, "the connection ended");
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, 5000);
    }
  })();
  return () => { ended = true; if (control) control.abort(); };
}
