const KEPT_EVENTS = new Set(["session.created", "session.idle", "session.deleted"])

export const Switchgear = async ({ client, directory }) => {
  const begun = new Map()
  const costs = new Map()

  // Into OpenCode's log: what a plugin prints would be written across its screen.
  const say = (text) => {
    const body = { service: "switchgear", level: "warn", message: text }
    const logged = client.app?.log ? client.app.log({ body }) : Promise.reject()
    Promise.resolve(logged).catch(() => console.error(text))
  }

  const abort = async (sessionID) => {
    try {
      await client.session.abort({ path: { id: sessionID } })
    } catch (error) {
      say(`switchgear: the session could not be aborted: ${error}`)
    }
  }

  return {
    "chat.message": async (input) => {
      const ruling = await ask({ k: "chat.message", input: { sessionID: input.sessionID }, cwd: directory }, say)
      if (ruling.action === "stop") await abort(input.sessionID)
    },
    "tool.execute.before": async (input, output) => {
      const ruling = await ask({ k: "tool.execute.before", input, output: { args: output.args }, cwd: directory }, say)
      if (ruling.action === "stop") await abort(input.sessionID)
      if (ruling.action === "stop" || ruling.action === "deny") throw new Error(ruling.text)
      begun.set(input.callID, Date.now())
    },
    "tool.execute.after": async (input, output) => {
      const since = begun.get(input.callID)
      begun.delete(input.callID)
      const told = { output: output.output, metadata: output.metadata }
      const message = { k: "tool.execute.after", input, output: told, cwd: directory }
      if (since !== undefined) message.duration_ms = Date.now() - since
      const ruling = await ask(message, say)
      if (ruling.text && ruling.action !== "allow") output.output = `${output.output}\n\n${ruling.text}`
      if (ruling.action === "stop") await abort(input.sessionID)
    },
    event: async ({ event }) => {
      const properties = event.properties ?? {}
      if (event.type === "message.part.updated" && properties.part?.type === "step-finish") {
        const spent = costs.get(properties.part.sessionID) ?? 0
        costs.set(properties.part.sessionID, spent + (properties.part.cost ?? 0))
      }
      if (!KEPT_EVENTS.has(event.type)) return
      const info = properties.info ?? {}
      const sessionID = properties.sessionID ?? info.id
      const message = { k: "event", type: event.type, properties: { sessionID }, cwd: directory }
      if (costs.get(sessionID)) message.cost = costs.get(sessionID)
      costs.delete(sessionID)
      await ask(message, say)
    },
  }
}
