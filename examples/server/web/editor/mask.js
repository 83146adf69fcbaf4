// What is to be repainted, as the opacity of a canvas. It has at most kMostPixels, whatever the size of the picture;
// all coordinates are pixels of the picture. Each change can be undone: the tiles that it touches are kept before it.
import {greyPng} from './grey_png.js';

const kMostPixels = 4e6;
const kTile = 256;
// Bytes of tiles that are kept for undoing; the oldest changes leave.
const kMostKept = 64e6;
export const kMaskColour = '#ff2d78';

export class Mask {
    constructor(width, height) {
        this.width = width;
        this.height = height;
        this.scale = Math.min(1, Math.sqrt(kMostPixels / (width * height)));
        this.canvas = document.createElement('canvas');
        this.canvas.width = Math.max(1, Math.round(width * this.scale));
        this.canvas.height = Math.max(1, Math.round(height * this.scale));
        this.context = this.canvas.getContext('2d', {willReadFrequently: true});
        this.done = [];
        this.undone = [];
        this.change = null;
        this.known = {empty: true};
    }

    // Everything until end() is one change.
    begin() {
        this.change = new Map();
        this.undone = [];
    }

    end() {
        if (this.change?.size > 0) {
            this.done.push(this.change);
        }
        this.change = null;
        this.forgetOldest();
    }

    // Ends the change that was begun as if it had not been.
    cancel() {
        if (this.change) {
            this.exchange(this.change);
        }
        this.change = null;
    }

    stroke(from, to, size, erase) {
        const radius = size / 2 + 1;
        this.keep(
            Math.min(from.x, to.x) - radius,
            Math.min(from.y, to.y) - radius,
            Math.max(from.x, to.x) + radius,
            Math.max(from.y, to.y) + radius,
        );
        this.draw(erase, (context) => {
            context.lineWidth = size;
            context.lineCap = 'round';
            context.beginPath();
            context.moveTo(from.x, from.y);
            context.lineTo(to.x, to.y);
            context.stroke();
        });
    }

    polygon(points, erase) {
        const xs = points.map((point) => point.x);
        const ys = points.map((point) => point.y);
        this.keep(Math.min(...xs) - 1, Math.min(...ys) - 1, Math.max(...xs) + 1, Math.max(...ys) + 1);
        this.draw(erase, (context) => {
            context.beginPath();
            points.forEach((point) => context.lineTo(point.x, point.y));
            context.closePath();
            context.fill();
        });
    }

    invert() {
        this.keep(0, 0, this.width, this.height);
        this.context.save();
        this.context.globalCompositeOperation = 'source-out';
        this.context.fillStyle = kMaskColour;
        this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
        this.context.restore();
    }

    clear() {
        this.keep(0, 0, this.width, this.height);
        this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    }

    get canUndo() {
        return this.done.length > 0;
    }
    get canRedo() {
        return this.undone.length > 0;
    }

    undo() {
        this.step(this.done, this.undone);
    }
    redo() {
        this.step(this.undone, this.done);
    }

    get isEmpty() {
        if (this.known === null) {
            const pixels = new Uint32Array(
                this.context.getImageData(0, 0, this.canvas.width, this.canvas.height).data.buffer,
            );
            this.known = {empty: pixels.every((pixel) => pixel === 0)};
        }
        return this.known.empty;
    }

    // A PNG of the picture's size: white is repainted.
    toPng() {
        return greyPng(this.width, this.height, this.canvas);
    }

    // The rest is for the functions above.

    draw(erase, path) {
        const context = this.context;
        context.save();
        context.scale(this.canvas.width / this.width, this.canvas.height / this.height);
        context.globalCompositeOperation = erase ? 'destination-out' : 'source-over';
        context.strokeStyle = context.fillStyle = kMaskColour;
        path(context);
        context.restore();
    }

    // Keeps the tiles of a region as they are now, unless this change has them already.
    keep(left, top, right, bottom) {
        this.known = null;
        const across = Math.ceil(this.canvas.width / kTile);
        const down = Math.ceil(this.canvas.height / kTile);
        const tile = (value, scale, most) => Math.min(most - 1, Math.max(0, Math.floor((value * scale) / kTile)));
        const scaleX = this.canvas.width / this.width;
        const scaleY = this.canvas.height / this.height;
        for (let y = tile(top, scaleY, down); y <= tile(bottom, scaleY, down); ++y) {
            for (let x = tile(left, scaleX, across); x <= tile(right, scaleX, across); ++x) {
                const key = y * across + x;
                if (!this.change.has(key)) {
                    this.change.set(key, this.tileAt(x * kTile, y * kTile));
                }
            }
        }
    }

    tileAt(x, y) {
        const width = Math.min(kTile, this.canvas.width - x);
        const height = Math.min(kTile, this.canvas.height - y);
        return {x, y, pixels: this.context.getImageData(x, y, width, height)};
    }

    // Puts the tiles of a change back and keeps in it what was there.
    exchange(change) {
        this.known = null;
        for (const [key, {x, y, pixels}] of change) {
            change.set(key, this.tileAt(x, y));
            this.context.putImageData(pixels, x, y);
        }
    }

    step(from, to) {
        const change = from.pop();
        if (!change) {
            return;
        }
        this.exchange(change);
        to.push(change);
    }

    forgetOldest() {
        const bytes = (change) => change.size * kTile * kTile * 4;
        let kept = this.done.reduce((sum, change) => sum + bytes(change), 0);
        while (kept > kMostKept && this.done.length > 1) {
            kept -= bytes(this.done.shift());
        }
    }
}
