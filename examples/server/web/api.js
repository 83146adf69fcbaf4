// The native API: requests with the key, errors as the server's own sentences.

import {t} from './texts.js';

const KEY = 'flux2-key';

export class ApiError extends Error {
    constructor(message, {status = 0, code = '', param = ''} = {}) {
        super(message);
        this.status = status;  // 0: the server did not answer
        this.code = code;
        this.param = param;
    }
}

let askForKey = null;  // async (wasWrong) => whether there is a new key
let asking = null;
let declined = false;  // the user did not want to enter one

export const savedKey = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? '';
export const isKeyRemembered = () => localStorage.getItem(KEY) !== null;

// For this tab, or for this device when told so.
export function saveKey(key, remember) {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    if (key) {
        (remember ? localStorage : sessionStorage).setItem(KEY, key);
    }
}

export function onKeyNeeded(ask) {
    askForKey = ask;
}

// One question for all requests that fail together.
function newKey(wasWrong) {
    asking ??= askForKey(wasWrong).then((hasKey) => {
        asking = null;
        declined = !hasKey;
        return hasKey;
    });
    return asking;
}

// Seeds may have more digits than numbers of JavaScript: those stay texts.
export function parseJson(text) {
    return JSON.parse(text.replace(/"seed":(\d{16,})/g, '"seed":"$1"'));
}

async function errorOf(response) {
    const text = await response.text();
    try {
        const {error} = parseJson(text);
        return new ApiError(error.message, {status: response.status, code: error.code ?? '', param: error.param ?? ''});
    } catch {
        return new ApiError(`${response.status} ${response.statusText}`, {status: response.status});
    }
}

// `path` is relative to the page: 'api/v1/jobs'. Throws ApiError. When the key is missing or wrong the user is asked for it, and the
// request is repeated; `quiet` requests do not ask again who declined.
export async function send(path, {method = 'GET', body, signal, quiet = false} = {}) {
    for (;;) {
        const key = savedKey();
        let response;
        try {
            response = await fetch(path.replace(/^\//, ''), {
                method,
                body,
                signal,
                headers: key ? {'X-Api-Key': key} : {},
            });
        } catch (problem) {
            if (signal?.aborted) {
                throw problem;
            }
            throw new ApiError(t('connection.lost'));
        }
        if (response.ok) {
            return response;
        }
        const isNewer = savedKey() !== key;  // entered while this request was on its way
        if (response.status !== 401 || (!isNewer && ((quiet && declined) || !(await newKey(key !== ''))))) {
            throw await errorOf(response);
        }
    }
}

export async function getJson(path, options) {
    return parseJson(await (await send(path, options)).text());
}

export async function getBlob(path, options) {
    return (await send(path, options)).blob();
}

// Fields as a form: pictures are files, lists are JSON, what is null or empty is left out.
export function formOf(fields) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) {
        if (value === null || value === undefined || value === '') {
            continue;
        }
        const isFiles = Array.isArray(value) && value[0] instanceof Blob;
        if (isFiles || value instanceof Blob) {
            for (const file of [value].flat()) {
                form.append(name, file, file.name ?? `${name}.png`);
            }
        } else if (Array.isArray(value)) {
            if (value.length > 0) {
                form.append(name, JSON.stringify(value));
            }
        } else {
            form.append(name, String(value));
        }
    }
    return form;
}

export const post = (path, fields, options = {}) => getJson(path, {...options, method: 'POST', body: formOf(fields)});
