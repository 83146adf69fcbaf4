// Making pictures: from a prompt, cancelled, with references, with a LoRA, in several tabs.
import assert from 'node:assert/strict'
import { api, button, fill, fillMore, history, holdBack, makePicture, openPage, submit, t, until } from './page.mjs'
import { pngOf, sizeOf } from './png.mjs'
import { test } from './runner.mjs'
import { sharedServer } from './server.mjs'

const kHouse = 'a small red house on the left, by day, on the grass'

test('a prompt becomes a picture on the stage and in the gallery', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: kHouse, width: 128, height: 64, seed: '7' })
  const made = await makePicture(page, server)
  assert.equal(made.settings.prompt, kHouse)
  assert.equal(made.settings.seed, 7)
  assert.deepEqual(sizeOf(await api(server, made.url)), [128, 64])
  const shown = page.locator('#stage img').first()
  await shown.waitFor()
  await page.waitForFunction(() => document.querySelector('#stage img')?.naturalWidth === 128)
  assert.match(await shown.getAttribute('alt'), /red house/)
})

test('sides become multiples of 16, and aspect buttons keep the area', async () => {
  const page = await openPage(await sharedServer())
  await fill(page, { prompt: 'x', width: 100, height: 131 })
  await page.locator('#seed').focus()
  assert.equal(await page.inputValue('#width'), '96')
  assert.equal(await page.inputValue('#height'), '128')
  await page.fill('#width', '1024')
  await page.fill('#height', '1024')
  await page.locator('#seed').focus()
  await page.getByRole('radio', { name: t('size.landscape', { ratio: '16:9' }) }).check({ force: true })
  const [width, height] = [Number(await page.inputValue('#width')), Number(await page.inputValue('#height'))]
  assert.equal(width % 16 + height % 16, 0)
  assert.ok(Math.abs(width / height - 16 / 9) < 0.03)
  assert.ok(Math.abs(width * height / 1024 ** 2 - 1) < 0.05)
})

test('the forecast is shown before the run, and the defaults of the model', async () => {
  const page = await openPage(await sharedServer())
  await fill(page, { prompt: kHouse })
  await page.waitForFunction(() => /\d/.test(document.getElementById('forecast').textContent))
  assert.match(await page.getAttribute('#steps', 'placeholder'), /\d/)
})

test('several pictures of one job have seeds that count up', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'two pictures of a boat', seed: '40' })
  await page.fill('#count', '2')
  await submit(page)
  const made = await until(async () => {
    const pictures = (await history(server)).filter(({ settings }) => settings.prompt === 'two pictures of a boat')
    return pictures.length === 2 && pictures
  })
  assert.deepEqual(made.map(({ settings }) => settings.seed).sort(), [40, 41])
  for (const { id } of made) await page.locator(`#grid [data-id="${id}"]`).waitFor()
})

test('a running job is cancelled', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a job that is cancelled', width: 512, height: 512 })
  await fillMore(page, { steps: 500 })
  await submit(page)
  await page.locator('#stage img').first().waitFor()
  await button(page.locator('#stage'), 'stage.cancel').click()
  await page.getByText(t('stage.cancelled')).first().waitFor()
  const { jobs } = await api(server, '/api/v1/jobs')
  assert.equal(jobs.find(({ prompt }) => prompt === 'a job that is cancelled').state, 'cancelled')
  assert.ok((await history(server)).every(({ settings }) => settings.prompt !== 'a job that is cancelled'))
})

