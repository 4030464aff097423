// Hands what goes on in OpenCode's sessions to the mesh's agent, and its mail to the sessions.
// Whatever goes wrong, the session goes on.
import { spawn } from "node:child_process"

const PROGRAM = [/* the hook program and its arguments */]

const ENDS = process.argv.includes("run")
const DATA = process.env.XDG_DATA_HOME || `${process.env.HOME}/.local/share`
const DATABASE = `${DATA}/opencode/opencode.db` // where its sessions are

function hook(event, sessionID, cwd, more = {}) {
  return new Promise((resolve) => {
    const said = JSON.stringify({ hook_event_name: event, session_id: sessionID, cwd, transcript_path: DATABASE, ...more })
    let out = ""
    try {
      const child = spawn(PROGRAM[0], PROGRAM.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
      child.on("error", () => resolve(""))
      child.stdin.on("error", () => {})
      child.stdout.on("data", (part) => (out += part))
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

export const AgentMesh = async ({ client, directory }) => {
  const created = new Set() // sessions that began while we looked
  const greeted = new Set()
  const continued = new Set() // sessions that go on because mail came at a stop

  return {
    "chat.message": async (input, output) => {
      const id = input.sessionID
      const texts = []
      if (!greeted.has(id)) {
        greeted.add(id)
        texts.push(await hook("SessionStart", id, directory, { source: created.has(id) ? "startup" : "resume" }))
      }
      if (!continued.has(id)) texts.push(await hook("UserPromptSubmit", id, directory))
      const text = texts.filter(Boolean).join("\n\n")
      if (!text) return
      const own = output.parts.find((part) => part.type === "text")
      if (own) own.text = `${own.text}\n\n${text}`
    },

    "tool.execute.after": async (input, output) => {
      const text = await hook("PostToolUse", input.sessionID, directory, { tool_name: input.tool })
      if (text) output.output = `${output.output}\n\n${text}`
    },

    event: async ({ event }) => {
      if (event.type === "session.created") created.add(event.properties.info?.id)
      if (event.type === "session.deleted") await hook("SessionEnd", event.properties.info?.id ?? "-", directory)
      if (event.type !== "session.idle") return
      const id = event.properties.sessionID
      // `opencode run` ends with the answer: what is said now would reach nobody.
      if (ENDS) return void (await hook("SessionEnd", id, directory))
      const text = await hook("Stop", id, directory, { stop_hook_active: continued.delete(id) })
      if (!text) return
      continued.add(id)
      await client.session.promptAsync({ path: { id }, body: { parts: [{ type: "text", text }] } }).catch(() => {})
    },
  }
}
