// The page as the cases use it. Names of buttons come from the page's own texts.
import { chromium } from 'playwright-core'
import { t } from './texts.js'

export { t }

const kPictureMs = 60e3  // on a machine that has other work too

let browser = null
const open = []

export const startBrowser = async () => {
  browser = await chromium.launch({ executablePath: process.env.FLUX2_CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
}

export const stopBrowser = () => browser?.close()

// Keeps what the page puts into forms, by the names of the fields.
const keepSentFields = () => {
  window.sent = {}
  const { append } = FormData.prototype
  FormData.prototype.append = function (name, value, ...rest) {
    window.sent[name] = value
    return append.call(this, name, value, ...rest)
  }
}

// What no page may do in any case: errors in the console other than `expected`, requests to another host.
const watch = (page, url, expected) => {
  const problems = []
  page.on('console', (message) => {
    const text = `${message.text()} ${message.location().url}`
    if (message.type() === 'error' && !expected.some((each) => each.test(text))) problems.push(`console: ${text}`)
  })
  page.on('pageerror', (error) => problems.push(`error: ${error.stack}`))
  page.on('request', (request) => {
    const address = new URL(request.url())
    if (!['blob:', 'data:'].includes(address.protocol) && address.host !== new URL(url).host) problems.push(`request: ${address}`)
  })
  return problems
}

// A page in a context of its own. `another` is a page whose tab group it joins; `prepare` gets the page before it is loaded.
export const openPage = async (server, { width = 1280, height = 900, expected = [], another = null, prepare = null, ...options } = {}) => {
  const context = another?.context() ?? await browser.newContext({ viewport: { width, height }, reducedMotion: 'reduce', ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(15000)
  const problems = watch(page, server.url, expected)
  await page.addInitScript(keepSentFields)
  open.push({ page, problems })
  await prepare?.(page)
  await page.goto(server.url)
  return page
}

// For `prepare`: holds back answers whose path matches until the function it returns is called.
export const holdBack = (path) => {
  let release
  const released = new Promise((resolve) => { release = resolve })
  const prepare = (page) => page.route(path, async (route) => {
    await released
    await route.continue()
  })
  return { prepare, release }
}

// Ends all pages of a case. Throws what they did wrong; shows them when the case has failed.
export const closePages = async (failed, name) => {
  const pages = open.splice(0)
  for (const [i, { page }] of pages.entries()) {
    if (failed) await page.screenshot({ path: `failed-${name}-${i}.png` }).catch(() => {})
  }
  for (const { page } of pages) await page.context().close()
  const problems = pages.flatMap((each) => each.problems)
  if (problems.length > 0) throw new Error(problems.join('\n'))
}

// The model's own size is filled in when the server has told it.
export const offered = (page) => page.waitForFunction(() => document.getElementById('width').value !== '')

// Sides of 64 keep the cases quick.
export const fill = async (page, { prompt, width = 64, height = 64, seed = '1' }) => {
  await offered(page)
  await page.fill('#prompt', prompt)
  if (width) await page.fill('#width', String(width))
  if (height) await page.fill('#height', String(height))
  await page.fill('#seed', seed)
}

// Number fields that most people leave alone.
export const fillMore = async (page, values) => {
  await page.evaluate(() => { document.getElementById('more').open = true })
  for (const [id, value] of Object.entries(values)) await page.fill(`#${id}`, String(value))
}

export const submit = (page) => page.click('#submit')

export const api = async (server, path, { key, ...options } = {}) => {
  const response = await fetch(server.url + path, { ...options, headers: key ? { 'X-Api-Key': key } : {} })
  return response.headers.get('content-type')?.includes('json') ? response.json() : Buffer.from(await response.arrayBuffer())
}

export const history = async (server, options) => (await api(server, '/api/v1/history?limit=200', options)).pictures

// Presses the button and waits for the picture's entry in the gallery. Returns what the server stored.
export const makePicture = async (page, server, { start = () => submit(page), ...options } = {}) => {
  const before = new Set((await history(server, options)).map(({ id }) => id))
  await start()
  await page.waitForFunction((ids) => [...document.querySelectorAll('#grid [data-id]')].some((entry) => !ids.includes(entry.dataset.id)),
    [...before], { timeout: kPictureMs })
  return (await history(server, options)).find(({ id }) => !before.has(id))
}

// Asks again until the answer is not false, null or undefined.
export const until = async (ask) => {
  for (let i = 0; i < 150; ++i) {
    const answer = await ask()
    if (answer) return answer
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error(`it did not become true: ${ask}`)
}

export const dialog = (page) => page.locator('dialog[open]')

export const button = (scope, path, values) => scope.getByRole('button', { name: t(path, values), exact: true })

// Drops files of { name, bytes } on an element.
export const drop = async (page, selector, files) => {
  const transfer = await page.evaluateHandle((list) => {
    const data = new DataTransfer()
    for (const { name, base64 } of list) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
      data.items.add(new File([bytes], name, { type: 'image/png' }))
    }
    return data
  }, files.map(({ name, bytes }) => ({ name, base64: bytes.toString('base64') })))
  for (const event of ['dragenter', 'dragover', 'drop']) await page.dispatchEvent(selector, event, { dataTransfer: transfer })
}

// { width, height, data } with four bytes per pixel, by the browser's own reader.
export const pixelsOf = async (page, bytes) => {
  const { width, height, text } = await page.evaluate(async (base64) => {
    const blob = new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))])
    const bitmap = await createImageBitmap(blob, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' })
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height)
    const context = canvas.getContext('2d')
    context.drawImage(bitmap, 0, 0)
    const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height)
    let letters = ''
    for (let i = 0; i < data.length; i += 8192) letters += String.fromCharCode(...data.subarray(i, i + 8192))
    return { width: bitmap.width, height: bitmap.height, text: btoa(letters) }
  }, bytes.toString('base64'))
  return { width, height, data: Buffer.from(text, 'base64') }
}

// A file that the page has sent last under this name.
export const sentFile = async (page, name) => Buffer.from(await page.evaluate(async (field) => {
  const bytes = new Uint8Array(await window.sent[field].arrayBuffer())
  let letters = ''
  for (const byte of bytes) letters += String.fromCharCode(byte)
  return btoa(letters)
}, name), 'base64')

export const sentField = (page, name) => page.evaluate((field) => window.sent[field], name)
