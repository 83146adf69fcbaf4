// PNG files with one byte per pixel, made strip by strip: a mask of 64 million pixels needs neither a canvas of that size
// nor a long task.

const kStripPixels = 1e6;

const crcTable = Uint32Array.from({length: 256}, (_, n) => {
    for (let k = 0; k < 8; ++k) {
        n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    }
    return n;
});

const crc32 = (bytes) => {
    let crc = 0xffffffff;
    for (const byte of bytes) {
        crc = crcTable[(crc ^ byte) & 255] ^ (crc >>> 8);
    }
    return (crc ^ 0xffffffff) >>> 0;
};

const chunk = (type, data) => {
    const bytes = new Uint8Array(12 + data.length);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, data.length);
    bytes.set(new TextEncoder().encode(type), 4);
    bytes.set(data, 8);
    view.setUint32(8 + data.length, crc32(bytes.subarray(4, 8 + data.length)));
    return bytes;
};

const header = (width, height) => {
    const bytes = new Uint8Array(13);
    new DataView(bytes.buffer).setUint32(0, width);
    new DataView(bytes.buffer).setUint32(4, height);
    bytes[8] = 8;
    return bytes;
};

// Rows of a PNG, each with its filter byte (none), from the opacity of the canvas stretched to width x height.
const strip = (width, height, canvas, top, rows) => {
    const part = new OffscreenCanvas(width, rows);
    const context = part.getContext('2d', {willReadFrequently: true});
    context.imageSmoothingEnabled = canvas.width !== width || canvas.height !== height;
    context.setTransform(width / canvas.width, 0, 0, height / canvas.height, 0, -top);
    context.drawImage(canvas, 0, 0);
    const pixels = context.getImageData(0, 0, width, rows).data;
    const bytes = new Uint8Array(rows * (1 + width));
    for (let y = 0, from = 3, to = 0; y < rows; ++y) {
        bytes[to++] = 0;
        for (let x = 0; x < width; ++x, from += 4) {
            bytes[to++] = pixels[from];
        }
    }
    return bytes;
};

const nextTask = () => new Promise((resolve) => setTimeout(resolve));

// The opacity of a canvas as a grey picture of another size.
export const greyPng = async (width, height, canvas) => {
    const deflate = new CompressionStream('deflate');
    const compressed = new Response(deflate.readable).arrayBuffer();
    const writer = deflate.writable.getWriter();
    const rowsEach = Math.max(1, Math.floor(kStripPixels / width));
    for (let top = 0; top < height; top += rowsEach) {
        await writer.write(strip(width, height, canvas, top, Math.min(rowsEach, height - top)));
        await nextTask();
    }
    await writer.close();
    return new Blob(
        [
            new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
            chunk('IHDR', header(width, height)),
            chunk('IDAT', new Uint8Array(await compressed)),
            chunk('IEND', new Uint8Array()),
        ],
        {type: 'image/png'},
    );
};
