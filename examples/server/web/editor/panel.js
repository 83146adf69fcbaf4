// The elements of the editor. Nothing here knows what they do: controls.js finds them by their names.
import {el} from '../dom.js';
import {texts} from '../texts.js';
import {icon} from './icons.js';
import {kMostMargin} from './frame.js';
import {kPenKeys, kShortcuts} from './keys.js';

const words = texts.editor;
export const kTools = ['brush', 'eraser', 'rectangle', 'lasso', 'move'];
export const kSides = ['left', 'top', 'right', 'bottom'];

const iconButton = (name, attributes = {}) => {
    const shortcut = kShortcuts.find((each) => each.text === name);
    const title = shortcut ? `${words[name]} (${shortcut.keys.join('+')})` : words[name];
    return el(
        'button',
        {type: 'button', class: 'icon-button', 'data-do': name, title, 'aria-label': words[name], ...attributes},
        icon(name),
    );
};

const group = (label, kind, ...children) =>
    el('div', {class: `tool-group ${kind}`, role: 'group', 'aria-label': label}, ...children);

const toolbar = () =>
    el(
        'div',
        {class: 'editor-tools', role: 'toolbar', 'aria-label': words.tools},
        group(
            words.tool,
            'paints',
            ...kTools.map((name) => iconButton(name, {'data-tool': name, 'aria-pressed': 'false'})),
        ),
        group(
            words.changes,
            'paints',
            iconButton('undo'),
            iconButton('redo'),
            iconButton('invert'),
            iconButton('clear'),
        ),
        group(
            words.zoom,
            'zooms',
            iconButton('zoomOut'),
            el('output', {class: 'zoom', 'aria-label': words.zoom}),
            iconButton('zoomIn'),
            iconButton('fit'),
        ),
        iconButton('close'),
    );

const slider = (name, attributes, text = words[name]) =>
    el(
        'label',
        {class: 'editor-field', 'data-for': name},
        el('span', {}, text),
        el('input', {type: 'range', name, ...attributes}),
        el('output', {name: `${name}-value`, 'aria-hidden': 'true'}),
    );

const check = (name) =>
    el('label', {class: 'editor-check', 'data-for': name}, el('input', {type: 'checkbox', name}), words[name]);

const margin = (side) =>
    el(
        'label',
        {class: 'editor-margin'},
        el('span', {}, words.sides[side]),
        el('input', {
            type: 'number',
            name: `outpaint-${side}`,
            min: 0,
            max: kMostMargin,
            step: 16,
            value: 0,
            inputmode: 'numeric',
        }),
    );

const fields = () =>
    el(
        'div',
        {class: 'editor-fields'},
        el(
            'fieldset',
            {},
            el('legend', {}, words.mask),
            slider('feather', {min: 0, max: 128, step: 1, value: 0}),
            slider('grow', {min: -64, max: 128, step: 1, value: 0}),
        ),
        el(
            'fieldset',
            {},
            el('legend', {}, words.canvas),
            el('div', {class: 'editor-margins'}, ...kSides.map(margin)),
            el('p', {class: 'hint'}, el('output', {name: 'frame-size'}), ' ', words.canvasHint),
        ),
    );

const shortcuts = () =>
    el(
        'details',
        {class: 'editor-keys'},
        el('summary', {}, words.keys),
        el(
            'dl',
            {},
            ...[...kShortcuts, ...kPenKeys].map(({keys, text}) =>
                el(
                    'div',
                    {},
                    el('dt', {}, ...keys.flatMap((key) => [el('kbd', {}, key), ' '])),
                    el('dd', {}, words.shortcuts[text]),
                ),
            ),
        ),
    );

const comparison = () =>
    el(
        'div',
        {class: 'editor-compare', hidden: true},
        el(
            'label',
            {class: 'editor-field'},
            el('span', {}, words.compare),
            el('input', {type: 'range', name: 'split', min: 0, max: 100, step: 1, value: 50}),
        ),
        el('button', {type: 'button', 'data-do': 'keepResult'}, words.keepResult),
        el('button', {type: 'button', 'data-do': 'dropResult'}, words.dropResult),
    );

// Returns {root, stage, canvas, compare}.
export const buildPanel = () => {
    const canvas = el('canvas', {
        tabindex: 0,
        role: 'application',
        'aria-label': words.canvasLabel,
        'aria-describedby': 'editor-help',
    });
    const stage = el('div', {class: 'editor-stage'}, canvas);
    const compare = comparison();
    const root = el(
        'div',
        {class: 'editor', hidden: true},
        toolbar(),
        el(
            'div',
            {class: 'editor-options'},
            slider('brush', {min: 1, max: 400, step: 1, value: 40}, words.brushSize),
            check('subtract'),
            el('p', {class: 'hint', 'data-for': 'move'}, words.moveHint),
            el('p', {class: 'hint', 'data-for': 'compare'}, words.compareHint),
        ),
        stage,
        compare,
        fields(),
        shortcuts(),
        el('p', {id: 'editor-help', class: 'unseen'}, words.help),
    );
    return {root, stage, canvas, compare};
};
