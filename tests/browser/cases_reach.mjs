// Who can use it: with the keyboard alone, on a phone, with a screen reader.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { button, dialog, drop, fill, makePicture, offered, openPage, sentFile, submit, t } from './page.mjs'
import { pngOf, sizeOf } from './png.mjs'
import { test } from './runner.mjs'
import { Server, sharedServer } from './server.mjs'

const kAxe = createRequire(import.meta.url).resolve('axe-core')

const kSource = { name: 'source.png', bytes: pngOf(96, 64, (x, y) => [x, y, 90, 255]) }

// Presses Tab until an element that matches has the focus, as one who sees no pointer does.
const tabTo = async (page, selector) => {
  for (let i = 0; i < 150; ++i) {
    await page.keyboard.press('Tab')
    const { reached, seen } = await page.evaluate((wanted) => {
      const element = document.activeElement
      const style = getComputedStyle(element)
      const box = element.getBoundingClientRect()
      return { reached: element.matches(wanted), seen: box.width > 0 && style.visibility === 'visible' }
    }, selector)
    assert.ok(seen, 'what has the focus is on the page')
    if (reached) return
  }
  assert.fail(`${selector} is not reached with Tab`)
}

test('a picture is made and looked at with the keyboard alone', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await offered(page)
  await tabTo(page, '#prompt')
  await page.keyboard.type('a picture made with keys')
  for (const id of ['width', 'height']) {
    await tabTo(page, `#${id}`)
    await page.keyboard.press('Control+a')
    await page.keyboard.type('64')
  }
  await makePicture(page, server, { start: () => page.keyboard.press('Control+Enter') })
  await tabTo(page, '#grid [data-id], #grid [data-id] *')
  await page.keyboard.press('Enter')
  await dialog(page).getByText('a picture made with keys').first().waitFor()
  assert.ok(await page.evaluate(() => document.querySelector('dialog[open]').contains(document.activeElement)), 'the view has the focus')
  await page.keyboard.press('Escape')
  await dialog(page).waitFor({ state: 'hidden' })
  assert.ok(await page.evaluate(() => document.querySelector('#grid').contains(document.activeElement)), 'the focus is back')
})

test('a mask is painted with the keyboard alone', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await drop(page, 'body', [kSource])
  await button(dialog(page), 'drop.edit').press('Enter')
  await page.locator('.editor-stage canvas').waitFor()
  await tabTo(page, '.editor-stage canvas')
  await page.keyboard.press('r')
  await page.keyboard.press('Enter')
  for (const key of ['Shift+ArrowRight', 'Shift+ArrowDown']) await page.keyboard.press(key)
  await page.keyboard.press('Enter')
  await fill(page, { prompt: 'a boat', width: 0, height: 0 })
  await makePicture(page, server)
  assert.deepEqual(sizeOf(await sentFile(page, 'mask')), [96, 64])
})

// Elements that reach over the right or left edge of the window.
const cutOff = (page) => page.evaluate(() => {
  const width = document.documentElement.clientWidth
  const isSeen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && !element.closest('.unseen, .skip, svg.icons')
  const over = [...document.querySelectorAll('button, input, select, textarea, img, canvas, h1, h2, label, output, dialog')]
    .filter(isSeen)
    .filter((element) => {
      const box = element.getBoundingClientRect()
      return box.width > 0 && (box.right > width + 1 || box.left < -1)
    })
  return { scroll: document.documentElement.scrollWidth - width, over: over.map((element) => element.outerHTML.slice(0, 160)) }
})

// Opens a picture in full, then on the canvas with its list of keys; checks both.
const checkViews = async (page, made, check) => {
  await page.locator(`#grid [data-id="${made.id}"]`).click()
  await dialog(page).waitFor()
  await check('the full view')
  await button(dialog(page), 'viewer.edit').click()
  await page.locator('.editor-stage canvas').waitFor()
  await page.locator('.editor-keys summary').click()
  await check('the canvas')
}

test('everything fits into 360 pixels', async () => {
  const server = await sharedServer()
  const page = await openPage(server, { width: 360, height: 740, hasTouch: true, isMobile: true })
  const check = async (what) => assert.deepEqual(await cutOff(page), { scroll: 0, over: [] }, what)
  await page.locator('#prompt').waitFor()
  await page.evaluate(() => { document.getElementById('more').open = true })
  await check('the empty page')
  await fill(page, { prompt: 'a picture made on a phone with a prompt that needs more than one line' })
  const made = await makePicture(page, server)
  await check('with a picture')
  await checkViews(page, made, check)
})

test('light and dark follow the system until one is chosen, which stays', async () => {
  const page = await openPage(await sharedServer(), { colorScheme: 'dark' })
  const brightness = () => page.evaluate(() => {
    const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number)
    return (r + g + b) / 765
  })
  assert.ok(await brightness() < 0.3, 'dark like the system')
  await page.selectOption('#theme', 'light')
  assert.ok(await brightness() > 0.7, 'light as chosen')
  await page.reload()
  assert.ok(await brightness() > 0.7, 'light after a reload')
})

// Serious and critical findings of axe.
const findings = async (page) => {
  if (!(await page.evaluate(() => 'axe' in window))) {
    // Evaluated by the debugger, which the content security policy does not restrict.
    const { readFileSync } = await import('node:fs')
    await page.evaluate(readFileSync(kAxe, 'utf8'))
  }
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'] })
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`).join('\n  ')}`)
  })
  return found
}

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds no serious problem in any view, ${colorScheme}`, async () => {
    const server = await sharedServer()
    const page = await openPage(server, { colorScheme })
    const check = async (what) => assert.deepEqual(await findings(page), [], what)
    await page.evaluate(() => { document.getElementById('more').open = true })
    await fill(page, { prompt: 'a picture for axe' })
    await page.setInputFiles('#reference-files', [{ name: 'a.png', mimeType: 'image/png', buffer: kSource.bytes }])
    await page.getByRole('combobox', { name: t('loras.choose') }).selectOption('blueprint-lora')
    const made = await makePicture(page, server)
    await check('the page with a picture, a reference and a LoRA')
    await checkViews(page, made, check)
    await drop(page, 'body', [kSource])
    await dialog(page).waitFor()
    await check('the question about a dropped picture')
  })
}

test('axe finds no serious problem while a job runs and when a key is asked for', async () => {
  const server = await Server.start(['--api-key', 'secret'])
  const page = await openPage(server, { expected: [/401/] })
  await dialog(page).waitFor()
  assert.deepEqual(await findings(page), [], 'the question for the key')
  await dialog(page).getByLabel(t('key.field'), { exact: true }).fill('secret')
  await button(dialog(page), 'key.use').click()
  await fill(page, { prompt: 'a job that runs', width: 512, height: 512 })
  await page.evaluate(() => { document.getElementById('more').open = true })
  await page.fill('#steps', '300')
  await submit(page)
  await submit(page)
  await page.locator('#stage img').first().waitFor()
  assert.deepEqual(await findings(page), [], 'while a job runs and one waits')
})
