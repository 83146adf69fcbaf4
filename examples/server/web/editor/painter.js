// Draws the editor's state on its canvas: source, result beside it, mask, frame, and where the pen is.
import {frameOf, hasMargins} from './frame.js';

const kMaskOpacity = 0.55;
const kGrip = 5;

const drawNewArea = (context, frame, colours) => {
    context.fillStyle = colours.newArea;
    context.fillRect(frame.left, frame.top, frame.width, frame.height);
};

// The result right of the split, which is a share of the frame's width.
const drawResult = (context, editor, frame) => {
    const {result, split} = editor;
    const from = frame.left + frame.width * split;
    context.save();
    context.beginPath();
    context.rect(from, frame.top, frame.left + frame.width - from, frame.height);
    context.clip();
    context.drawImage(result.bitmap, frame.left, frame.top, frame.width, frame.height);
    context.restore();
};

const drawMask = (context, {mask, picture}) => {
    context.globalAlpha = kMaskOpacity;
    context.drawImage(mask.canvas, 0, 0, picture.width, picture.height);
    context.globalAlpha = 1;
};

// Two lines, dark and bright, so that one of them is seen on any picture.
const strokeTwice = (context, scale, draw, dash = []) => {
    for (const [colour, width] of [
        ['#000a', 3],
        ['#fff', 1.25],
    ]) {
        context.setLineDash(dash.map((length) => length / scale));
        context.strokeStyle = colour;
        context.lineWidth = width / scale;
        context.beginPath();
        draw();
        context.stroke();
    }
    context.setLineDash([]);
};

const drawFrame = (context, editor, frame) => {
    const {scale} = editor.view;
    strokeTwice(context, scale, () => context.rect(frame.left, frame.top, frame.width, frame.height), [6, 4]);
    if (editor.settings.tool !== 'move') {
        return;
    }
    const grip = kGrip / scale;
    for (const x of [0, 0.5, 1]) {
        for (const y of [0, 0.5, 1]) {
            if (x === 0.5 && y === 0.5) {
                continue;
            }
            const at = {x: frame.left + frame.width * x, y: frame.top + frame.height * y};
            context.fillStyle = '#fff';
            context.fillRect(at.x - grip, at.y - grip, 2 * grip, 2 * grip);
            strokeTwice(context, scale, () => context.rect(at.x - grip, at.y - grip, 2 * grip, 2 * grip));
        }
    }
};

const drawSplit = (context, {split, view}, frame) => {
    const x = frame.left + frame.width * split;
    strokeTwice(context, view.scale, () => {
        context.moveTo(x, frame.top);
        context.lineTo(x, frame.top + frame.height);
    });
};

const drawPen = (context, {pen: {at}, settings, view}) => {
    const isBrush = settings.tool === 'brush' || settings.tool === 'eraser';
    const radius = isBrush ? settings.brush / 2 : 7 / view.scale;
    strokeTwice(context, view.scale, () => {
        if (isBrush) {
            context.arc(at.x, at.y, radius, 0, 2 * Math.PI);
            return;
        }
        context.moveTo(at.x - radius, at.y);
        context.lineTo(at.x + radius, at.y);
        context.moveTo(at.x, at.y - radius);
        context.lineTo(at.x, at.y + radius);
    });
};

const drawOutline = (context, {view}, outline) => {
    strokeTwice(
        context,
        view.scale,
        () => {
            outline.forEach((point) => context.lineTo(point.x, point.y));
            context.closePath();
        },
        [5, 4],
    );
};

export const paint = (canvas, editor, colours) => {
    const context = canvas.getContext('2d');
    const ratio = canvas.width / editor.view.width;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!editor.picture) {
        return;
    }
    const {scale, x, y} = editor.view;
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    // Enlarged pixels are shown as such.
    context.imageSmoothingEnabled = scale < 3;
    const frame = editor.result?.frame ?? frameOf(editor);
    if (hasMargins(editor.margins) || editor.result) {
        drawNewArea(context, frame, colours);
    }
    context.drawImage(editor.picture.bitmap, 0, 0, editor.picture.width, editor.picture.height);
    if (editor.result) {
        drawResult(context, editor, frame);
        drawSplit(context, editor, frame);
        return;
    }
    drawMask(context, editor);
    if (hasMargins(editor.margins) || editor.settings.tool === 'move') {
        drawFrame(context, editor, frame);
    }
    const {outline} = editor.tools[editor.settings.tool];
    if (outline) {
        drawOutline(context, editor, outline);
    }
    if (editor.pen.at && editor.settings.tool !== 'move') {
        drawPen(context, editor);
    }
};
