// Mouse, pen and fingers on a canvas, all positions in its CSS pixels. One pointer moves the pen: down, move, up, cancel,
// and hover with the position or null. The middle button, the space key, two fingers and the wheel move the view.

const kWheelStep = 0.0015;

export class Gestures {
    constructor(canvas, pen, view) {
        this.canvas = canvas;
        this.pen = pen;
        this.view = view;
        this.pointers = new Map();
        this.mode = null;
        this.spaceHeld = false;
        const on = (name, handle, options) => canvas.addEventListener(name, handle.bind(this), options);
        on('pointerdown', this.down);
        on('pointermove', this.move);
        on('pointerup', this.up);
        on('pointercancel', this.cancel);
        on('pointerleave', () => this.pen.hover(null));
        on('wheel', this.wheel, {passive: false});
        // The middle button would start the browser's own scrolling.
        on('mousedown', (event) => event.button === 1 && event.preventDefault());
    }

    position(event) {
        const box = this.canvas.getBoundingClientRect();
        return {x: event.clientX - box.left, y: event.clientY - box.top};
    }

    down(event) {
        if (event.button > 1) {
            return;
        }
        this.canvas.setPointerCapture(event.pointerId);
        this.pointers.set(event.pointerId, this.position(event));
        if (this.pointers.size === 2) {
            if (this.mode === 'pen') {
                this.pen.cancel();
            }
            this.mode = 'pinch';
        } else if (this.pointers.size === 1) {
            this.mode = event.button === 1 || this.spaceHeld ? 'pan' : 'pen';
            if (this.mode === 'pen') {
                this.pen.down(this.position(event));
            }
        }
    }

    move(event) {
        const at = this.position(event);
        const last = this.pointers.get(event.pointerId);
        this.pen.hover(at);
        if (!last) {
            return;
        }
        if (this.mode === 'pen') {
            const events = event.getCoalescedEvents?.() ?? [];
            for (const each of events.length > 0 ? events : [event]) {
                this.pen.move(this.position(each));
            }
        } else if (this.mode === 'pan') {
            this.view.pan(at.x - last.x, at.y - last.y);
        } else if (this.mode === 'pinch') {
            this.pinch(event.pointerId, last, at);
        }
        this.pointers.set(event.pointerId, at);
    }

    pinch(id, last, at) {
        const other = [...this.pointers].find(([key]) => key !== id)?.[1];
        if (!other) {
            return;
        }
        const distance = (a, b) => Math.max(1, Math.hypot(a.x - b.x, a.y - b.y));
        const middle = (a, b) => ({x: (a.x + b.x) / 2, y: (a.y + b.y) / 2});
        const from = middle(last, other);
        const to = middle(at, other);
        this.view.pan(to.x - from.x, to.y - from.y);
        this.view.zoom(distance(at, other) / distance(last, other), to);
    }

    up(event) {
        if (!this.pointers.delete(event.pointerId)) {
            return;
        }
        if (this.mode === 'pen') {
            this.pen.up();
        }
        // One of two fingers is left: it paints only after it was lifted too.
        this.mode = this.pointers.size > 0 ? 'rest' : null;
    }

    cancel(event) {
        if (!this.pointers.delete(event.pointerId)) {
            return;
        }
        if (this.mode === 'pen') {
            this.pen.cancel();
        }
        this.mode = this.pointers.size > 0 ? 'rest' : null;
    }

    wheel(event) {
        event.preventDefault();
        const pixels = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
        // Pinching on a trackpad arrives as a wheel with the control key and small steps.
        this.view.zoom(Math.exp(-pixels * kWheelStep * (event.ctrlKey ? 6 : 1)), this.position(event));
    }
}
