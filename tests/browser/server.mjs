// flux2-server as a child of the tests.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const running = new Set()

const address = (child) => new Promise((resolve, reject) => {
  let log = ''
  child.stderr.on('data', (text) => {
    log += text
    const ready = log.match(/event=ready address=(\S+)/)
    if (ready) resolve(ready[1])
  })
  child.once('exit', (code) => reject(new Error(`flux2-server ended with ${code}:\n${log}`)))
})

export class Server {
  static async start(options = [], { port = 0, results = mkdtempSync(join(tmpdir(), 'flux2-browser-')) } = {}) {
    const server = new Server()
    server.options = options
    server.results = results
    // One thread: the other core is the browser's.
    server.child = spawn(process.env.FLUX2_SERVER, [
      '--port', String(port), '--threads', '1', '--no-cache', '--drain-seconds', '0', '--lora-dir', process.env.FLUX2_LORA_DIR,
      '--output-dir', results, ...options,
    ], { stdio: ['ignore', 'ignore', 'pipe'] })
    running.add(server)
    server.url = await address(server.child)
    return server
  }

  // The same results and port.
  async startAgain() {
    const { port } = new URL(this.url)
    return Server.start(this.options, { port, results: this.results })
  }

  async stop() {
    running.delete(this)
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve))
      this.child.kill('SIGTERM')
      await ended
    }
    rmSync(this.results, { recursive: true, force: true })
  }
}

// One server for all cases that need nothing special.
let shared = null
export const sharedServer = () => (shared ??= Server.start())

export const stopAll = () => Promise.all([...running].map((server) => server.stop()))

// Those that a case has started for itself.
export const stopOthers = async () => {
  const kept = await shared
  await Promise.all([...running].filter((server) => server !== kept).map((server) => server.stop()))
}
