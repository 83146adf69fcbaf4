// Finished pictures, from new to old: the server's history. Only the cells in view exist, so that thousands of pictures scroll as
// easily as ten; pages are fetched as they are needed.

import {getJson} from './api.js';
import {$, debounced, el} from './dom.js';
import {jobs} from './jobs.js';
import {thumbnail} from './pictures.js';
import {t} from './texts.js';

const PAGE = 30;
const PER_FRAME = 12;  // cells that are made at a time
const LEAST_WIDTH = 10 * parseFloat(getComputedStyle(document.documentElement).fontSize);
const ROWS_AROUND = 2;
const LOOK_MS = 6000;  // for pictures of other clients

class Gallery extends EventTarget {
    items = [];
    #next = null;       // id before which the next page begins; null: all are here
    #search = '';
    #loading = null;
    #version = 0;       // grows with a new search, whose answers make older ones void
    #cells = new Map(); // index -> {element, abort}
    #focused = 0;       // the cell that Tab reaches
    #columns = 1;
    #side = LEAST_WIDTH;
    #drawing = false;
    #open = null;

    start(open) {
        this.#open = open;
        $('search').addEventListener('input', debounced(250, () => this.#setSearch($('search').value.trim())));
        $('grid').addEventListener('keydown', (event) => this.#onKey(event));
        addEventListener('scroll', () => this.#drawSoon(), {passive: true});
        new ResizeObserver(() => this.#measure()).observe($('grid'));
        jobs.addEventListener('ended', () => this.refresh());
        jobs.addEventListener('connection', () => this.refresh());
        document.addEventListener('visibilitychange', () => this.refresh());
        setInterval(() => this.refresh(), LOOK_MS);
        this.#setSearch('');
    }

    // Pictures that are new on the server are put in front, those that left it are taken out.
    async refresh() {
        if (document.hidden || this.#loading || jobs.connection !== 'ready') {
            return;
        }
        const version = this.#version;
        const known = this.items.length === 0 ? PAGE : 20;
        try {
            const {pictures, total} = await this.#fetch({limit: known});
            if (version !== this.#version) {
                return;
            }
            const ids = new Set(this.items.map(({id}) => id));
            const fresh = pictures.filter(({id}) => !ids.has(id));
            if (fresh.length === pictures.length && fresh.length > 0) {
                this.#setSearch(this.#search);  // too many, or the first: from the beginning
            } else if (fresh.length > 0) {
                this.items.unshift(...fresh);
                this.#focused = 0;
                this.#renew(total);
            } else if (pictures.length < Math.min(known, this.items.length)) {
                this.#setSearch(this.#search);
            }
        } catch {
            // The next look tells; jobs.js shows that the server is away.
        }
    }

    // Takes a deleted picture out.
    remove(id) {
        this.items = this.items.filter((item) => item.id !== id);
        this.#renew();
    }

    // Fetches the next page. Resolves when it is there.
    async more() {
        if (this.#loading || this.#next === null) {
            return this.#loading;
        }
        this.#loading = this.#fetchPage();
        await this.#loading;
        this.#loading = null;
        this.#drawSoon();
    }

    get hasMore() {
        return this.#next !== null;
    }

    focus(index = this.#focused) {
        this.#focused = Math.min(index, this.items.length - 1);
        this.#draw();
        this.#cells.get(this.#focused)?.element.firstChild.focus();
    }

    #fetch({limit, before = ''}) {
        const query = new URLSearchParams({limit});
        if (before) {
            query.set('before', before);
        }
        if (this.#search) {
            query.set('search', this.#search);
        }
        return getJson(`api/v1/history?${query}`, {quiet: true});
    }

    async #fetchPage() {
        const version = this.#version;
        this.#say(t('gallery.loading'));
        try {
            const {pictures, next, total} = await this.#fetch({limit: PAGE, before: this.#next});
            if (version === this.#version) {
                const isFirst = this.items.length === 0;
                this.items.push(...pictures);
                this.#next = next;
                if (isFirst) {
                    this.#renew(total);
                } else {
                    this.#show(total);
                }
            }
        } catch (error) {
            if (version === this.#version) {
                this.#say(t('gallery.failed', {message: error.message}));
            }
        }
    }

    async #setSearch(text) {
        ++this.#version;
        this.#search = text;
        this.#next = '';
        this.#loading = null;
        const before = this.items;
        this.items = [];
        await this.more();
        if (this.items !== before) {
            this.#focused = 0;
        }
    }

    #say(text) {
        $('gallery-state').textContent = text;
    }

    // After a change at the beginning of the list: all cells again.
    #renew(total = null) {
        this.#cells.forEach((cell) => this.#drop(cell));
        this.#cells.clear();
        this.#show(total);
    }

    // After pictures were added at the end.
    #show(total) {
        const n = total !== null && this.#search === '' ? total : this.items.length;
        const isMore = total === null || this.#search !== '' ? this.hasMore : false;
        $('gallery-count').textContent = n === 0 ? '' : isMore ? t('gallery.countMore', {n}) : t('gallery.count', {n});
        this.#say(this.items.length > 0 ? '' : this.#search ? t('gallery.nothing', {text: this.#search}) : t('gallery.empty'));
        this.#measure();
        this.dispatchEvent(new Event('change'));
    }

