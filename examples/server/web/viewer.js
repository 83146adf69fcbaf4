// A picture in full, with all its settings and what can be done with it.

import {pictureButtons, removePicture} from './actions.js';
import {getBlob} from './api.js';
import {announce, el, iconButton} from './dom.js';
import {timeOfId} from './format.js';
import {gallery} from './gallery.js';
import {tell, tellError} from './messages.js';
import {t} from './texts.js';

let dialog = null;
let current = null;
let address = '';

function fact(name, value, isLong = false) {
    return value === '' || value === null || value === undefined
        ? null
        : el('div', {class: isLong ? 'long' : ''}, el('dt', {}, t(`viewer.facts.${name}`)), el('dd', {}, String(value)));
}

function editText({edit, init_img}) {
    if (!init_img) {
        return '';
    }
    const parts = [edit?.mask ? t('viewer.edits.mask') : '', edit?.outpaint?.some((margin) => margin > 0) ? t('viewer.edits.outpaint') : ''];
    return parts.filter((part) => part !== '').join(', ') || t('viewer.edits.image');
}

function facts({id, settings: s}) {
    const loras = (s.adapters ?? []).map(({file, strength}) => `${file.replace(/\.\w+$/, '')} ${strength}`).join('\n');
    const roles = (s.references ?? []).map((_, i) => s.reference_roles?.[i] || t('references.noRole'));
    return el('dl', {class: 'facts'}, ...[
        fact('prompt', s.prompt, true),
        fact('negative_prompt', s.negative_prompt, true),
        fact('size', `${s.width} × ${s.height}`),
        fact('seed', s.seed),
        fact('steps', s.steps),
        fact('guidance', s.guidance),
        fact('cfg_scale', s.used_cfg_scale > 1 && s.used_cfg_scale !== s.guidance ? s.used_cfg_scale : ''),
        fact('loras', loras),
        fact('references', roles.map((role, i) => `${i + 1}: ${role}`).join('\n')),
        fact('edit', editText(s)),
        fact('strength', s.init_img ? `${Math.round(s.strength * 100)} %` : ''),
        fact('model', [s.model?.name, s.model?.id && `(${s.model.id})`].filter(Boolean).join(' ')),
        fact('device', s.device),
        fact('made', timeOfId(id)),
        fact('version', s.version),
    ].filter((line) => line !== null));
}

// Browsers have a clipboard only for pages of this machine or by HTTPS; else the old way.
async function copyPrompt() {
    const {prompt} = current.settings;
    if (navigator.clipboard) {
        await navigator.clipboard.writeText(prompt);
    } else {
        const area = el('textarea', {class: 'unseen', value: prompt});
        dialog.append(area);
        area.select();
        document.execCommand('copy');
        area.remove();
    }
    tell(t('viewer.copied'));
}

async function remove() {
    if (!confirm(t('viewer.removeSure'))) {
        return;
    }
    try {
        await removePicture(current);
        close();
    } catch (error) {
        tellError(error);
    }
}

const indexOf = (picture) => gallery.items.findIndex(({id}) => id === picture.id);

// To an older (1) or newer (-1) picture; older pages are fetched.
async function step(by) {
    const wanted = indexOf(current) + by;
    if (wanted >= gallery.items.length && gallery.hasMore) {
        await gallery.more();
    }
    if (wanted >= 0 && wanted < gallery.items.length) {
        show(gallery.items[wanted]);
    }
}

function side(picture) {
    const at = indexOf(picture);
    return el('div', {class: 'viewer-side'},
        el('div', {class: 'viewer-top'},
            iconButton('left', t('viewer.previous'), () => step(-1), {id: 'viewer-previous', disabled: at <= 0}),
            iconButton('right', t('viewer.next'), () => step(1),
                {id: 'viewer-next', disabled: at < 0 || (at === gallery.items.length - 1 && !gallery.hasMore)}),
            iconButton('copy', t('viewer.copy'), () => copyPrompt().catch(tellError)),
            iconButton('trash', t('viewer.remove'), remove, {'data-action': 'delete'}),
            iconButton('close', t('viewer.close'), close, {class: 'icon-button close', id: 'viewer-close'})),
        el('div', {class: 'actions'}, ...pictureButtons(picture, close)),
        facts(picture));
}

async function show(picture) {
    current = picture;
    const focused = document.activeElement?.id;
    const {prompt, width, height} = picture.settings;
    const image = el('img', {alt: t('stage.result', {prompt}), width, height, 'data-id': picture.id});
    const frame = el('div', {class: 'viewer-picture', tabindex: '0', role: 'group', 'aria-label': t('viewer.label')}, image);
    frame.addEventListener('dblclick', () => frame.classList.toggle('full'));
    dialog.replaceChildren(el('div', {class: 'viewer-body'}, frame, side(picture)));
    const again = dialog.querySelector(`#${focused || 'viewer-close'}`);
    (again?.disabled ? dialog.querySelector('#viewer-close') : again)?.focus();
    announce(prompt);
    try {
        const blob = await getBlob(picture.url);
        if (current === picture) {
            URL.revokeObjectURL(address);
            address = URL.createObjectURL(blob);
            image.src = address;
        }
    } catch (error) {
        tellError(error);
    }
}

function close() {
    dialog.close();
}

function onKey(event) {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by) {
        event.preventDefault();
        step(by);
    }
}

export function openViewer(picture) {
    if (dialog === null) {
        dialog = el('dialog', {class: 'viewer', id: 'view', 'aria-label': t('viewer.label'), onkeydown: onKey});
        dialog.addEventListener('close', () => {
            dialog.replaceChildren();
            current = null;
        });
        document.body.append(dialog);
    }
    if (!dialog.open) {
        dialog.showModal();
    }
    show(picture);
}