test('two references are sent in their order, with roles in the prompt', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await page.setInputFiles('#reference-files', [
    { name: 'red.png', mimeType: 'image/png', buffer: pngOf(64, 64, () => [200, 30, 30, 255]) },
    { name: 'blue.png', mimeType: 'image/png', buffer: pngOf(96, 64, () => [30, 30, 200, 255]) },
  ])
  const list = page.locator('#references .reference')
  await list.nth(1).waitFor()
  await page.getByRole('combobox', { name: t('references.role', { n: 2 }) }).selectOption('style')
  await button(page, 'references.earlier', { n: 2 }).click()
  await page.waitForFunction(() => document.querySelector('#references .reference select').value === 'style')
  await fill(page, { prompt: 'a house with two references' })
  const made = await makePicture(page, server)
  assert.equal(made.settings.references.length, 2)
  assert.match(made.settings.full_prompt, /style.*image 1/)
})

test('a picture that is asked for before the server has told its models is made', async () => {
  const server = await sharedServer()
  const { prepare, release } = holdBack('**/api/v1/models')
  const page = await openPage(server, { prepare })
  await page.fill('#prompt', 'an early house')
  const start = async () => {
    await submit(page)
    release()
  }
  const made = await makePicture(page, server, { start })
  assert.equal(made.settings.prompt, 'an early house')
})

test('references that are chosen before the server has answered get its roles', async () => {
  const { prepare, release } = holdBack('**/api/v1/capabilities')
  const page = await openPage(await sharedServer(), { prepare })
  await page.setInputFiles('#reference-files', [{ name: 'red.png', mimeType: 'image/png', buffer: pngOf(64, 64, () => [200, 30, 30, 255]) }])
  const role = page.getByRole('combobox', { name: t('references.role', { n: 1 }) })
  await role.waitFor()
  assert.equal(await role.locator('option[value="style"]').count(), 0)
  release()
  await role.selectOption('style')
  assert.equal(await role.inputValue(), 'style')
})

test('a pasted picture becomes a reference', async () => {
  const page = await openPage(await sharedServer())
  await page.locator('#prompt').waitFor()
  const bytes = pngOf(64, 64, () => [30, 200, 30, 255]).toString('base64')
  await page.evaluate((base64) => {
    const data = new DataTransfer()
    data.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], 'pasted.png', { type: 'image/png' }))
    document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))
  }, bytes)
  await page.locator('#references .reference').waitFor()
})

test('a result becomes a reference with one click', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  await fill(page, { prompt: 'a picture to refer to' })
  const made = await makePicture(page, server)
  await page.click(`#grid [data-id="${made.id}"]`)
  await button(page.locator('dialog[open]'), 'viewer.reference').click()
  await page.locator('#references .reference').waitFor()
})

test('a LoRA changes the picture while it is on, and only then', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  const picture = async () => {
    const made = await makePicture(page, server)
    return { loras: made.settings.adapters, bytes: await api(server, made.url) }
  }
  await fill(page, { prompt: kHouse, seed: '3' })
  const without = await picture()
  await page.getByRole('combobox', { name: t('loras.choose') }).selectOption('blueprint-lora')
  const on = await picture()
  await page.getByRole('checkbox', { name: t('loras.use', { name: 'blueprint-lora' }) }).uncheck()
  const off = await picture()
  assert.equal(without.loras.length, 0)
  assert.equal(on.loras.length, 1)
  assert.equal(off.loras.length, 0)
  assert.notDeepEqual(on.bytes, without.bytes)
  assert.deepEqual(off.bytes, without.bytes)
})

test('a picture made in one tab appears in the gallery of another', async () => {
  const server = await sharedServer()
  const page = await openPage(server)
  const second = await openPage(server, { another: page })
  await page.bringToFront()
  await fill(page, { prompt: 'a picture for both tabs' })
  const made = await makePicture(page, server)
  await second.bringToFront()
  await second.locator(`#grid [data-id="${made.id}"]`).waitFor({ timeout: 10000 })
})

test('an error of the API is shown as its sentence', async () => {
  const server = await sharedServer()
  const page = await openPage(server, { expected: [/400/] })
  await fill(page, { prompt: 'x' })
  await fillMore(page, { steps: 5000 })
  await submit(page)
  await page.getByText(/steps is 5000/).first().waitFor()
})
