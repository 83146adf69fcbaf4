// Server-sent events by fetch, since EventSource cannot send a key.

import {parseJson, send} from './api.js';

// Calls `onEvent(name, data)` until the stream ends. Throws ApiError when it cannot be opened.
export async function readEvents(path, onEvent, signal) {
    const response = await send(path, {signal});
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
        const {done, value} = await reader.read();
        if (done) {
            return;
        }
        text += value;
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
            readOne(text.slice(0, end), onEvent);
            text = text.slice(end + 2);
        }
    }
}

function readOne(text, onEvent) {
    let name = 'message';
    let data = '';
    for (const line of text.split('\n')) {
        if (line.startsWith('event: ')) {
            name = line.slice(7);
        } else if (line.startsWith('data: ')) {
            data += line.slice(6);
        }
    }
    if (data !== '') {
        onEvent(name, parseJson(data));
    }
}
