// What is kept: the gallery, settings of pictures, prompts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { api, button, dialog, drop, fill, fillMore, history, holdBack, makePicture, openPage, t } from './page.mjs'
import { pngOf, withText } from './png.mjs'
import { test } from './runner.mjs'
import { sharedServer } from './server.mjs'

test('the gallery is the same after a reload', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture that stays' })
  await makePicture(page, server)
  const ids = () => page.locator('#grid [data-id]').evaluateAll((entries) => entries.map((entry) => entry.dataset.id))
  const before = await ids()
  await page.reload()
  await page.locator('#grid [data-id]').nth(before.length - 1).waitFor()
  assert.deepEqual(await ids(), before)
  await page.waitForFunction(() => document.querySelector('#grid img')?.naturalWidth > 0)
})

test('the gallery is searched by words of the prompt', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a needle in the haystack' })
  const made = await makePicture(page, server)
  await page.fill('#search', 'NEEDLE')
  await page.waitForFunction((id) => {
    const entries = [...document.querySelectorAll('#grid [data-id]')]
    return entries.length === 1 && entries[0].dataset.id === id
  }, made.id)
  await page.fill('#search', 'nothing has this')
  await page.getByText(t('gallery.nothing', { text: 'nothing has this' })).waitFor()
  assert.equal(await page.locator('#grid [data-id]').count(), 0)
})

test('the full view shows all settings, and makes the same picture again', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture to look at', seed: '12345', width: 80 })
  await fillMore(page, { steps: 3 })
  const made = await makePicture(page, server)
  await page.click(`#grid [data-id="${made.id}"]`)
  const text = await dialog(page).innerText()
  for (const part of ['a picture to look at', '12345', '80', '3']) assert.ok(text.includes(part), `${part} is shown`)
  const [download] = await Promise.all([page.waitForEvent('download'), button(dialog(page), 'viewer.download').click()])
  assert.match(download.suggestedFilename(), /\.png$/)
  assert.deepEqual(readFileSync(await download.path()), await api(server, made.url), 'with its settings')
  await button(dialog(page), 'viewer.again').click()
  await page.waitForFunction(() => document.getElementById('seed').value === '12345')
  const again = await makePicture(page, server)
  assert.deepEqual(await api(server, again.url), await api(server, made.url))
})

test('the same settings make another picture with a new seed', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture with two seeds', seed: '5' })
  const made = await makePicture(page, server)
  await page.click(`#grid [data-id="${made.id}"]`)
  const other = await makePicture(page, server, { start: () => button(dialog(page), 'viewer.newSeed').click() })
  assert.equal(other.settings.prompt, 'a picture with two seeds')
  assert.notEqual(other.settings.seed, 5)
})

test('a picture is deleted from the full view', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture to delete' })
  const made = await makePicture(page, server)
  await page.click(`#grid [data-id="${made.id}"]`)
  page.once('dialog', (question) => question.accept())
  await button(dialog(page), 'viewer.remove').click()
  await page.locator(`#grid [data-id="${made.id}"]`).waitFor({ state: 'detached' })
  assert.ok((await history(server)).every(({ id }) => id !== made.id))
})

test('a dropped PNG of ours brings its settings back', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture with settings', seed: '77', width: 112, height: 96 })
  await fillMore(page, { steps: 5 })
  const bytes = await api(server, (await makePicture(page, server)).url)
  const other = await openPage(server)
  await drop(other, 'body', [{ name: 'ours.png', bytes }])
  await button(dialog(other), 'drop.settings').click()
  await other.waitForFunction(() => document.getElementById('prompt').value === 'a picture with settings')
  for (const [id, value] of [['seed', '77'], ['width', '112'], ['height', '96'], ['steps', '5']]) {
    assert.equal(await other.inputValue(`#${id}`), value, id)
  }
})

test('a dropped PNG of A1111 brings its settings back', async () => {
  const page = await openPage(await sharedServer())
  const parameters = 'a castle, by night\nSteps: 6, Sampler: Euler, CFG scale: 1, Seed: 4242, Size: 192x128, Model: something'
  const bytes = withText(pngOf(192, 128, () => [9, 9, 90, 255]), 'parameters', parameters)
  await drop(page, 'body', [{ name: 'a1111.png', bytes }])
  await button(dialog(page), 'drop.settings').click()
  await page.waitForFunction(() => document.getElementById('prompt').value === 'a castle, by night')
  // Steps of other models are not those of a distilled one.
  for (const [id, value] of [['seed', '4242'], ['width', '192'], ['height', '128'], ['steps', '']]) {
    assert.equal(await page.inputValue(`#${id}`), value, id)
  }
})

test('settings of a file that is dropped before the server has answered are used when it has', async () => {
  const { prepare, release } = holdBack('**/api/v1/models')
  const page = await openPage(await sharedServer(), { prepare })
  const bytes = withText(pngOf(192, 128, () => [9, 9, 90, 255]), 'parameters', 'a castle, early\nSteps: 6, Seed: 7, Size: 192x128')
  await drop(page, 'body', [{ name: 'a1111.png', bytes }])
  await button(dialog(page), 'drop.settings').click()
  release()
  await page.waitForFunction(() => document.getElementById('prompt').value === 'a castle, early')
  assert.equal(await page.inputValue('#width'), '192')
})

test('prompts that were used are offered again', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a prompt to remember' })
  await makePicture(page, server)
  await page.fill('#prompt', '')
  await page.click('#history-button')
  await page.locator('#history').getByText('a prompt to remember').click()
  assert.equal(await page.inputValue('#prompt'), 'a prompt to remember')
})
