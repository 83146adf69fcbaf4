// Pictures that are dropped on the page or pasted: what should be done with them is asked for, unless the place says it.

import {canvas} from './canvas.js';
import {$, el} from './dom.js';
import {tell, tellError} from './messages.js';
import {references} from './references.js';
import {restoreFile, settingsOfFile} from './restore.js';
import {t} from './texts.js';

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');

// Asks what a picture is for. One with settings offers them first.
export async function takeFile(file) {
    let found = null;
    try {
        found = await settingsOfFile(file);
    } catch (error) {
        tellError(error);
        return;
    }
    const dialog = el('dialog', {'aria-labelledby': 'drop-title', id: 'drop-dialog'});
    const choice = (name, run, properties = {}) => el('button', {
        type: 'button', 'data-action': name, ...properties,
        onclick: async () => {
            dialog.close();
            try {
                await run();
            } catch (error) {
                tellError(error);
            }
        },
    }, t(`drop.${name}`));
    const image = el('img', {alt: '', class: 'drop-picture', src: URL.createObjectURL(file)});
    dialog.append(el('div', {class: 'dialog-body'}, el('h2', {id: 'drop-title'}, t('drop.title')), image,
        found ? el('p', {class: 'dim'}, t('drop.hasSettings')) : null,
        el('div', {class: 'choices'},
            found ? choice('settings', () => restore(found, file.name), {class: 'primary'}) : null,
            choice('edit', () => canvas.open(file)), choice('reference', () => references.add([file])),
            choice('cancel', () => {}, {class: 'quiet'}))));
    dialog.addEventListener('close', () => {
        URL.revokeObjectURL(image.src);
        dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
}

function restore(found, name) {
    canvas.close();
    restoreFile(found, name);
}

// Several pictures are references.
function take(files, isForReferences) {
    const pictures = [...files];
    if (pictures.length === 0) {
        return;
    }
    if (isForReferences || pictures.length > 1) {
        references.add(pictures).catch(tellError);
    } else if (pictures[0].type.startsWith('image/')) {
        takeFile(pictures[0]);
    } else {
        tell(t('references.notPicture', {name: pictures[0].name}), {problem: true});
    }
}

export function chooseFile() {
    const picker = el('input', {type: 'file', accept: 'image/*', onchange: () => take(picker.files, false)});
    picker.click();
}

export function startDrop() {
    let depth = 0;  // dragenter and dragleave are told for each element inside
    const hint = (isShown) => {
        $('drop-hint').hidden = !isShown;
    };
    addEventListener('dragenter', (event) => {
        depth += hasFiles(event) ? 1 : 0;
        hint(depth > 0);
    });
    addEventListener('dragleave', (event) => {
        depth -= hasFiles(event) ? 1 : 0;
        hint(depth > 0);
    });
    addEventListener('dragover', (event) => {
        if (hasFiles(event)) {
            event.preventDefault();
        }
    });
    addEventListener('drop', (event) => {
        if (hasFiles(event)) {
            event.preventDefault();
            take(event.dataTransfer.files, event.target.closest?.('#references') !== null);
        }
        depth = 0;
        hint(false);
    });
    addEventListener('paste', (event) => {
        const files = [...(event.clipboardData?.files ?? [])].filter(({type}) => type.startsWith('image/'));
        if (files.length > 0) {
            event.preventDefault();
            take(files, event.target.closest?.('.make') !== null);
        }
    });
}
