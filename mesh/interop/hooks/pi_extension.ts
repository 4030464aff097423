// Hands what goes on in Pi's sessions to the mesh's agent, and its mail to the sessions.
// Whatever goes wrong, the session goes on.
import { spawn } from "node:child_process"

const PROGRAM: string[] = [/* the hook program and its arguments */]

function hook(event: string, ctx: any, more: object = {}): Promise<string> {
  return new Promise((resolve) => {
    let out = ""
    try {
      const said = JSON.stringify({
        hook_event_name: event,
        session_id: ctx.sessionManager.getSessionId(),
        cwd: ctx.cwd,
        transcript_path: ctx.sessionManager.getSessionFile(),
        ...more,
      })
      const child = spawn(PROGRAM[0], PROGRAM.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
      child.on("error", () => resolve(""))
      child.stdin.on("error", () => {})
      child.stdout.on("data", (part: Buffer) => (out += part))
      child.on("close", () => {
        try {
          resolve(out ? JSON.parse(out).text : "")
        } catch {
          resolve("")
        }
      })
      child.stdin.end(said)
    } catch {
      resolve("")
    }
  })
}

export default function (pi: any) {
  let source = "" // how the session began, until that was said
  let continued = false // it goes on because mail came at a stop

  pi.on("session_start", async (event: any) => {
    source = { startup: "startup", new: "startup", resume: "resume", fork: "resume" }[event.reason as string] ?? ""
  })

  pi.on("before_agent_start", async (event: any, ctx: any) => {
    const texts: string[] = []
    if (source) {
      const known = ctx.sessionManager.getEntries().some((entry: any) => entry.type === "message")
      texts.push(await hook("SessionStart", ctx, { source: known ? "resume" : source }))
      source = ""
    }
    if (event.messageType !== "custom") {
      continued = false
      texts.push(await hook("UserPromptSubmit", ctx))
    }
    const content = texts.filter(Boolean).join("\n\n")
    if (content) return { message: { customType: "agent-mesh", content, display: true } }
  })

  pi.on("tool_result", async (event: any, ctx: any) => {
    const text = await hook("PostToolUse", ctx, { tool_name: event.toolName })
    if (text) return { content: [...event.content, { type: "text", text }] }
  })

  pi.on("agent_before_settle", async (event: any, ctx: any) => {
    const content = await hook("Stop", ctx, { stop_hook_active: continued })
    continued = Boolean(content)
    if (!content) return
    const entry = { type: "custom_message", customType: "agent-mesh", content, display: true }
    return { entries: [...(event.entries ?? []), entry], continue: true }
  })

  pi.on("session_shutdown", async (_event: any, ctx: any) => {
    await hook("SessionEnd", ctx)
  })
}
