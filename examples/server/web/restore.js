// Settings of a picture back into the form: of the history, or of a file that was dropped.

import {post} from './api.js';
import {inputsOf} from './make.js';
import {tell} from './messages.js';
import {references} from './references.js';
import {settings} from './settings.js';
import {t} from './texts.js';

const unlessDefault = (value, usual) => (value === undefined || value === null || value === usual ? '' : String(value));

// `request` has the fields of a job, as the server gives them for a picture. Returns what could not be used, in words.
function apply(request, {newSeed = false, otherProgram = false} = {}) {
    const unused = [];
    const model = settings.models.find(({id}) => id === request.model) ?? settings.model;
    const {defaults, distilled} = model;
    // Steps and guidance of other programs are for other models.
    const fits = !(otherProgram && distilled);
    if (!fits && request.steps) {
        unused.push(`${t('form.steps')} ${request.steps}`);
    }
    if (!fits && request.cfg_scale) {
        unused.push(`${t('form.cfg')} ${request.cfg_scale}`);
    }
    const loras = (request.lora ?? []).filter(({name}) => {
        const isThere = settings.loras.some((lora) => lora.name === name);
        if (!isThere) {
            unused.push(`LoRA ${name}`);
        }
        return isThere;
    });
    settings.set({
        prompt: request.prompt ?? '',
        negative: request.negative_prompt ?? '',
        model: model.id,
        width: request.width ?? 0,
        height: request.height ?? 0,
        pixels: (request.width ?? 0) * (request.height ?? 0),
        match: false,
        count: 1,
        seed: newSeed ? '' : unlessDefault(request.seed),
        steps: fits ? unlessDefault(request.steps, defaults.steps) : '',
        guidance: fits ? unlessDefault(request.guidance, defaults.guidance) : '',
        cfg: fits ? unlessDefault(request.cfg_scale) : '',
        strength: request.strength ?? settings.values.strength,
        loras: loras.map(({name, strength}) => ({name, strength, on: true})),
    });
    return unused;
}

function tellUnused(unused) {
    if (unused.length > 0) {
        tell(t('drop.unused', {list: unused.join(', ')}));
    }
}

// References that this tab has sent are there again; others are asked for.
async function restoreReferences(picture, needs) {
    const kept = inputsOf(picture);
    references.clear();
    if (kept) {
        await references.add(kept.references, kept.roles);
    } else if (needs.references > 0) {
        tell(t('references.lost', {n: needs.references}), {problem: true});
    }
}

export async function restorePicture(picture, options = {}) {
    await settings.offered;
    const {width, height} = picture.settings;
    const {request, needs} = picture;
    tellUnused(apply({width, height, ...request}, options));
    if (needs.image) {
        tell(t('edit.lost'), {problem: true});
    }
    await restoreReferences(picture, needs);
}

// The settings that a file stores; null when it has none. Throws ApiError for a broken file too.
export async function settingsOfFile(file) {
    const found = await post('api/v1/picture-settings', {image: file});
    return found.source === null ? null : found;
}

export async function restoreFile(found, name) {
    await settings.offered;
    const unused = apply(found.request, {otherProgram: found.source !== 'flux2'});
    tell(t('drop.restored', {name}));
    tellUnused([...unused, ...found.unused]);
    if (found.needs.references > 0) {
        tell(t('references.lost', {n: found.needs.references}), {problem: true});
    }
}
