// The editor on the page: a picture is opened in it, its fields become part of the job, and the job's result comes back to it.

import {$, announce} from './dom.js';
import {Editor} from './editor/editor.js';
import {jobs} from './jobs.js';
import {showCanvas} from './make.js';
import {tellError} from './messages.js';
import {pictureFile} from './pictures.js';
import {settings} from './settings.js';
import {t} from './texts.js';

class Canvas {
    #editor = null;
    #job = '';  // whose result the editor waits for

    start() {
        this.#editor = new Editor($('editor'));
        this.#editor.addEventListener('change', () => this.#showFields());
        // A result belongs to the source that it was made of.
        this.#editor.addEventListener('open', () => {
            this.#job = '';
        });
        this.#editor.addEventListener('clear', () => {
            this.#show(false);
            $('prompt').focus();
        });
        jobs.addEventListener('ended', ({detail}) => this.#take(detail.job));
    }

    isOpen() {
        return this.#editor?.isOpen ?? false;
    }

    async open(file) {
        await this.#editor.open(file, {name: file.name ?? ''});
        this.#show(this.isOpen());
        if (this.isOpen()) {
            $('editor-section').scrollIntoView({block: 'start'});
            announce(t('edit.opened'));
        }
    }

    close() {
        if (this.isOpen()) {
            this.#editor.clear();
        }
    }

    // What the API takes besides the fields of the form. The change is for pictures without a painted area or larger canvas.
    async fields() {
        const {image, mask, fields} = await this.#editor.values();
        const {strength, area, keepColours} = settings.values;
        return {
            image,
            mask,
            ...fields,
            strength: this.#editor.hasEdits() ? null : strength,
            inpaint_area: mask ? area : null,
            keep_colours: keepColours || null,
        };
    }

    // What a forecast depends on.
    choice() {
        const {width, height} = this.#editor.outputSize;
        return [width, height, this.#editor.hasEdits(), settings.values.area, settings.values.strength];
    }

    submitted(job) {
        this.#job = this.isOpen() ? job.id : '';
    }

    async #take(job) {
        if (job.id !== this.#job) {
            return;
        }
        this.#job = '';
        if (!this.isOpen() || job.state !== 'done') {
            return;
        }
        try {
            await this.#editor.showResult(await pictureFile(job.pictures.at(-1)));
            announce(t('edit.done'));
        } catch (error) {
            tellError(error);
        }
    }

    #show(isOpen) {
        $('editor-section').hidden = !isOpen;
        document.querySelector('.work').classList.toggle('editing', isOpen);
        showCanvas();
        this.#showFields();
    }

    #showFields() {
        const hasEdits = this.isOpen() && this.#editor.hasEdits();
        $('strength-field').hidden = hasEdits;
        $('area-field').hidden = !hasEdits;
        settings.tell(null);
    }
}

export const canvas = new Canvas();
