// The frame of the new picture: margins around the source by which the canvas grows.

const kStep = 16;
export const kMostMargin = 4096;
// How near to an edge it is caught, in CSS pixels; fingers need more.
const kCatch = 14;

export const kNoMargins = Object.freeze({left: 0, top: 0, right: 0, bottom: 0});

export const frameOf = ({picture, margins}) => ({
    left: -margins.left,
    top: -margins.top,
    width: picture.width + margins.left + margins.right,
    height: picture.height + margins.top + margins.bottom,
});

export const hasMargins = (margins) => Object.values(margins).some((margin) => margin > 0);

// The edges of the frame that a point of the picture is on: none, one, or two at a corner.
export const edgesAt = (editor, point) => {
    const {left, top, width, height} = frameOf(editor);
    const near = (a, b) => Math.abs(a - b) * editor.view.scale <= kCatch;
    const within = (value, from, size) =>
        value > from - kCatch / editor.view.scale && value < from + size + kCatch / editor.view.scale;
    const edges = [];
    if (within(point.y, top, height)) {
        if (near(point.x, left)) {
            edges.push('left');
        } else if (near(point.x, left + width)) {
            edges.push('right');
        }
    }
    if (within(point.x, left, width)) {
        if (near(point.y, top)) {
            edges.push('top');
        } else if (near(point.y, top + height)) {
            edges.push('bottom');
        }
    }
    return edges;
};

export const cleanMargin = (value) => Math.min(kMostMargin, Math.max(0, Math.round(Number(value) || 0)));

// Margins after their edges were dragged, in steps.
export const draggedFrame = (margins, edges, dx, dy) => {
    const outward = {left: -dx, right: dx, top: -dy, bottom: dy};
    const moved = {...margins};
    for (const edge of edges) {
        moved[edge] = cleanMargin(Math.round((margins[edge] + outward[edge]) / kStep) * kStep);
    }
    return moved;
};

export const cursorOf = (edges) => {
    const name = edges.map((edge) => ({left: 'w', right: 'e', top: 'n', bottom: 's'})[edge]);
    return name.length === 0 ? 'grab' : [...name].reverse().join('') + '-resize';
};
