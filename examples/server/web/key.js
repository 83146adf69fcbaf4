// Asks for the API key, once; it is kept for this tab unless told otherwise.

import {isKeyRemembered, onKeyNeeded, saveKey, savedKey} from './api.js';
import {$, el} from './dom.js';
import {t} from './texts.js';

function ask(wasWrong) {
    const field = el('input', {id: 'key', type: 'password', autocomplete: 'off', value: wasWrong ? savedKey() : '', required: true});
    const remember = el('input', {id: 'key-remember', type: 'checkbox', checked: isKeyRemembered()});
    return new Promise((resolve) => {
        const finish = (hasKey) => {
            dialog.close();
            dialog.remove();
            $('key-button').hidden = false;
            resolve(hasKey);
        };
        const form = el('form', {
            onsubmit: (event) => {
                event.preventDefault();
                saveKey(field.value.trim(), remember.checked);
                finish(true);
            },
        }, el('h2', {id: 'key-title'}, t('key.title')), el('p', {class: 'dim'}, t('key.explain')),
        wasWrong ? el('p', {class: 'error', role: 'alert', id: 'key-error'}, t('key.wrong')) : null,
        el('div', {class: 'field'}, el('label', {for: 'key'}, t('key.field')), field),
        el('label', {class: 'check'}, remember, el('span', {}, t('key.remember'))),
        el('div', {class: 'dialog-buttons'}, el('button', {type: 'button', onclick: () => finish(false)}, t('key.later')),
            el('button', {type: 'submit', class: 'primary'}, t('key.use'))));
        const dialog = el('dialog', {
            'aria-labelledby': 'key-title', id: 'key-dialog',
            oncancel: (event) => {
                event.preventDefault();
                finish(false);
            },
        }, form);
        document.body.append(dialog);
        dialog.showModal();
        field.focus();
        field.select();
    });
}

// `onNewKey` is called when the user has entered one by the button.
export function startKey(onNewKey) {
    onKeyNeeded(ask);
    const button = $('key-button');
    button.hidden = savedKey() === '';
    button.addEventListener('click', async () => {
        if (await ask(false)) {
            onNewKey();
        }
    });
}
