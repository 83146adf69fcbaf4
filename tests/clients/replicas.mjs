// Load on two replicas, one of which is killed in the middle. Usage: replicas.mjs URL PROCESS
import assert from 'node:assert/strict'

const [url, victim] = process.argv.slice(2)
const clients = 8, requests = 80
let next = 0, done = 0, failed = 0, lost = 0

const request = async (seed) => {
  try {
    const answer = await fetch(url + '/v1/images/generations', {
      method: 'POST', body: JSON.stringify({ prompt: 'a house', size: '64x64', steps: 2, seed }),
    })
    return answer.ok && (await answer.json()).data.length === 1
  } catch {
    return false
  }
}

const client = async () => {
  while (next < requests) {
    const seed = next++
    if (!(await request(seed))) {
      ++failed
      if (!(await request(seed))) ++lost
    }
    if (++done === requests / 4) process.kill(Number(victim), 'SIGKILL')
  }
}
await Promise.all(Array.from({ length: clients }, client))
console.log(`${done} requests, ${failed} failed when a replica was killed, ${lost} of them also when tried again`)
assert.ok(failed <= clients)
assert.equal(lost, 0)
