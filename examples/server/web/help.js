// Keys that work everywhere on the page, and the list of them.

import {$, el} from './dom.js';
import {jobs} from './jobs.js';
import {tellError} from './messages.js';
import {t} from './texts.js';

const isTyping = ({target}) => target.matches?.('input, textarea, select, [contenteditable]');

function showHelp() {
    const lines = [['Ctrl + Enter', 'make'], ['/', 'prompt'], ['Ctrl + K', 'search'], ['Ctrl + .', 'cancel'], ['← ↑ → ↓', 'arrows'],
        ['Enter', 'open']];
    const dialog = el('dialog', {'aria-labelledby': 'help-title', id: 'help-dialog', onclose: () => dialog.remove()},
        el('div', {class: 'dialog-body'}, el('h2', {id: 'help-title'}, t('help.title')),
            el('dl', {class: 'keys'}, ...lines.flatMap(([key, name]) => [el('dt', {}, el('kbd', {}, key)), el('dd', {}, t(`help.${name}`))])),
            el('div', {class: 'dialog-buttons'}, el('button', {type: 'button', onclick: () => dialog.close()}, t('help.close')))));
    document.body.append(dialog);
    dialog.showModal();
}

export function startKeys() {
    $('help-button').addEventListener('click', showHelp);
    addEventListener('keydown', (event) => {
        const hasControl = event.ctrlKey || event.metaKey;
        if (document.querySelector('dialog[open]')) {
            return;
        }
        if (hasControl && event.key === 'Enter') {
            event.preventDefault();
            $('make').requestSubmit();
        } else if (hasControl && event.key === 'k') {
            event.preventDefault();
            $('search').focus();
        } else if (hasControl && event.key === '.' && jobs.current) {
            event.preventDefault();
            jobs.cancel(jobs.current.id).catch(tellError);
        } else if (event.key === '/' && !isTyping(event)) {
            event.preventDefault();
            $('prompt').focus();
        }
    });
}
