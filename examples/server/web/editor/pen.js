// The pen on the canvas, moved by pointers or by the arrow keys. It works with the editor's current tool.
import {announce} from '../dom.js';
import {texts} from '../texts.js';
import {cursorOf, edgesAt} from './frame.js';

const words = texts.editor;

export class Pen {
    // Where it is, in pixels of the picture; null: not over the canvas.
    at = null;
    isDrawing = false;
    // Whether it drags the line between source and result.
    isSplitting = false;

    constructor(editor, canvas) {
        this.editor = editor;
        this.canvas = canvas;
    }

    get tool() {
        return this.editor.tools[this.editor.settings.tool];
    }

    // The positions of these are CSS pixels of the canvas.

    down(position) {
        this.canvas.focus({preventScroll: true});
        if (!this.editor.isOpen) {
            return;
        }
        if (this.editor.result) {
            this.isSplitting = true;
            this.move(position);
            return;
        }
        this.isDrawing = true;
        this.tool.begin(this.editor.view.toPicture(position));
        this.editor.redraw();
    }

    move(position) {
        const {result} = this.editor;
        if (this.isSplitting && result) {
            const {x} = this.editor.view.toPicture(position);
            this.editor.setSplit((x - result.frame.left) / result.frame.width);
        } else if (this.isDrawing) {
            this.tool.move(this.editor.view.toPicture(position));
            this.editor.redraw();
        }
    }

    up() {
        this.isSplitting = false;
        if (!this.isDrawing) {
            return;
        }
        this.isDrawing = false;
        this.tool.end();
        this.editor.maskChanged();
    }

    // As if it had not been put down.
    cancel() {
        this.isSplitting = false;
        if (this.isDrawing) {
            this.isDrawing = false;
            this.tool.cancel();
            this.editor.redraw();
        }
    }

    hover(position) {
        const {editor} = this;
        if (!editor.isOpen) {
            return;
        }
        if (position || !this.isDrawing) {
            this.at = position && editor.view.toPicture(position);
        }
        if (!this.isDrawing) {
            this.canvas.style.cursor = this.cursor();
        }
        editor.redraw();
    }

    cursor() {
        if (this.editor.result) {
            return 'ew-resize';
        }
        const isMove = this.editor.settings.tool === 'move' && this.at;
        return isMove ? cursorOf(edgesAt(this.editor, this.at)) : 'crosshair';
    }

    // Of the keyboard: by pixels of the picture, from its middle.

    step(dx, dy) {
        const from = this.at ?? this.middle();
        this.at = {x: from.x + dx, y: from.y + dy};
        this.move(this.editor.view.toCanvas(this.at));
        this.editor.redraw();
    }

    toggle() {
        if (this.editor.result) {
            return;
        }
        this.at ??= this.middle();
        const said = this.isDrawing ? words.penUp : words.penDown;
        if (this.isDrawing) {
            this.up();
        } else {
            this.down(this.editor.view.toCanvas(this.at));
        }
        announce(said.replace('{x}', Math.round(this.at.x)).replace('{y}', Math.round(this.at.y)));
    }

    middle() {
        const {width, height} = this.editor.picture;
        return {x: width / 2, y: height / 2};
    }
}
