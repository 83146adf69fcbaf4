// The form: its fields show the settings, and a job is made of them.

import {$, announce} from './dom.js';
import {cancelForecast, startForecast} from './forecast.js';
import {jobs} from './jobs.js';
import {loraFields} from './loras.js';
import {rememberPrompt} from './prompt_history.js';
import {references} from './references.js';
import {settings} from './settings.js';
import {matches} from './size.js';
import {t} from './texts.js';

// Fields of the form, and the settings that they show.
const FIELDS = {
    prompt: 'prompt', negative: 'negative', model: 'model', count: 'count', seed: 'seed', steps: 'steps', guidance: 'guidance', cfg: 'cfg',
    strength: 'strength', area: 'area',
};
const NUMBERS = new Set(['count', 'strength']);
// Fields of the API whose errors are shown at a field of the form.
const PLACES = {
    prompt: 'prompt', negative_prompt: 'negative', seed: 'seed', steps: 'steps', guidance: 'guidance', cfg_scale: 'cfg', width: 'width',
    height: 'height', n: 'count', model: 'model', strength: 'strength', lora: 'lora-choice',
};

let canvas = null;  // of the editor: {isOpen(), fields(), submitted(job)}
let isSending = false;

const usesNegative = () => Boolean(settings.model?.uses_negative_prompt) || Number(settings.values.cfg) > 1;

// What the API takes, without the canvas.
function plainFields() {
    const v = settings.values;
    const isEdit = canvas.isOpen();
    return {
        prompt: v.prompt,
        negative_prompt: usesNegative() ? v.negative : '',
        model: settings.model?.id,
        n: v.count,
        width: isEdit || matches() ? null : settings.width,
        height: isEdit || matches() ? null : settings.height,
        match_reference: !isEdit && matches() ? 1 : null,
        seed: v.seed,
        steps: v.steps,
        guidance: v.guidance,
        cfg_scale: v.cfg,
        lora: loraFields(),
        ...references.fields(),
    };
}

// Whether the server would take the numbers; it says what is wrong when the job is sent.
const areNumbersValid = () => [...$('make').elements].every(({validity}) => !validity || validity.valid || validity.stepMismatch);

// The plan does not depend on what the pictures show, so that it is kept for their number and size.
function forecastFields() {
    if (settings.model === null || !areNumbersValid()) {
        return null;
    }
    const fields = {...plainFields(), prompt: 'x', seed: null};
    const choice = JSON.stringify({...fields, negative_prompt: '', references: references.items.map(({file}) => [file.name, file.size]),
        canvas: canvas.isOpen() && canvas.choice()});
    return {choice, fields: async () => ({...fields, ...(canvas.isOpen() ? await canvas.fields() : {})})};
}

function showValues({by = null} = {}) {
    for (const [id, name] of Object.entries(FIELDS)) {
        if (id !== by && $(id).value !== String(settings.values[name])) {
            $(id).value = settings.values[name];
        }
    }
    $('keep-colours').checked = settings.values.keepColours;
    $('strength-value').textContent = `${Math.round(settings.values.strength * 100)} %`;
    showModel();
    showButton();
}

function showModel() {
    const {model, models} = settings;
    const select = $('model');
    if (select.dataset.shown !== JSON.stringify(models)) {
        select.dataset.shown = JSON.stringify(models);
        select.replaceChildren(...models.map(({id, name}) => new Option(name && name !== id ? `${id} (${name})` : id, id)));
    }
    select.value = model?.id ?? '';
    $('steps').placeholder = model ? t('form.modelDefault', {value: model.defaults.steps}) : '';
    $('guidance').placeholder = model ? t('form.modelDefault', {value: model.defaults.guidance}) : '';
    $('negative-field').hidden = !usesNegative();
    $('count').max = settings.capabilities?.limits.pictures ?? 16;
}

// Known only when the server has answered: until then the button waits for it.
const hasNoModel = () => settings.capabilities !== null && settings.model === null;

function showButton() {
    const text = canvas.isOpen() ? 'form.edit' : 'form.make';
    $('submit-text').textContent = isSending ? t('form.sending') : t(text, {n: settings.values.count});
    $('submit').setAttribute('aria-disabled', String(isSending || hasNoModel()));
}

