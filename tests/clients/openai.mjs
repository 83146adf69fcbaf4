// The official openai package: generate, edit with several images, edit with a mask, streamed partial images, error
// classes, abort.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import OpenAI, { toFile } from 'openai'
import { pngOf, sizeOf } from './png.mjs'

const client = new OpenAI({ baseURL: process.env.FLUX2_URL + '/v1', apiKey: process.env.FLUX2_KEY })
const bytesOf = (item) => Buffer.from(item.b64_json, 'base64')
const house = async () => toFile(pngOf(96, 96, (x, y) => [x * 2, y * 2, 90, 255]), 'house.png', { type: 'image/png' })

const untilMetric = async (name, value) => {
  const headers = { authorization: `Bearer ${process.env.FLUX2_KEY}` }
  for (let i = 0; i < 300; ++i) {
    const text = await (await fetch(`${process.env.FLUX2_URL}/metrics`, { headers })).text()
    if (text.split('\n').includes(`${name} ${value}`)) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  assert.fail(`${name} is never ${value}`)
}

const checks = {
  async 'lists the models'() {
    const models = await client.models.list()
    assert.deepEqual(models.data.map((model) => model.id), ['tiny'])
  },

  async 'generates pictures'() {
    const answer = await client.images.generate({
      model: 'gpt-image-1', prompt: 'a red house', size: '64x64', n: 2, output_format: 'png',
    })
    assert.equal(answer.data.length, 2)
    assert.deepEqual(sizeOf(bytesOf(answer.data[0])), [64, 64])
    assert.equal(answer.usage.output_tokens, 32)
    assert.equal(answer.usage.total_tokens, answer.usage.input_tokens + 32)
    assert.ok(answer._request_id.startsWith('req_'))
  },

  async 'edits with several images'() {
    const answer = await client.images.edit({
      model: 'tiny', prompt: 'make it night', image: [await house(), await house()], size: '64x64',
    })
    assert.deepEqual(sizeOf(bytesOf(answer.data[0])), [64, 64])
  },

  async 'edits one image, whose size the result has'() {
    const answer = await client.images.edit({ model: 'tiny', prompt: 'make it night', image: await house() })
    assert.deepEqual(sizeOf(bytesOf(answer.data[0])), [96, 96])
  },

  async 'edits with a mask'() {
    const mask = await toFile(pngOf(96, 96, (x) => [0, 0, 0, x < 48 ? 0 : 255]), 'mask.png', { type: 'image/png' })
    const answer = await client.images.edit({ model: 'tiny', prompt: 'a boat', image: await house(), mask })
    assert.deepEqual(sizeOf(bytesOf(answer.data[0])), [96, 96])
  },

  async 'streams partial images'() {
    const stream = await client.images.generate({
      model: 'tiny', prompt: 'a boat', size: '64x64', stream: true, partial_images: 2,
    })
    const types = []
    for await (const event of stream) {
      types.push(event.type)
      assert.ok(bytesOf(event).length > 50)
    }
    assert.equal(types.at(-1), 'image_generation.completed')
    assert.ok(types.slice(0, -1).every((type) => type === 'image_generation.partial_image'))
  },

  async 'streams an edit'() {
    const stream = await client.images.edit({
      model: 'tiny', prompt: 'make it night', image: await house(), size: '64x64', stream: true,
    })
    const types = []
    for await (const event of stream) types.push(event.type)
    assert.deepEqual(types, ['image_edit.completed'])
  },

  async 'raises the error classes'() {
    await assert.rejects(client.images.generate({ model: 'tiny', prompt: 'x', size: '65x64' }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError)
      assert.equal(error.param, 'size')
      assert.equal(error.code, 'invalid_value')
      return true
    })
    await assert.rejects(client.images.generate({ model: 'no-such-model', prompt: 'x' }), OpenAI.NotFoundError)
    const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: 'wrong' })
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError)
  },

  async 'is told to come back later when the queue is full'() {
    const patient = { model: 'tiny', prompt: 'a house', size: '256x256', steps: 900 }
    const stop = new AbortController()
    const ask = () => client.images.generate(patient, { signal: stop.signal, maxRetries: 0 }).catch((error) => error)
    const waiting = [ask()]
    await untilMetric('flux2_jobs_running', 1)
    for (let i = 0; i < 4; ++i) waiting.push(ask())
    await untilMetric('flux2_queue_length', 4)
    await assert.rejects(client.images.generate(patient, { maxRetries: 0 }), OpenAI.RateLimitError)
    stop.abort()
    for (const error of await Promise.all(waiting)) assert.ok(error instanceof OpenAI.APIUserAbortError)
  },

  async 'frees the server when it aborts'() {
    // The five of the check before would take minutes each.
    const answer = await client.images.generate({ model: 'tiny', prompt: 'a house', size: '64x64' }, { timeout: 30000 })
    assert.equal(answer.data.length, 1)
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log(`openai package: ${name}`)
}
