// Short messages at the lower edge, read out by screen readers. Problems stay until they are closed.

import {$, el, iconButton} from './dom.js';
import {t} from './texts.js';

const SECONDS = 6;

export function tell(text, {problem = false} = {}) {
    const same = [...$('messages').children].find((shown) => shown.firstChild.textContent === text);
    same?.remove();
    const message = el('div', {class: problem ? 'message problem' : 'message'}, el('p', {}, text),
        iconButton('close', t('message.close'), () => message.remove(), {class: 'icon-button small'}));
    $('messages').append(message);
    if (!problem) {
        setTimeout(() => message.remove(), SECONDS * 1000);
    }
    return message;
}

// An error of the API by its own sentence. Cancelled requests are no problem.
export function tellError(error) {
    if (error.name !== 'AbortError') {
        tell(error.message, {problem: true});
    }
}
