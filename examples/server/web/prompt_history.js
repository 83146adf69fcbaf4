// Prompts that were used before, on this device.

import {$, el} from './dom.js';
import {settings} from './settings.js';
import {t} from './texts.js';

const NAME = 'flux2-prompts';
const MOST = 50;

const list = () => JSON.parse(localStorage.getItem(NAME) ?? '[]');

export function rememberPrompt(prompt) {
    const others = list().filter((earlier) => earlier !== prompt);
    localStorage.setItem(NAME, JSON.stringify([prompt, ...others].slice(0, MOST)));
}

function close(focus) {
    $('history').hidden = true;
    $('history-button').setAttribute('aria-expanded', 'false');
    focus?.focus();
}

function choose(prompt) {
    settings.set({prompt});
    close($('prompt'));
}

function open() {
    const prompts = list();
    const rows = prompts.map((prompt) => el('button', {type: 'button', onclick: () => choose(prompt)}, el('span', {}, prompt)));
    const clear = el('button', {
        type: 'button', class: 'quiet',
        onclick: () => {
            localStorage.removeItem(NAME);
            close($('prompt'));
        },
    }, t('form.historyClear'));
    $('history').replaceChildren(...(rows.length > 0 ? [...rows, clear] : [el('p', {class: 'note'}, t('form.historyEmpty'))]));
    $('history').hidden = false;
    $('history-button').setAttribute('aria-expanded', 'true');
    rows[0]?.focus();
}

// Arrow keys go through the list, Escape closes it.
function onKey(event) {
    const buttons = [...$('history').querySelectorAll('button')];
    const at = buttons.indexOf(document.activeElement);
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (event.key === 'Escape') {
        event.stopPropagation();
        close($('history-button'));
    } else if (step) {
        event.preventDefault();
        buttons[Math.min(buttons.length - 1, Math.max(0, at + step))]?.focus();
    }
}

export function startPromptHistory() {
    $('history-button').addEventListener('click', () => ($('history').hidden ? open() : close()));
    $('history').addEventListener('keydown', onKey);
    document.addEventListener('pointerdown', ({target}) => {
        if (!$('history').hidden && !$('history').contains(target) && !$('history-button').contains(target)) {
            close();
        }
    });
    $('history').addEventListener('focusout', ({relatedTarget}) => {
        if (relatedTarget && !$('history').contains(relatedTarget) && relatedTarget !== $('history-button')) {
            close();
        }
    });
}
