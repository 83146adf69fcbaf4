// The large picture: what is being drawn, with its progress, then the results with what can be done with them.

import {$, announce, el, icon} from './dom.js';
import {timeText} from './format.js';
import {gallery} from './gallery.js';
import {jobs} from './jobs.js';
import {tellError} from './messages.js';
import {thumbnail} from './pictures.js';
import {has, t} from './texts.js';

const LEAST_HEIGHT = 360;  // smaller pictures are enlarged
const LAST = 'flux2-shown';  // the picture on the stage, for a reload

let view, foot, actions;
let shown = null;  // id of the job whose progress is on the stage
let results = [];  // pictures of the last job

// `actions` does things with a picture: open(picture), buttons(picture), openFile().
export function startStage(given) {
    actions = given;
    view = el('div', {class: 'stage-view'});
    foot = el('div', {class: 'stage-foot'});
    $('stage').append(view, foot);
    showEmpty();
    gallery.addEventListener('change', showLast, {once: true});
    jobs.addEventListener('jobs', showCurrent);
    jobs.addEventListener('progress', ({detail}) => {
        if (detail.job.id === shown) {
            showProgress(detail.job);
            showPreview(detail);
        }
    });
    jobs.addEventListener('ended', ({detail}) => showEnd(detail.job));
}

// While it is marked so, the canvas leaves room for the progress.
function setShown(id) {
    shown = id;
    $('stage').toggleAttribute('data-busy', id !== null);
}

function showEmpty() {
    view.replaceChildren(el('div', {class: 'stage-empty'}, icon('image'), el('strong', {}, t('stage.empty')),
        el('p', {}, t('stage.emptyHint')),
        el('button', {type: 'button', onclick: () => actions.openFile()}, t('drop.file'))));
    foot.replaceChildren();
}

function showLast() {
    const last = gallery.items.find(({id}) => id === sessionStorage.getItem(LAST));
    if (last && results.length === 0) {
        results = [last];
        showResult(last);
    }
}

function showCurrent() {
    const job = jobs.current;
    if (job && job.id !== shown) {
        setShown(job.id);
        startProgress(job);
    }
    if (job) {
        showProgress(job);
    }
}

function startProgress(job) {
    const bar = el('progress', {id: 'progress', max: 1, value: 0, 'aria-label': t('stage.progress')});
    foot.replaceChildren(bar, el('div', {class: 'stage-line'}, el('p', {class: 'what', id: 'progress-text'}),
        el('button', {type: 'button', id: 'cancel', onclick: () => jobs.cancel(job.id).catch(tellError)}, t('stage.cancel'))));
}

function progressText({state, progress, queue_position}) {
    if (state === 'queued') {
        return [t('stage.stages.queued'), queue_position > 0 ? t('queue.position', {n: queue_position + 1}) : ''];
    }
    const {stage, step, steps, seconds_left} = progress;
    const name = `stage.stages.${stage}`;
    return [
        has(name) ? t(name) : stage,
        stage === 'denoising' && steps > 0 ? t('stage.step', {step: Math.min(step + 1, steps), steps}) : '',
        seconds_left !== null && seconds_left > 0.5 ? t('time.left', {time: timeText(seconds_left)}) : '',
    ];
}

function showProgress(job) {
    document.title = `${Math.round(job.progress.share * 100)} % · ${t('title')}`;
    const bar = $('progress');
    if (bar) {
        bar.value = job.progress.share;
        $('progress-text').textContent = progressText(job).filter((part) => part !== '').join(' · ');
    }
}

// Both for unfinished and finished pictures, so that nothing jumps at the end.
function setSize(image, width, height) {
    image.style.width = `${Math.round(Math.max(width, (LEAST_HEIGHT * width) / height))}px`;
    image.style.aspectRatio = `${width} / ${height}`;
}

// The address is the picture itself: it is on the screen with the next frame.
function showPreview({job, preview, time}) {
    if (!preview) {
        return;
    }
    let image = view.querySelector('img.preview');
    if (!image) {
        image = el('img', {id: 'preview', class: 'preview', alt: t('stage.preview')});
        view.replaceChildren(image);
    }
    image.dataset.time = time;
    image.dataset.job = job.id;
    image.src = `data:${preview.type};base64,${preview.b64_json}`;
    const scale = Math.max(preview.width, preview.height) < 256 ? 8 : 1;  // that of the autoencoder, where no other one is used
    setSize(image, preview.width * scale, preview.height * scale);
}

function showEnd(job) {
    if (job.id !== shown) {
        return;
    }
    setShown(null);
    document.title = t('title');
    const hadFocus = foot.contains(document.activeElement);
    if (job.pictures?.length > 0) {
        results = job.pictures;
        showResult(results[results.length - 1]);
    } else if (results.length > 0) {
        showResult(results[0]);
    } else {
        showEmpty();
    }
    const said = {done: t('stage.done', {n: job.pictures?.length ?? 0}), cancelled: t('stage.cancelled'), gone: t('stage.gone')};
    announce(said[job.state] ?? t('stage.failed', {message: job.error?.message ?? ''}));
    showCurrent();
    if (hadFocus) {
        ($('cancel') ?? $('submit')).focus();  // the button that had it is gone
    }
}

async function showResult(picture) {
    const {settings} = picture;
    const image = el('img', {
        id: 'result', alt: t('stage.result', {prompt: settings.prompt}), 'data-id': picture.id,
    });
    setSize(image, settings.width, settings.height);
    try {
        image.src = await actions.address(picture);
    } catch (error) {
        tellError(error);
        return;
    }
    if (shown !== null && view.querySelector('img.preview')) {
        return;  // the next job is on the stage already
    }
    sessionStorage.setItem(LAST, picture.id);
    view.replaceChildren(el('button', {type: 'button', class: 'open', onclick: () => actions.open(picture)}, image));
    if (shown === null) {
        foot.replaceChildren(...(results.length > 1 ? [strip(picture)] : []),
            el('div', {class: 'actions'}, ...actions.buttons(picture)));
    }
}

function strip(current) {
    const buttons = results.map((picture, i) => {
        const image = el('img', {alt: ''});
        thumbnail(picture.thumbnail).then((url) => {
            image.src = url;
        }, () => {});
        return el('button', {
            type: 'button', 'aria-label': t('stage.show', {n: i + 1}), 'aria-pressed': picture === current,
            onclick: () => showResult(picture),
        }, image);
    });
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(results[i] === current)));
    return el('div', {class: 'strip', role: 'group', 'aria-label': t('stage.several')}, ...buttons);
}
