// Reference pictures: added by drop, paste, choice or from results; ordered; each with a role that the server puts into the prompt.

import {$, announce, el, iconButton} from './dom.js';
import {tell} from './messages.js';
import {settings} from './settings.js';
import {has, t} from './texts.js';

const OWN = 'own';

class References extends EventTarget {
    items = [];  // {file, url, role, own}

    get most() {
        return settings.capabilities?.limits.references ?? 16;
    }

    // Those that are no pictures are refused with a message.
    async add(files, roles = []) {
        for (const [i, file] of [...files].entries()) {
            if (this.items.length >= this.most) {
                tell(t('references.full', {n: this.most}), {problem: true});
                break;
            }
            if (!(await isPicture(file))) {
                tell(t('references.notPicture', {name: file.name ?? ''}), {problem: true});
                continue;
            }
            const known = knownRoles().some(({word}) => word === roles[i]);
            const own = roles[i] && !known ? roles[i] : '';
            this.items.push({file, url: URL.createObjectURL(file), role: own ? OWN : roles[i] ?? '', own});
            announce(t('references.added', {n: this.items.length}));
        }
        this.tell();
    }

    remove(index) {
        URL.revokeObjectURL(this.items[index].url);
        this.items.splice(index, 1);
        this.tell();
    }

    clear() {
        this.items.forEach(({url}) => URL.revokeObjectURL(url));
        this.items = [];
        this.tell();
    }

    move(from, to) {
        if (to >= 0 && to < this.items.length && from !== to) {
            this.items.splice(to, 0, ...this.items.splice(from, 1));
            this.tell();
        }
    }

    set(index, values) {
        Object.assign(this.items[index], values);
        this.tell();
    }

    // As the API takes them.
    fields() {
        const roles = this.items.map(({role, own}) => (role === OWN ? own : role));
        return {
            references: this.items.map(({file}) => file),
            reference_roles: roles.some((role) => role !== '') ? roles : [],
        };
    }

    tell() {
        this.dispatchEvent(new Event('change'));
    }
}

export const references = new References();

async function isPicture(file) {
    try {
        (await createImageBitmap(file)).close();
        return true;
    } catch {
        return false;
    }
}

const knownRoles = () => settings.capabilities?.reference_roles ?? [];

function roleChoice(item, index) {
    const n = index + 1;
    const select = el('select', {'aria-label': t('references.role', {n}), onchange: () => references.set(index, {role: select.value})},
        el('option', {value: ''}, t('references.noRole')),
        ...knownRoles().map(({word, sentence}) => el('option', {value: word, title: sentence.replace('{}', n)},
            has(`references.roles.${word}`) ? t(`references.roles.${word}`) : word)),
        el('option', {value: OWN}, t('references.ownRole')));
    select.value = item.role;
    const own = el('input', {
        type: 'text', value: item.own, 'aria-label': t('references.ownLabel', {n}), placeholder: t('references.ownHint'),
        oninput: () => Object.assign(item, {own: own.value}),
    });
    return el('div', {class: 'roles'}, el('span', {}, t('references.number', {n})), select, item.role === OWN ? own : null);
}

function row(item, index) {
    const n = index + 1;
    const image = el('img', {src: item.url, alt: '', draggable: 'false'});
    const line = el('li', {class: 'reference', draggable: 'true'}, image, roleChoice(item, index),
        el('div', {class: 'tools'},
            iconButton('left', t('references.earlier', {n}), () => moved(index, index - 1), {disabled: index === 0}),
            iconButton('right', t('references.later', {n}), () => moved(index, index + 1),
                {disabled: index === references.items.length - 1}),
            iconButton('close', t('references.remove', {n}), () => {
                references.remove(index);
                $('reference-add').focus();
            }, {class: 'icon-button remove'})));
    addDragging(line, index);
    return line;
}

// Moves and keeps the focus on the same button of the same picture.
function moved(from, to) {
    references.move(from, to);
    const buttons = $('references').querySelectorAll('.reference')[to]?.querySelectorAll('.tools button') ?? [];
    const wanted = buttons[to < from ? 0 : 1];
    (wanted?.disabled ? buttons[to < from ? 1 : 0] : wanted)?.focus();
}

let dragged = -1;

function addDragging(line, index) {
    line.addEventListener('dragstart', (event) => {
        dragged = index;
        event.dataTransfer.effectAllowed = 'move';
        event.dataTransfer.setData('text/x-flux2-reference', String(index));
        line.classList.add('dragged');
    });
    line.addEventListener('dragend', () => {
        dragged = -1;
        line.classList.remove('dragged');
    });
    line.addEventListener('dragover', (event) => {
        if (dragged >= 0) {
            event.preventDefault();
        }
    });
    line.addEventListener('drop', (event) => {
        if (dragged >= 0) {
            event.preventDefault();
            references.move(dragged, index);
        }
    });
}

export function startReferences() {
    const picker = el('input', {
        id: 'reference-files', type: 'file', accept: 'image/*', multiple: true, hidden: true, 'aria-label': t('references.add'),
        onchange: async () => {
            await references.add(picker.files);
            picker.value = '';
        },
    });
    const list = el('ul', {class: 'reference-list'});
    const zone = el('div', {class: 'drop-zone', 'data-drop': 'reference'}, el('p', {class: 'note'}, t('references.hint')),
        el('button', {type: 'button', id: 'reference-add', onclick: () => picker.click()}, t('references.add')), picker);
    $('references').append(list, zone);
    let shownRoles = '';
    const show = () => {
        shownRoles = JSON.stringify(knownRoles());
        list.replaceChildren(...references.items.map(row));
        list.hidden = references.items.length === 0;
    };
    references.addEventListener('change', show);
    // Pictures may be there before the server has answered.
    settings.addEventListener('offer', () => {
        if (JSON.stringify(knownRoles()) !== shownRoles) {
            show();
        }
    });
    show();
}