export function showCanvas() {
    const isEdit = canvas.isOpen();
    $('size').hidden = isEdit;
    $('edit-fields').hidden = !isEdit;
    $('prompt').placeholder = t(isEdit ? 'form.promptEditHint' : 'form.promptHint');
    showButton();
    settings.tell(null);
}

function clearError() {
    $('form-error').hidden = true;
    for (const field of $('make').querySelectorAll('[aria-invalid]')) {
        field.removeAttribute('aria-invalid');
        field.removeAttribute('aria-describedby');
    }
}

function showError(message, param = '') {
    $('form-error').textContent = message;
    $('form-error').hidden = false;
    const field = $(PLACES[param] ?? '');
    if (field && !field.hidden) {
        if ($('more').contains(field)) {
            $('more').open = true;
        }
        field.setAttribute('aria-invalid', 'true');
        field.setAttribute('aria-describedby', 'form-error');
        field.focus();
    }
}

async function submit() {
    clearError();
    if (isSending) {
        return;
    }
    if (settings.values.prompt.trim() === '') {
        showError(t('form.needsPrompt'), 'prompt');
        return;
    }
    isSending = true;
    showButton();
    await settings.offered;
    if (hasNoModel()) {
        isSending = false;
        showButton();
        return;
    }
    cancelForecast();
    try {
        const fields = {...plainFields(), ...(canvas.isOpen() ? await canvas.fields() : {}), preview: true};
        const job = await jobs.submit(fields);
        keepInputs(job.id, fields);
        canvas.submitted(job);
        rememberPrompt(settings.values.prompt.trim());
        showStageOnPhone();
        announce(t('stage.stages.queued'));
    } catch (error) {
        showError(error.message, error.param);
    }
    isSending = false;
    showButton();
}

// In one column the stage is below the form.
function showStageOnPhone() {
    if (matchMedia('(max-width: 860px)').matches && !canvas.isOpen()) {
        $('stage').scrollIntoView({block: 'start', behavior: 'smooth'});
    }
}

// References of the jobs of this tab, for "again": the server does not keep them.
const KEPT = 30;
const inputs = new Map();    // job id -> {references, roles}
const madeFrom = new Map();  // picture id -> job id

function keepInputs(id, fields) {
    inputs.set(id, {references: fields.references, roles: fields.reference_roles});
    if (inputs.size > KEPT) {
        inputs.delete(inputs.keys().next().value);
    }
}

export const inputsOf = (picture) => inputs.get(madeFrom.get(picture.id)) ?? null;

export function startMake(givenCanvas) {
    canvas = givenCanvas;
    for (const [id, name] of Object.entries(FIELDS)) {
        const type = $(id).tagName === 'SELECT' ? 'change' : 'input';
        $(id).addEventListener(type, () => {
            const text = $(id).value;
            settings.set({[name]: NUMBERS.has(name) ? Number(text) || 1 : text}, id);
        });
    }
    $('count').addEventListener('change', () => {
        const most = settings.capabilities?.limits.pictures ?? 16;
        settings.set({count: Math.min(most, Math.max(1, Math.round(Number($('count').value) || 1)))});
    });
    $('seed').addEventListener('input', () => {
        const digits = $('seed').value.replace(/\D/g, '');
        if (digits !== $('seed').value) {
            $('seed').value = digits;
            settings.set({seed: digits}, 'seed');
        }
    });
    $('keep-colours').addEventListener('change', () => settings.set({keepColours: $('keep-colours').checked}));
    $('seed-random').addEventListener('click', () => settings.set({seed: ''}));
    $('defaults').addEventListener('click', () => settings.set({steps: '', guidance: '', cfg: '', width: 0, height: 0, pixels: 0}));
    $('make').addEventListener('submit', (event) => {
        event.preventDefault();
        submit();
    });
    const forecast = startForecast(forecastFields);
    settings.addEventListener('change', ({detail}) => {
        showValues(detail);
        clearError();
        if (detail.by !== 'prompt' && detail.by !== 'seed') {
            forecast();
        }
    });
    references.addEventListener('change', forecast);
    jobs.addEventListener('connection', forecast);
    jobs.addEventListener('ended', ({detail}) => {
        (detail.job.pictures ?? []).forEach(({id}) => madeFrom.set(id, detail.job.id));
        forecast();
    });
    showCanvas();
}
