// Binds the editor to its panel: buttons and fields act on it, and show its state.
import {cleanMargin} from './frame.js';
import {kSides} from './panel.js';
import {texts} from '../texts.js';

const words = texts.editor;

const kActions = {
    undo: (editor) => editor.undo(),
    redo: (editor) => editor.redo(),
    invert: (editor) => editor.invertMask(),
    clear: (editor) => editor.clearMask(),
    zoomIn: (editor) => editor.zoom(1.25),
    zoomOut: (editor) => editor.zoom(0.8),
    fit: (editor) => editor.fit(),
    close: (editor) => editor.clear(),
    keepResult: (editor) => editor.keepResult(),
    dropResult: (editor) => editor.dropResult(),
};

export class Controls {
    constructor(editor, {root, compare}) {
        this.editor = editor;
        this.root = root;
        this.compare = compare;
        root.addEventListener('click', (event) => this.act(event.target.closest('[data-do]')?.dataset.do));
        root.addEventListener('input', (event) => this.input(event.target));
    }

    act(name) {
        if (name in this.editor.tools) {
            this.editor.setTool(name);
        } else {
            kActions[name]?.(this.editor);
        }
    }

    input(field) {
        const {editor} = this;
        if (field.name === 'split') {
            editor.setSplit(field.value / 100);
        } else if (field.name === 'subtract') {
            editor.setSubtract(field.checked);
        } else if (field.name.startsWith('outpaint-')) {
            const side = field.name.slice('outpaint-'.length);
            editor.setMargins({...editor.margins, [side]: cleanMargin(field.value)});
        } else {
            editor.set(field.name, Number(field.value));
        }
    }

    field(name) {
        return this.root.querySelector(`[name="${name}"]`);
    }

    show() {
        const {settings, mask, result, split} = this.editor;
        this.field('brush').max = this.editor.mostBrush;
        for (const name of ['brush', 'feather', 'grow']) {
            this.field(name).value = settings[name];
            this.field(`${name}-value`).textContent = words.pixels.replace('{n}', settings[name]);
        }
        this.field('subtract').checked = settings.subtract;
        const tool = result ? 'compare' : settings.tool;
        const usedBy = {
            brush: ['brush', 'eraser'],
            subtract: ['rectangle', 'lasso'],
            move: ['move'],
            compare: ['compare'],
        };
        for (const [name, tools] of Object.entries(usedBy)) {
            this.root.querySelector(`[data-for=${name}]`).classList.toggle('unused', !tools.includes(tool));
        }
        for (const button of this.root.querySelectorAll('[data-tool]')) {
            button.setAttribute('aria-pressed', String(button.dataset.tool === settings.tool));
        }
        // Nothing is painted while the result is compared.
        const isUnusable = {undo: !mask?.canUndo, redo: !mask?.canRedo};
        for (const button of this.root.querySelectorAll('.paints [data-do]')) {
            button.disabled = result !== null || isUnusable[button.dataset.do] === true;
        }
        this.compare.hidden = !result;
        this.field('split').value = Math.round(split * 100);
        this.showMargins();
    }

    showMargins() {
        for (const side of kSides) {
            const field = this.field(`outpaint-${side}`);
            // What is being typed stays as it is typed.
            if (field !== document.activeElement) {
                field.value = this.editor.margins[side];
            }
        }
        if (!this.editor.isOpen) {
            return;
        }
        const {width, height} = this.editor.outputSize;
        this.field('frame-size').textContent = words.frameSize.replace('{width}', width).replace('{height}', height);
    }

    showZoom() {
        this.root.querySelector('.zoom').textContent = `${Math.round(this.editor.view.scale * 100)} %`;
    }
}