    #measure() {
        const width = $('grid').clientWidth;
        const columns = Math.max(2, Math.floor(width / LEAST_WIDTH));
        const isOther = columns !== this.#columns || width / columns !== this.#side;
        this.#columns = columns;
        this.#side = width / columns;
        $('grid').style.height = `${Math.ceil(this.items.length / this.#columns) * this.#side}px`;
        if (isOther) {
            this.#cells.forEach((cell, index) => this.#place(cell.element, index));
        }
        this.#draw();
    }

    #drawSoon() {
        if (!this.#drawing) {
            this.#drawing = true;
            requestAnimationFrame(() => {
                this.#drawing = false;
                this.#draw();
            });
        }
    }

    #draw() {
        const top = -$('grid').getBoundingClientRect().top;
        const firstRow = Math.floor(top / this.#side) - ROWS_AROUND;
        const lastRow = Math.floor((top + innerHeight) / this.#side) + ROWS_AROUND;
        const first = Math.max(0, firstRow * this.#columns);
        const last = Math.min(this.items.length - 1, (lastRow + 1) * this.#columns - 1);
        for (const [index, cell] of this.#cells) {
            if ((index < first || index > last) && index !== this.#focused) {
                this.#drop(cell);
                this.#cells.delete(index);
            }
        }
        let left = PER_FRAME;
        for (let index = first; index <= last && left > 0; ++index) {
            left -= this.#make(index) ? 1 : 0;
        }
        if (left === 0) {
            this.#drawSoon();
        }
        if (this.items.length > 0) {
            this.#make(this.#focused);
        }
        if (last >= this.items.length - 2 * this.#columns && this.items.length > 0) {
            this.more();
        }
    }

    // Whether there was none.
    #make(index) {
        if (this.#cells.has(index) || index >= this.items.length) {
            return false;
        }
        const item = this.items[index];
        const image = el('img', {alt: '', decoding: 'async', draggable: 'false'});
        const button = el('button', {
            type: 'button', 'aria-label': t('gallery.open', {prompt: item.settings.prompt}), title: item.settings.prompt, 'data-id': item.id,
            tabindex: index === this.#focused ? 0 : -1,
            onclick: () => {
                this.#setFocused(index);
                this.#open(item);
            },
        }, image);
        const cell = {element: el('div', {class: 'cell', role: 'listitem', 'aria-posinset': index + 1, 'aria-setsize': -1}, button), abort: new AbortController()};
        this.#place(cell.element, index);
        this.#cells.set(index, cell);
        $('grid').append(cell.element);
        image.addEventListener('load', () => image.classList.add('loaded'));
        thumbnail(item.thumbnail, cell.abort.signal).then((url) => {
            image.src = url;
        }, () => {});
        return true;
    }

    #place(element, index) {
        const [x, y] = [(index % this.#columns) * this.#side, Math.floor(index / this.#columns) * this.#side];
        element.style.width = element.style.height = `${this.#side}px`;
        element.style.transform = `translate(${x}px, ${y}px)`;
    }

    #drop({element, abort}) {
        abort.abort();
        element.remove();
    }

    #setFocused(index) {
        const before = this.#cells.get(this.#focused)?.element.firstChild;
        this.#focused = index;
        this.#make(index);
        const now = this.#cells.get(index)?.element.firstChild;
        before?.setAttribute('tabindex', '-1');
        now?.setAttribute('tabindex', '0');
        return now;
    }

    #onKey(event) {
        const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.#columns, ArrowDown: this.#columns};
        const last = this.items.length - 1;
        const targets = {Home: 0, End: last};
        const wanted = event.key in steps ? this.#focused + steps[event.key] : targets[event.key];
        if (wanted === undefined || last < 0) {
            return;
        }
        event.preventDefault();
        const button = this.#setFocused(Math.min(last, Math.max(0, wanted)));
        button?.focus({preventScroll: true});
        button?.scrollIntoView({block: 'nearest'});
    }
}

export const gallery = new Gallery();
