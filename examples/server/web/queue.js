// The jobs that wait, those of other tabs and clients too, and what went wrong.

import {$, el, iconButton} from './dom.js';
import {jobs} from './jobs.js';
import {tellError} from './messages.js';
import {t} from './texts.js';

const isBad = (job) => (job.state === 'failed' || job.state === 'gone') && !job.dismissed;

function where(job) {
    if (isBad(job)) {
        return t(`queue.${job.state}`);
    }
    if (job.state === 'running') {
        return t('queue.running');
    }
    return job.queue_position > 0 ? t('queue.position', {n: job.queue_position + 1}) : t('queue.next');
}

function row(job) {
    const bad = isBad(job);
    const reason = job.state === 'gone' ? t('stage.gone') : job.error?.message;
    const words = [job.prompt, job.n > 1 ? t('queue.count', {n: job.n}) : '', bad ? reason : ''].filter((part) => part);
    const bar = job.state === 'running' ? el('progress', {max: 1, value: job.progress.share, 'aria-label': t('stage.progress')}) : null;
    const button = bad
        ? iconButton('close', t('queue.dismiss'), () => jobs.dismiss(job.id))
        : iconButton('close', t('queue.cancel', {prompt: job.prompt}), () => jobs.cancel(job.id).catch(tellError));
    const line = el('li', {class: bad ? 'bad' : '', 'data-job': job.id}, el('span', {class: 'where'}, where(job)),
        el('span', {class: 'prompt', title: job.prompt}, words.join(' · ')), bar, button);
    return line;
}

export function startQueue() {
    const list = el('ul');
    $('queue').append(list);
    let before = '';
    const show = () => {
        const current = jobs.current;
        const rows = [...jobs.all.values()].filter((job) => isBad(job) || (jobs.active.includes(job) && job.id !== current?.id));
        rows.sort((a, b) => (a.id < b.id ? -1 : 1));
        // Rows are made again only when something changed, so that the focus stays.
        const now = JSON.stringify(rows.map((job) => [job.id, where(job), job.progress?.share]));
        if (now !== before) {
            before = now;
            const focused = document.activeElement?.closest?.('#queue li')?.dataset.job;
            list.replaceChildren(...rows.map(row));
            list.querySelector(`[data-job="${focused}"] button`)?.focus();
        }
        $('queue').hidden = rows.length === 0;
    };
    jobs.addEventListener('jobs', show);
}
