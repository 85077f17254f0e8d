const KEPT_EVENTS = new Set(["session.created", "session.idle", "session.deleted"])

const MAX_SESSIONS = 1000

// Drops the oldest entry, because an OpenCode server may run for weeks.
function remember(known, key, value) {
  known.delete(key)
  known.set(key, value)
  if (known.size > MAX_SESSIONS) known.delete(known.keys().next().value)
}

export const Switchgear = async ({ client, directory }) => {
  const startTimes = new Map()
  const costs = new Map()
  const used = new Map()
  const texts = new Map()
  const windows = new Map()
  const roots = new Map()

  // Writes to OpenCode's log, because the output of a plugin would corrupt its screen.
  const report = (text) => {
    const body = { service: "switchgear", level: "warn", message: text }
    const logged = client.app?.log ? client.app.log({ body }) : Promise.reject()
    Promise.resolve(logged).catch(() => console.error(text))
  }

  const abort = async (sessionID) => {
    try {
      await client.session.abort({ path: { id: sessionID } })
    } catch (error) {
      report(`switchgear: the session could not be aborted: ${error}`)
    }
  }

  // Sends an event with the parent session and the usage since the last event.
  const send = (message, sessionID, before = false) => {
    if (roots.has(sessionID)) message.rootID = roots.get(sessionID)
    if (costs.get(sessionID)) message.cost = costs.get(sessionID)
    costs.delete(sessionID)
    if (used.has(sessionID)) message.usage = { tokens: used.get(sessionID), contextWindow: windows.get(sessionID) }
    if (texts.get(sessionID)) message.thought = texts.get(sessionID)
    return ask({ ...message, cwd: directory }, report, before)
  }

  const record = (part) => {
    if (part?.type === "step-finish") {
      costs.set(part.sessionID, (costs.get(part.sessionID) ?? 0) + (part.cost ?? 0))
      const { input = 0, output = 0, cache = {} } = part.tokens ?? {}
      remember(used, part.sessionID, input + output + (cache.read ?? 0) + (cache.write ?? 0))
    }
    if (part?.type === "step-start") remember(texts, part.sessionID, "")
    const speaks = part?.type === "text" || part?.type === "reasoning"
    if (speaks && texts.has(part.sessionID)) remember(texts, part.sessionID, part.text)
  }

  return {
    "chat.params": async (input) => {
      remember(windows, input.sessionID, input.model?.limit?.context)
    },
    "chat.message": async (input) => {
      const ruling = await send({ k: "chat.message", input: { sessionID: input.sessionID } }, input.sessionID)
      if (ruling.action === "stop") await abort(input.sessionID)
    },
    "tool.execute.before": async (input, output) => {
      const message = { k: "tool.execute.before", input, output: { args: output.args ?? {} } }
      const ruling = await send(message, input.sessionID, true)
      if (ruling.action === "stop") await abort(input.sessionID)
      if (ruling.action === "stop" || ruling.action === "deny") throw new Error(ruling.text)
      startTimes.set(input.callID, Date.now())
    },
    "tool.execute.after": async (input, output) => {
      const since = startTimes.get(input.callID)
      startTimes.delete(input.callID)
      const made = { output: output.output, metadata: output.metadata }
      const message = { k: "tool.execute.after", input, output: made }
      if (since !== undefined) message.duration_ms = Date.now() - since
      const ruling = await send(message, input.sessionID)
      if (ruling.text && ruling.action !== "allow") output.output = `${output.output}\n\n${ruling.text}`
      if (ruling.action === "stop") await abort(input.sessionID)
    },
    event: async ({ event }) => {
      const properties = event.properties ?? {}
      if (event.type === "message.part.updated") record(properties.part)
      if (!KEPT_EVENTS.has(event.type)) return
      const info = properties.info ?? {}
      const sessionID = properties.sessionID ?? info.id
      // OpenCode creates a session for each sub-agent, and names its parent here.
      if (info.parentID) remember(roots, sessionID, roots.get(info.parentID) ?? info.parentID)
      await send({ k: "event", type: event.type, properties: { sessionID } }, sessionID)
    },
  }
}
