// What a pen does on the picture. A tool has begin, move and end with points in the picture's pixels, cancel, and while it
// is drawing an outline (points) that is not in the mask yet.
import {draggedFrame, edgesAt} from './frame.js';

const kLeastDistance = 2;

class Brush {
    constructor(editor, erases) {
        this.editor = editor;
        this.erases = erases;
    }

    begin(point) {
        this.editor.mask.begin();
        this.last = point;
        this.move(point);
    }

    move(point) {
        this.editor.mask.stroke(this.last, point, this.editor.settings.brush, this.erases);
        this.last = point;
    }

    end() {
        this.editor.mask.end();
    }
    cancel() {
        this.editor.mask.cancel();
    }
}

// Rectangle and lasso: an area that is filled at the end.
class Area {
    outline = null;

    constructor(editor) {
        this.editor = editor;
    }

    begin(point) {
        this.outline = [point];
        this.first = point;
    }

    end() {
        const points = this.outline;
        this.outline = null;
        if (points.length < 3) {
            return;
        }
        this.editor.mask.begin();
        this.editor.mask.polygon(points, this.editor.settings.subtract);
        this.editor.mask.end();
    }

    cancel() {
        this.outline = null;
    }
}

class Rectangle extends Area {
    move(point) {
        const {first} = this;
        this.outline = [first, {x: point.x, y: first.y}, point, {x: first.x, y: point.y}];
    }
}

class Lasso extends Area {
    move(point) {
        const last = this.outline.at(-1);
        if (Math.hypot(point.x - last.x, point.y - last.y) * this.editor.view.scale >= kLeastDistance) {
            this.outline.push(point);
        }
    }
}

// Drags an edge or a corner of the frame, else what is seen.
class Move {
    constructor(editor) {
        this.editor = editor;
    }

    begin(point) {
        this.edges = edgesAt(this.editor, point);
        this.from = point;
        this.margins = {...this.editor.margins};
    }

    move(point) {
        if (this.edges.length > 0) {
            this.editor.setMargins(
                draggedFrame(this.margins, this.edges, point.x - this.from.x, point.y - this.from.y),
            );
        } else {
            const {scale} = this.editor.view;
            this.editor.view.move((point.x - this.from.x) * scale, (point.y - this.from.y) * scale);
        }
    }

    end() {}
    cancel() {
        this.editor.setMargins(this.margins);
    }
}

export const makeTools = (editor) => ({
    brush: new Brush(editor, false),
    eraser: new Brush(editor, true),
    rectangle: new Rectangle(editor),
    lasso: new Lasso(editor),
    move: new Move(editor),
});
