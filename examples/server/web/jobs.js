// The jobs of the server: submits them, watches the one that runs, and asks for the list now and then, which also tells whether
// the server is there. Events: "jobs" (the list), "progress" {job, preview, time}, "ended" {job}, "connection".

import {ApiError, getJson, post} from './api.js';
import {readEvents} from './events.js';

const SOON_MS = 150;
const BUSY_MS = 1500;
const IDLE_MS = 4000;
const HIDDEN_MS = 15000;
const LOST_MS = 1000;
const OWN = 'flux2-own-jobs';

const isActive = (job) => job.state === 'queued' || job.state === 'running';

class Jobs extends EventTarget {
    all = new Map();    // id -> job, those that the server told last
    connection = 'connecting';  // "ready", "loading", "key" (a valid one is missing), "lost"
    #own = new Set(JSON.parse(sessionStorage.getItem(OWN) ?? '[]'));
    #watched = null;    // {id, abort}
    #timer = 0;
    #telling = false;

    start() {
        document.addEventListener('visibilitychange', () => this.refresh());
        return this.refresh();
    }

    get active() {
        return [...this.all.values()].filter(isActive).sort((a, b) => (a.id < b.id ? -1 : 1));
    }

    // The job that the stage shows: our own that runs, else any that runs, else our first in the queue.
    get current() {
        const jobs = this.active;
        return jobs.find((job) => job.state === 'running' && this.isOwn(job)) ??
            jobs.find((job) => this.isOwn(job)) ?? jobs.find((job) => job.state === 'running') ?? null;
    }

    isOwn(job) {
        return this.#own.has(job.id);
    }

    async submit(fields) {
        const job = await post('api/v1/jobs', fields);
        this.#own.add(job.id);
        this.#saveOwn();
        this.#update(job);
        this.#watch();
        this.#later(BUSY_MS);
        return job;
    }

    async cancel(id) {
        try {
            this.#update(await getJson(`api/v1/jobs/${id}/cancel`, {method: 'POST'}));
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            this.#lose(id);
        }
    }

    // Asks for the list now.
    async refresh() {
        clearTimeout(this.#timer);
        try {
            const {jobs} = await getJson('api/v1/jobs?limit=200', {quiet: true, signal: AbortSignal.timeout(10_000)});
            this.#connect('ready');
            const told = new Set(jobs.map(({id}) => id));
            for (const job of this.active) {
                if (!told.has(job.id)) {
                    this.#lose(job.id);
                }
            }
            jobs.reverse().forEach((job) => this.#update(job));
            this.#loseForgotten(told);
        } catch (error) {
            const isAnswer = error instanceof ApiError && error.status !== 0;
            this.#connect(!isAnswer ? 'lost' : {401: 'key', 503: 'loading'}[error.status] ?? 'ready');
        }
        this.#watch();
        const idle = document.hidden ? HIDDEN_MS : this.active.length > 0 ? BUSY_MS : IDLE_MS;
        this.#later(this.connection === 'lost' || this.connection === 'loading' ? LOST_MS : idle);
    }

    #later(ms) {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.refresh(), ms);
    }

    #connect(state) {
        if (this.connection !== state) {
            const before = this.connection;
            this.connection = state;
            this.dispatchEvent(new CustomEvent('connection', {detail: {before}}));
        }
    }

    // Takes what the server says about a job; tells when it has ended.
    #update(job) {
        const before = this.all.get(job.id);
        const isNews = before ? isActive(before) : isActive(job) || this.isOwn(job);
        if (!isNews) {
            return;  // ended before: an answer that was under way may still call it running
        }
        this.all.set(job.id, job);
        this.#tellJobs();
        if (!isActive(job)) {
            this.#end(job);
        }
    }

    // Once for all changes that come together.
    #tellJobs() {
        if (!this.#telling) {
            this.#telling = true;
            queueMicrotask(() => {
                this.#telling = false;
                this.dispatchEvent(new Event('jobs'));
            });
        }
    }

    #end(job) {
        this.dispatchEvent(new CustomEvent('ended', {detail: {job}}));
        this.#own.delete(job.id);
        this.#saveOwn();
    }

    // The server does not know it any more.
    #lose(id) {
        const job = {...(this.all.get(id) ?? {id, prompt: '', n: 1, pictures: []}), state: 'gone'};
        this.all.set(id, job);
        this.#tellJobs();
        this.#end(job);
    }

    // Our jobs of before a reload that are not in the list.
    #loseForgotten(told) {
        for (const id of [...this.#own]) {
            if (!told.has(id) && !this.all.has(id)) {
                this.#lose(id);
            }
        }
    }

    #saveOwn() {
        sessionStorage.setItem(OWN, JSON.stringify([...this.#own]));
    }

    // Follows the events of the current job. A hidden tab does not: a browser has six connections for all tabs.
    #watch() {
        const id = document.hidden || this.connection === 'lost' ? null : this.current?.id ?? null;
        if (id === (this.#watched?.id ?? null)) {
            return;
        }
        this.#watched?.abort.abort();
        if (id === null) {
            this.#watched = null;
            return;
        }
        const abort = new AbortController();
        this.#watched = {id, abort};
        readEvents(`api/v1/jobs/${id}/events`, (name, data) => this.#take(id, name, data), abort.signal)
            .catch(() => {})
            .finally(() => {
                if (this.#watched?.abort === abort) {
                    this.#watched = null;
                    this.#later(SOON_MS);
                }
            });
    }

    #take(id, name, data) {
        if (name === 'job') {
            this.#update(data);
            return;
        }
        const job = this.all.get(id);
        if (job) {
            job.progress = data;
            this.dispatchEvent(new CustomEvent('progress', {detail: {job, preview: data.preview, time: data.time}}));
        }
    }

    // A failed job that the user has read about.
    dismiss(id) {
        this.all.get(id).dismissed = true;
        this.#tellJobs();
    }
}

export const jobs = new Jobs();
