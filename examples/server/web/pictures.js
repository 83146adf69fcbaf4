// Pictures of the server as addresses that img takes. With a key they are fetched, since img cannot send it.

import {getBlob, savedKey} from './api.js';

const KEPT = 400;    // thumbnails
const AT_ONCE = 4;   // of the few connections that a browser has for a server

const kept = new Map();  // path -> address, from old to new
const waiting = [];
let underWay = 0;

// The address of a thumbnail; rejected when `signal` is aborted while it waits to be fetched.
export function thumbnail(path, signal) {
    if (savedKey() === '') {
        return Promise.resolve(path.replace(/^\//, ''));
    }
    const found = kept.get(path);
    if (found) {
        kept.delete(path);
        kept.set(path, found);
        return Promise.resolve(found);
    }
    return new Promise((resolve, reject) => {
        waiting.push({path, signal, resolve, reject});
        fetchNext();
    });
}

async function fetchNext() {
    while (waiting.length > 0 && waiting[0].signal?.aborted) {
        waiting.shift().reject(new DOMException('', 'AbortError'));
    }
    if (underWay >= AT_ONCE || waiting.length === 0) {
        return;
    }
    const {path, resolve, reject} = waiting.shift();
    ++underWay;
    try {
        const url = kept.get(path) ?? URL.createObjectURL(await getBlob(path));
        kept.set(path, url);
        forgetOldest();
        resolve(url);
    } catch (error) {
        reject(error);
    }
    --underWay;
    fetchNext();
}

function forgetOldest() {
    for (const [path, url] of kept) {
        if (kept.size <= KEPT) {
            return;
        }
        URL.revokeObjectURL(url);
        kept.delete(path);
    }
}

// The whole picture, with its metadata, as a file of this name.
export async function pictureFile({id, url}) {
    const blob = await getBlob(url);
    return new File([blob], `flux2-${id}.png`, {type: 'image/png'});
}

export function download(file) {
    const url = URL.createObjectURL(file);
    const link = document.createElement('a');
    link.href = url;
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
