// How fast it is: first load, previews, scrolling.
import assert from 'node:assert/strict'
import { linkSync, writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { join } from 'node:path'
import { api, fill, fillMore, makePicture, openPage } from './page.mjs'
import { test } from './runner.mjs'
import { Server, sharedServer } from './server.mjs'

const kFirstLoadBytes = 150e3
const kFirstLoadMs = 1000
const kMostLoads = 30
const kPreviewMs = 200
const kLeastPreviews = 8
const kMostPictures = 8
const kTaskMs = 100

const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1]

// Milliseconds from the start of the load to the frame in which the defaults of the model are in the form.
const usableAfter = () => new Promise((resolve) => {
  const look = () => (document.getElementById('width').value === '' ? requestAnimationFrame(look) : resolve(performance.now()))
  look()
})

test('the first load is below 150 kB and a second', async () => {
  const server = await Server.start()
  // Other work on the machine only adds: the best of three loads, or of more where none was fast enough.
  const loads = []
  const best = () => Math.min(...loads.map(({ ms }) => ms))
  while (loads.length < 3 || (best() >= kFirstLoadMs && loads.length < kMostLoads)) {
    const page = await openPage(server)
    const ms = await page.evaluate(usableAfter)
    loads.push(await page.evaluate((ms) => {
      const own = performance.getEntriesByType('resource').filter(({ name }) => name.includes('/web/'))
      const [first] = performance.getEntriesByType('navigation')
      const bytes = own.reduce((sum, { transferSize }) => sum + transferSize, first.transferSize)
      return { bytes, ms, files: own.length + 1 }
    }, ms))
  }
  const { bytes, files } = loads[0]
  console.log(`    ${bytes} bytes in ${files} files; usable after ${Math.round(best())} ms (best of ${loads.length})`)
  assert.ok(bytes > 0 && bytes < kFirstLoadBytes)
  assert.ok(best() < kFirstLoadMs)
})

test('a second visit loads only what has changed', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await page.waitForFunction(() => document.getElementById('width').value !== '')
  await page.goto(server.url)
  await page.waitForFunction(() => document.getElementById('width').value !== '')
  const bytes = await page.evaluate(() => performance.getEntriesByType('resource')
    .filter(({ name }) => name.includes('/web/')).reduce((sum, { transferSize }) => sum + transferSize, 0))
  assert.equal(bytes, 0)
})

// Keeps for each preview how long after its event it was on the screen.
const watchPreviews = () => {
  window.previewDelays = []
  document.addEventListener('load', ({ target }) => {
    const time = Number(target.dataset?.time)
    if (!time) return
    requestAnimationFrame(() => setTimeout(() => window.previewDelays.push(Date.now() - time)))
  }, true)
}

test('a preview is on the screen within 200 ms of its event', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await page.evaluate(watchPreviews)
  // On a busy machine the server leaves previews out, and the browser those that have a successor already: more pictures have enough.
  let delays = []
  for (let seed = 1; delays.length < kLeastPreviews && seed <= kMostPictures; ++seed) {
    await fill(page, { prompt: 'a small red house on the left, by day, on the grass', width: 256, height: 256, seed: String(seed) })
    await fillMore(page, { steps: 12 })
    await makePicture(page, server)
    delays = await page.evaluate(() => window.previewDelays)
  }
  console.log(`    ${delays.length} previews; median ${median(delays)} ms, at most ${Math.max(...delays)} ms`)
  assert.ok(delays.length >= kLeastPreviews)
  assert.ok(median(delays) < kPreviewMs)
})

// Entries of the results folder as the server writes them; all are the same picture.
const seed = (server, { id, settings }, n) => {
  for (let i = 0; i < n; ++i) {
    const other = (0x10000000000 + i).toString(16).padStart(12, '0') + '00000000'
    writeFileSync(join(server.results, `${other}.json`), JSON.stringify({ ...settings, prompt: `entry ${i} of the gallery` }))
    for (const extension of ['.png', '.jpg']) linkSync(join(server.results, id + extension), join(server.results, other + extension))
  }
}

const watchTasks = () => {
  window.tasks = []
  const observer = new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration)))
  observer.observe({ type: 'longtask' })
}

// Turns the wheel until the oldest entry is there, then back a bit.
const scrollToEnd = async (page) => {
  await page.mouse.move(900, 600)
  const last = page.locator('#grid [aria-label*="entry 0 of"]')
  for (let i = 0; i < 400 && await last.count() === 0; ++i) {
    await page.mouse.wheel(0, 2500)
    await page.waitForTimeout(16)
  }
  assert.ok(await last.count() > 0, 'the last entry is reached')
  for (let i = 0; i < 10; ++i) await page.mouse.wheel(0, -4000)
  await page.waitForTimeout(200)
}

// Milliseconds that the page's own thread worked in one task, from a trace of the browser.
const longestWork = (trace) => {
  const { traceEvents } = JSON.parse(trace.toString())
  const isMain = ({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain'
  const main = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid} ${tid}`))
  const tasks = traceEvents.filter(({ name, pid, tid, tdur }) => name.endsWith('RunTask') && main.has(`${pid} ${tid}`) && tdur)
  assert.ok(tasks.length > 0, 'the trace has tasks')
  return tasks.reduce((most, { tdur }) => Math.max(most, tdur), 0) / 1000
}

test('scrolling through 2,000 pictures blocks the page for no more than 100 ms at a time', async () => {
  const server = await Server.start(['--max-results', '5000'])
  const first = await openPage(server)
  await fill(first, { prompt: 'the first picture', width: 256, height: 256 })
  const made = await makePicture(first, server)
  await api(server, made.thumbnail)
  seed(server, made, 2000)
  await first.context().close()
  const page = await openPage(server)
  const passes = []
  while (passes.length < 2 && !(passes.at(-1)?.longest <= kTaskMs)) {
    await page.reload()
    await page.locator('#grid [data-id]').first().waitFor()
    await page.evaluate(watchTasks)
    await page.context().browser().startTracing(page, { categories: ['toplevel'] })
    await scrollToEnd(page)
    const worked = longestWork(await page.context().browser().stopTracing())
    passes.push({ longest: Math.max(0, ...await page.evaluate(() => window.tasks)), worked })
  }
  for (const { longest, worked } of passes) {
    console.log(`    longest task ${Math.round(longest)} ms; most work in a task ${Math.round(worked)} ms`)
  }
  // With much other work on the machine a task takes long because it waits for a core: then its own work counts.
  const isBusy = loadavg()[0] > 2 * cpus().length
  const { longest, worked } = passes.at(-1)
  assert.ok((isBusy ? worked : longest) <= kTaskMs)
})
