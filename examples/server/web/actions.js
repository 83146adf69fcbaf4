// What can be done with a finished picture, as buttons of the stage and the full view.

import {send} from './api.js';
import {canvas} from './canvas.js';
import {$, announce, el, icon} from './dom.js';
import {gallery} from './gallery.js';
import {tell, tellError} from './messages.js';
import {download, pictureFile} from './pictures.js';
import {references} from './references.js';
import {restorePicture} from './restore.js';
import {t} from './texts.js';

function button(name, image, run, extra = '') {
    return el('button', {
        type: 'button', class: `with-icon ${extra}`, 'data-action': name,
        onclick: async () => {
            try {
                await run();
            } catch (error) {
                tellError(error);
            }
        },
    }, icon(image), t(`viewer.${name}`));
}

async function again(picture, newSeed) {
    canvas.close();
    await restorePicture(picture, {newSeed});
    if (newSeed && !picture.needs.image) {
        $('make').requestSubmit();
    } else {
        tell(t('viewer.restored'));
        $('prompt').focus();
    }
}

// `done` is called when the page behind a dialog should be seen.
export function pictureButtons(picture, done = () => {}) {
    return [
        button('again', 'history', () => {
            done();
            return again(picture, false);
        }),
        button('newSeed', 'dice', () => {
            done();
            return again(picture, true);
        }),
        button('edit', 'edit', async () => {
            const file = await pictureFile(picture);
            done();
            await canvas.open(file);
        }),
        button('reference', 'image', async () => {
            await references.add([await pictureFile(picture)]);
            tell(t('references.added', {n: references.items.length}));
        }),
        button('download', 'download', async () => download(await pictureFile(picture))),
    ];
}

export async function removePicture(picture) {
    await send(`api/v1/history/${picture.id}`, {method: 'DELETE'});
    gallery.remove(picture.id);
    announce(t('viewer.removed'));
}
