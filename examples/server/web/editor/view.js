// Which part of the picture is seen: its place and scale on the canvas. Positions on the canvas are CSS pixels.

const kLeastScale = 0.01;
const kMostScale = 32;
const kMargin = 24;

export class View {
    scale = 1;
    x = 0;
    y = 0;
    width = 1;
    height = 1;
    // Whether the picture is kept in the middle, as large as it fits, until the user zooms or moves it.
    isFitted = true;

    resize(width, height) {
        this.width = width;
        this.height = height;
    }

    // Shows a region of the picture, in the picture's pixels, as large as it fits.
    fit({left, top, width, height}) {
        const room = (side) => Math.max(16, side - 2 * kMargin);
        this.scale = Math.min(room(this.width) / width, room(this.height) / height, 8);
        this.x = (this.width - width * this.scale) / 2 - left * this.scale;
        this.y = (this.height - height * this.scale) / 2 - top * this.scale;
        this.isFitted = true;
    }

    // What is under the point stays there.
    zoom(factor, at = {x: this.width / 2, y: this.height / 2}) {
        const scale = Math.min(kMostScale, Math.max(kLeastScale, this.scale * factor));
        this.x = at.x - (at.x - this.x) * (scale / this.scale);
        this.y = at.y - (at.y - this.y) * (scale / this.scale);
        this.scale = scale;
        this.isFitted = false;
    }

    move(dx, dy) {
        this.x += dx;
        this.y += dy;
        this.isFitted = false;
    }

    toPicture(point) {
        return {x: (point.x - this.x) / this.scale, y: (point.y - this.y) / this.scale};
    }

    toCanvas(point) {
        return {x: point.x * this.scale + this.x, y: point.y * this.scale + this.y};
    }
}
