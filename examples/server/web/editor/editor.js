// The canvas for editing: a source, a mask painted over it, a frame that may be larger than it, and the result beside it.
// Events: 'open' and 'clear' of a source, 'change' of what values() returns.
import {announce} from '../dom.js';
import {texts} from '../texts.js';
import {boundedBitmap} from './bitmap.js';
import {Controls} from './controls.js';
import {frameOf, hasMargins, kNoMargins} from './frame.js';
import {Gestures} from './gestures.js';
import {listenToKeys} from './keys.js';
import {Mask} from './mask.js';
import {paint} from './painter.js';
import {buildPanel, kSides} from './panel.js';
import {Pen} from './pen.js';
import {makeTools} from './tools.js';
import {View} from './view.js';

const words = texts.editor;

export class Editor extends EventTarget {
    picture = null;
    mask = null;
    margins = kNoMargins;
    result = null;
    split = 0.5;
    sentFrame = null;
    mostBrush = 400;
    settings = {tool: 'brush', brush: 40, subtract: false, feather: 0, grow: 0};
    view = new View();
    tools = makeTools(this);

    constructor(container) {
        super();
        this.panel = buildPanel();
        container.append(this.panel.root);
        this.pen = new Pen(this, this.panel.canvas);
        this.gestures = new Gestures(this.panel.canvas, this.pen, this);
        listenToKeys(this, this.panel.root, this.panel.canvas);
        this.controls = new Controls(this, this.panel);
        new ResizeObserver(() => this.resize()).observe(this.panel.stage);
        matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
    }

    // Shows a picture to change. Throws a sentence when the browser cannot read it.
    async open(blob, {name = ''} = {}) {
        let picture;
        try {
            picture = await boundedBitmap(blob);
        } catch {
            throw new Error(words.unreadable.replace('{name}', name || words.picture));
        }
        this.release();
        this.picture = {...picture, blob, name};
        this.mask = new Mask(picture.width, picture.height);
        this.margins = kNoMargins;
        const side = Math.min(picture.width, picture.height);
        this.mostBrush = Math.max(64, Math.round(side / 3));
        this.settings.brush = Math.max(8, Math.round(side / 12));
        this.panel.root.hidden = false;
        this.resize();
        this.fit();
        this.showSettings();
        announce(words.opened.replace('{width}', picture.width).replace('{height}', picture.height));
        this.dispatchEvent(new Event('open'));
        this.changed();
    }

    // Whether a source is open. Without edits it is a picture to change as a whole.
    get isOpen() {
        return this.picture !== null;
    }

    hasEdits() {
        return this.isOpen && (!this.mask.isEmpty || hasMargins(this.margins));
    }

    // Fields of POST /api/v1/jobs: the files image and mask, and others that are not the default. Null without a source.
    async values() {
        if (!this.isOpen) {
            return null;
        }
        const {settings, margins} = this;
        const mask = this.mask.isEmpty ? null : await this.mask.toPng();
        const fields = {};
        if (mask && settings.feather !== 0) {
            fields.mask_blur = settings.feather;
        }
        if (mask && settings.grow !== 0) {
            fields.mask_grow = settings.grow;
        }
        for (const side of kSides) {
            if (margins[side] > 0) {
                fields[`outpaint_${side}`] = margins[side];
            }
        }
        this.sentFrame = frameOf(this);
        return {image: this.picture.blob, mask, fields};
    }

    // The size that the result will have.
    get outputSize() {
        const {width, height} = frameOf(this);
        return {width, height};
    }

    // The result of what values() returned last, beside the source.
    async showResult(blob) {
        if (!this.isOpen) {
            return;
        }
        const source = this.picture;
        const {bitmap} = await boundedBitmap(blob);
        if (this.picture !== source) {
            bitmap.close();
            return;
        }
        this.pen.up();
        this.result?.bitmap.close();
        this.result = {bitmap, blob, frame: this.sentFrame ?? frameOf(this)};
        this.showSettings();
        announce(words.resultShown);
        if (this.view.isFitted) {
            this.fit();
        }
        this.redraw();
    }

    clear() {
        this.release();
        this.panel.root.hidden = true;
        this.dispatchEvent(new Event('clear'));
        this.changed();
    }

    setTool(tool) {
        this.pen.cancel();
        this.settings.tool = tool;
        this.showSettings();
    }

    set(name, value) {
        this.settings[name] = value;
        this.showSettings();
        this.changed();
    }

    setSplit(share) {
        this.split = Math.min(1, Math.max(0, share));
        this.showSettings();
    }

    scaleBrush(factor) {
        const size = factor > 1 ? Math.ceil(this.settings.brush * factor) : Math.floor(this.settings.brush * factor);
        this.settings.brush = Math.min(this.mostBrush, Math.max(1, size));
        this.showSettings();
    }

    setSubtract(on) {
        this.settings.subtract = on;
        this.showSettings();
    }

    setMargins(margins) {
        this.margins = margins;
        this.controls.showMargins();
        if (this.view.isFitted && !this.pen.isDrawing) {
            this.fit();
        }
        this.changed();
    }

    invertMask() {
        this.changeMask(() => this.mask.invert(), words.inverted);
    }

    clearMask() {
        this.changeMask(() => this.mask.clear(), words.cleared);
    }

    undo() {
        this.mask.undo();
        this.maskChanged();
    }

    redo() {
        this.mask.redo();
        this.maskChanged();
    }

    zoom(factor, at) {
        this.view.zoom(factor, at);
        this.controls.showZoom();
        this.redraw();
    }

    pan(dx, dy) {
        this.view.move(dx, dy);
        this.redraw();
    }

    fit() {
        if (!this.isOpen) {
            return;
        }
        this.view.fit(this.result?.frame ?? frameOf(this));
        this.controls.showZoom();
        this.redraw();
    }

    async keepResult() {
        const {blob} = this.result;
        await this.open(blob, {name: this.picture.name});
        this.panel.canvas.focus();
    }

    dropResult() {
        this.result?.bitmap.close();
        this.result = null;
        this.showSettings();
        this.panel.canvas.focus();
    }

    // The rest is for the functions above.

    changeMask(change, said) {
        if (this.result) {
            return;
        }
        this.mask.begin();
        change();
        this.mask.end();
        announce(said);
        this.maskChanged();
    }

    maskChanged() {
        this.showSettings();
        this.changed();
    }

    changed() {
        this.redraw();
        this.dispatchEvent(new Event('change'));
    }

    release() {
        this.picture?.bitmap.close();
        this.result?.bitmap.close();
        this.picture = this.mask = this.result = this.sentFrame = null;
        this.pen.isDrawing = false;
        this.pen.at = null;
    }

    showSettings() {
        this.controls.show();
        this.redraw();
    }

    resize() {
        const {canvas, stage} = this.panel;
        const {clientWidth: width, clientHeight: height} = stage;
        if (width === 0 || height === 0) {
            return;
        }
        this.view.resize(width, height);
        canvas.width = Math.round(width * devicePixelRatio);
        canvas.height = Math.round(height * devicePixelRatio);
        if (this.view.isFitted) {
            this.fit();
        }
        this.redraw();
    }

    redraw() {
        if (this.isDue) {
            return;
        }
        this.isDue = true;
        requestAnimationFrame(() => {
            this.isDue = false;
            const newArea = getComputedStyle(this.panel.stage).getPropertyValue('--new-area');
            paint(this.panel.canvas, this, {newArea});
        });
    }
}
