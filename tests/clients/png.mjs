// PNG files for tests.
import * as zlib from 'node:zlib'

const table = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; ++k) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1
  return n >>> 0
})
// Node 18 has none.
const crc32 = zlib.crc32 ?? ((bytes) =>
  (bytes.reduce((crc, byte) => table[(crc ^ byte) & 255] ^ (crc >>> 8), 0xffffffff) ^ 0xffffffff) >>> 0)

const chunk = (type, data) => {
  const body = Buffer.concat([Buffer.from(type), data])
  const size = Buffer.alloc(4)
  size.writeUInt32BE(data.length)
  const sum = Buffer.alloc(4)
  sum.writeUInt32BE(crc32(body) >>> 0)
  return Buffer.concat([size, body, sum])
}

// A picture with transparency from a function of x and y that returns [r, g, b, a].
export const pngOf = (width, height, pixel) => {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, 6, 0, 0, 0], 8)
  const rows = Buffer.alloc(height * (1 + 4 * width))
  for (let y = 0; y < height; ++y) {
    for (let x = 0; x < width; ++x) rows.set(pixel(x, y).map((v) => v & 255), y * (1 + 4 * width) + 1 + 4 * x)
  }
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', header), chunk('IDAT', zlib.deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

// The same picture with a text.
export const withText = (png, key, text) => {
  const begin = png.length - 12
  return Buffer.concat([png.subarray(0, begin), chunk('tEXt', Buffer.from(`${key}\0${text}`, 'latin1')), png.subarray(begin)])
}

export const sizeOf = (png) => {
  if (png.toString('latin1', 1, 4) !== 'PNG') throw new Error('no PNG')
  return [png.readUInt32BE(16), png.readUInt32BE(20)]
}
