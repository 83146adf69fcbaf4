// The server behind the page: it wants a key, it goes and comes back.
import assert from 'node:assert/strict'
import { button, dialog, fill, fillMore, makePicture, openPage, submit, t } from './page.mjs'
import { test } from './runner.mjs'
import { Server } from './server.mjs'

test('a wrong key is refused and asked for again; the right one is kept for the tab only', async () => {
  const server = await Server.start(['--api-key', 'secret'])
  const page = await openPage(server, { expected: [/401/] })
  const key = dialog(page).getByLabel(t('key.field'), { exact: true })
  await key.fill('guess')
  await button(dialog(page), 'key.use').click()
  await dialog(page).getByText(t('key.wrong')).waitFor()
  await key.fill('secret')
  await button(dialog(page), 'key.use').click()
  await dialog(page).waitFor({ state: 'hidden' })
  await fill(page, { prompt: 'a picture with a key' })
  const made = await makePicture(page, server, { key: 'secret' })
  await page.waitForFunction(() => document.querySelector('#grid img')?.naturalWidth > 0)
  await page.reload()
  await page.locator(`#grid [data-id="${made.id}"]`).waitFor()
  assert.equal(await dialog(page).count(), 0)
  const another = await openPage(server, { another: page, expected: [/401/] })
  await dialog(another).waitFor()
})

test('a key is kept for later visits when that is wanted', async () => {
  const server = await Server.start(['--api-key', 'secret'])
  const page = await openPage(server, { expected: [/401/] })
  await dialog(page).getByLabel(t('key.field'), { exact: true }).fill('secret')
  await dialog(page).getByLabel(t('key.remember')).check()
  await button(dialog(page), 'key.use').click()
  await dialog(page).waitFor({ state: 'hidden' })
  const another = await openPage(server, { another: page })
  await another.waitForFunction(() => document.getElementById('width').value !== '')
  assert.equal(await dialog(another).count(), 0)
})

test('a restart of the server is survived, and the job that is gone says so', async () => {
  let server = await Server.start()
  const page = await openPage(server, { expected: [/ERR_/, /50\d/] })
  await fill(page, { prompt: 'a picture before the restart' })
  const made = await makePicture(page, server)
  await fill(page, { prompt: 'a job that is lost', width: 512, height: 512 })
  await fillMore(page, { steps: 500 })
  await submit(page)
  await page.locator('#stage img').first().waitFor()
  await button(page.locator('#stage'), 'stage.cancel').waitFor()
  server.child.kill('SIGKILL')
  await page.getByText(t('connection.lost')).first().waitFor()
  server = await server.startAgain()
  await page.getByText(t('stage.gone')).first().waitFor()
  await page.waitForFunction((text) => !document.getElementById('connection').textContent.includes(text), t('connection.lost'))
  await page.locator(`#grid [data-id="${made.id}"]`).waitFor()
  await fill(page, { prompt: 'a picture after the restart' })
  await fillMore(page, { steps: 2 })
  await makePicture(page, server)
})
