import { spawn } from "node:child_process"

const SWITCHGEAR = {}
const MAX_CHARS = 20000

// Sends one event to the hook process and returns its ruling. Never throws or blocks forever. If the hook
// does not respond, a call that has not run yet (`before`) is refused, and at any other event the agent
// continues; both are reported.
function ask(message, report, before) {
  return new Promise((resolve) => {
    let output = ""
    let child
    let done = false
    const end = (ruling) => {
      done = true
      clearTimeout(timer)
      resolve(ruling)
    }
    const fail = (why) => {
      if (done) return
      const then = before ? "the call is refused" : "the event is not recorded"
      const remark = `switchgear: the hook gave no answer: ${why}; ${then}. Run 'switchgear hooks doctor'`
      end(before ? { action: "deny", text: remark } : { action: "allow" })
      try {
        report(remark)
      } catch {
        // nothing can be printed here
      }
    }
    const timer = setTimeout(() => {
      fail(`no answer within ${SWITCHGEAR.timeout_s} s`)
      child?.kill("SIGKILL")
    }, SWITCHGEAR.timeout_s * 1000)
    try {
      const [program, ...args] = SWITCHGEAR.command
      child = spawn(program, args, { stdio: ["pipe", "pipe", "ignore"] })
      child.on("error", (error) => fail(error.message))
      child.stdin.on("error", () => {})
      child.stdout.setEncoding("utf8")
      child.stdout.on("data", (text) => (output += text))
      child.on("close", (code) => {
        if (done) return
        const ruling = parseRuling(output)
        if (!ruling) return fail(`its answer could not be read, exit code ${code}`)
        end(ruling)
        if (ruling.remark) report(ruling.remark)
      })
      // The arguments of a pending call are sent completely, or the call is refused as too long.
      child.stdin.end(JSON.stringify(message, before ? undefined : shorten))
    } catch (error) {
      fail(error.message)
    }
  })
}

function parseRuling(output) {
  try {
    const ruling = JSON.parse(output)
    return ["allow", "warn", "deny", "stop"].includes(ruling.action) ? ruling : undefined
  } catch {
    return undefined
  }
}

// Shortens long texts: only their beginning and end are examined.
function shorten(_key, value) {
  if (typeof value !== "string" || value.length <= MAX_CHARS) return value
  return value.slice(0, MAX_CHARS / 2) + "\n[...]\n" + value.slice(-MAX_CHARS / 2)
}
