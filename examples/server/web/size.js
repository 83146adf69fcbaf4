// The size of the picture: buttons for aspects that keep its area, and exact sides in steps of 16.

import {$, el, iconButton} from './dom.js';
import {references} from './references.js';
import {settings} from './settings.js';
import {t} from './texts.js';

const ASPECTS = [[1, 1], [4, 3], [3, 4], [3, 2], [2, 3], [16, 9], [9, 16]];

const limits = () => settings.capabilities?.limits ?? {side_least: 64, side_most: 4096, side_step: 16};

export function fitSide(side) {
    const {side_least, side_most, side_step} = limits();
    return Math.min(side_most, Math.max(side_least, Math.round(side / side_step) * side_step));
}

// Sides with this aspect and about this area.
export function sidesOf([across, down], area) {
    const height = Math.sqrt((area * down) / across);
    return {width: fitSide((height * across) / down), height: fitSide(height)};
}

function aspectName([across, down]) {
    const ratio = `${across}:${down}`;
    return across === down ? t('size.square') : t(across > down ? 'size.landscape' : 'size.portrait', {ratio});
}

function aspectPicture([across, down]) {
    const scale = 18 / Math.max(across, down);
    const [w, h] = [across * scale, down * scale];
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 26 22');
    svg.setAttribute('aria-hidden', 'true');
    const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    Object.entries({x: 13 - w / 2, y: 11 - h / 2, width: w, height: h, rx: 2}).forEach(([k, v]) => rect.setAttribute(k, v));
    svg.append(rect);
    return svg;
}

function aspectButton(aspect) {
    const input = el('input', {
        type: 'radio', name: 'aspect', value: aspect.join(':'), 'aria-label': aspectName(aspect), title: aspectName(aspect),
        onchange: () => settings.set({...sidesOf(aspect, settings.pixels), match: false}),
    });
    return el('div', {class: 'aspect'}, input, el('span', {}, aspectPicture(aspect), aspect.join(':')));
}

function sideField(id, name) {
    const input = el('input', {id, type: 'number', inputmode: 'numeric'});
    input.addEventListener('change', () => {
        const side = fitSide(Number(input.value) || settings.model?.defaults[name] || 0);
        const sides = {width: settings.width, height: settings.height, [name]: side};
        settings.set({...sides, pixels: sides.width * sides.height, match: false});
        input.value = side;
    });
    return el('div', {class: 'field'}, el('label', {for: id}, t(`form.${name}`)), input);
}

export function startSize() {
    const aspects = el('div', {class: 'aspects', role: 'radiogroup', 'aria-label': t('form.size')}, ...ASPECTS.map(aspectButton));
    const sides = el('div', {class: 'sides'}, sideField('width', 'width'),
        iconButton('swap', t('form.swap'), () => settings.set({width: settings.height, height: settings.width, match: false})),
        sideField('height', 'height'));
    const match = el('input', {id: 'match', type: 'checkbox', onchange: () => settings.set({match: match.checked})});
    const matchLine = el('label', {class: 'check'}, match, el('span', {}, t('size.match')));
    $('size').append(aspects, sides, matchLine);
    const show = () => {
        const {width, height} = settings;
        const {side_least, side_most, side_step} = limits();
        for (const [id, side] of [['width', width], ['height', height]]) {
            const input = $(id);
            Object.assign(input, {min: side_least, max: side_most, step: side_step, disabled: matches()});
            if (document.activeElement !== input || Number(input.value) % side_step === 0) {
                input.value = side || '';
            }
        }
        for (const input of aspects.querySelectorAll('input')) {
            const sidesHere = sidesOf(input.value.split(':').map(Number), settings.pixels);
            input.checked = !matches() && sidesHere.width === width && sidesHere.height === height;
        }
        match.checked = settings.values.match;
        matchLine.hidden = references.items.length === 0;
    };
    settings.addEventListener('change', show);
    references.addEventListener('change', show);
    show();
}

// Whether the first reference gives the size.
export const matches = () => settings.values.match && references.items.length > 0;
