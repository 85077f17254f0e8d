export default function switchgear(pi) {
  const startTimes = new Map()
  let spent = 0
  let lastText = ""

  const send = (k, event, ctx, more, before = false) => {
    const message = { k, event, cwd: ctx.cwd, session: ctx.sessionManager.getSessionId(), ...more }
    const usage = ctx.getContextUsage()
    if (usage) message.usage = usage
    if (spent) message.cost = spent
    spent = 0
    return ask(message, (text) => (ctx.hasUI ? ctx.ui.notify(text, "warning") : console.error(text)), before)
  }

  pi.on("message_end", (event) => {
    spent += event.message?.usage?.cost?.total ?? 0
    const { role, content } = event.message ?? {}
    if (role !== "assistant" || !Array.isArray(content)) return
    lastText = content.map((part) => part.thinking ?? part.text ?? "").filter(Boolean).join("\n")
  })

  pi.on("tool_call", async (event, ctx) => {
    const { toolName, toolCallId, input = {} } = event
    try {
      const ruling = await send("tool_call", { toolName, toolCallId, input }, ctx, {}, true)
      if (ruling.action === "stop") ctx.abort()
      if (ruling.action === "stop" || ruling.action === "deny") return { block: true, reason: ruling.text }
    } catch (error) {
      return { block: true, reason: `switchgear: the call could not be checked: ${error}; it is refused` }
    }
    startTimes.set(toolCallId, Date.now())
  })

  pi.on("tool_result", async (event, ctx) => {
    const { toolName, toolCallId, input, content, isError } = event
    const since = startTimes.get(toolCallId)
    startTimes.delete(toolCallId)
    const more = since === undefined ? {} : { duration_ms: Date.now() - since }
    if (lastText) more.thought = lastText
    const ruling = await send("tool_result", { toolName, toolCallId, input, content, isError }, ctx, more)
    if (ruling.action === "stop") ctx.abort()
    if (!ruling.text || ruling.action === "allow") return
    return { content: [...(content ?? []), { type: "text", text: ruling.text }] }
  })

  pi.on("input", async (event, ctx) => {
    await send("input", { text: event.text }, ctx)
  })

  for (const name of ["session_start", "turn_end", "agent_end", "session_shutdown"]) {
    pi.on(name, async (_event, ctx) => {
      const ruling = await send(name, {}, ctx)
      if (ruling.action === "stop") ctx.abort()
    })
  }
}
