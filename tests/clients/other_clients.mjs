// Requests as Open WebUI, LibreChat and SillyTavern send them to OpenAI's API.
import assert from 'node:assert/strict'
import { pngOf, sizeOf } from './png.mjs'

const url = process.env.FLUX2_URL
const headers = { Authorization: `Bearer ${process.env.FLUX2_KEY}` }
const post = (path, body) =>
  fetch(url + path, {
    method: 'POST', headers: { ...headers, 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  })
const picture = () => new Blob([pngOf(64, 64, (x, y) => [x, y, 90, 255])], { type: 'image/png' })
const sizeOfFirst = async (answer) => {
  assert.equal(answer.status, 200)
  return sizeOf(Buffer.from((await answer.json()).data[0].b64_json, 'base64'))
}

const checks = {
  async 'Open WebUI generates, with the admin\'s own parameters'() {
    const body = {
      model: 'dall-e-2', prompt: 'a boat', n: 1, size: '64x64', response_format: 'b64_json', steps: 2, seed: 7, cfg_scale: 1,
    }
    assert.deepEqual(await sizeOfFirst(await post('/v1/images/generations', body)), [64, 64])
  },

  async 'Open WebUI edits one and several images'() {
    for (const fields of [['image'], ['image[]', 'image[]']]) {
      const form = new FormData()
      fields.forEach((field, i) => form.append(field, picture(), `${i}.png`))
      for (const [key, value] of Object.entries({
        model: 'gpt-image-1', prompt: 'make it night', n: '1', size: '64x64', background: 'auto', response_format: 'b64_json',
      })) form.append(key, value)
      const answer = await fetch(url + '/v1/images/edits', { method: 'POST', headers, body: form })
      assert.deepEqual(await sizeOfFirst(answer), [64, 64])
    }
  },

  async 'LibreChat sends auto for everything'() {
    const body = {
      model: 'gpt-image-1', prompt: 'a house', background: 'auto', quality: 'auto', size: 'auto', output_format: 'png', n: 1,
      steps: 1,
    }
    assert.deepEqual(await sizeOfFirst(await post('/v1/images/generations', body)), [256, 256])
  },

  async 'LibreChat\'s DALL-E tool fetches the picture by its address'() {
    const answer = await post('/v1/images/generations', {
      model: 'dall-e-3', prompt: 'a house', quality: 'standard', style: 'vivid', size: '64x64', n: 1,
    })
    assert.equal(answer.status, 200)
    const file = await fetch((await answer.json()).data[0].url, { headers })
    assert.deepEqual(sizeOf(Buffer.from(await file.arrayBuffer())), [64, 64])
  },

  async 'SillyTavern generates'() {
    const body = {
      prompt: 'a tree', model: 'gpt-image-1', size: '64x64', n: 1, quality: 'hd', style: 'vivid', response_format: 'b64_json',
    }
    assert.deepEqual(await sizeOfFirst(await post('/v1/images/generations', body)), [64, 64])
  },

  async 'SillyTavern asks for the options of the route'() {
    const answer = await fetch(url + '/v1/images/generations', { method: 'OPTIONS' })
    assert.ok(answer.ok)
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log(`other clients: ${name}`)
}
