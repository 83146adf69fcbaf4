// LoRAs of the server: which are used, how strongly, and their trigger words.

import {$, el, iconButton} from './dom.js';
import {settings} from './settings.js';
import {t} from './texts.js';

const infoOf = (name) => settings.loras.find((lora) => lora.name === name);

function change(index, values) {
    const loras = settings.values.loras.map((lora, i) => (i === index ? {...lora, ...values} : lora));
    settings.set({loras}, 'loras');
}

export function triggerWords(info) {
    return (info?.facts['trigger words'] ?? '').split(/\s*[,;]\s*/).filter((word) => word !== '');
}

function addWord(word) {
    const {prompt} = settings.values;
    if (!prompt.toLowerCase().includes(word.toLowerCase())) {
        settings.set({prompt: prompt.trim() === '' ? word : `${prompt.trimEnd()}, ${word}`});
    }
    $('prompt').focus();
}

function row(lora, index) {
    const {name} = lora;
    const info = infoOf(name);
    const label = t('loras.strength', {name});
    const range = el('input', {type: 'range', min: -1, max: 2, step: 0.05, 'aria-label': label, value: lora.strength});
    const number = el('input', {type: 'number', min: -10, max: 10, step: 0.05, 'aria-label': label, value: lora.strength});
    const use = el('input', {type: 'checkbox', checked: lora.on, 'aria-label': t('loras.use', {name})});
    const line = el('div', {class: lora.on ? 'lora' : 'lora off'}, use);
    for (const [field, other] of [[range, number], [number, range]]) {
        field.addEventListener('input', () => {
            const strength = Number(field.value);
            if (Number.isFinite(strength) && field.value !== '') {
                other.value = strength;
                change(index, {strength});
            }
        });
    }
    use.addEventListener('change', () => {
        line.classList.toggle('off', !use.checked);
        change(index, {on: use.checked});
    });
    const words = triggerWords(info);
    const madeFor = info && info.made_for !== 'unknown' ? el('small', {}, t('loras.madeFor', {model: info.made_for})) : null;
    line.append(el('span', {class: 'name', title: name}, info?.facts.title ?? name, madeFor ?? ''), number,
        iconButton('close', t('loras.remove', {name}), () => {
            settings.set({loras: settings.values.loras.filter((_, i) => i !== index)});
            $('lora-choice').focus();
        }, {class: 'icon-button small'}), range);
    if (words.length > 0) {
        line.append(el('div', {class: 'words'}, el('span', {}, t('loras.words')), ...words.map((word) =>
            el('button', {type: 'button', title: t('loras.addWord', {word}), onclick: () => addWord(word)}, word))));
    }
    return line;
}

export function startLoras() {
    const list = el('div', {class: 'group'});
    const choice = el('select', {
        id: 'lora-choice', 'aria-label': t('loras.choose'),
        onchange: () => settings.set({loras: [...settings.values.loras, {name: choice.value, strength: 1, on: true}]}),
    });
    const none = el('p', {class: 'note'}, t('loras.none'));
    $('loras').append(list, choice, none);
    const show = ({by = null} = {}) => {
        if (by === 'loras') {
            return;  // a slider is being moved
        }
        const used = settings.values.loras;
        list.replaceChildren(...used.map(row));
        list.hidden = used.length === 0;
        const left = settings.loras.filter(({name}) => !used.some((lora) => lora.name === name));
        choice.replaceChildren(el('option', {value: ''}, t('loras.choose')),
            ...left.map(({name, facts}) => el('option', {value: name}, facts.title && facts.title !== name ? `${name} (${facts.title})` : name)));
        choice.hidden = left.length === 0;
        none.hidden = settings.loras.length > 0 || settings.capabilities === null;
    };
    settings.addEventListener('change', ({detail}) => show(detail));
    show();
}

// As the API takes them.
export function loraFields() {
    return settings.values.loras.filter(({on, strength}) => on && strength !== 0).map(({name, strength}) => ({name, strength}));
}
